"""A guard, a limit, a pass, a tier may have any name: none means anything to the machine, whatever words the
machine itself counts by.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import replace

from refold.reducers.events import CallRefused, Event, GuardTripped, MessageInjected, ModelRequested, kind_of
from refold.reducers.evolution import encode_value
from refold.reducers.guards import BUILTIN, Inject, Judgement, Place, Refuse, Registry, Remind, Warn
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, FailureClass, StopReason
from support.scenario import Scenario

PLAIN = "plain"


class Speaker(msgspec.Struct, frozen=True, kw_only=True, tag_field="guard", tag="speaker"):
    """Speaks wherever it is asked."""

    name: str = PLAIN
    says: str = "warn"

    kind: ClassVar[str] = "speaker"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset(
        {Place.BEFORE_REQUEST, Place.ON_RESPONSE, Place.ON_RESULTS}
    )
    observes: ClassVar[frozenset[type[Event]]] = frozenset()
    reads_content: ClassVar[bool] = False

    def start(self) -> int:
        return 0

    def observe(self, own: int, event: Event) -> int:
        return own

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:
        match self.says:
            case "warn":
                return [Warn(code="empty_answer")]
            case "inject":
                return [Inject(code="i", text="truncated")]
            case "remind":
                return [Remind(code="r", text="overflow")]
            case _:
                calls = state.batch.calls if state.batch else ()
                return [Refuse(code="r", call=call.id) for call in calls if call.name == "set"]


REGISTRY: Registry = {**BUILTIN, "speaker": Speaker}


def policy(name: str) -> dict[str, Any]:
    """Each of these counts what it does, and has a number after which it does it no more; a limit, a pass and
    a tier are called `name`.
    """
    return {
        "limits": [
            {"type": "step", "name": name, "value": 9, "free_tools": ["act", "set"]},
            {"type": "time", "name": "time", "value": 1000},
            {"type": "token", "name": "token", "value": 200},
        ],
        "near": {"fraction": 0.0001, "reserve_tokens": 150},
        "overflow": {"max": 1, "do": [{"do": "tail", "name": "cut", "last": 2}]},
        "empty": {"again": 1, "then": "fail"},
        "stream": {"max": 1},
        "truncation": {"max": 1},
        "progress": {"every": 2},
        "retry": {"jitter": {"add": 0}, "attempts": 2},
        "pressure": {
            "of": name,
            "tiers": [{"name": name, "at": {"fraction": 0.1}, "repeat": "once"}],
        },
        "history": [{"do": "summarise", "name": name, "when": {"messages": 8}, "keep_last": 2}],
    }


def course(name: str, says: str, others: str = "step") -> Scenario:
    """A run in which everything happens that the machine counts, until it ends."""
    scenario = Scenario(
        {**policy(others), "guards": [{"guard": "speaker", "name": name, "says": says}]}, registry=REGISTRY
    )
    moves: list[Callable[[], object]] = [
        lambda: scenario.step("act", "set"),
        lambda: scenario.fail(FailureClass.CONTEXT_OVERFLOW),
        lambda: scenario.answer(""),
        scenario.fail,
        lambda: scenario.clock(100),
        lambda: scenario.answer("and so", stop=StopReason.MAX_TOKENS),
        lambda: scenario.fail(FailureClass.STREAM_BROKEN, partial="half"),
        lambda: scenario.clock(100),
        *[scenario.step] * 9,
    ]
    for move in moves:
        while scenario.state.summary is not None:
            scenario.fail_summary()
        if scenario.state.ended:
            break
        move()
    return scenario


def renamed(event: Event, name: str) -> Event:
    """The event with the guard `name` called `PLAIN`."""
    match event:
        case GuardTripped(guard=guard):
            return replace(event, guard=PLAIN if guard == name else guard)
        case CallRefused(cause=Cause.GUARD) | MessageInjected(cause=Cause.GUARD):
            return replace(event, name=PLAIN if event.name == name else event.name)
        case ModelRequested(request_only=texts):
            only = (replace(text, name=PLAIN) if text.cause is Cause.GUARD else text for text in texts)
            return replace(event, request_only=tuple(only))
        case _:
            return event


NAMES = ["near:time", "limit:step", "history:short", "failed:other:", "a.b", "machine", "", *map(str, Cause)]
SAYS = ["warn", "inject", "remind", "refuse"]


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_guard_of_any_name_changes_nothing_but_its_name(name: str, says: str) -> None:
    """The same facts lead to the same decisions and the same counts, whatever a guard is called."""
    plain, other = course(PLAIN, says), course(name, says)
    name = other.state.guards[0].name
    assert plain.log[1:] == [renamed(event, name) for event in other.log[1:]]
    counts = [
        {
            **scenario.state.spent.tally,
            Cause.GUARD: list(scenario.state.spent.tally.get(Cause.GUARD, {}).values()),
        }
        for scenario in (plain, other)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_a_limit_a_pass_and_a_tier_may_have_any_name(name: str) -> None:
    """The same facts lead to the same kinds of decisions and to the same end, also where a guard is called
    alike.
    """
    plain, other = course(PLAIN, "warn"), course(name, "warn", name)
    assert list(map(kind_of, plain.log)) == list(map(kind_of, other.log))
    assert plain.state.outcome is not None
    assert other.state.outcome is not None
    assert plain.state.outcome.code == other.state.outcome.code


@pytest.mark.parametrize("says", SAYS)
def test_the_course_has_all_that_is_counted(says: str) -> None:
    """The run above would notice: it holds each cause that a number of times is compared with."""
    tallied = set(course(PLAIN, says).state.spent.tally)
    bounded = {Cause.NEAR, Cause.FREE, Cause.OVERFLOW, Cause.EMPTY, Cause.STREAM, Cause.TRUNCATION}
    assert set() == (bounded | {Cause.PROGRESS, Cause.PRESSURE, Cause.RETRY, Cause.FAILED}) - tallied


def test_a_tally_has_one_text() -> None:
    """Equal tallies have equal bytes, in whichever order things were counted."""
    one = {Cause.RETRY: {"": 1}, Cause.GUARD: {"b": 1, "a": 2}}
    other = {Cause.GUARD: {"a": 2, "b": 1}, Cause.RETRY: {"": 1}}
    assert b'{"guard":{"a":2,"b":1},"retry":{"":1}}' == encode_value(one) == encode_value(other)
