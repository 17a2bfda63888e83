"""One call at a time.

Source: the switch of inspect_agents that turns parallel tools off.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from refold.reducers.guards.common import Config, known, open_calls
from refold.reducers.guards.handoff import Handoff
from refold.reducers.guards.protocol import Judgement, Place, Refuse
from refold.reducers.state import RunState


class OneCall(Config, frozen=True, kw_only=True, tag="one_call"):
    """Of more than one call only the first goes on. A batch with a handoff is left to the guard `handoff`."""

    kind: ClassVar[str] = "one_call"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_BATCH})
    texts: ClassVar[Mapping[str, str]] = {
        "refused:one_call": "skipped: one call at a time; only the first of this answer was run."
    }

    def judge(self, own: None, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Refuse all but the first. The keys of `metadata` are promised: others may be added, none renamed."""
        first, *rest = open_calls(state) or (None,)
        if first is None or any(call.name.startswith(_prefixes(state)) for call in (first, *rest)):
            return
        for call in rest:
            yield Refuse(
                code="skipped",
                call=call.id,
                text="refused:one_call",
                metadata={
                    "selected_call_id": first.id,
                    "skipped_function": known(call.name, state),
                    "source": "policy/one_call",
                    "pending": False,
                },
            )


def _prefixes(state: RunState) -> tuple[str, ...]:
    handoffs = [watch.guard for watch in state.guards if isinstance(watch.guard, Handoff)]
    return tuple(prefix for guard in handoffs or [Handoff()] for prefix in guard.prefixes)
