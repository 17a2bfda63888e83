"""What of a row depends on the kind of event alone: names, codes, numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    CancelRequested,
    ChildEnded,
    ContentErased,
    ContextObserved,
    Diagnosed,
    DoubtResolved,
    Event,
    GuardTripped,
    HistoryPruned,
    InputReceived,
    LateResult,
    LimitNeared,
    LimitReached,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    PolicyAmended,
    RetryScheduled,
    RunForked,
    RunResumed,
    RunStarted,
    SourceRecorded,
    StateChanged,
    StepFreed,
    SummaryAbandoned,
    SummaryRequested,
    SummaryReturned,
    ToolReturned,
    ToolsDispatched,
    kind_of,
    sizes_of,
)
from refold.reducers.machine import AgentState
from refold.replay import known
from refold.replay.causes import by, spoken


class EventDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a `Row` that an event says itself."""

    name: tuple[str, ...] = ()
    call: tuple[str, ...] = ()
    model: str = ""
    by: str = ""
    error: bool | None = None
    verdict: tuple[str, ...] = ()
    reason: tuple[str, ...] = ()
    tokens: int | None = None
    input: int | None = None
    output: int | None = None
    cost: int | None = None
    duration: int | None = None
    size: int | None = None


_NOTHING = EventDetails()


def details_of(event: Event, tools: Mapping[str, str]) -> EventDetails:  # noqa: PLR0912 - one case a kind
    """What an event says of itself. `tools` are the names of tools by the ids of calls."""
    match event:  # those that a log has most of first
        case StateChanged():
            return EventDetails(name=(event.trigger,), reason=_words(event.code, event.where or ""))
        case ToolReturned() | CallRefused() | DoubtResolved():
            return _of_call(event, tools)
        case ModelResponded() | ModelFailed() | SummaryReturned():
            return _from_model(event)
        case ModelRequested():
            return EventDetails(model=event.model, tokens=event.input_tokens, reason=_words(event.purpose))
        case ToolsDispatched(calls=calls) | ApprovalRequested(calls=calls) | RunResumed(in_doubt=calls):
            return EventDetails(call=calls, name=_names(calls, tools))
        case RunStarted():
            return EventDetails(model=event.model, tokens=sum(size.tokens for size in sizes_of(event)))
        case RunForked(model=model):
            return EventDetails(model=model or "")
        case ChildEnded():
            return _child(event, tools)
        case InputReceived():
            return EventDetails(by=event.by, tokens=event.size.tokens)
        case ApprovalAnswered():
            return _approval(event, tools)
        case GuardTripped() | LimitReached() | LimitNeared():
            return _spoken(event)
        case StepFreed():
            return EventDetails(name=(event.limit,))
        case SummaryAbandoned():
            return EventDetails(name=(event.name,), reason=_words(event.failure))
        case HistoryPruned():
            return EventDetails(name=(event.name,), reason=_words(event.reason), tokens=event.tokens_after)
        case MessageTrimmed():
            return EventDetails(name=(event.name,), reason=_words(event.reason), tokens=event.size.tokens)
        case MessageInjected():
            return EventDetails(
                name=_words(event.text), by=by(event.cause, event.name), tokens=event.size.tokens
            )
        case SummaryRequested():
            return EventDetails(name=(event.name,), tokens=event.input_tokens)
        case ContextObserved():
            return EventDetails(name=_words(event.why), tokens=sum(size.tokens for size in sizes_of(event)))
        case RetryScheduled():
            reason = _words(event.failure, event.cause)
            return EventDetails(model=event.model, reason=reason, duration=event.delay)
        case LateResult():
            details = details_of(event.fact, tools)
            return replace(details, reason=(kind_of(event.fact), *details.reason))
        case PolicyAmended(by=who) | CancelRequested(by=who) | NoteAdded(by=who) | ContentErased(by=who):
            return EventDetails(by=who)
        case Diagnosed():
            return EventDetails(reason=_words(event.code))
        case SourceRecorded():
            return EventDetails(name=_words(event.what), reason=_words(event.format))
        case _:
            return _NOTHING


def _from_model(event: ModelResponded | ModelFailed | SummaryReturned) -> EventDetails:
    calls = event.calls if isinstance(event, ModelResponded) else ()
    failed, said = False, ""
    if isinstance(event, ModelResponded):
        said = event.stop
    elif isinstance(event, ModelFailed):
        failed, said = True, event.failure
    return EventDetails(
        name=_once(call.name for call in calls),
        call=tuple(call.id for call in calls),
        model="" if isinstance(event, ModelFailed) else event.model,
        error=failed,
        reason=_words(said),
        **_used(event),
        duration=known.took(event.duration),
    )


def _of_call(event: ToolReturned | CallRefused | DoubtResolved, tools: Mapping[str, str]) -> EventDetails:
    call, name = (event.call,), _names((event.call,), tools)
    match event:
        case ToolReturned():
            return EventDetails(
                name=name,
                call=call,
                error=event.error is not None,
                reason=_words(event.error or ""),
                tokens=event.size.tokens,
                duration=known.took(event.duration),
                size=event.output_bytes,
            )
        case CallRefused():
            reason = _words(by(event.cause, event.name), event.code)
            return EventDetails(
                name=name, call=call, verdict=("refused", event.why), reason=reason, tokens=event.size.tokens
            )
        case DoubtResolved():
            return EventDetails(name=name, call=call, by=event.by, verdict=(event.doubt,))


def _spoken(event: GuardTripped | LimitReached | LimitNeared) -> EventDetails:
    said = spoken(event)
    name = event.guard if isinstance(event, GuardTripped) else event.limit.name
    return EventDetails(name=(name,), verdict=(said.said,), reason=_words(said.code)) if said else _NOTHING


def _approval(event: ApprovalAnswered, tools: Mapping[str, str]) -> EventDetails:
    calls = tuple(answer.call for answer in event.answers)
    return EventDetails(
        by=event.by,
        call=calls,
        name=_names(calls, tools),
        verdict=_once(answer.decision for answer in event.answers),
    )


def _child(event: ChildEnded, tools: Mapping[str, str]) -> EventDetails:
    return EventDetails(
        name=_names((event.call,), tools),
        call=(event.call,),
        error=event.agent_state is AgentState.ERROR,
        reason=(event.agent_state,),
        **_used(event),
    )


def _used(
    event: ModelResponded | ModelFailed | SummaryReturned | ChildEnded,
) -> dict[str, Any]:
    usage = event.usage
    input_, output = (usage.input, usage.output) if known.counted(usage) else (None, None)
    return {"tokens": known.tokens(usage), "input": input_, "output": output, "cost": event.cost_nanousd}


def _words(*said: str) -> tuple[str, ...]:
    return tuple(str(word) for word in said if word)


def _names(calls: Iterable[str], tools: Mapping[str, str]) -> tuple[str, ...]:
    return _once(tools[call] for call in calls if call in tools)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
