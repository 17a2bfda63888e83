"""Serving effects: model requests, tool calls, and reconciling calls with an unknown outcome.

`DidNot` alone never suffices to run a call again. An earlier attempt may outlive its engine as a thread, a
shielded task, a child process, a request on the network, or a suspended process. An engine cannot prove that
it is gone, even after `kill -9`. So only `DidNot(final=True)` counts, with which the tool promises that
earlier attempts can have no effect any longer. Without that promise the outcome stays unknown.

These functions return *makers* of facts: see `refold.engine.clock`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, closing
from functools import partial

import msgspec

from refold.engine.clock import Maker, maker
from refold.engine.models.protocol import Delta, Model, ModelError, ModelRequest, Reply
from refold.engine.outcomes import (
    UNHIDDEN,
    in_doubt,
    model_failed,
    model_responded,
    summary_returned,
    tool_failed,
    tool_late,
    tool_recorded,
    tool_succeeded,
)
from refold.engine.secrets import RedactedStream, redacted_reply
from refold.engine.tasks import LEFT_OPEN, describe_error, inlet, is_foreign, leave
from refold.engine.tools.protocol import (
    BadArguments,
    CannotTell,
    DidNot,
    Happened,
    Reconciled,
    Tool,
)
from refold.engine.tools.results import LISTENER, Late, as_text
from refold.engine.updates import Finished, Streamed
from refold.engine.world import LongTool, Work
from refold.reducers import composition
from refold.reducers.effects import CallModel, Reconcile, RunTool
from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import DoubtResolved, ModelRequested, ToolReturned
from refold.reducers.patterns import is_object
from refold.reducers.pending import MOST_CALLS, asked_of, happened, repeatable, underway
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, FailureClass, ToolError


async def ask(answer: Awaitable[object]) -> Reconciled:
    """Return a reconciler's answer. If it fails, the outcome is unknown, and the note has the error."""
    try:
        found = await answer
    except BaseException as error:
        if not is_foreign(error):
            raise
        return CannotTell(note=describe_error(error))
    if isinstance(found, Happened | DidNot | CannotTell):
        return found
    return CannotTell(
        note=f"reconcile returned a {type(found).__name__}, expected Happened, DidNot or CannotTell"
    )


def credible(state: RunState, effect: Reconcile, found: Reconciled) -> Reconciled:
    """Return the answer, or `CannotTell` in place of a `DidNot` that an earlier attempt could refute.

    In a fork, a final `DidNot` is not enough either: the parent may continue the call, and epochs are counted
    by run.
    """
    if not isinstance(found, DidNot):
        return found
    call = next((each for each in underway(state) if each.id == effect.call), None)
    parent = call.begun_in if call else ""
    if found.final and not parent:
        return found
    note = f" ({found.note})" if found.note else ""
    why = (
        f"run {parent}, which started the call, may still complete it"
        if parent
        else "an earlier attempt may still take effect: only DidNot(final=True) rules that out"
    )
    return CannotTell(note=f"the tool found no effect{note}, but {why}")


def doubt_resolved(effect: Reconcile, found: Reconciled, note: str) -> Maker:
    """Return the fact of a tool's answer; for a call that happened, its result is a second fact."""
    doubt = {Happened: Doubt.HAPPENED, DidNot: Doubt.DID_NOT, CannotTell: Doubt.UNKNOWN}[type(found)]
    fact = DoubtResolved(at=0, call=effect.call, doubt=doubt, by=f"tool:{effect.name}", reconciled=True)
    return maker(fact, lambda state, fact, _: composition.resolved(state, fact, note))


async def serve(work: Work) -> tuple[Maker, ...]:
    """Serve an effect and return its facts; the last one ends it."""
    match work.effect:
        case CallModel():
            return (await _request(work, work.effect),)
        case RunTool():
            tool = long_tool(work.world.tools, work.state, work.effect)
            return (await _call_tool(work),) if tool is None else await tool.see_through(work)
        case Reconcile():
            return await _reconcile(work, work.effect)


def long_tool(tools: Mapping[str, Tool], state: RunState, call: RunTool) -> LongTool | None:
    """Return the tool of a call that starts a child run; None for a call of a function."""
    tool = tools.get(call.name)
    if not isinstance(tool, LongTool):
        return None
    return tool if any(each.name == call.name and each.agent for each in state.setup.tools) else None


async def _request(work: Work, effect: CallModel) -> Maker:
    cancelled = True
    try:
        made = await _wait_for_response(work, effect)
        cancelled = work.scope.cancel_called
    finally:
        work.audience.tell(Finished(effect.seq, cancelled))
    return made


async def _wait_for_response(work: Work, effect: CallModel) -> Maker:
    wanted, world = asked_of(work.state, effect.seq).event, work.world
    conversation = work.journal.conversation
    request = conversation.request(wanted, work.state, work.journal.contents)
    model = world.model
    if isinstance(wanted, ModelRequested):
        model = world.models.get(wanted.model, model)
    arrived: list[Delta] = []
    shown = RedactedStream(work.redactor, lambda delta: work.audience.tell(Streamed(effect.seq, delta)))

    def seen(delta: Delta) -> None:
        arrived.append(delta)
        if work.audience and isinstance(wanted, ModelRequested):  # a summary is not streamed
            shown.follow(arrived)

    try:
        with closing(shown), work.scope, work.bound():
            try:
                reply = redacted_reply(await _reply(model, request, seen), work.redactor)
            except ModelError as error:
                return model_failed(work, error, arrived)
            if len(reply.calls) > MOST_CALLS:
                problem = f"the response has {len(reply.calls)} tool calls; the maximum is {MOST_CALLS}"
                return model_failed(work, ModelError(FailureClass.OTHER, problem), arrived, reply)
            if isinstance(wanted, ModelRequested):
                return model_responded(work, reply, conversation.sent(wanted, work.state, request))
            if reply.text.strip():
                return summary_returned(work, reply)
            return model_failed(work, ModelError(FailureClass.OTHER, "the summary is empty"))
    except RuntimeError as error:
        await leave(work.scope, error)
        cut_off = work.scope.cancel_called
        if not cut_off:
            return model_failed(work, ModelError(FailureClass.OTHER, LEFT_OPEN), arrived)
    else:
        cut_off = work.scope.cancelled_caught
    if cut_off:
        cut = ModelError(FailureClass.CANCELLED, "the request was cancelled")
    else:
        cut = ModelError(FailureClass.TIMEOUT, "no response within the remaining time")
    return model_failed(work, cut, arrived)


async def _reply(model: Model, request: ModelRequest, seen: Callable[[Delta], None]) -> Reply:
    reply: Reply | None = None
    try:
        async with aclosing(model.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, Reply):
                    reply = item
                else:
                    seen(item)
    except (ModelError, WrongUse, MissingFact):
        raise
    except BaseException as error:  # an adapter that breaks the protocol must not end the run
        if not is_foreign(error):
            raise
        raise ModelError(FailureClass.OTHER, describe_error(error)) from error
    if reply is None:
        raise ModelError(FailureClass.STREAM_BROKEN, "the stream closed without a Reply")
    return _check_reply(reply)


async def _call_tool(work: Work) -> Maker:
    arguments, name = work.arguments, work.call.name
    offered = [tool.name for tool in work.state.setup.tools]
    tool = work.world.tools.get(name) if name in offered else None
    if tool is None:
        known = ", ".join(sorted(offered)) or "none"
        return tool_failed(work, ToolError.UNKNOWN_TOOL, tool=name, tools=known)
    if not is_object(arguments):
        problem = "the arguments are not one complete JSON object"
        return tool_failed(work, ToolError.BAD_ARGUMENTS, problem=problem)
    LISTENER.set(_listener(work, tool))
    try:
        with work.scope, work.bound(tool.manifest.timeout):
            return await _outcome(work, tool, arguments or "{}")
    except RuntimeError as error:
        await leave(work.scope, error)
        if not work.scope.cancel_called:
            return tool_failed(work, ToolError.RAISED, problem=LEFT_OPEN)
    else:
        if not work.scope.cancelled_caught:
            return tool_failed(work, ToolError.TIMEOUT)
    # The call was cut off, and its effect so far is unknown; only a repeatable call is harmless.
    return tool_failed(work, ToolError.CANCELLED if repeatable(tool.manifest.replay) else ToolError.IN_DOUBT)


async def _outcome(work: Work, tool: Tool, arguments: str) -> Maker:
    try:
        output = await tool.run(arguments, work.context)
    except BadArguments as error:
        return tool_failed(work, ToolError.BAD_ARGUMENTS, problem=_redact_or_mark(work, tool, str(error)))
    except MissingFact:
        raise
    except BaseException as error:  # the model receives the tool's error, and the run continues
        if not is_foreign(error):
            raise
        return tool_failed(work, ToolError.RAISED, problem=_redact_or_mark(work, tool, describe_error(error)))
    if isinstance(output, ToolReturned):
        return tool_recorded(work, output)
    shown = _redact(work, tool, output)
    if shown is None:
        return tool_failed(work, ToolError.RAISED, problem=UNHIDDEN)
    return tool_succeeded(work, shown)


def _listener(work: Work, tool: Tool) -> Late:
    """Return a function that queues, in this event loop, what a call's thread returns after a cut-off."""
    enter = inlet()

    def listen(result: object, error: BaseException | None) -> None:
        said = _redact_or_mark(work, tool, as_text(result) if error is None else describe_error(error))
        enter(partial(work.late, tool_late(work, said, None if error is None else ToolError.RAISED)))

    return listen


async def _reconcile(work: Work, effect: Reconcile) -> tuple[Maker, ...]:
    """Return the tool's answer about a call in doubt and, if the call happened, its result."""
    tool = work.world.tools.get(effect.name)
    found: Reconciled = CannotTell(note="the tool gave no answer in time")
    if tool is None or tool.reconcile is None:
        found = CannotTell(note="the tool is missing or has no reconcile")
    elif not is_object(work.arguments):
        found = DidNot(note="the arguments are not a JSON object, so the call never reached its tool")
    else:
        try:
            with work.scope, work.bound(tool.manifest.timeout):
                found = credible(
                    work.state, effect, await ask(tool.reconcile(work.arguments or "{}", work.context))
                )
        except RuntimeError as error:
            await leave(work.scope, error)
            found = CannotTell(note=LEFT_OPEN)
    fact = doubt_resolved(
        effect, found, found.note if tool is None else _redact_or_mark(work, tool, found.note)
    )
    if tool is None or not isinstance(found, Happened):
        # A tool that reported the call as happened may not revise that: the call must not run again.
        return (in_doubt(effect.call) if happened(work.state, effect.call) else fact,)
    output = _redact(work, tool, found.output)
    return (fact, in_doubt(effect.call) if output is None else tool_succeeded(work, output))


def _redact(work: Work, tool: Tool, text: object) -> str | None:
    """Redact the text by the tool's function and the run's; None if that fails or it is not text."""
    if not isinstance(text, str):
        return None
    if tool.redact is None:
        return work.redactor.text(text)
    try:
        shown: object = tool.redact(text)
    except Exception:  # the text is withheld, and with it the error, which may quote it
        return None
    return work.redactor.text(shown) if type(shown) is str else None


def _redact_or_mark(work: Work, tool: Tool, text: str) -> str:
    shown = _redact(work, tool, text)
    return UNHIDDEN if shown is None else shown


def _check_reply(reply: Reply) -> Reply:
    """Check the types of the reply's values: what is recorded must stay readable."""
    try:
        return msgspec.convert(msgspec.to_builtins(reply), Reply)
    except (msgspec.ValidationError, TypeError) as error:
        raise ModelError(FailureClass.OTHER, f"the model's adapter broke its protocol: {error}") from error
