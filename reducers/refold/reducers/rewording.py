"""Messages that are shown in the harness's own words, and what another policy's words would make of them.

A message that was cut short, a digest and a summary are rendered from the policy's texts each time they are shown; the
digest of a view has the key of such a text, and not its words. So where a fork or an amendment brings other words, the model
is shown what no digest covers: it is refused when it is made, and where a log has it all the same, nobody can judge it.
"""

from collections.abc import Iterator

from refold.reducers.policy import Policy, text_of
from refold.reducers.state import RunState
from refold.reducers.window import MessageRef, refs

_SUMMARY = "summary"


def reworded(state: RunState, policy: Policy | None) -> dict[int, tuple[str, ...]]:
    """The messages that would be shown in other words under this policy, by number: with the keys of those texts."""
    if policy is None:
        return {}
    old, found = state.policy, dict[int, tuple[str, ...]]()
    for ref in _to_be_shown(state):
        # A key that the new policy lacks keeps the words that it had.
        others = {
            key for key in set(_keys(ref)) if policy.texts.get(key, text_of(old, key)) != text_of(old, key)
        }
        if others:
            found[ref.number] = tuple(sorted(others))
    return found


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
