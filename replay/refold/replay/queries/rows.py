"""An event as one flat record, and the fields of a state by name.

A record has the same field names for every kind of event. Missing values are left out, because 0 is a value.
It has no absolute times, only the time since the run began: numbers in the page's JavaScript are exact up to
2**53.

Numbers are integers. Money and time have nine decimals, so no nano-dollar or nanosecond is lost: `spent_usd`
is written in dollars and compared in nano-dollars.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.events.parts import Decision
from refold.reducers.machine import INITIAL, AgentState
from refold.reducers.state import RunState
from refold.replay.kinds.row import EventDetails, EventType
from refold.replay.kinds.table import TYPES, details_of, kind_for, texts_of
from refold.replay.queries.conditions import BadQuestion, Field, FieldKind
from refold.replay.queries.language import Question, Vocabulary, parse
from refold.store.protocol import Stored

Side = Literal["fact", "decision", "note"]


class FlatEvent(EventDetails, frozen=True, kw_only=True, omit_defaults=True):
    """An event, flat. `name`, `call`, `verdict` and `reason` may have several values; one match is enough.

    `elapsed` and `duration` are nanoseconds, None if not measured, `cost` nano-dollars, `size` bytes. `state`
    is the agent's state after the event. `turn` is the number of the last request up to it, 0 before the
    first; a user message begins the next turn. `text` has all texts of the event, separated by newlines; None
    if erased, "" if not read.
    """

    run: str
    seq: int
    elapsed: int | None = None
    turn: int
    kind: str
    type: EventType
    side: Side
    state: str
    text: str | None = ""


FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "run": Field("words", "the run's id"),
        "seq": Field("number", "the number of the event in its run, from 1"),
        "turn": Field(
            "number",
            "the turn: the number of the last request, 0 before the first; a user message begins the next",
        ),
        "elapsed": Field("number", "seconds since the run began", digits=9),
        "kind": Field("words", "the event's kind, such as `tool_returned`", values=tuple(sorted(ev.KINDS))),
        "type": Field("words", "its subject: see the table of types", values=tuple(TYPES)),
        "side": Field("words", "`fact`, `decision` or `note`", values=get_args(Side)),
        "state": Field(
            "words", "the agent's state after it, such as `RUNNING`", values=tuple(map(str, AgentState))
        ),
        "name": Field("words", "the tool, guard, limit, compaction step or text, or the source's own name"),
        "call": Field("words", "the ids of calls"),
        "model": Field("words", "the model of a start, a request or a response"),
        "by": Field("words", "its author"),
        "error": Field(
            "flag",
            "of a result, response or failed request: whether it failed; missing if the source has no status",
        ),
        "verdict": Field(
            "words",
            "`refused` and how; `stop`, `warn`, `inject`, `defer`; an approver's `approve`, `reject`, …; "
            "`happened`, `did_not`, `unknown`",
        ),
        "reason": Field(
            "words",
            "codes: error and failure classes, `unmarked`, `not_recorded`, stop reasons, `unsaid`, what a guard saw, why it ended",
        ),
        "tokens": Field(
            "number",
            "of a response or summary: input and output as counted by the provider; otherwise the estimate of what is added "
            "or is sent",
        ),
        "input": Field("number", "input tokens of a response, including cached ones"),
        "output": Field("number", "output tokens of a response"),
        "cost": Field("number", "US dollars, if the price is known", digits=9),
        "duration": Field("number", "seconds that a call or a request took", digits=9),
        "size": Field("number", "bytes of a tool's output, before the cap"),
        "text": Field("text", "all its texts"),
    }
)
"""All fields of queries over events."""

EVENTS: Vocabulary[FlatEvent] = Vocabulary(FIELDS, getattr)


def event_question(text: str) -> Question[FlatEvent]:
    """Parse a query over events; "" matches every event. Raises `BadQuestion`."""
    return parse(text, EVENTS)


class LogPlace(msgspec.Struct, frozen=True):
    """The part of a row that depends on the events before it.

    `began` is the first known time, `tools` the tool names of the last response's calls by id.
    """

    began: int = 0
    turn: int = 0
    state: str = str(INITIAL)
    tools: Mapping[str, str] = MappingProxyType({})


START = LogPlace()


def advance_place(place: LogPlace, at: int, event: ev.Event) -> LogPlace:
    """Return the place of the next event, recorded at time `at`, after the events that led to `place`."""
    if not place.began:
        place = replace(place, began=at)
    match event:
        case ev.ModelRequested():
            return replace(place, turn=event.step)
        case ev.InputReceived():
            return replace(place, turn=place.turn + 1)
        case ev.ModelResponded() if event.calls:
            return replace(place, tools={call.id: call.name for call in event.calls})
        case ev.StateChanged():
            return replace(place, state=str(event.target))
        case _:
            return place


def row_of(stored: Stored, event: ev.Event, place: LogPlace, *, text: bool = True) -> FlatEvent:
    """Return the row of an event, with its texts only if `text`.

    `place` is the one that `moved` returned for the event.
    """
    details = details_of(event, place.tools)
    return FlatEvent(
        run=stored.run,
        seq=stored.seq,
        elapsed=max(0, stored.at - place.began) if stored.at and place.began else None,
        turn=place.turn,
        kind=stored.kind,
        type=kind_for(event).type,
        side=side_of(event),
        state=place.state,
        text=_join_texts(stored, event) if text else "",
        **msgspec.structs.asdict(details),
    )


def _join_texts(stored: Stored, event: ev.Event) -> str | None:
    erased = stored.erased
    return None if erased else "\n".join(texts_of(event))


def side_of(event: ev.Event) -> Side:
    """Return whether an event is a fact, a decision, or an annotation."""
    return (
        "note" if isinstance(event, ev.Annotation) else "decision" if isinstance(event, Decision) else "fact"
    )


NANO_DIGITS = 9

T = TypeVar("T")


class StateField(Field, Generic[T], frozen=True, kw_only=True):
    """A field of a state, and a function that reads it."""

    name: str
    of: Callable[[RunState], T]


# Excluded are numbers that can decrease: steps after an overflow, messages and tokens of the window.
_RISING = frozenset((
    "seq", "elapsed", "requests", "calls", "spent_usd", "unpriced", "tokens",
    "input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens", "downtime", "ended",
))  # fmt: skip
_NANO = frozenset(("elapsed", "spent_usd", "downtime", "retry_wait", "person_wait"))
_NUMBERS: dict[str, tuple[str, Callable[[RunState], int]]] = {
    "seq": ("the number of the event", lambda state: state.seq),
    "elapsed": ("seconds since the log began", lambda state: state.fact_at - state.lineage.at),
    "steps": ("steps, without exempted ones", lambda state: state.spent.steps),
    "requests": ("requests, including repeated attempts", lambda state: state.spent.requests),
    "calls": ("calls that the model requested", lambda state: state.spent.calls),
    "spent_usd": ("US dollars, known prices only", lambda state: state.spent.cost_nanousd),
    "unpriced": ("responses without a known price", lambda state: state.spent.unpriced),
    "tokens": (
        "input and output tokens, as providers counted them",
        lambda state: state.spent.usage.input + state.spent.usage.output,
    ),
    "input_tokens": ("input tokens, including cached ones", lambda state: state.spent.usage.input),
    "output_tokens": ("output tokens", lambda state: state.spent.usage.output),
    "cache_read_tokens": ("input tokens read from a cache", lambda state: state.spent.usage.cache_read),
    "reasoning_tokens": ("output tokens of reasoning", lambda state: state.spent.usage.reasoning),
    "downtime": ("seconds without an engine", lambda state: state.spent.downtime),
    "retry_wait": ("seconds waited before retries", lambda state: state.spent.retry_wait),
    "person_wait": ("seconds waited for an operator", lambda state: state.spent.person_wait),
    "messages": ("messages so far, including pruned ones", lambda state: state.messages),
    "window_messages": ("messages of the next prompt", lambda state: state.window.count),
    "window_tokens": ("their estimated tokens", lambda state: state.window.tokens),
    "context": ("the model's context in tokens, 0 if unknown", lambda state: state.setup.context or 0),
    "open_calls": (
        "calls without a result yet",
        lambda state: sum(call.result is None for call in state.batch.calls) if state.batch else 0,
    ),
    "attempt": (
        "the attempt of the open request, 0 without one",
        lambda state: state.request.event.attempt if state.request else 0,
    ),
}
_TEXTS: dict[str, tuple[str, Callable[[RunState], str]]] = {
    "agent_state": ("such as `RUNNING` or `COMPLETED`", lambda state: str(state.agent_state)),
    "model": ("the current model", lambda state: state.model or state.setup.model),
    "outcome": (
        "the code of the run's end",
        lambda state: state.outcome.code if state.outcome else "",
    ),
    "limit": ("the limit that tripped", lambda state: state.limit.name if state.limit else ""),
    "stopping": (
        "the code of a stop in progress",
        lambda state: state.stopping.code if state.stopping else "",
    ),
    "stop": (
        "why the model stopped last",
        lambda state: str(state.answer.event.stop) if state.answer else "",
    ),
    "failure": (
        "the class of the current failure",
        lambda state: str(state.failure.event.failure) if state.failure else "",
    ),
    "pruned_by": (
        "the compaction step whose summary arrived since the last request",
        lambda state: state.pruned_by,
    ),
}
_FLAGS: dict[str, tuple[str, Callable[[RunState], bool]]] = {
    "ended": ("the run is in a terminal state", lambda state: state.ended),
    "asked_model": ("a request is open", lambda state: state.request is not None),
    "asked_person": ("the run waits for an operator", lambda state: state.asked_at is not None),
    "waiting": ("a wait before a retry is in progress", lambda state: state.backoff is not None),
    "overflowed": ("the context was too long, and no request was made since", lambda state: state.overflowed),
    "in_doubt": (
        "the outcome of an open call is unknown",
        lambda state: state.batch is not None and any(call.in_doubt for call in state.batch.calls),
    ),
}


def _fields(
    kind: FieldKind, table: dict[str, tuple[str, Callable[[RunState], T]]]
) -> Mapping[str, StateField[T]]:
    made = {
        name: StateField(
            kind,
            means,
            NANO_DIGITS if name in _NANO else 0,
            _VALUES.get(name, ()),
            name in _RISING,
            name=name,
            of=of,
        )
        for name, (means, of) in table.items()
    }
    return MappingProxyType(made)


_VALUES = {"agent_state": tuple(map(str, AgentState))}

NUMBERS, TEXTS, FLAGS = _fields("number", _NUMBERS), _fields("words", _TEXTS), _fields("flag", _FLAGS)
STATE_FIELDS: Mapping[str, StateField[Any]] = MappingProxyType({**NUMBERS, **TEXTS, **FLAGS})
"""All fields of queries over states."""

STATES: Vocabulary[RunState] = Vocabulary(STATE_FIELDS, lambda state, name: STATE_FIELDS[name].of(state))


def state_question(text: str) -> Question[RunState]:
    """Parse a query over states.

    Raises `BadQuestion`, also for an empty query.
    """
    question = parse(text, STATES)
    if not question.names:
        raise BadQuestion(text, 1, "expected a condition, such as steps>3")
    return question
