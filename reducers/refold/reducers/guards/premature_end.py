"""A model that says nothing and stops, while its results still show failures.

Source: the `guardrails` loop (aar), which sends a model that gave up without a word back to its failing tests.
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
    RetryScheduled,
    RunForked,
    RunStarted,
    ToolReturned,
)
from refold.reducers.guards.common import Config, Own, begins
from refold.reducers.guards.protocol import Inject, Judgement, Place
from refold.reducers.limits import Scope
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Role, StopReason

_BAD = "!"


class Recent(Own, frozen=True):
    """The last messages, oldest first: `!` shows a failure, a call's id waits for its result, "" is any other.

    `count` is how often the model was sent back in this scope.
    """

    messages: tuple[str, ...] = ()
    count: int = 0


class PrematureEnd(Config, frozen=True, kw_only=True, tag="premature_end"):
    """Send the model back, at most `max` times in the scope, when it ends its turn with a blank text too early.

    It is too early if among the last `look_back` messages a result failed, or holds one of `marks`. A refusal
    is no failure.
    """

    max: Annotated[int, Meta(ge=0)] = 2
    look_back: Annotated[int, Meta(ge=1)] = 10
    marks: tuple[Annotated[str, Meta(min_length=1)], ...] = (
        "FAIL:",
        "Error",
        "error:",
        "Traceback",
        "AssertionError",
        "FAILED",
        "Exit code:",
    )
    scope: Scope = "run"

    kind: ClassVar[str] = "premature_end"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_FINISHED})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({
        RunStarted, RunForked, ModelResponded, RetryScheduled, ToolReturned, CallRefused, InputReceived, MessageInjected
    })  # fmt: skip
    reads_content: ClassVar[bool] = True
    fresh: ClassVar[Recent] = Recent()
    texts: ClassVar[Mapping[str, str]] = {
        "premature_end": (
            "[harness] You stopped without a word, but recent results still show failures. Read them again "
            "and try something else, or say why it cannot be done."
        )
    }

    def observe(self, own: Recent, event: Event) -> Recent:
        """Remember the last messages, in their order in the run; results stand where their calls put them."""
        match event:
            case RunStarted(content=opening) if opening is not None:
                bad = [said.role is Role.TOOL and self._marked(said.text) for said in opening.messages]
                return self._with(own, *(_BAD if each else "" for each in bad))
            case ModelResponded(calls=calls) if calls or not event.blank:
                return self._with(own, "", *(call.id for call in calls))
            case ToolReturned(call=call, error=error, content=said):
                return _settled(own, call, error is not None or self._marked(said.output if said else ""))
            case CallRefused(call=call):
                return _settled(own, call, bad=False)
            case MessageInjected(gap=None, cause=cause, name=name):
                mine = cause is Cause.GUARD and name == self.called
                return self._with(replace(own, count=own.count + mine), "")
            case RetryScheduled(keeps=True):
                return self._with(own, "")
            case InputReceived():
                return self._with(Recent(own.messages) if begins(self.scope, event) else own, "")
            case _:
                return Recent(own.messages) if begins(self.scope, event) else own

    def _marked(self, text: str) -> bool:
        return any(mark in text for mark in self.marks)

    def _with(self, own: Recent, *messages: str) -> Recent:
        return replace(own, messages=(*own.messages, *messages)[-self.look_back :])

    def judge(self, own: Recent, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Send it back while there is a failure to see, and it was not sent back as often as may be."""
        answer = state.answer
        if (
            answer is None
            or answer.event.calls
            or not answer.blank
            or answer.event.stop is not StopReason.END_TURN
        ):
            return
        if own.count < self.max and _BAD in own.messages:
            saw: dict[str, str | int] = {"failures": own.messages.count(_BAD), "before": own.count}
            yield Inject(code="premature_end", text="premature_end", saw=saw)


def _settled(own: Recent, call: str, bad: bool) -> Recent:  # noqa: FBT001
    if call not in own.messages:
        return own
    messages = tuple((_BAD if bad else "") if each == call else each for each in own.messages)
    return replace(own, messages=messages)
