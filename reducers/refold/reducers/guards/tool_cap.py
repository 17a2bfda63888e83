"""So many calls of some tools, and no more.

Source: Hermes Agent, which caps searches and children a turn.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from refold.reducers.events import Event, InputReceived, ModelResponded, RunForked
from refold.reducers.guards.common import Config, begins, open_calls
from refold.reducers.guards.protocol import Judgement, Place, Stop
from refold.reducers.limits import Scope
from refold.reducers.state import RunState


class ToolCap(Config, frozen=True, kw_only=True, tag="tool_cap"):
    """Stop before the (`max` + 1)-th call of any of `tools` in the scope; None: no cap. Each call made counts."""

    tools: Annotated[tuple[str, ...], Meta(min_length=1)]
    max: Annotated[int, Meta(ge=0)] | None
    scope: Scope = "turn"

    kind: ClassVar[str] = "tool_cap"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, InputReceived, RunForked})
    fresh: ClassVar[int] = 0
    texts: ClassVar[Mapping[str, str]] = {
        "refused:tool_cap": "skipped: this tool was called as often as it may be, so the call was not run."
    }

    def observe(self, own: int, event: Event) -> int:
        """Count the calls of these tools."""
        if isinstance(event, ModelResponded):
            return own + sum(call.name in self.tools for call in event.calls)
        return 0 if begins(self.scope, event) else own

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop a batch that goes beyond the cap."""
        if self.max is None or own <= self.max:
            return
        if any(call.name in self.tools for call in open_calls(state)):
            yield Stop(
                code="stalled",
                reason=f"{own} calls of capped tools, and {self.max} are allowed",
                saw={"calls": own, "allowed": self.max},
                text="refused:tool_cap",
            )
