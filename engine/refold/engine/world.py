"""The world, as effects meet it: models, tools and clocks. Each effect ends in exactly one fact.

What is returned here is not the fact but a *maker* of it: the instant, the salt and the state at which the
fact enters the log are known only when its turn comes.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

import anyio
import msgspec

from refold.engine.clock import Clock, Stopwatch, SystemClock
from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    Model,
    ModelFailed,
    ModelRequest,
    Reply,
    TextDelta,
)
from refold.engine.tools.protocol import BadArguments, CallContext, Tool, ToolAnswer
from refold.reducers import composing
from refold.reducers.arguments import is_object
from refold.reducers.codec import digest
from refold.reducers.effects import CallModel, RunTool
from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import Answer, Event, Fact, ModelResponded, SummaryReturned, ToolReturned
from refold.reducers.events import ModelFailed as Failed
from refold.reducers.messages import ToolSchema
from refold.reducers.state import RunState
from refold.reducers.views import summary_view, view
from refold.reducers.vocabulary import FailureClass, Replay, ToolError

Maker = Callable[[RunState, int, bytes], Fact]
"""(state, at, salt) -> the fact, when its turn in the queue has come."""

Publish = Callable[[Delta], None]
_NANO = 1_000_000_000
_UNHIDDEN = "its output could not be redacted, and is not shown"
_ENCODER = msgspec.json.Encoder(order="deterministic")
_REPEATABLE = (Replay.READ_ONLY, Replay.IDEMPOTENT)


class World:
    """One model, some tools and a clock; `models` are others that may be asked instead, by name.

    `clocks` makes those of child runs; `repeatable`: their salts follow from their seeds, as this run's do.
    """

    def __init__(
        self,
        model: Model,
        tools: Mapping[str, Tool],
        clock: Clock,
        *,
        models: Mapping[str, Model] | None = None,
        clocks: Callable[[], Clock] = SystemClock,
        repeatable: bool = False,
    ) -> None:
        self.model, self.tools, self.clock = model, tools, clock
        self.models = models or {}
        self.clocks, self.repeatable = clocks, repeatable

    async def ask(
        self,
        effect: CallModel,
        state: RunState,
        contents: Mapping[int, Event],
        scope: anyio.CancelScope,
        publish: Publish,
    ) -> Maker:
        """Ask the model. `scope` is cancelled by whoever wants the request settled."""
        request = request_for(effect, state, contents)
        stopwatch = self.clock.stopwatch(effect)
        arrived: list[Delta] = []

        def seen(delta: Delta) -> None:
            arrived.append(delta)
            if effect.purpose != "summary":  # it is no answer: nobody waits to read it
                publish(delta)

        with scope, anyio.CancelScope() as bound:
            bound.deadline = self._bound(effect.deadline)
            try:
                reply = await self._reply(self.models.get(effect.model, self.model), request, seen)
            except ModelFailed as error:
                return _failed(effect, error, arrived, stopwatch)
            if effect.purpose != "summary":
                return _responded(effect, reply, request, stopwatch)
            if reply.text.strip():
                return _summed_up(effect, reply, stopwatch)
            return _failed(effect, ModelFailed(FailureClass.OTHER, "the summary is empty"), [], stopwatch)
        failure, said = FailureClass.CANCELLED, "the request was cut off"
        if not scope.cancelled_caught:
            failure, said = FailureClass.TIMEOUT, "no answer within the time that was left"
        return _failed(effect, ModelFailed(failure, said), arrived, stopwatch)

    async def run(self, effect: RunTool, arguments: str, state: RunState, scope: anyio.CancelScope) -> Maker:
        """Run a tool. `scope` is cancelled by whoever wants the call settled."""
        stopwatch = self.clock.stopwatch(effect)
        offered = sorted(tool.name for tool in state.setup.tools)
        tool = self.tools.get(effect.name) if effect.name in offered else None
        if tool is None:
            values: dict[str, str | int] = {"tool": effect.name, "tools": ", ".join(offered) or "none"}
            return told(effect, ToolError.UNKNOWN_TOOL, values, stopwatch)
        if not is_object(arguments):
            problem = "the arguments are not one complete JSON object"
            return told(effect, ToolError.BAD_ARGUMENTS, {"problem": problem}, stopwatch)
        context = CallContext(run=state.setup.run, call=effect.call, key=effect.key)
        with scope, anyio.CancelScope() as bound:
            bound.deadline = self._bound(effect.deadline, tool.timeout)
            return await self._outcome(tool, effect, arguments or "{}", context, stopwatch)
        if not scope.cancelled_caught:
            return told(effect, ToolError.TIMEOUT, {}, stopwatch)
        # Cut off, but what it had done by then nobody knows; only what may be repeated is surely harmless.
        error = ToolError.CANCELLED if tool.replay in _REPEATABLE else ToolError.IN_DOUBT
        return told(effect, error, {}, stopwatch)

    async def _reply(self, model: Model, request: ModelRequest, seen: Publish) -> Reply:
        reply: Reply | None = None
        try:
            async with aclosing(model.stream(request)) as stream:
                async for item in stream:
                    if isinstance(item, Reply):
                        reply = item
                    else:
                        seen(item)
        except (ModelFailed, WrongUse, MissingFact):
            raise
        except BaseException as error:  # a model that breaks its promise must not take the run with it
            if not _somebody_elses(error):
                raise
            raise ModelFailed(FailureClass.OTHER, _worded(error)) from error
        if reply is None:
            raise ModelFailed(FailureClass.STREAM_BROKEN, "the stream closed without a last word")
        return _sound(reply)

    async def _outcome(
        self, tool: Tool, effect: RunTool, arguments: str, context: CallContext, stopwatch: Stopwatch
    ) -> Maker:
        try:
            output = await tool.run(arguments, context)
        except BadArguments as error:
            return _problem(tool, effect, ToolError.BAD_ARGUMENTS, str(error), stopwatch)
        except MissingFact:
            raise
        except BaseException as error:  # the tool's own failure is told to the model, and the run goes on
            if not _somebody_elses(error):
                raise
            return _problem(tool, effect, ToolError.RAISED, _worded(error), stopwatch)
        if isinstance(output, ToolAnswer):
            return _answered(effect, output, stopwatch)
        shown = _hidden(tool, output)
        if shown is None:
            return told(effect, ToolError.RAISED, {"problem": _UNHIDDEN}, stopwatch)
        return said(effect, shown, stopwatch)

    def _bound(self, instant: int | None, timeout: float | None = None) -> float:
        left = [] if instant is None else [max(0.0, (instant - self.clock.now()) / _NANO)]
        left += [] if timeout is None else [timeout]
        return anyio.current_time() + min(left, default=float("inf"))


def request_for(effect: CallModel, state: RunState, contents: Mapping[int, Event]) -> ModelRequest:
    """The request of an effect: exactly what the log says that the model is to see."""
    offered = [tool for tool in state.setup.tools if effect.tools is None or tool.name in effect.tools]
    return ModelRequest(
        messages=summary_view(state, contents) if effect.purpose == "summary" else view(state, contents),
        tools=tuple(
            ToolSchema(name=tool.name, description=tool.description, schema=tool.schema) for tool in offered
        ),
        settings=state.setup.settings,
        max_output=effect.max_output,
    )


def sent_digest(salt: bytes, request: ModelRequest) -> str:
    """Hex SHA-256 of a request as it was sent, blinded by the salt of the answer's content."""
    return digest(salt, _ENCODER.encode(request))


def in_doubt(call: str) -> Maker:
    """The result of a call that was started and that nobody holds: its end is unknown."""

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        said = composing.said_error(state, ToolError.IN_DOUBT, {})
        fact = ToolReturned(at=at, call=call, error=ToolError.IN_DOUBT)
        return composing.returned(state, fact, said, call, "", salt)

    return make


def abandoned(request: int) -> Maker:
    """The end of a request that nobody holds any more: made anew it is not, for the run is to stop."""

    def make(state: RunState, at: int, salt: bytes) -> Fact:  # noqa: ARG001
        fact = Failed(at=at, request=request, failure=FailureClass.CANCELLED)
        return composing.failed(fact, "the run was stopped before the request was made again", "", salt)

    return make


def _responded(effect: CallModel, reply: Reply, request: ModelRequest, stopwatch: Stopwatch) -> Maker:
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
            sent=sent_digest(salt, request),
            duration=duration,
        )
        answer = Answer(text=reply.text, reasoning=reply.reasoning, provider_data=reply.provider_data)
        made = [
            composing.CallMade(name=call.name, arguments=call.arguments, provider_id=call.provider_id)
            for call in reply.calls
        ]
        return composing.responded(state, fact, answer, made, salt)

    return make


def _summed_up(effect: CallModel, reply: Reply, stopwatch: Stopwatch) -> Maker:
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


def _failed(effect: CallModel, error: ModelFailed, arrived: Sequence[Delta], stopwatch: Stopwatch) -> Maker:
    duration = stopwatch()
    text = "".join(delta.text for delta in arrived if isinstance(delta, TextDelta))
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
        return composing.failed(fact, error.message, error.partial_text or text, salt, state.policy)

    return make


def said(effect: RunTool, output: str, stopwatch: Stopwatch) -> Maker:
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


def _answered(effect: RunTool, answer: ToolAnswer, stopwatch: Stopwatch) -> Maker:
    duration = stopwatch()

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = ToolReturned(
            at=at, call=effect.call, error=answer.error, size=answer.size, cut=answer.cut, duration=duration
        )
        return composing.returned(state, fact, answer.output, effect.name, answer.sha256, salt)

    return make


def _problem(tool: Tool, effect: RunTool, error: ToolError, said: str, stopwatch: Stopwatch) -> Maker:
    shown = _hidden(tool, said)
    return told(effect, error, {"problem": _UNHIDDEN if shown is None else shown}, stopwatch)


def _hidden(tool: Tool, text: object) -> str | None:
    """The text after the tool's redaction; None, and nothing of it, if that fails or it was no text."""
    if not isinstance(text, str):
        return None
    if tool.redact is None:
        return text
    try:
        shown: object = tool.redact(text)
    except Exception:  # what could not be redacted is not shown, and so cannot be quoted either
        return None
    return shown if type(shown) is str else None


def _somebody_elses(error: BaseException) -> bool:
    """Whether it is the model's or the tool's own failure: no interrupt, and no cancellation that is ours."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return False
    ours = (
        isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == -math.inf
    )
    return not ours


def _worded(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # an error that cannot even be printed
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _sound(reply: Reply) -> Reply:
    """The reply, if its values are what they are declared to be: what is recorded must be readable for ever."""
    try:
        return msgspec.convert(msgspec.to_builtins(reply), Reply)
    except (msgspec.ValidationError, TypeError) as error:
        raise ModelFailed(FailureClass.OTHER, f"the model's adapter broke its protocol: {error}") from error
