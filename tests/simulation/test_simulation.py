"""Thousands of schedules of failing stores, models, tools and processes; each must keep every promise."""

import logging
from collections.abc import Iterable

import pytest

from simulation.exhausting import outcomes
from simulation.faults import Fault, Kind, Point, kinds
from simulation.scenarios import BY_HAND
from simulation.schedule import Outcome, Plan, play
from support.strategies import scaled

CHUNKS, SEEDS = 8, scaled(30)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    # What is wrong with a policy that was drawn from a hat is nobody's concern.
    caplog.set_level(logging.ERROR, "refold")


def broken(played: Iterable[Outcome]) -> list[str]:
    """The commands that play again what went wrong, each with what did."""
    return [f"{outcome.plan}  # {outcome.violations[0]}" for outcome in played if outcome.violations]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", BY_HAND)
def test_whatever_fails_once_or_for_good_no_promise_is_broken(scenario: str) -> None:
    """The n-th use of the store, a model or a tool fails, hangs, tears or kills, for every n: all promises
    hold.
    """
    assert [] == broken(outcomes(scenario))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_goes_wrong_together_no_promise_is_broken(chunk: int) -> None:
    """Any policy, any model, several faults, rival engines and set clocks in one schedule: all promises
    hold.
    """
    plans = map(Plan.by_chance, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert [] == broken(map(play, plans))


def test_a_seed_gives_the_same_schedule_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Played twice, a plan leaves the same trace, line for line: a failure can be looked at."""
    traces: list[str] = []
    for _ in range(2):
        play(Plan.by_chance(7), trace=True)
        traces.append(capsys.readouterr().out)
    assert traces[0].splitlines() == traces[1].splitlines()
    assert traces[0]


@pytest.mark.parametrize("point", Point)
def test_a_fault_is_written_as_it_is_read(point: Point) -> None:
    """The text of a fault is that fault again."""
    for kind in kinds(point):
        for lasts in (False, True):
            fault = Fault(kind, point, 3, lasts)
            assert fault == Fault.parse(str(fault))
    assert "kill:append:7+" == str(Fault(Kind.KILL, Point.APPEND, 7, lasts=True))
