"""Messages that are shown in the harness's own words, and what another policy's words would make of them.

A message that was cut short, a digest and a summary are rendered from the policy's texts each time they are shown; the
digest of a view has the key of such a text, and not its words. So where a fork or an amendment brings other words, the model
is shown what no digest covers: it is refused when it is made, and where a log has it all the same, nobody can judge it.
"""

from collections.abc import Iterator

from refold.reducers.meanings.common import worded
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.texts import TEXTS
from refold.reducers.window import MessageRef, refs

_SUMMARY = "summary"


def reworded(state: RunState, policy: Policy | None) -> dict[int, tuple[str, ...]]:
    """The messages that would be shown in other words under this policy, by number: with the keys of those texts."""
    if policy is None:
        return {}
    before, after = state.policy, worded(policy, state.policy)
    found = dict[int, tuple[str, ...]]()
    for ref in _to_be_shown(state):
        others = {key for key in _keys(ref) if _words(before, key) != _words(after, key)}
        if others:
            found[ref.number] = tuple(sorted(others))
    return found


def _words(policy: Policy, key: str) -> str | None:
    # As `text_of`, but for a key that only a forged log can name.
    return policy.texts.get(key) or TEXTS.get(key)


def _to_be_shown(state: RunState) -> Iterator[MessageRef]:
    yield from refs(state.window)
    for call in state.batch.calls if state.batch else ():
        if call.result is not None:
            yield call.result


def _keys(ref: MessageRef) -> Iterator[str]:
    if ref.shown is not None and any(cut.marker for cut in ref.shown.cuts):
        yield ref.shown.text
    if ref.sources or ref.cause == _SUMMARY:
        yield ref.cause
    for source in ref.sources:
        yield from _keys(source)
