"""An event as one flat record: what a question asks about, on the command line and in a page alike.

A record has the same names whatever the event is. What an event does not have is left out of it: 0 is a number, and
nothing is not. Instants are not in it, only the time since the run began: a page's numbers are exact up to 2**53.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    KINDS,
    Annotation,
    Event,
    InputReceived,
    ModelRequested,
    ModelResponded,
    StateChanged,
)
from refold.reducers.events.parts import Decision
from refold.reducers.machine import AgentState
from refold.replay.kinds.details import EventDetails
from refold.replay.kinds.row import EventType
from refold.replay.kinds.table import TYPES, details_of, kind_for, texts_of
from refold.replay.queries.language import Question, Vocabulary, parse
from refold.replay.queries.questions import Field
from refold.store.protocol import Stored

Side = Literal["fact", "decision", "note"]


class FlatEvent(EventDetails, frozen=True, kw_only=True, omit_defaults=True):
    """An event, flat. `name`, `call`, `verdict` and `reason` may have several values: one that fits is enough.

    `elapsed` and `duration` are nanoseconds, None where no time was taken, `cost` nano-dollars, `size` bytes. `state` is the agent's after the event,
    `turn` the number of the last request up to it, 0 before the first; a person's message begins the next. `text` is all that was said in it, the parts
    separated by newlines, None where that was erased; "" also where it was not read.
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
            "the turn: the number of the last request, 0 before the first; a person's message begins the next",
        ),
        "elapsed": Field("number", "seconds since the run began", digits=9),
        "kind": Field("words", "the event's kind, as `tool_returned`", values=tuple(sorted(KINDS))),
        "type": Field("words", "what it is about: see the table of types", values=tuple(TYPES)),
        "side": Field("words", "`fact`, `decision` or `note`", values=get_args(Side)),
        "state": Field(
            "words", "the agent's state after it, as `RUNNING`", values=tuple(map(str, AgentState))
        ),
        "name": Field(
            "words", "the tools, the guard, the limit, the pass, the text, or the source's word for it"
        ),
        "call": Field("words", "the ids of calls"),
        "model": Field("words", "the model that was started with, asked, or answered"),
        "by": Field("words", "who said so"),
        "error": Field(
            "flag",
            "of a result, an answer or a failed request: whether it went wrong; none where the source does not say",
        ),
        "verdict": Field(
            "words",
            "`refused` and how; `stop`, `warn`, `inject`, `defer`; a person's `approve`, `reject`, …; "
            "`happened`, `did_not`, `unknown`",
        ),
        "reason": Field(
            "words",
            "codes: error and failure classes, `unmarked`, `not_recorded`, stop reasons, `unsaid`, what a guard saw, why it ended",
        ),
        "tokens": Field(
            "number",
            "of an answer or a summary: input and output as the provider counted them; else the estimate of what joins, "
            "or is sent",
        ),
        "input": Field("number", "input tokens of an answer, those of the cache among them"),
        "output": Field("number", "output tokens of an answer"),
        "cost": Field("number", "US dollars, where a price is known", digits=9),
        "duration": Field("number", "seconds that a call or a request took", digits=9),
        "size": Field("number", "bytes that a tool said, before the cap"),
        "text": Field("text", "all that was said in it"),
    }
)
"""Every field that a question about events knows."""

EVENTS: Vocabulary[FlatEvent] = Vocabulary(FIELDS, getattr)


def event_question(text: str) -> Question[FlatEvent]:
    """The question about an event that a person typed; "" means every event. Raises `BadQuestion`."""
    return parse(text, EVENTS)


class LogPlace(msgspec.Struct, frozen=True):
    """Where in a run an event stands: what of a row the events before it decide.

    `began` is the first instant that is known, `tools` the names of the last answer's calls by their ids.
    """

    began: int = 0
    turn: int = 0
    state: str = str(AgentState.RUNNING)
    tools: Mapping[str, str] = MappingProxyType({})


START = LogPlace()


def moved(place: LogPlace, at: int, event: Event) -> LogPlace:
    """The place of the next event, recorded at the instant `at`, after the events that led to `place`."""
    if not place.began:
        place = replace(place, began=at)
    match event:
        case ModelRequested():
            return replace(place, turn=event.step)
        case InputReceived():
            return replace(place, turn=place.turn + 1)
        case ModelResponded() if event.calls:
            return replace(place, tools={call.id: call.name for call in event.calls})
        case StateChanged():
            return replace(place, state=str(event.target))
        case _:
            return place


def row_of(stored: Stored, event: Event, place: LogPlace, *, text: bool = True) -> FlatEvent:
    """The row of an event, without what was said unless `text`. `place` is its own: that which `moved` gave for it."""
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
        text=_said(stored, event) if text else "",
        **msgspec.structs.asdict(details),
    )


def _said(stored: Stored, event: Event) -> str | None:
    erased = stored.content is None and stored.content_digest is not None
    return None if erased else "\n".join(texts_of(event))


def side_of(event: Event) -> Side:
    """Whether an event is a fact, a decision, or a note about the log."""
    return "note" if isinstance(event, Annotation) else "decision" if isinstance(event, Decision) else "fact"
