"""Batches of which every call failed.

Source: the stop condition `consecutive_errors` of tirea 0.5, judged on results, as it is documented there.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from refold.reducers.events import CallRefused, Event, ModelResponded, ToolReturned
from refold.reducers.guards.common import Config, Own
from refold.reducers.guards.protocol import Judgement, Place, Stop
from refold.reducers.state import RunState


class Failing(Own, frozen=True):
    """Failed batches in a row; of the open one the calls without a result, and whether any did not fail."""

    count: int = 0
    open: tuple[str, ...] = ()
    good: bool = False


class Errors(Config, frozen=True, kw_only=True, tag="errors"):
    """Stop once every call failed in `rounds` batches in a row.

    Any other batch, and an answer without calls, counts as none. A refusal is no failure.
    """

    rounds: Annotated[int, Meta(ge=1)]

    kind: ClassVar[str] = "errors"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_RESULTS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, ToolReturned, CallRefused})
    fresh: ClassVar[Failing] = Failing()

    def observe(self, own: Failing, event: Event) -> Failing:
        """Count a batch when its last result is in, whichever that is."""
        match event:
            case ModelResponded(calls=calls):
                return Failing(own.count if calls else 0, tuple(call.id for call in calls))
            case ToolReturned(call=call) | CallRefused(call=call) if call in own.open:
                good = own.good or not (isinstance(event, ToolReturned) and event.error)
                left = tuple(other for other in own.open if other != call)
                if left:
                    return Failing(own.count, left, good)
                return Failing(0 if good else own.count + 1)
            case _:
                return own

    def judge(self, own: Failing, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop at the count."""
        if own.count >= self.rounds:
            yield Stop(
                code="consecutive_errors",
                reason=f"every call failed in {own.count} batches in a row",
                saw={"batches": own.count, "allowed": self.rounds},
            )
