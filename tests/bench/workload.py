"""A run to measure: built by `advance` as an engine would, kept as the bytes that a store would hold.

One step is an answer of 1.2 KB with one or two tool calls in turn, their results of 2 KB each, and what was
decided: 6.5 events and about 6 KB.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.prose import prose
from refold.reducers import (
    NEW,
    RULES,
    Event,
    Fact,
    Message,
    ReplyCall,
    RunState,
    Usage,
    advance,
    codec,
    composition,
    parse,
)
from refold.reducers.codec import Encoded
from refold.reducers.events import Answer, Manifest, ModelResponded, RunStarted, SummaryReturned, ToolReturned
from refold.reducers.vocabulary import Replay, Role, StopReason

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
SALT = b"0123456789abcdef"
RUN = "bench"

_STEPS: Mapping[str, Any] = {"type": "step", "value": 1_000_000}
_TAIL: Mapping[str, Any] = {
    "history": [{"do": "tail", "last": 100}],
    "guards": [{"guard": "repetition"}],
}
_ALL_LIMITS: Sequence[Mapping[str, Any]] = (
    _STEPS,
    {"type": "time", "value": 10_000_000},
    {"type": "token", "value": 10**12},
    {"type": "cost", "value": 1_000_000},
)
# A long way from the end, so that the tier holds at each step and the end at none.
_PRESSURE: Mapping[str, Any] = {"tiers": [{"name": "caution", "at": {"remaining": 10**6}}]}
_KNOBS: Mapping[str, Any] = {
    "limits": _ALL_LIMITS,
    "history": [{"do": "tail", "last": 100}],
    "near": {"fraction": 0.9, "reserve_tokens": 1000, "reserve_cost_fraction": 0.1},
    "nudge": True,
    "pressure": _PRESSURE,
    "progress": {"every": 5},
}
_GUARDS: Sequence[Mapping[str, Any]] = (
    {"guard": "repetition"},
    {"guard": "loop", "window": 2},
    {"guard": "errors", "rounds": 3},
    {"guard": "stall"},
    {"guard": "tool_cap", "tools": ["shell"], "max": 50},
    {"guard": "read_only", "batches": 10**6},
    {"guard": "pivot", "tool": "search", "to": "write"},
    {"guard": "keywords", "words": ["I give up for good"]},
    {"guard": "stop_on_tool", "tools": ["submit"]},
    {"guard": "arguments", "tool": "shell", "matches": "rm -rf"},
    {"guard": "handoff"},
    # Not one_call: it would refuse every second call of this workload, and a step would be another one.
)
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "default": {"limits": [_STEPS]},
    "guarded": {"limits": [_STEPS], **_TAIL},
    "limited": {
        "limits": _ALL_LIMITS,
        **_TAIL,
    },
}
"""The default but for its 50 steps; a tail of 100 messages and the repetition guard; and all four limits
besides.
"""

GUARDS: Mapping[str, Mapping[str, Any]] = {
    "no guard": _KNOBS,
    "all guards": {
        **_KNOBS,
        "guards": _GUARDS,
        "premature_end": {"max": 2},
        "approvals": {"preset": "dev"},
    },
}
"""All limits, a tail of 100, warnings near a limit, nudge, pressure and progress; and these with every guard
on.
"""

_TAIL_OF_100: Mapping[str, Any] = {"do": "tail", "last": 100}
_THRESHOLD: Mapping[str, Any] = {"messages": 120}
_SHORTER: Mapping[str, Mapping[str, Any]] = {
    "trim_messages": {"cap": 200},
    "age_results": {
        "keep_last": 20,
        "soft": {"over": 800, "head": 300, "tail": 300},
        "hard": {"over": 10_000},
    },
    "preview_results": {"tokens": 400, "chars": 400, "lines": 10},
}
STRATEGIES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "tail": [_TAIL_OF_100],
    "tail at 120": [{"do": "tail", "last": 40, "when": _THRESHOLD}],
    "token_tail": [{"do": "token_tail", "budget": 40_000}],
    "compact": [{"do": "compact", "budget": 40_000}],
    "drop_oldest": [{"do": "drop_oldest", "fraction": 0.3, "when": _THRESHOLD}],
    "digest": [{"do": "digest", "keep_last": 40, "per_message": 200, "total": 2000, "when": _THRESHOLD}],
    "summarise": [{"do": "summarise", "keep_last": 40, "when": _THRESHOLD}],
    **{f"{do}, tail": [{"do": do, **fields}, _TAIL_OF_100] for do, fields in _SHORTER.items()},
}
"""History strategies that bound the window, by name. One that only shows messages shorter bounds nothing by
itself, and stands before a tail of 100.
"""

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
    """A run begins, with a system prompt and a task; `policy` names one of `POLICIES`, `GUARDS` or
    `STRATEGIES`.
    """
    meant = POLICIES.get(policy) or GUARDS.get(policy)
    return begun(meant or {"limits": [_STEPS], "history": STRATEGIES[policy]})


def begun(meant: Mapping[str, Any]) -> tuple[RunState, Group]:
    """A run begins under this policy, with a system prompt and a task."""
    fact = RunStarted(format=1, at=START, run=RUN, rules=RULES, policy=parse(meant), model="m", tools=_TOOLS)
    said = (
        Message(role=Role.SYSTEM, text=prose(2_000, 0)),
        Message(role=Role.USER, text=prose(600, 1)),
    )
    return advance(NEW, composition.started(fact, said, SALT))


def step(state: RunState, number: int) -> tuple[RunState, list[Group]]:
    """One step of a run, composed and decided as an engine does it: the answer, each result, a summary if
    asked.
    """
    groups: list[Group] = []
    fact: Fact | None = answered(state, number)
    while fact is not None:
        state, group = advance(state, fact)
        groups.append(group)
        fact = then(state, number)
    return state, groups


def then(state: RunState, number: int) -> Fact | None:
    """What comes in before the next answer: results, and a summary."""
    if state.batch is not None:
        return returned(state, number)
    return summed_up(state, number) if state.summary is not None else None


def summed_up(state: RunState, number: int) -> Fact:
    """The summary that was asked for."""
    assert state.summary is not None
    fact = SummaryReturned(
        at=state.at + SECOND,
        request=state.summary.seq,
        usage=Usage(input=9_000, output=400),
        cost_nanousd=1_234_567,
        model="m-2026-01-01",
    )
    return composition.summarised(state, fact, prose(1_500, number), SALT)


def answered(state: RunState, number: int) -> Fact:
    """The answer to the open request, composed as an engine does."""
    assert state.request is not None
    calls = tuple(
        ReplyCall(
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
    return composition.responded(state, fact, Answer(text=prose(1_200, number)), calls, SALT)


def returned(state: RunState, number: int, chars: int = 2_000) -> Fact:
    """The result of the first call that has none: so many characters."""
    assert state.batch is not None
    call = next(call for call in state.batch.calls if call.result is None)
    fact = ToolReturned(at=state.at + SECOND // 10, call=call.id, duration=SECOND // 10)
    return composition.returned(state, fact, prose(chars, number + call.position), call.name, "0" * 64, SALT)


def stored(groups: Sequence[Group]) -> list[Encoded]:
    """The bytes of these groups, an entry for each event."""
    return [codec.encode(event) for group in groups for event in group]
