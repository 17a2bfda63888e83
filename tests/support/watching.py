"""One guard by itself: events are shown to it, states are made for it, and what it says is asked for."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict, replace

from refold.reducers import codec
from refold.reducers.events import (
    Answer,
    Call,
    CallRefused,
    Event,
    InputReceived,
    MessageInjected,
    ModelRequested,
    ModelResponded,
    Output,
    RunForked,
    ToolReturned,
)
from refold.reducers.evolution import encode_value
from refold.reducers.guards import Judgement, Place
from refold.reducers.messages import Size
from refold.reducers.patterns import is_object
from refold.reducers.state import Batch, CallState, LastAnswer, RunState
from refold.reducers.vocabulary import Cause, Refusal, Role, StopReason, ToolError
from refold.reducers.window import MessageRef, append
from support.scenario import TOOLS
from support.setups import setup_of

Made = tuple[str, str]  # a tool's name, and arguments as JSON text


class Watching:
    """What a guard has seen, and a state as it would be asked about: its tools, its open batch, its last
    answer.
    """

    def __init__(self, guard: Any, tools: Any = TOOLS, guards: Any = ()) -> None:
        self.guard = guard
        self.own = guard.start()
        self.state = RunState(setup=setup_of(tools=tools), guards=guards)
        self.made = 0

    def see(self, event: Event) -> None:
        """Show an event, if the guard wants its kind, as it would be read from a log."""
        if type(event) in self.guard.observes:
            one = codec.encode(event)
            self.own = self.guard.observe(self.own, codec.decode(one.kind, one.body, one.content))
        assert encode_value(self.own)

    def answer(self, text: str = "", *calls: Made, stop: StopReason = StopReason.END_TURN) -> list[str]:
        """The model answers; the ids of its calls."""
        ids = [f"c{self.made + place}" for place in range(1, len(calls) + 1)]
        self.made += len(calls)
        listed = tuple(
            Call(id=call, name=name, complete=is_object(written))
            for call, (name, written) in zip(ids, calls, strict=True)
        )
        states = tuple(CallState(**asdict(call), position=place) for place, call in enumerate(listed))
        said = ModelResponded(at=1, request=1, stop=stop, calls=listed, blank=not text.strip())
        asked = ModelRequested(step=1, attempt=1, view="", messages=(), input_tokens=0)
        batch = Batch(seq=1, number=1, calls=states) if states else None
        self.state = replace(self.state, answer=LastAnswer(seq=1, event=said, asked=asked), batch=batch)
        content = Answer(text=text, arguments=tuple(written for _, written in calls))
        self.see(replace(said, content=content))
        return ids

    def result(self, call: str, output: str = "ok", error: ToolError | None = None) -> None:
        self._ended(call)
        content = Output(output=output)
        self.see(ToolReturned(at=1, call=call, error=error, size=Size(chars=len(output)), content=content))

    def refuse(self, call: str) -> None:
        self._ended(call)
        self.see(
            CallRefused(call=call, why=Refusal.SKIPPED, cause=Cause.GUARD, name="g", text="refused:guard")
        )

    def _ended(self, call: str) -> None:
        batch = self.state.batch
        assert batch is not None
        ref = MessageRef(
            number=1, role=Role.TOOL, seq=1, unit=1, size=Size(chars=1, tokens=1, digest=""), call=call
        )
        calls = tuple(replace(each, result=ref) if each.id == call else each for each in batch.calls)
        left = sum(each.result is None for each in calls)
        batch = replace(batch, calls=calls) if left else None
        self.state = replace(self.state, batch=batch, window=append(self.state.window, ref))

    def round(
        self, *calls: Made, output: str = "ok", error: ToolError | None = None, text: str = ""
    ) -> list[str]:
        """An answer with these calls, and a result for each."""
        ids = self.answer(text, *calls)
        for call in ids:
            self.result(call, output, error)
        return ids

    def say(self) -> None:
        self.see(InputReceived(at=1))

    def fork(self) -> None:
        self.see(RunForked(at=1, run="r2", rules=1, parent="r", parent_seq=1, parent_hash=""))

    def tell(self, guard: str) -> None:
        """The harness said something for this guard."""
        self.see(
            MessageInjected(
                role=Role.USER, text=guard, cause=Cause.GUARD, name=guard, size=Size(chars=1, tokens=1)
            )
        )

    def says(self, place: Place) -> list[Judgement]:
        assert place in self.guard.places
        said: Iterable[Judgement] = self.guard.judge(self.own, self.state, place)
        return list(said)

    def speaks(self, place: Place) -> bool:
        return bool(self.says(place))
