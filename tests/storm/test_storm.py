"""Real workers, killed with SIGKILL; `make storm` does it for longer."""

from pathlib import Path

import pytest

from storm.raging import storm


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_done_twice_when_workers_are_killed(tmp_path: Path) -> None:
    """After workers were killed at random, every run ends, no recorded event is gone, no charge was made twice."""
    figures = storm(tmp_path, runs=12, workers=2, steps=6, seconds=3.0, seed=7, lease=1.0, at_least=3)
    assert 0 == figures.violations, figures
    assert figures.kills
    assert figures.resumptions
