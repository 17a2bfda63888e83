"""The world, as effects meet it: models, tools and clocks. Each effect ends in exactly one fact.

What is returned here is not the fact but a *maker* of it: the instant, the salt and the state at which the
fact enters the log are known only when its turn comes.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import aclosing, closing
from functools import partial

import anyio
import msgspec

from refold.engine.clock import Clock, Stopwatch, SystemClock
from refold.engine.faults import somebody_elses, worded
from refold.engine.journal import Journal
from refold.engine.listener import listener
from refold.engine.models.protocol import (
    Delta,
    Model,
    ModelFailed,
    ModelRequest,
    Reply,
)
from refold.engine.outcomes import (
    UNHIDDEN,
    LateMaker,
    Maker,
    in_doubt,
    model_failed,
    model_responded,
    summary_returned,
    tool_answered,
    tool_failed,
    tool_succeeded,
)
from refold.engine.presence import RUN
from refold.engine.reconciliation import Doer, ask, credible, doubt_resolved
from refold.engine.secrets import RedactedStream, redacted_reply
from refold.engine.sent import RunningHead, SentHash, sent_hash
from refold.engine.tools.decorator import as_text
from refold.engine.tools.protocol import (
    BadArguments,
    CallContext,
    DidNot,
    Happened,
    Reconciled,
    Tool,
    ToolAnswer,
    Unknown,
)
from refold.engine.tools.threads import LISTENER
from refold.reducers.arguments import is_object
from refold.reducers.doubts import happened, repeatable
from refold.reducers.effects import CallModel, Reconcile, RunTool
from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import (
    Event,
    ModelRequested,
    SummaryRequested,
)
from refold.reducers.messages import ToolSchema
from refold.reducers.numbers import NANO
from refold.reducers.pending import asked_of
from refold.reducers.secrets import PLAIN, Redactor
from refold.reducers.state import RunState
from refold.reducers.views import summary_view, view
from refold.reducers.vocabulary import FailureClass, ToolError

Publish = Callable[[Delta], None]


class World:
    """One model, some tools and a clock; `models` are others that may be asked instead, by name.

    `clocks` makes those of child runs; `repeatable`: their salts follow from their seeds, as this run's do.
    `redactor` knows the secrets that must not get into a log: what a model or a tool says passes it where it comes in.
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
        redactor: Redactor = PLAIN,
    ) -> None:
        self.model, self.tools, self.clock, self.redactor = model, tools, clock, redactor
        self.models = models or {}
        self.clocks, self.repeatable = clocks, repeatable

    def redactor_of(self, state: RunState) -> Redactor:
        """What is looked for in the run of this state: with the patterns of its own policy."""
        return self.redactor.under(state.policy.redact)

    async def ask(
        self,
        effect: CallModel,
        state: RunState,
        journal: Journal,
        scope: anyio.CancelScope,
        publish: Publish,
    ) -> Maker:
        """Ask the model. `scope` is cancelled to settle the request."""
        wanted = asked_of(state, effect.seq).event
        request = request_for(wanted, state, journal.contents)
        model = (
            self.models.get(wanted.model, self.model) if isinstance(wanted, ModelRequested) else self.model
        )
        stopwatch = self.clock.stopwatch(effect)
        arrived: list[Delta] = []
        redactor = self.redactor_of(state)
        shown = RedactedStream(redactor, publish)

        def seen(delta: Delta) -> None:
            arrived.append(delta)
            if isinstance(wanted, ModelRequested):  # a summary is not streamed
                shown.put(delta)

        with closing(shown), scope, anyio.CancelScope() as bound:
            bound.deadline = self._bound(effect.until)
            try:
                reply = await self._reply(model, request, seen)
            except ModelFailed as error:
                return model_failed(effect, error, arrived, stopwatch, redactor)
            reply = redacted_reply(reply, redactor)
            if isinstance(wanted, ModelRequested):
                return model_responded(
                    effect, reply, sent_of(wanted, state, request, journal.sent), stopwatch
                )
            if reply.text.strip():
                return summary_returned(effect, reply, stopwatch)
            empty = ModelFailed(FailureClass.OTHER, "the summary is empty")
            return model_failed(effect, empty, [], stopwatch, redactor)
        failure, said = FailureClass.CANCELLED, "the request was cut off"
        if not scope.cancelled_caught:
            failure, said = FailureClass.TIMEOUT, "no answer within the time that was left"
        return model_failed(effect, ModelFailed(failure, said), arrived, stopwatch, redactor)

    async def run(
        self,
        effect: RunTool,
        arguments: str,
        state: RunState,
        scope: anyio.CancelScope,
        late: Callable[[LateMaker], None],
        epoch: int,
    ) -> Maker:
        """Run a tool. `scope` is cancelled to settle the call; `late` is told what a thread says then."""
        stopwatch = self.clock.stopwatch(effect)
        offered = sorted(tool.name for tool in state.setup.tools)
        tool = self.tools.get(effect.name) if effect.name in offered else None
        if tool is None:
            names = ", ".join(offered) or "none"
            return tool_failed(effect, ToolError.UNKNOWN_TOOL, stopwatch, tool=effect.name, tools=names)
        if not is_object(arguments):
            problem = "the arguments are not one complete JSON object"
            return tool_failed(effect, ToolError.BAD_ARGUMENTS, stopwatch, problem=problem)
        context = context_of(effect, state, epoch)
        redactor = self.redactor_of(state)
        RUN.set(state.setup.run)
        LISTENER.set(listener(effect, stopwatch, partial(_said_late, tool, redactor), late))
        with scope, anyio.CancelScope() as bound:
            bound.deadline = self._bound(effect.until, tool.manifest.timeout)
            return await self._outcome(tool, effect, arguments or "{}", context, stopwatch, redactor)
        if not scope.cancelled_caught:
            return tool_failed(effect, ToolError.TIMEOUT, stopwatch)
        # Cut off, and what it had done by then is unknown; only what may be repeated is surely harmless.
        error = ToolError.CANCELLED if repeatable(tool.manifest.replay) else ToolError.IN_DOUBT
        return tool_failed(effect, error, stopwatch)

    async def reconcile(
        self,
        effect: Reconcile,
        arguments: str,
        state: RunState,
        scope: anyio.CancelScope,
        epoch: int,
        other: Doer | None,
    ) -> tuple[Maker, ...]:
        """Ask a tool what became of a call in doubt: what it says and, if it happened, the call's result.

        The last of these facts ends the effect. `scope` is cancelled when the answer is not wanted any more.
        `other` is who was there to do the call before the tool was asked.
        """
        stopwatch = self.clock.stopwatch(effect)
        tool = self.tools.get(effect.name)
        found: Reconciled = Unknown(note="the tool gave no answer in time")
        if tool is None or tool.reconcile is None:
            found = Unknown(note="the tool is not there, or cannot be asked")
        elif not is_object(arguments):
            found = DidNot(note="a call whose arguments are no JSON object never gets to its tool")
        else:
            context = context_of(effect, state, epoch)
            with scope, anyio.CancelScope() as bound:
                bound.deadline = self._bound(effect.until, tool.manifest.timeout)
                found = credible(await ask(tool.reconcile(arguments or "{}", context)), other)
        redactor = self.redactor_of(state)
        fact = doubt_resolved(
            effect, found, found.note if tool is None else _shown(tool, found.note, redactor)
        )
        if tool is None or not isinstance(found, Happened):
            # One that has said that it happened, and now says otherwise, is not believed: the call must not run again.
            return (in_doubt(effect.call) if happened(state, effect.call) else fact,)
        output = _hidden(tool, found.output, redactor)
        return (fact, in_doubt(effect.call) if output is None else tool_succeeded(effect, output, stopwatch))

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
            if not somebody_elses(error):
                raise
            raise ModelFailed(FailureClass.OTHER, worded(error)) from error
        if reply is None:
            raise ModelFailed(FailureClass.STREAM_BROKEN, "the stream closed without a last word")
        return _sound(reply)

    async def _outcome(
        self,
        tool: Tool,
        effect: RunTool,
        arguments: str,
        context: CallContext,
        stopwatch: Stopwatch,
        redactor: Redactor,
    ) -> Maker:
        try:
            output = await tool.run(arguments, context)
        except BadArguments as error:
            problem = _shown(tool, str(error), redactor)
            return tool_failed(effect, ToolError.BAD_ARGUMENTS, stopwatch, problem=problem)
        except MissingFact:
            raise
        except BaseException as error:  # the tool's own failure is told to the model, and the run goes on
            if not somebody_elses(error):
                raise
            problem = _shown(tool, worded(error), redactor)
            return tool_failed(effect, ToolError.RAISED, stopwatch, problem=problem)
        if isinstance(output, ToolAnswer):
            return tool_answered(effect, output, stopwatch, redactor)
        shown = _hidden(tool, output, redactor)
        if shown is None:
            return tool_failed(effect, ToolError.RAISED, stopwatch, problem=UNHIDDEN)
        return tool_succeeded(effect, shown, stopwatch)

    def _bound(self, instant: int | None, timeout: int | None = None) -> float:
        left = [] if instant is None else [max(0, instant - self.clock.now())]
        left += [] if timeout is None else [timeout]
        return anyio.current_time() + min(left, default=math.inf) / NANO


def context_of(effect: RunTool | Reconcile, state: RunState, epoch: int = 0) -> CallContext:
    """What a tool may know of its call; `epoch` is the fencing token of the engine's lease."""
    return CallContext(run=state.setup.run, call=effect.call, key=effect.key, epoch=epoch)


def request_for(
    wanted: ModelRequested | SummaryRequested, state: RunState, contents: Mapping[int, Event]
) -> ModelRequest:
    """What was decided to ask, as a request: exactly what the log says that the model is to see."""
    summary = isinstance(wanted, SummaryRequested)
    names = () if isinstance(wanted, SummaryRequested) else wanted.tools
    offered = [tool for tool in state.setup.tools if names is None or tool.name in names]
    return ModelRequest(
        messages=summary_view(state, contents) if summary else view(state, contents),
        tools=tuple(
            ToolSchema(name=tool.name, description=tool.description, schema=tool.schema) for tool in offered
        ),
        settings=state.setup.settings,
        max_output=wanted.max_output,
    )


def sent_of(wanted: ModelRequested, state: RunState, request: ModelRequest, running: RunningHead) -> SentHash:
    """What the digest of a request is made of."""
    return sent_hash(request, wanted.model or state.setup.model, len(wanted.request_only), running)


def _hidden(tool: Tool, text: object, redactor: Redactor) -> str | None:
    """The text after the tool's redaction and ours; None, and nothing of it, if the tool's fails or it was no text."""
    if not isinstance(text, str):
        return None
    if tool.redact is None:
        return redactor.text(text)
    try:
        shown: object = tool.redact(text)
    except Exception:  # what could not be redacted is not shown, and so cannot be quoted either
        return None
    return redactor.text(shown) if type(shown) is str else None


def _shown(tool: Tool, text: str, redactor: Redactor) -> str:
    shown = _hidden(tool, text, redactor)
    return UNHIDDEN if shown is None else shown


def _said_late(tool: Tool, redactor: Redactor, result: object, error: BaseException | None) -> str:
    return _shown(tool, as_text(result) if error is None else worded(error), redactor)


def _sound(reply: Reply) -> Reply:
    """The reply, if its values are what they are declared to be: what is recorded must be readable for ever."""
    try:
        return msgspec.convert(msgspec.to_builtins(reply), Reply)
    except (msgspec.ValidationError, TypeError) as error:
        raise ModelFailed(FailureClass.OTHER, f"the model's adapter broke its protocol: {error}") from error
