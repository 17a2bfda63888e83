"""A run to measure: built by `advance` as an engine would, kept as the bytes that a store would hold.

One step is an answer of 1.2 KB with one or two tool calls in turn, their results of 2 KB each, and what was decided:
6.5 events and about 6 KB.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.prose import prose
from refold.reducers import (
    NEW,
    RULES,
    CallMade,
    Event,
    Fact,
    Message,
    RunState,
    Usage,
    advance,
    codec,
    composing,
    parse,
)
from refold.reducers.codec import Encoded
from refold.reducers.events import Answer, Manifest, ModelResponded, RunStarted, ToolReturned
from refold.reducers.vocabulary import Replay, Role, StopReason

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
SALT = b"0123456789abcdef"

_STEPS: Mapping[str, Any] = {"type": "step", "value": 1_000_000}
_TAIL: Mapping[str, Any] = {
    "history": [{"do": "tail", "last": 100}],
    "guards": [{"guard": "repetition"}],
}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "default": {"limits": [_STEPS]},
    "guarded": {"limits": [_STEPS], **_TAIL},
    "limited": {
        "limits": [
            _STEPS,
            {"type": "time", "value": 10_000_000},
            {"type": "token", "value": 10**12},
            {"type": "cost", "value": 1_000_000},
        ],
        **_TAIL,
    },
}
"""The default but for its 50 steps; a tail of 100 messages and the repetition guard; and all four limits besides."""

_TOOLS = tuple(
    Manifest(name=name, description=prose(200, place), replay=Replay.READ_ONLY, digest="0" * 64)
    for place, name in enumerate(("read", "search", "edit", "list", "write", "todo"))
)


Group = tuple[Event, ...]
"""A fact, and what was decided on it."""


def recorded(policy: str, steps: int) -> tuple[RunState, list[Group]]:
    """The state after a run of so many steps, and its groups in order."""
    state, group = opening(policy)
    groups = [group]
    for number in range(steps):
        state, following = step(state, number)
        groups += following
    return state, groups


def opening(policy: str) -> tuple[RunState, Group]:
    """A run begins, with a system prompt and a task."""
    fact = RunStarted(
        at=START, run="bench", rules=RULES, policy=parse(POLICIES[policy]), model="m", tools=_TOOLS
    )
    said = (
        Message(role=Role.SYSTEM, text=prose(2_000, 0)),
        Message(role=Role.USER, text=prose(600, 1)),
    )
    return advance(NEW, composing.started(fact, said, SALT))


def step(state: RunState, number: int) -> tuple[RunState, list[Group]]:
    """One step of a run, composed and decided as an engine does it: the answer, then each result."""
    state, group = advance(state, answered(state, number))
    groups = [group]
    while state.batch is not None:
        state, group = advance(state, returned(state, number))
        groups.append(group)
    return state, groups


def answered(state: RunState, number: int) -> Fact:
    """The answer to the open request, composed as an engine does."""
    assert state.request is not None
    calls = tuple(
        CallMade(
            name=_TOOLS[(number + place) % len(_TOOLS)].name,
            arguments=f'{{"path": "src/{number}/{place}.py", "first": {number}, "last": {number + 40}}}',
            provider_id=f"call_{number:08x}{place:016x}",
        )
        for place in range(1 + number % 2)
    )
    fact = ModelResponded(
        at=state.at + SECOND,
        request=state.request.seq,
        stop=StopReason.TOOL_USE,
        stop_raw="tool_calls",
        usage=Usage(input=12_000, output=400, cache_read=11_000),
        cost_nanousd=12_345_678,
        model="m-2026-01-01",
        adapter="bench",
        adapter_version="1",
        response_id=f"resp_{number:032x}",
        sent="0" * 64,
        duration=SECOND,
    )
    return composing.responded(state, fact, Answer(text=prose(1_200, number)), calls, SALT)


def returned(state: RunState, number: int) -> Fact:
    """The result of the first call that has none."""
    assert state.batch is not None
    call = next(call for call in state.batch.calls if call.result is None)
    fact = ToolReturned(at=state.at + SECOND // 10, call=call.id, duration=SECOND // 10)
    return composing.returned(state, fact, prose(2_000, number + call.position), call.name, "0" * 64, SALT)


def stored(groups: Sequence[Group]) -> list[Encoded]:
    """The bytes of these groups, an entry for each event."""
    return [codec.encode(event) for group in groups for event in group]
