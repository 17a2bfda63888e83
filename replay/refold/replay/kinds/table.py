"""Table of all event kinds."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast, get_args

from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.machine import Trigger
from refold.reducers.messages import Message
from refold.replay import figures, known
from refold.replay.figures import by, find_verdict
from refold.replay.kinds import sentences
from refold.replay.kinds.arguments import brief
from refold.replay.kinds.row import (
    NOTHING,
    AnyKind,
    EventDetails,
    EventType,
    Kind,
    Tools,
    Weight,
    decisive,
    of_answers,
    of_calls,
    of_child,
    of_model,
    of_result,
    routine,
    words,
)
from refold.replay.kinds.sentences import SHOWN
from refold.replay.source_words import context_remark, context_words, is_decision, source_remark


def _weight_of_source(event: ev.SourceRecorded) -> Weight:
    return "decisive" if is_decision(event.what) else "routine"


ANNOTATIONS = (
    Kind(of=ev.LateResult, type="note", says=sentences.describe_late_result, marks="this", speaker="late", weight=decisive, compared=False),
    Kind(of=ev.NoteAdded, type="note", says=lambda event: event.by,
         quotes=lambda event: brief(event.content.text if event.content else None, SHOWN), texts=("content.text",), speaker="note",
         marks="this", mark=sentences.describe_note,
         details=lambda event, _: EventDetails(by=event.by), compared=False),
    Kind(of=ev.ContentErased, type="note", says=sentences.describe_erasure, quotes=lambda event: brief(event.why, SHOWN), texts=("why",),
         details=lambda event, _: EventDetails(by=event.by), compared=False),
    Kind(of=ev.Diagnosed, type="note", says=lambda event: brief(event.code, SHOWN), quotes=lambda event: brief(event.problem, SHOWN),
         marks="this", mark=lambda event: f"problem: {event.code}", texts=("problem", "content.text"),
         details=lambda event, _: EventDetails(reason=words(event.code)), weight=decisive, compared=False),
    Kind(of=ev.SourceRecorded, type="note", says=sentences.describe_source_record, marks="this", mark=source_remark, texts=("content.text",),
         details=lambda event, _: EventDetails(name=words(event.what), reason=words(event.format)), weight=_weight_of_source, compared=False),
    Kind(of=ev.UnknownAnnotation, type="note", says=lambda _: "unknown to this version", compared=False),
)  # fmt: skip


_FOLLOWS = frozenset(
    {Trigger.CALL_TOOLS, Trigger.TOOLS_DONE, Trigger.ANSWERED}
)  # follow from adjacent events


def _verdict(event: ev.GuardTripped | ev.LimitReached | ev.LimitNeared) -> str:
    said = find_verdict(event)
    return f"{said.who}: {said.said} ({said.code})" if said else ""


def _verdict_details(event: ev.GuardTripped | ev.LimitReached | ev.LimitNeared) -> EventDetails:
    said = find_verdict(event)
    name = event.guard if isinstance(event, ev.GuardTripped) else event.limit.name
    return EventDetails(name=(name,), verdict=(said.said,), reason=words(said.code)) if said else NOTHING


def _trip(event: ev.GuardTripped | ev.LimitReached | ev.LimitNeared) -> str | None:
    said = find_verdict(event)
    return f"{said.who}: {said.said}" if said else None


def _weight(event: ev.StateChanged) -> Weight:
    return "decisive" if event.target.terminal else "routine" if event.trigger in _FOLLOWS else "plain"


DECISIONS = (
    Kind(of=ev.ModelRequested, type="model", says=sentences.describe_request, texts=("content.texts",),
         details=lambda event, _: EventDetails(model=event.model, tokens=event.input_tokens, reason=words(event.purpose)),
         weight=routine),
    Kind(of=ev.ToolsDispatched, type="tool", says=lambda event: ", ".join(event.calls),
         details=lambda event, tools: of_calls(event.calls, tools), weight=routine),
    Kind(of=ev.CallRefused, type="tool", says=lambda event: f"{event.call}: {event.why} by {by(event.cause, event.name)}", marks="this",
         texts=("content.texts",), speaker="refused",
         details=lambda event, tools: of_calls((event.call,), tools, verdict=("refused", event.why), reason=words(by(event.cause, event.name), event.code), tokens=event.size.tokens),
         weight=decisive, sign="guard", counts=("refusals", lambda event: by(event.cause, event.name)), named=True, tells=True),
    Kind(of=ev.ApprovalRequested, type="person", says=sentences.describe_approval_request, marks="this",
         details=lambda event, tools: of_calls(event.calls, tools)),
    Kind(of=ev.SummaryRequested, type="history", says=sentences.describe_summary_request, marks="next", texts=("content.texts",),
         details=lambda event, _: EventDetails(name=(event.name,), tokens=event.input_tokens), sign="prune", named=True),
    Kind(of=ev.SummaryAbandoned, type="history", says=lambda event: f"no summary: {event.failure} ({event.name})", marks="this",
         details=lambda event, _: EventDetails(name=(event.name,), reason=words(event.failure)), weight=decisive, named=True),
    Kind(of=ev.HistoryPruned, type="history", says=lambda event: f"pruned {event.before} to {figures.quantity(event.after, 'message')} ({event.name})",
         marks="next", details=lambda event, _: EventDetails(name=(event.name,), reason=words(event.reason), tokens=event.tokens_after),
         weight=decisive, sign="prune", counts=("prunes", lambda event: event.name), named=True, tells=True),
    Kind(of=ev.MessageTrimmed, type="history", says=lambda event: f"trimmed message {event.message} ({event.name})", marks="next",
         texts=("content.texts",),
         details=lambda event, _: EventDetails(name=(event.name,), reason=words(event.reason), tokens=event.size.tokens), sign="prune",
         named=True, tells=True),
    Kind(of=ev.MessageInjected, type="history", says=lambda event: f"sent {event.text} (by {by(event.cause, event.name)})", marks="next",
         texts=("content.texts",), speaker="harness",
         details=lambda event, _: EventDetails(name=words(event.text), by=by(event.cause, event.name), tokens=event.size.tokens),
         weight=decisive, named=True, tells=True),
    Kind(of=ev.GuardTripped, type="guard", says=_verdict, marks="this", details=lambda event, _: _verdict_details(event), weight=decisive,
         sign="guard", counts=("trips", _trip), named=True),
    Kind(of=ev.LimitReached, type="limit", says=_verdict, marks="this", details=lambda event, _: _verdict_details(event), weight=decisive,
         sign="guard", counts=("trips", _trip), named=True),
    Kind(of=ev.LimitNeared, type="limit", says=_verdict, marks="this", details=lambda event, _: _verdict_details(event), weight=decisive,
         sign="guard", counts=("trips", _trip), named=True),
    Kind(of=ev.StepExempted, type="limit", says=lambda event: f"not counted by limit {event.limit}", marks="this",
         details=lambda event, _: EventDetails(name=(event.limit,)), weight=decisive, named=True),
    Kind(of=ev.ContextOverflowed, type="history", says=lambda _: "the context was too long", marks="this", weight=decisive, sign="prune"),
    Kind(of=ev.ResponseDiscarded, type="model", says=lambda event: f"empty response {event.count} in a row, request repeated", marks="this",
         weight=decisive),
    Kind(of=ev.RetryScheduled, type="wait", says=sentences.describe_retry, marks="this",
         details=lambda event, _: EventDetails(model=event.model, reason=words(event.failure, event.cause), duration=event.delay),
         weight=decisive),
    Kind(of=ev.StateChanged, type="state", says=sentences.describe_transition, texts=("reason",),
         details=lambda event, _: EventDetails(name=(event.trigger,), reason=words(event.code, event.where or "")), weight=_weight,
         ignores=frozenset({"reason"})),  # a sentence that contains durations
    Kind(of=ev.StateDigested, type="state", says=lambda event: event.state[:16], weight=routine, compared=False),
)  # fmt: skip


FACTS = (
    Kind(of=ev.RunStarted, type="run", says=sentences.describe_start, texts=("content.messages",), speaker="task",
         details=lambda event, _: EventDetails(model=event.model, tokens=sum(size.tokens for size in ev.sizes_of(event))),
         counts=("started_with", lambda event: event.model), tells=True),
    Kind(of=ev.RunForked, type="run", says=sentences.describe_fork, marks="this", mark=lambda event: f"forked {sentences.describe_fork(event)}",
         texts=("content.text",), details=lambda event, _: EventDetails(model=event.model or ""), weight=decisive,
         counts=("started_with", lambda event: event.model)),
    Kind(of=ev.ModelResponded, type="model", says=sentences.describe_response, quotes=sentences.quote_response,
         texts=("content.text", "content.reasoning", "content.arguments"), speaker="model",
         details=lambda event, _: of_model(event, known.stopped(event)), tells=True),
    Kind(of=ev.ModelFailed, type="model", says=sentences.describe_failure,
         quotes=lambda event: brief(event.content.message if event.content else None, SHOWN), marks="this",
         mark=lambda event: f"failed: {sentences.describe_failure(event)}", texts=("content.message", "content.partial_text"),
         speaker="model failed", details=lambda event, _: of_model(event, event.failure), weight=decisive,
         counts=("failures", lambda event: event.failure)),
    Kind(of=ev.ToolReturned, type="tool", says=sentences.describe_result, quotes=sentences.quote_output, marks="this", mark=sentences.describe_refusal,
         texts=("content.output",), speaker="tool", details=of_result, weight=lambda event: "decisive" if event.refused_by else "plain",
         counts=("refusals", lambda event: f"its harness ({event.refused_by})" if event.refused_by else None), named=True, tells=True),
    Kind(of=ev.DoubtResolved, type="person", says=lambda event: f"{event.call}: {event.doubt}, by {event.by}",
         quotes=lambda event: brief(event.content.note if event.content else None, SHOWN), marks="this", texts=("content.note",),
         details=lambda event, tools: of_calls((event.call,), tools, by=event.by, verdict=(event.doubt,)), named=True),
    Kind(of=ev.InputReceived, type="person", says=lambda event: event.by,
         quotes=lambda event: brief(event.content.text if event.content else None, SHOWN), marks="next",
         mark=sentences.describe_input, texts=("content.text",), speaker="person",
         details=lambda event, _: EventDetails(by=event.by, tokens=event.size.tokens), tells=True),
    Kind(of=ev.ApprovalAnswered, type="person", says=sentences.describe_approval,
         quotes=lambda event: brief(event.content.note if event.content else None, SHOWN), marks="this",
         texts=("content.arguments", "content.note"), speaker="person", details=of_answers, tells=True),
    Kind(of=ev.ContextObserved, type="history", says=context_remark, quotes=context_words, marks="next", mark=sentences.describe_context,
         texts=("content.messages",), speaker="harness",
         details=lambda event, _: EventDetails(name=words(event.why), tokens=sum(size.tokens for size in ev.sizes_of(event))),
         weight=decisive, sign="prune", tells=True),
    Kind(of=ev.SummaryReturned, type="history", says=sentences.describe_cost,
         quotes=lambda event: brief(event.content.text if event.content else None, SHOWN), texts=("content.text",), speaker="summary",
         details=lambda event, _: of_model(event)),
    Kind(of=ev.ChildEnded, type="run", says=lambda event: f"{event.call}: run {event.run} ended {event.agent_state}", marks="this",
         details=of_child),
    Kind(of=ev.CancelRequested, type="person", says=lambda event: f"by {event.by}",
         quotes=lambda event: brief(event.content.reason if event.content else "", SHOWN), marks="this",
         mark=lambda event: f"cancellation requested by {event.by}", texts=("content.reason",), details=lambda event, _: EventDetails(by=event.by),
         weight=decisive),
    Kind(of=ev.ClockRead, type="wait", says=lambda event: figures.clock(event.due), weight=routine),
    Kind(of=ev.RunResumed, type="run", says=sentences.describe_resumption, marks="this", details=lambda event, tools: of_calls(event.in_doubt, tools),
         weight=decisive),
    Kind(of=ev.PolicyAmended, type="run", says=lambda event: f"new policy by {event.by}",
         quotes=lambda event: brief(event.content.reason if event.content else "", SHOWN), marks="this", texts=("content.reason",),
         details=lambda event, _: EventDetails(by=event.by), weight=decisive),
)  # fmt: skip


ROWS: tuple[AnyKind, ...] = (*FACTS, *DECISIONS, *ANNOTATIONS)

TABLE: Mapping[type[ev.Event], AnyKind] = MappingProxyType({row.of: row for row in ROWS})
"""Row of each event kind."""

TYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {type_: tuple(ev.kind_of(row.of) for row in ROWS if row.type == type_) for type_ in get_args(EventType)}
)
"""Event kinds by subject."""


def kind_for(event: ev.Event) -> AnyKind:
    """Return the row of an event's kind."""
    return TABLE[type(event)]


def sentence(event: ev.Event) -> str:
    """Summarize an event in one line, without its kind. The result is not sanitized."""
    return kind_for(event).sentence(event)


def remark(event: ev.Event) -> str:
    """Summarize an event in a few words for places that do not show its kind; "" if there is no remark."""
    row = kind_for(event)
    return (row.mark or row.says)(event) if row.marks else ""


def details_of(event: ev.Event, tools: Tools) -> EventDetails:
    """Return an event's names, codes and numbers. `tools` maps call ids to tool names."""
    if isinstance(event, ev.LateResult):
        details = details_of(event.fact, tools)
        return replace(details, reason=(ev.kind_of(event.fact), *details.reason))
    return kind_for(event).details(event, tools)


def texts_of(event: ev.Event) -> Iterator[str]:
    """Yield the non-empty texts of an event in order: payload first, then sentences of the body."""
    said = event.fact if isinstance(event, ev.LateResult) else event
    for way in kind_for(said).texts:
        value: object = event
        for name in way.split("."):
            value = getattr(value, name, None)
        yield from _texts(value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from [value] if value else []
    elif isinstance(value, Message):
        yield from _texts((value.text, value.reasoning, *(call.arguments for call in value.calls)))
    elif isinstance(value, Mapping):
        yield from _texts(tuple(cast("Mapping[str, object]", value).values()))
    elif isinstance(value, tuple):
        for each in cast("tuple[object, ...]", value):
            yield from _texts(each)
