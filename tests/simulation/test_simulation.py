"""Thousands of schedules of failing stores, models, tools and processes; each must keep every promise."""

import logging
from collections.abc import Iterable

import pytest

from refold.testing.simulation.faults import Fault, Kind, Point, kinds
from refold.testing.simulation.schedule import Outcome
from simulation.exhausting import plays
from simulation.plays import Play, of_seed
from simulation.scenarios import BY_HAND
from support.strategies import scaled

CHUNKS, SEEDS = 8, scaled(30)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    # Generated policies cause warnings, which do not matter here.
    caplog.set_level(logging.ERROR, "refold")


def broken(played: Iterable[tuple[Play, Outcome]]) -> list[str]:
    """Return the commands that play failures again, each with its first violation."""
    return [f"{made}  # {outcome.violations[0]}" for made, outcome in played if outcome.violations]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", BY_HAND)
def test_whatever_fails_once_or_for_good_no_promise_is_broken(scenario: str) -> None:
    """The n-th use of the store, a model or a tool fails, hangs or kills, for every n: all promises hold."""
    assert [] == broken(plays(scenario))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_goes_wrong_together_no_promise_is_broken(chunk: int) -> None:
    """Any policy, any model, several faults, rivals and set clocks in one schedule: all promises hold."""
    made = map(of_seed, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert [] == broken((each, each.play()) for each in made)


def test_a_seed_plays_the_same_schedule_again() -> None:
    """Two plays of a seed have the same trace, line by line, and the same log heads."""
    first, second = (of_seed(7).play(trace=True) for _ in range(2))
    assert first.trace
    assert first.trace == second.trace
    assert first.heads
    assert first.heads == second.heads


@pytest.mark.parametrize("point", Point)
def test_a_fault_is_parsed_from_its_text(point: Point) -> None:
    """Parsing the text of a fault returns that fault."""
    for kind in kinds(point):
        for lasts in (False, True):
            fault = Fault(kind, point, 3, lasts)
            assert fault == Fault.parse(str(fault))
    assert "kill:append:7+" == str(Fault(Kind.KILL, Point.APPEND, 7, lasts=True))
