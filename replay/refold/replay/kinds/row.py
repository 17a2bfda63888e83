"""The row of an event kind, and an event's names, codes and numbers.

Each column of a row is a constant, or a pure function of the event. Listings, the page, exports and counts
read rows, so a new kind needs one more row in the table and no other change here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from refold.reducers import events as ev
from refold.replay import known

Tools = Mapping[str, str]
"""Tool names by call id, for the calls of the last response."""


class EventDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of a `FlatEvent` that come from the event itself."""

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
    """Return details with call ids and tool names, and the fields `more`."""
    ids = tuple(calls)
    return EventDetails(call=ids, name=unique(tools[call] for call in ids if call in tools), **more)


def of_model(event: ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned, said: str = "") -> EventDetails:
    """Return the details of a model's response or failure; `said` is the code of how it ended."""
    calls = event.calls if isinstance(event, ev.ModelResponded) else ()
    failed = isinstance(event, ev.ModelFailed)
    return EventDetails(
        name=unique(call.name for call in calls),
        call=tuple(call.id for call in calls),
        model="" if isinstance(event, ev.ModelFailed) else event.model,
        error=failed,
        reason=words(said),
        **_list_usage(event),
        duration=known.took(event.duration),
    )


def of_result(event: ev.ToolReturned, tools: Tools) -> EventDetails:
    """Return the details of a call's result."""
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
    """Return the details of an operator's decisions on calls."""
    calls = (answer.call for answer in event.answers)
    return of_calls(calls, tools, by=event.by, verdict=unique(answer.decision for answer in event.answers))


def of_child(event: ev.ChildEnded, tools: Tools) -> EventDetails:
    """Return the details of a child run's end."""
    failed = event.agent_state.failed
    return of_calls((event.call,), tools, error=failed, reason=(event.agent_state,), **_list_usage(event))


def words(*said: str) -> tuple[str, ...]:
    """Return the texts that are not empty."""
    return tuple(str(word) for word in said if word)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in order, without duplicates."""
    return tuple(dict.fromkeys(names))


def _list_usage(
    event: ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned | ev.ChildEnded,
) -> dict[str, Any]:
    usage = event.usage
    used = {"input": known.sent(usage), "output": known.got(usage)}
    return {"tokens": known.tokens(usage), **used, "cost": event.cost_nanousd}


EventType = Literal["run", "model", "tool", "person", "history", "guard", "limit", "wait", "state", "note"]
"""Subject of an event kind: `type` in filters."""

Weight = Literal["routine", "plain", "decisive"]
"""`routine`: short listings omit it. `decisive`: it determined the course of the run."""

MarkedTurn = Literal["", "this", "next"]
"""Turn whose row in a listing shows a remark on the event: the current one, the next one, or none."""

Sign = Literal["", "guard", "prune"]
"""Mark of an event in a timeline, besides failures."""

E = TypeVar("E", bound=ev.Event)


class Kind(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """How events of a kind are displayed.

    `says` summarizes an event in one line without its kind, in refold's words and the log's names and
    numbers. `quotes` is an excerpt of text from others that follows it, "" if there is none. Neither is
    sanitized: the caller must do that. `marks` is the turn that shows a remark on the event, `mark` the
    remark if it differs from `says`.

    `texts` are the paths of its texts, in order: `content.text`, `reason`. `speaker` is their author, "" if
    there is none. `details` returns names, codes and numbers, given the tools of the last response's calls.
    `counts` is the member of `Stats` that counts it, with the key.

    Comparing two runs: `compared` means that it counts; `named` that it is aligned by name, too; `tells` that
    it was in the prompt or the response; `ignores` are fields that differ between any two runs, besides those
    that do so in every kind.
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
        """Return the full summary in one line: refold's words, then a colon and quoted text."""
        said, quoted = self.says(event), self.quotes(event)
        return f"{said}: {quoted}" if said and quoted else said or quoted


AnyKind = Kind[Any]


def routine(_: ev.Event) -> Weight:
    """Return `routine` for any event."""
    return "routine"


def decisive(_: ev.Event) -> Weight:
    """Return `decisive` for any event."""
    return "decisive"
