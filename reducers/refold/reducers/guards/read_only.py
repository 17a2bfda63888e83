"""Much reading, and no action.

Source: the `guardrails` loop (aar), which tells a model that only reads to state what it found and to begin.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.events import Event, InputReceived, MessageInjected, ModelResponded, RunForked
from refold.reducers.guards.common import Config, Own, begins, read_only
from refold.reducers.guards.protocol import Inject, Judgement, Place
from refold.reducers.limits import Scope
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause


class Called(Own, frozen=True):
    """The names that each of the last batches called, and whether the model was told in this scope."""

    batches: tuple[tuple[str, ...], ...] = ()
    told: bool = False


class ReadOnly(Config, frozen=True, kw_only=True, tag="read_only"):
    """Say so, once in the scope, when `batches` batches in a row only read. Answers without calls are no batch.

    Reading are the calls of `tools`, or, if none are listed, of the tools whose replay class is `read_only`.
    """

    batches: Annotated[int, Meta(ge=1)] = 8
    tools: tuple[str, ...] = ()
    scope: Scope = "lineage"

    kind: ClassVar[str] = "read_only"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_NUDGE})
    observes: ClassVar[frozenset[type[Event]]] = frozenset(
        {ModelResponded, MessageInjected, InputReceived, RunForked}
    )
    fresh: ClassVar[Called] = Called()
    texts: ClassVar[Mapping[str, str]] = {
        "read_only": (
            "[harness] You have only read for {count} rounds of calls. Say what you have found and what "
            "you plan to do, then begin with it."
        )
    }

    def observe(self, own: Called, event: Event) -> Called:
        """Remember the names of the last batches: what each tool may do is not in the event."""
        match event:
            case ModelResponded(calls=calls) if calls:
                names = tuple(sorted({call.name for call in calls}))
                return replace(own, batches=(*own.batches, names)[-self.batches :])
            case MessageInjected(cause=Cause.GUARD, name=self.called):
                return replace(own, told=True)
            case _:
                return Called() if begins(self.scope, event) else own

    def judge(self, own: Called, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Speak when as many batches as that are remembered, and each of them only read."""
        if own.told or len(own.batches) < self.batches:
            return
        if frozenset().union(*own.batches) <= (frozenset(self.tools) or read_only(state)):
            count: dict[str, str | int] = {"count": self.batches}
            yield Inject(code="read_only", text="read_only", saw=count, values=count)
