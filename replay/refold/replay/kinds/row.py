"""The contract of a row, and what an event says in names, codes and numbers.

A row is literal: a word where the kind alone decides, a pure function of the event where it does not.
Listings, the page, exports and counts ask rows, so that a new kind is one row more in the table and nothing
else here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from refold.reducers import events as ev
from refold.replay import known

Tools = Mapping[str, str]
"""The names of tools, by the ids of the last answer's calls."""


class EventDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a `FlatEvent` that an event says itself."""

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


NOTHING = EventDetails()


def of_calls(calls: Iterable[str], tools: Tools, **more: Any) -> EventDetails:
    """The ids of calls and the names of their tools, and `more`."""
    ids = tuple(calls)
    return EventDetails(call=ids, name=once(tools[call] for call in ids if call in tools), **more)


def of_model(event: ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned, said: str = "") -> EventDetails:
    """What a model did; `said` is the code of how it ended."""
    calls = event.calls if isinstance(event, ev.ModelResponded) else ()
    failed = isinstance(event, ev.ModelFailed)
    return EventDetails(
        name=once(call.name for call in calls),
        call=tuple(call.id for call in calls),
        model="" if isinstance(event, ev.ModelFailed) else event.model,
        error=failed,
        reason=words(said),
        **_used(event),
        duration=known.took(event.duration),
    )


def of_result(event: ev.ToolReturned, tools: Tools) -> EventDetails:
    """How a call ended."""
    refused = event.refused_by is not None
    return of_calls(
        (event.call,),
        tools,
        error=None if refused else known.failed(event),
        verdict=words(known.REFUSED if refused else ""),
        reason=words(event.refused_by or ("" if known.failed(event) is False else known.outcome(event))),
        tokens=event.size.tokens,
        duration=known.took(event.duration),
        size=event.output_bytes,
    )


def of_answers(event: ev.ApprovalAnswered, tools: Tools) -> EventDetails:
    """What a person decided about calls."""
    calls = (answer.call for answer in event.answers)
    return of_calls(calls, tools, by=event.by, verdict=once(answer.decision for answer in event.answers))


def of_child(event: ev.ChildEnded, tools: Tools) -> EventDetails:
    """How a run ended that a call began."""
    failed = event.agent_state.failed
    return of_calls((event.call,), tools, error=failed, reason=(event.agent_state,), **_used(event))


def words(*said: str) -> tuple[str, ...]:
    """Those that are not empty."""
    return tuple(str(word) for word in said if word)


def once(names: Iterable[str]) -> tuple[str, ...]:
    """The names in order, each once."""
    return tuple(dict.fromkeys(names))


def _used(event: ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned | ev.ChildEnded) -> dict[str, Any]:
    usage = event.usage
    used = {"input": known.sent(usage), "output": known.got(usage)}
    return {"tokens": known.tokens(usage), **used, "cost": event.cost_nanousd}


EventType = Literal["run", "model", "tool", "person", "history", "guard", "limit", "wait", "state", "note"]
"""What a kind of event is about, in one word: `type` in filters."""

Weight = Literal["routine", "plain", "decisive"]
"""`routine`: a short list leaves it out. `decisive`: it made the run what it was."""

MarkedTurn = Literal["", "this", "next"]
"""The turn whose row in a listing of turns has a word about it: the one under way, the one that the next
request opens, none.
"""

Sign = Literal["", "guard", "prune"]
"""What an event is in a timeline, beside what failed."""

E = TypeVar("E", bound=ev.Event)


class Kind(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """A kind of event as people are told of it.

    `says` is what it says in one line without its kind, in words of ours and the log's names and numbers;
    `quotes` are the words of somebody else that the line goes on with, in an excerpt, "" without any. Neither
    is harmless yet: whoever shows it sees to that. `marks` is the turn that has a word about it, and `mark`
    this word where `says` would not do there.

    `texts` are the ways to what was said in it, in order: `content.text`, `reason`. `speaker` is who says
    that, "" where nobody does. `details` are its names, codes and numbers, given the tools of the last
    answer's calls. `counts` is the member of `Stats` in which it counts, and under which word.

    Comparing two runs: `compared` says whether it counts; `named` that it is aligned by its name too; `tells`
    that the model was shown it or said it; `ignores` are fields that no second run can have alike, beside
    those that no kind has alike.
    """

    of: type[E]
    type: EventType
    says: Callable[[E], str]
    quotes: Callable[[E], str] = lambda _: ""
    marks: MarkedTurn = ""
    mark: Callable[[E], str] | None = None
    texts: tuple[str, ...] = ()
    speaker: str = ""
    details: Callable[[E, Tools], EventDetails] = lambda _, __: NOTHING
    weight: Callable[[E], Weight] = lambda _: "plain"
    sign: Sign = ""
    counts: tuple[str, Callable[[E], str | None]] | None = None
    compared: bool = True
    named: bool = False
    tells: bool = False
    ignores: frozenset[str] = frozenset()

    def sentence(self, event: E) -> str:
        """All that is said of it in one line: ours, and after a colon the words of others."""
        said, quoted = self.says(event), self.quotes(event)
        return f"{said}: {quoted}" if said and quoted else said or quoted


AnyKind = Kind[Any]


def routine(_: ev.Event) -> Weight:
    """Of little weight, whatever it says."""
    return "routine"


def decisive(_: ev.Event) -> Weight:
    """Of much weight, whatever it says."""
    return "decisive"
