"""How an effect ended, as the maker of the one fact that says so."""

import hashlib
from collections.abc import Callable, Sequence

from refold.engine.clock import Stopwatch
from refold.engine.models.protocol import CallDelta, Delta, ModelFailed, Reply, TextDelta
from refold.engine.sent import SentHash
from refold.engine.tools.protocol import ToolAnswer
from refold.reducers import composing
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

LateMaker = Callable[[RunState, int, bytes], LateResult]
"""The same for a result for which nothing waits any more."""


def in_doubt(call: str) -> Maker:
    """The result of a call that was started and that nobody holds: nobody saw its end, whatever is known of it since."""

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        error, text = unseen(state, call)
        said = render(text_of(state.policy, text), {})
        return composing.returned(state, ToolReturned(at=at, call=call, error=error), said, call, "", salt)

    return make


def abandoned(request: int) -> Maker:
    """The end of a request that nobody holds any more: made anew it is not, for the run is to stop."""

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = Failed(at=at, request=request, failure=FailureClass.CANCELLED)
        why = "the run was stopped before the request was made again"
        return composing.failed(fact, why, "", salt, state.policy)

    return make


def responded(effect: CallModel, reply: Reply, sent: SentHash, stopwatch: Stopwatch) -> Maker:
    """The model answered."""
    duration = stopwatch()

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = ModelResponded(
            at=at,
            request=effect.seq,
            stop=reply.stop,
            stop_raw=reply.stop_raw,
            usage=reply.usage,
            cost_nanousd=reply.cost_nanousd,
            model=reply.model,
            adapter=reply.adapter,
            adapter_version=reply.adapter_version,
            response_id=reply.response_id,
            sent=sent.digest(salt),
            duration=duration,
        )
        answer = Answer(text=reply.text, reasoning=reply.reasoning, provider_data=reply.provider_data)
        made = [
            composing.CallMade(name=call.name, arguments=call.arguments, provider_id=call.provider_id)
            for call in reply.calls
        ]
        return composing.responded(state, fact, answer, made, salt)

    return make


def summed_up(effect: CallModel, reply: Reply, stopwatch: Stopwatch) -> Maker:
    """The model wrote a summary."""
    duration = stopwatch()

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = SummaryReturned(
            at=at,
            request=effect.seq,
            usage=reply.usage,
            cost_nanousd=reply.cost_nanousd,
            model=reply.model,
            duration=duration,
        )
        return composing.summarised(state, fact, reply.text, salt)

    return make


def failed(
    effect: CallModel,
    error: ModelFailed,
    arrived: Sequence[Delta],
    stopwatch: Stopwatch,
    redactor: Redactor,
) -> Maker:
    """The request gave no answer; what had arrived of one is kept."""
    duration = stopwatch()
    text = "".join(delta.text for delta in arrived if isinstance(delta, TextDelta))
    said, partial_text = redactor.text(error.message), redactor.text(error.partial_text or text)
    calls = len({delta.index for delta in arrived if isinstance(delta, CallDelta)})

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = Failed(
            at=at,
            request=effect.seq,
            failure=error.failure,
            status=error.status,
            retry_after=error.retry_after,
            partial_calls=calls,
            duration=duration,
        )
        return composing.failed(fact, said, partial_text, salt, state.policy)

    return make


def said(effect: RunTool | Reconcile, output: str, stopwatch: Stopwatch) -> Maker:
    """The result of a call that went well."""
    duration = stopwatch()
    sha256 = hashlib.sha256(output.encode(errors="replace")).hexdigest()

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = ToolReturned(at=at, call=effect.call, duration=duration)
        return composing.returned(state, fact, output, effect.name, sha256, salt)

    return make


def told(effect: RunTool, error: ToolError, values: dict[str, str | int], stopwatch: Stopwatch) -> Maker:
    """The result of a call that did not, in the policy's words for that error, filled with `values`."""
    duration = stopwatch()

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        said = composing.said_error(state, error, values)
        fact = ToolReturned(at=at, call=effect.call, error=error, duration=duration)
        return composing.returned(state, fact, said, effect.name, "", salt)

    return make


def answered(effect: RunTool, answer: ToolAnswer, stopwatch: Stopwatch, redactor: Redactor) -> Maker:
    """The result of a tool that made, and capped, its answer elsewhere."""
    duration = stopwatch()
    output = redactor.text(answer.output)
    sha256 = answer.sha256 if output == answer.output else ""  # by that of the secret it could be guessed

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = ToolReturned(
            at=at, call=effect.call, error=answer.error, size=answer.size, cut=answer.cut, duration=duration
        )
        return composing.returned(state, fact, output, effect.name, sha256, salt)

    return make


def problem(effect: RunTool, error: ToolError, shown: str | None, stopwatch: Stopwatch) -> Maker:
    """The result of a call that failed; `shown` says why, None where it could not be redacted."""
    return told(effect, error, {"problem": UNHIDDEN if shown is None else shown}, stopwatch)
