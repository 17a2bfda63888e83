"""`AgentMachine`: it reaches every state of a run, passes for correct agents and finds planted faults."""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from refold.engine import tool
from refold.reducers import Event, RunState
from refold.reducers.effects import RunTool, next_effects
from refold.reducers.events import ModelResponded, StateChanged, ToolReturned
from refold.reducers.guards import Judgement, Place, Stop
from refold.reducers.machine import MOVES
from refold.testing import AgentMachine

REACHED: Counter[str] = Counter()


@tool
def pay(cents: int) -> str:
    """Pay the shop."""
    return f"paid {cents}"


@tool(replay="read_only")
def look(item: str = "") -> str:
    """Look at an item."""
    return "an apple"


class Quota(msgspec.Struct, frozen=True, kw_only=True, tag_field="guard", tag="quota"):
    """Stops the run at the third result."""

    name: str = ""

    kind: ClassVar[str] = "quota"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_RESULTS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ToolReturned})
    reads_content: ClassVar[bool] = False

    def start(self) -> int:
        return 0

    def observe(self, own: int, event: Event) -> int:
        return own + 1

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:
        if own >= 3:
            yield Stop(code="quota", reason="three results")


COUNTER = itertools.count()


class Moody(Quota, frozen=True, tag_field="guard", tag="quota"):
    """Breaks the law of purity: it counts in a variable of the module."""

    def observe(self, own: int, event: Event) -> int:
        return next(COUNTER)


class Fails(Quota, frozen=True, tag_field="guard", tag="quota"):
    """Raises at a result."""

    def observe(self, own: int, event: Event) -> int:
        raise KeyError("batch")


class Counting(AgentMachine):
    """Counts the moves that were reached."""

    def teardown(self) -> None:
        super().teardown()
        moves = [each for each in self.log if isinstance(each, StateChanged)]
        REACHED.update(f"{each.source} {each.trigger}" for each in moves)


class Shop(Counting):
    """A correct agent: tools of two classes, an approval, limits and a guard."""

    tools = (pay, look)
    policy: ClassVar[Any] = {
        "guards": [{"guard": "quota"}],
        "limits": [{"type": "step", "value": 8}, {"type": "time", "value": 900}],
        "approvals": {"chain": [{"approver": "human", "tools": ["pay"], "timeout": 300}]},
        "end_of_turn": "wait",
    }
    guards: ClassVar[Any] = {"quota": Quota}


class Plain(Counting):
    """An agent with tools of all classes and the default policy."""


TestShop = Shop.TestCase
TestPlain = Plain.TestCase


def _check(machine: type[AgentMachine], examples: int = 200) -> None:
    plenty = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        stateful_step_count=30,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(machine, settings=plenty)


@pytest.mark.parametrize(
    ("guard", "problem"),
    [(Moody, "the state is not what folding the log gives|the audit found"), (Fails, "a guard failed")],
)
def test_a_faulty_guard_is_found(guard: type[Any], problem: str) -> None:
    """A guard that counts outside of its state, and one that raises, fail."""

    class Faulty(Shop):
        guards: ClassVar[Any] = {"quota": guard}

    with pytest.raises(AssertionError, match=problem):
        _check(Faulty)


def test_an_invariant_of_the_user_is_checked() -> None:
    """An invariant that is added in a subclass fails with its own message."""

    class Thrifty(Shop):
        @invariant()
        def pays_once(self) -> None:
            paid = [call for each in self.log if isinstance(each, ModelResponded) for call in each.calls]
            assert sum(call.name == "pay" for call in paid) < 2, "it pays twice"

    with pytest.raises(AssertionError, match="it pays twice"):
        _check(Thrifty)


def test_a_call_that_is_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that would begin an interrupted call again, without asking, fails."""

    def forgetful(state: RunState) -> tuple[Any, ...]:
        batch = state.batch
        begun = [call for call in (batch.calls if batch else ()) if call.dispatched and call.result is None]
        return tuple(
            RunTool(seq=call.dispatched, call=call.id, name=call.name, run="r1") for call in begun
        ) or effects(state)

    effects = next_effects
    monkeypatch.setattr("refold.testing.machine.next_effects", forgetful)
    with pytest.raises(AssertionError, match="calls that must run at most once were begun again: c1"):
        _check(Plain)


@pytest.mark.slow
def test_most_moves_are_reached() -> None:
    """Three agents reach most moves of the machine, so the invariants are checked in all kinds of states."""

    class Tight(Counting):
        policy: ClassVar[Any] = {"limits": [{"type": "step", "value": 2}, {"type": "token", "value": 60}]}

    for machine in (Plain, Shop, Tight):
        _check(machine)
    missed = {f"{source} {trigger}" for source, trigger in MOVES} - {*REACHED}
    assert len(missed) <= 6, missed
