"""A policy is bound to the order of checks once: for that policy, and for the guards that are on duty."""

from typing import ClassVar

from msgspec.structs import replace

from refold.reducers import BUILTIN, decide
from refold.reducers.events import Decision, ModelResponded, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.guards import Place
from refold.reducers.guards.duty import NO_CONTENT, watches
from refold.reducers.guards.endings import Keywords
from refold.reducers.rules.order import ORDER, Phase
from refold.reducers.state import RunState
from support.scenario import Scenario

WORDS = {"guard": "keywords", "words": ["done"]}


class Elsewhere(Keywords, frozen=True, kw_only=True, tag="keywords"):
    """The same kind in another registry: it speaks nowhere."""

    places: ClassVar[frozenset[Place]] = frozenset()


def answered(text: str) -> tuple[Scenario, RunState, ModelResponded]:
    """A run whose model answered, and its state behind the fact, before anything was decided."""
    scenario = Scenario({"guards": [WORDS]})
    before = scenario.state
    scenario.answer(text)
    fact = next(event for event in scenario.log if isinstance(event, ModelResponded))
    return scenario, evolve(before, fact), fact


def codes(decided: list[tuple[Decision, RunState]]) -> list[str]:
    return [str(getattr(decision, "code", kind_of(decision))) for decision, _ in decided]


def test_other_guards_on_one_setup() -> None:
    """Who audits with another registry is not told what the first one's guards would say."""
    _, state, fact = answered("done")
    others = watches(state.policy, {**BUILTIN, "keywords": Elsewhere})
    for _ in range(2):  # in turns: what was bound for one is not asked for the other
        assert "keyword" in codes(decide(state, fact))
        assert ["end_turn"] == codes(decide(replace(state, guards=others), fact))


def test_a_guard_that_went_blind() -> None:
    """It is asked for what it said while it saw, and for nothing since."""
    _, state, fact = answered("done")
    assert "keyword" in codes(decide(state, fact))
    blind = tuple([replace(watch, blind=NO_CONTENT) for watch in state.guards])
    assert ["end_turn"] == codes(decide(replace(state, guards=blind), fact))


def test_another_policy_on_the_same_run() -> None:
    """An amendment binds anew."""
    scenario, _, _ = answered("go on")
    waiting = Scenario({"end_of_turn": "wait"})
    waiting.answer("one")
    waiting.amend({"guards": [WORDS]})
    waiting.say("two")
    waiting.answer("done")
    assert "keyword" == waiting.outcome()[0]
    assert "end_turn" == scenario.outcome()[0]


def test_what_is_off_is_not_asked() -> None:
    """A policy that has nothing on is asked the machine's own steps; `why` is shown all that stand there all
    the same.
    """
    scenario = Scenario({"limits": [], "truncation": None, "stream": None, "empty": None})
    before = scenario.state
    scenario.answer("fine")
    fact = next(event for event in scenario.log if isinstance(event, ModelResponded))
    state, shown = evolve(before, fact), list[object]()
    assert codes(decide(state, fact)) == codes(decide(state, fact, lambda entry, _: shown.append(entry)))
    phases = (Phase.RESPONSE, Phase.ANSWER)
    bound = [entry for phase in phases for entry, _ in state.setup.checks[phase][1]]
    assert set(bound) < set(shown) <= {entry for phase in phases for entry in ORDER[phase]}
