"""How an effect ended, as the maker of the one fact that says so."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from refold.engine.clock import Stopwatch
from refold.engine.models.protocol import (
    REPLIED,
    SPENT,
    CallDelta,
    Delta,
    ModelFailed,
    Reply,
    TextDelta,
    shared,
)
from refold.engine.sent import SentHash
from refold.engine.tools.protocol import ToolAnswer
from refold.reducers import composition
from refold.reducers.doubts import unseen
from refold.reducers.effects import CallModel, Reconcile, RunTool
from refold.reducers.events import Answer, Fact, LateResult, ModelResponded, SummaryReturned, ToolReturned
from refold.reducers.events import ModelFailed as Failed
from refold.reducers.policy import text_of
from refold.reducers.secrets import Redactor
from refold.reducers.state import RunState
from refold.reducers.texts import render
from refold.reducers.vocabulary import FailureClass, ToolError

UNHIDDEN = "its output could not be redacted, and is not shown"

Maker = Callable[[RunState, int, bytes], Fact]
"""(state, at, salt) -> the fact, when its turn in the queue has come."""

FactT = TypeVar("FactT", bound=Fact)

LateMaker = Callable[[RunState, int, bytes], LateResult]
"""The same for a result for which nothing waits any more."""


def maker(fact: FactT, complete: Callable[[RunState, FactT, bytes], Fact]) -> Maker:
    """Gives the fact its instant, and has it completed with what was said: `complete(state, fact, salt)`."""
    return lambda state, at, salt: complete(state, replace(fact, at=at), salt)


def in_doubt(call: str) -> Maker:
    """The result of a call that was started and that no engine holds: its end is unknown, whatever was found out since."""

    def complete(state: RunState, fact: ToolReturned, salt: bytes) -> Fact:
        error, text = unseen(state, call)
        said = render(text_of(state.policy, text), {})
        return composition.returned(state, replace(fact, error=error), said, call, "", salt)

    return maker(ToolReturned(at=0, call=call), complete)


def abandoned(request: int) -> Maker:
    """The end of a request that no engine holds any more: it is not made again, for the run is to stop."""
    fact = Failed(at=0, request=request, failure=FailureClass.CANCELLED)
    why = "the run was stopped before the request was made again"
    return maker(fact, lambda state, fact, salt: composition.failed(fact, why, "", salt, state.policy))


def model_responded(effect: CallModel, reply: Reply, sent: SentHash, stopwatch: Stopwatch) -> Maker:
    """The model answered."""
    fact = ModelResponded(at=0, request=effect.seq, duration=stopwatch(), **shared(reply, REPLIED))
    answer = Answer(text=reply.text, reasoning=reply.reasoning, provider_data=reply.provider_data)

    def complete(state: RunState, fact: ModelResponded, salt: bytes) -> Fact:
        return composition.responded(state, replace(fact, sent=sent.digest(salt)), answer, reply.calls, salt)

    return maker(fact, complete)


def summary_returned(effect: CallModel, reply: Reply, stopwatch: Stopwatch) -> Maker:
    """The model wrote a summary."""
    fact = SummaryReturned(at=0, request=effect.seq, duration=stopwatch(), **shared(reply, SPENT))
    return maker(fact, lambda state, fact, salt: composition.summarised(state, fact, reply.text, salt))


def model_failed(
    effect: CallModel, error: ModelFailed, arrived: Sequence[Delta], stopwatch: Stopwatch, redactor: Redactor
) -> Maker:
    """The request gave no answer; what had arrived of one is kept."""
    fact = Failed(
        at=0,
        request=effect.seq,
        failure=error.failure,
        status=error.status,
        retry_after=error.retry_after,
        partial_calls=len({delta.index for delta in arrived if isinstance(delta, CallDelta)}),
        duration=stopwatch(),
    )
    text = "".join(delta.text for delta in arrived if isinstance(delta, TextDelta))
    said, partial_text = redactor.text(error.message), redactor.text(error.partial_text or text)
    return maker(
        fact, lambda state, fact, salt: composition.failed(fact, said, partial_text, salt, state.policy)
    )


def tool_succeeded(effect: RunTool | Reconcile, output: str, stopwatch: Stopwatch) -> Maker:
    """The result of a call that went well."""
    sha256 = hashlib.sha256(output.encode(errors="replace")).hexdigest()
    return _returned(effect, ToolReturned(at=0, call=effect.call, duration=stopwatch()), output, sha256)


def tool_answered(effect: RunTool, answer: ToolAnswer, stopwatch: Stopwatch, redactor: Redactor) -> Maker:
    """The result of a tool that made, and capped, its answer elsewhere."""
    output = redactor.text(answer.output)
    sha256 = answer.sha256 if output == answer.output else ""  # by that of the secret it could be guessed
    fact = ToolReturned(
        at=0,
        call=effect.call,
        error=answer.error,
        output_bytes=answer.size,
        cut=answer.cut,
        duration=stopwatch(),
    )
    return _returned(effect, fact, output, sha256)


def tool_failed(effect: RunTool, error: ToolError, stopwatch: Stopwatch, **values: str | int) -> Maker:
    """The result of a call that did not go well, in the policy's words for that error, filled with `values`."""

    def complete(state: RunState, fact: ToolReturned, salt: bytes) -> Fact:
        said = composition.said_error(state, error, values)
        return composition.returned(state, fact, said, effect.name, "", salt)

    return maker(ToolReturned(at=0, call=effect.call, error=error, duration=stopwatch()), complete)


def _returned(effect: RunTool | Reconcile, fact: ToolReturned, output: str, sha256: str) -> Maker:
    return maker(
        fact, lambda state, fact, salt: composition.returned(state, fact, output, effect.name, sha256, salt)
    )
