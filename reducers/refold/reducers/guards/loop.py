"""The same tools in two batches in a row.

Source: the stop condition `loop_detection` of tirea 0.5, which compares names only.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from refold.reducers.events import Event, ModelResponded
from refold.reducers.guards.common import Config, Own, digest
from refold.reducers.guards.protocol import Judgement, Place, Stop
from refold.reducers.state import RunState

_REMEMBERED = 20


class Pair(Own, frozen=True):
    """The digest of the last batch's names; among how many of the last batches the newest equal pair is, or 0."""

    mark: str = ""
    back: int = 0


class Loop(Config, frozen=True, kw_only=True, tag="loop"):
    """Stop after the tools if two adjacent batches among the last max(2, `window`) called the same tools.

    Their names are compared in any order, not their arguments. The last 20 batches are remembered.
    """

    window: Annotated[int, Meta(ge=0)]

    kind: ClassVar[str] = "loop"
    places: ClassVar[frozenset[Place]] = frozenset({Place.AFTER_TOOLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded})
    fresh: ClassVar[Pair] = Pair()

    def observe(self, own: Pair, event: Event) -> Pair:
        """Compare a batch with the one before it; an answer without calls is none."""
        if not isinstance(event, ModelResponded) or not event.calls:
            return own
        mark = digest(*sorted(call.name for call in event.calls))
        if mark == own.mark:
            return Pair(mark, 2)
        return Pair(mark, own.back + 1 if own.back else 0)

    def judge(self, own: Pair, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop while a pair is remembered."""
        window = min(max(2, self.window), _REMEMBERED)
        if own.back and own.back <= window:
            reason = "two batches in a row called the same tools"
            yield Stop(code="loop_detected", reason=reason, saw={"batches": own.back, "window": window})
