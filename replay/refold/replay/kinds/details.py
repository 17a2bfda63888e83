"""What an event says of itself in names, codes and numbers: the part of a flat event that its kind alone decides."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from refold.reducers.events import (
    ApprovalAnswered,
    ChildEnded,
    ModelFailed,
    ModelResponded,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.machine import AgentState
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


def of_model(event: ModelResponded | ModelFailed | SummaryReturned, said: str = "") -> EventDetails:
    """What a model did; `said` is the code of how it ended."""
    calls = event.calls if isinstance(event, ModelResponded) else ()
    failed = isinstance(event, ModelFailed)
    return EventDetails(
        name=once(call.name for call in calls),
        call=tuple(call.id for call in calls),
        model="" if isinstance(event, ModelFailed) else event.model,
        error=failed,
        reason=words(said),
        **_used(event),
        duration=known.took(event.duration),
    )


def of_result(event: ToolReturned, tools: Tools) -> EventDetails:
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


def of_answers(event: ApprovalAnswered, tools: Tools) -> EventDetails:
    """What a person decided about calls."""
    calls = (answer.call for answer in event.answers)
    return of_calls(calls, tools, by=event.by, verdict=once(answer.decision for answer in event.answers))


def of_child(event: ChildEnded, tools: Tools) -> EventDetails:
    """How a run ended that a call began."""
    failed = event.agent_state is AgentState.ERROR
    return of_calls((event.call,), tools, error=failed, reason=(event.agent_state,), **_used(event))


def words(*said: str) -> tuple[str, ...]:
    """Those that are not empty."""
    return tuple(str(word) for word in said if word)


def once(names: Iterable[str]) -> tuple[str, ...]:
    """The names in order, each once."""
    return tuple(dict.fromkeys(names))


def _used(event: ModelResponded | ModelFailed | SummaryReturned | ChildEnded) -> dict[str, Any]:
    usage = event.usage
    used = {"input": known.sent(usage), "output": known.got(usage)}
    return {"tokens": known.tokens(usage), **used, "cost": event.cost_nanousd}
