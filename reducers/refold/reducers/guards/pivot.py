"""The wrong shell: a tool that lacks what is needed, where another one has it.

Source: the `guardrails` loop (aar), which points a model from its shell to the terminal of its editor.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.events import (
    CallRefused,
    Event,
    InputReceived,
    MessageInjected,
    ModelResponded,
    RunForked,
    ToolReturned,
)
from refold.reducers.guards.common import Config, Own, begins
from refold.reducers.guards.protocol import Inject, Judgement, Place
from refold.reducers.limits import Scope
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause


class Lacking(Own, frozen=True):
    """Batches in a row that lacked something; the tool's calls in the open one, and whether one of them did."""

    count: int = 0
    open: tuple[str, ...] = ()
    lacks: bool = False
    told: bool = False


class Pivot(Config, frozen=True, kw_only=True, tag="pivot"):
    """Point from `tool` to `to`, once in the scope, after `failures` batches in a row that lacked something.

    A batch did if a call of `tool` failed in it and its output holds one of `marks`. Batches without `tool`
    do not count. Nothing is said to a model that does not have `to`.
    """

    tool: str = "bash"
    to: str = "acp_terminal"
    failures: Annotated[int, Meta(ge=1)] = 2
    marks: tuple[Annotated[str, Meta(min_length=1)], ...] = (
        "command not found",
        "not found",
        "No such file or directory",
        "ImportError",
        "ModuleNotFoundError",
        "SyntaxError",
    )
    scope: Scope = "lineage"

    kind: ClassVar[str] = "pivot"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_NUDGE})
    observes: ClassVar[frozenset[type[Event]]] = frozenset(
        {ModelResponded, ToolReturned, CallRefused, MessageInjected, InputReceived, RunForked}
    )
    reads_content: ClassVar[bool] = True
    fresh: ClassVar[Lacking] = Lacking()
    texts: ClassVar[Mapping[str, str]] = {
        "pivot": "[harness] {tool} lacks what this needs. Use {to} for it instead."
    }

    def observe(self, own: Lacking, event: Event) -> Lacking:
        """Count a batch when the last of its calls of the tool has a result."""
        match event:
            case ModelResponded(calls=calls):
                made = tuple(call.id for call in calls if call.name == self.tool)
                return replace(own, open=made, lacks=False)
            case ToolReturned(call=call) | CallRefused(call=call) if call in own.open:
                lacks = own.lacks or self._lacks(event)
                left = tuple(other for other in own.open if other != call)
                ended = own.count + 1 if lacks else 0
                return replace(own, open=left, lacks=lacks, count=own.count if left else ended)
            case MessageInjected(cause=Cause.GUARD, name=self.called):
                return replace(own, told=True)
            case _:
                return Lacking(open=own.open, lacks=own.lacks) if begins(self.scope, event) else own

    def _lacks(self, event: Event) -> bool:
        if not isinstance(event, ToolReturned) or event.error is None or event.content is None:
            return False
        return any(mark in event.content.output for mark in self.marks)

    def judge(self, own: Lacking, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Speak at the count, to a model that has the other tool."""
        if own.told or own.count < self.failures:
            return
        if any(tool.name == self.to for tool in state.setup.tools):
            saw: dict[str, str | int] = {"batches": own.count, "allowed": self.failures}
            yield Inject(code="pivot", text="pivot", saw=saw, values={"tool": self.tool, "to": self.to})
