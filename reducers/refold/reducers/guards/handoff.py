"""A handoff goes alone.

Source: the exclusive handoff of inspect_agents; here a guard ahead of every approval, which approves nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from refold.reducers.guards.common import Config, known, open_calls
from refold.reducers.guards.protocol import Judgement, Place, Refuse
from refold.reducers.state import RunState


class Handoff(Config, frozen=True, kw_only=True, tag="handoff"):
    """If a call's name begins with one of `prefixes`, only the first such call of the answer goes on."""

    prefixes: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)] = (
        "transfer_to_",
    )

    kind: ClassVar[str] = "handoff"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_BATCH})
    texts: ClassVar[Mapping[str, str]] = {
        "refused:handoff": (
            "skipped: another agent takes over by an earlier call of this answer, so this one was not run."
        )
    }

    def judge(self, own: None, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Refuse every other call. The keys of `metadata` are promised: others may be added, none renamed."""
        calls = open_calls(state)
        chosen = next((call for call in calls if call.name.startswith(self.prefixes)), None)
        for call in calls if chosen else ():
            if chosen and call.id != chosen.id:
                yield Refuse(
                    code="skipped",
                    call=call.id,
                    text="refused:handoff",
                    metadata={
                        "selected_handoff_id": chosen.id,
                        "skipped_function": known(call.name, state),
                        "source": "policy/handoff_exclusive",
                        "pending": False,
                    },
                )
