"""The rows of decisions."""

from refold.reducers.events import (
    AnswerDiscarded,
    ApprovalRequested,
    CallRefused,
    ContextOverflowed,
    GuardTripped,
    HistoryPruned,
    LimitNeared,
    LimitReached,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    RetryScheduled,
    StateChanged,
    StateDigested,
    StepFreed,
    SummaryAbandoned,
    SummaryRequested,
    ToolsDispatched,
)
from refold.reducers.machine import TERMINAL, Trigger
from refold.replay import figures
from refold.replay.causes import by, spoken
from refold.replay.kinds import sentences
from refold.replay.kinds.details import NOTHING, EventDetails, of_calls, words
from refold.replay.kinds.row import Kind, Weight, decisive, routine

_FOLLOWS = frozenset({Trigger.CALL_TOOLS, Trigger.TOOLS_DONE, Trigger.ANSWERED})  # from what stands beside it


def _verdict(event: GuardTripped | LimitReached | LimitNeared) -> str:
    said = spoken(event)
    return f"{said.who}: {said.said} ({said.code})" if said else ""


def _spoken(event: GuardTripped | LimitReached | LimitNeared) -> EventDetails:
    said = spoken(event)
    name = event.guard if isinstance(event, GuardTripped) else event.limit.name
    return EventDetails(name=(name,), verdict=(said.said,), reason=words(said.code)) if said else NOTHING


def _trip(event: GuardTripped | LimitReached | LimitNeared) -> str | None:
    said = spoken(event)
    return f"{said.who}: {said.said}" if said else None


def _weight(event: StateChanged) -> Weight:
    return "decisive" if event.target in TERMINAL else "routine" if event.trigger in _FOLLOWS else "plain"


DECISIONS = (
    Kind(of=ModelRequested, type="model", says=sentences.requested, texts=("content.texts",),
         details=lambda event, _: EventDetails(model=event.model, tokens=event.input_tokens, reason=words(event.purpose)),
         weight=routine),
    Kind(of=ToolsDispatched, type="tool", says=lambda event: ", ".join(event.calls),
         details=lambda event, tools: of_calls(event.calls, tools), weight=routine),
    Kind(of=CallRefused, type="tool", says=lambda event: f"{event.call}: {event.why} by {by(event.cause, event.name)}", marks="this",
         texts=("content.texts",), speaker="refused",
         details=lambda event, tools: of_calls((event.call,), tools, verdict=("refused", event.why), reason=words(by(event.cause, event.name), event.code), tokens=event.size.tokens),
         weight=decisive, sign="guard", counts=("refusals", lambda event: by(event.cause, event.name)), named=True, tells=True),
    Kind(of=ApprovalRequested, type="person", says=sentences.asked, marks="this",
         details=lambda event, tools: of_calls(event.calls, tools)),
    Kind(of=SummaryRequested, type="history", says=sentences.summary_asked, marks="next", texts=("content.texts",),
         details=lambda event, _: EventDetails(name=(event.name,), tokens=event.input_tokens), sign="prune", named=True),
    Kind(of=SummaryAbandoned, type="history", says=lambda event: f"no summary: {event.failure} ({event.name})", marks="this",
         details=lambda event, _: EventDetails(name=(event.name,), reason=words(event.failure)), weight=decisive, named=True),
    Kind(of=HistoryPruned, type="history", says=lambda event: f"pruned {event.before} to {figures.counted(event.after, 'message')} ({event.name})",
         marks="next", details=lambda event, _: EventDetails(name=(event.name,), reason=words(event.reason), tokens=event.tokens_after),
         weight=decisive, sign="prune", counts=("prunes", lambda event: event.name), named=True, tells=True),
    Kind(of=MessageTrimmed, type="history", says=lambda event: f"trimmed message {event.message} ({event.name})", marks="next",
         texts=("content.texts",),
         details=lambda event, _: EventDetails(name=(event.name,), reason=words(event.reason), tokens=event.size.tokens), sign="prune",
         named=True, tells=True),
    Kind(of=MessageInjected, type="history", says=lambda event: f"told {event.text} (by {by(event.cause, event.name)})", marks="next",
         texts=("content.texts",), speaker="harness",
         details=lambda event, _: EventDetails(name=words(event.text), by=by(event.cause, event.name), tokens=event.size.tokens),
         weight=decisive, named=True, tells=True),
    Kind(of=GuardTripped, type="guard", says=_verdict, marks="this", details=lambda event, _: _spoken(event), weight=decisive,
         sign="guard", counts=("trips", _trip), named=True),
    Kind(of=LimitReached, type="limit", says=_verdict, marks="this", details=lambda event, _: _spoken(event), weight=decisive,
         sign="guard", counts=("trips", _trip), named=True),
    Kind(of=LimitNeared, type="limit", says=_verdict, marks="this", details=lambda event, _: _spoken(event), weight=decisive,
         sign="guard", counts=("trips", _trip), named=True),
    Kind(of=StepFreed, type="limit", says=lambda event: f"not counted by the limit {event.limit}", marks="this",
         details=lambda event, _: EventDetails(name=(event.limit,)), weight=decisive, named=True),
    Kind(of=ContextOverflowed, type="history", says=lambda _: "the context was too long", marks="this", weight=decisive, sign="prune"),
    Kind(of=AnswerDiscarded, type="model", says=lambda event: f"empty answer number {event.count} in a row, asked again", marks="this",
         weight=decisive),
    Kind(of=RetryScheduled, type="wait", says=sentences.retried, marks="this",
         details=lambda event, _: EventDetails(model=event.model, reason=words(event.failure, event.cause), duration=event.delay),
         weight=decisive),
    Kind(of=StateChanged, type="state", says=sentences.moved, texts=("reason",),
         details=lambda event, _: EventDetails(name=(event.trigger,), reason=words(event.code, event.where or "")), weight=_weight,
         ignores=frozenset({"reason"})),  # a sentence in which amounts of time stand
    Kind(of=StateDigested, type="state", says=lambda event: event.state[:16], weight=routine, compared=False),
)  # fmt: skip
