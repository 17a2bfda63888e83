"""Planted bugs: `simulate` finds each, plays it again, and accepts the agent without the bug."""

import pytest

from testing.planted_bugs import BUGS, Bug

each_bug = pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)


@each_bug
def test_a_planted_bug_is_found_and_its_schedule_plays_it_again(bug: Bug) -> None:
    """The violation has the bug's kind; the shrunk schedule shows it again, and not without the bug."""
    report = bug.simulate(mended=False, seeds=200)
    assert not report.ok
    assert bug.kind is report.violations[0].kind
    assert report.failure is not None
    assert bug.deviations == report.failure.plan.deviations

    again = bug.simulate(mended=False, schedule=report.schedule)
    assert report.violations == again.violations or bug is BUGS["new key for each execution"]
    assert bug.kind is again.violations[0].kind
    assert bug.simulate(mended=True, schedule=report.schedule).ok


@pytest.mark.slow
@each_bug
def test_an_agent_without_the_bug_passes(bug: Bug) -> None:
    """200 seeds have no violation: there is no false alarm."""
    report = bug.simulate(mended=True, seeds=200)
    assert () == report.violations
    assert 200 == report.schedules
    assert report.fired
