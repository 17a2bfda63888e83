"""A tool whose call ends the run.

Source: the stop condition `stop_on_tool` of tirea 0.5, and `submit` of PaperBench's later solver.
"""

from collections.abc import Iterable, Mapping
from itertools import dropwhile
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from refold.reducers.events import CallRefused, Event, ModelResponded
from refold.reducers.guards.common import Config, open_calls
from refold.reducers.guards.protocol import Judgement, Place, Refuse, Stop
from refold.reducers.machine import Trigger
from refold.reducers.state import RunState


class StopOnTool(Config, frozen=True, kw_only=True, tag="stop_on_tool"):
    """Complete the run when a batch with a call of one of `tools` is done; a call that failed counts.

    A call that was refused does not: it was not run. `when: now`: the first such call and those before it run,
    those after it are refused.
    """

    tools: Annotated[tuple[str, ...], Meta(min_length=1)]
    when: Literal["after_tools", "now"] = "after_tools"

    kind: ClassVar[str] = "stop_on_tool"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS, Place.AFTER_TOOLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, CallRefused})
    fresh: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:stop_tool": "skipped: a call before this one ends the run, so this call was not run."
    }

    def observe(self, own: tuple[str, ...], event: Event) -> tuple[str, ...]:
        """The calls of these tools in the latest answer, without those that were refused."""
        match event:
            case ModelResponded(calls=calls):
                return tuple(call.id for call in calls if call.name in self.tools and not call.refused)
            case CallRefused(call=call) if call in own:
                return tuple(other for other in own if other != call)
            case _:
                return own

    def judge(self, own: tuple[str, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        """Refuse what comes after the call, where that is configured; complete the run when the batch is done."""
        if not own:
            return
        if place == Place.AFTER_TOOLS:
            reason = "a tool was called that ends the run"
            yield Stop(code="stop_tool", reason=reason, saw={"calls": len(own)}, trigger=Trigger.COMPLETE)
        elif self.when == "now":
            for call in list(dropwhile(lambda call: call.id != own[0], open_calls(state)))[1:]:
                yield Refuse(code="stop_tool", call=call.id, text="refused:stop_tool")
