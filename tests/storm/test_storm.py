"""Real workers, killed and suspended; `make storm` does it for longer."""

from pathlib import Path

import pytest

from storm.places import SYNCED, HitServer
from storm.raging import storm
from support.postgres import PostgresServer


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_done_twice_when_workers_are_killed_and_suspended(tmp_path: Path) -> None:
    """After workers were killed and suspended at random, every run ends, no recorded event is gone, nothing
    was done twice.
    """
    figures = storm(tmp_path, runs=12, workers=2, steps=6, seconds=3.0, seed=7, lease=1.0, at_least=3)
    assert 0 == figures.violations, figures
    assert figures.kills
    assert figures.stops
    assert figures.resumptions


@pytest.mark.slow
def test_nor_when_sessions_and_the_server_are_killed(tmp_path: Path) -> None:
    """The same over PostgreSQL, whose sessions are ended and killed, and which is killed once itself."""
    server = PostgresServer(SYNCED)
    try:
        figures = storm(
            tmp_path,
            runs=12,
            workers=2,
            steps=8,
            seconds=4.0,
            seed=7,
            lease=1.0,
            server=HitServer(server.start()),
        )
    finally:
        server.remove()
    assert 0 == figures.violations, figures
    assert figures.servers_killed
    assert figures.sessions_killed + figures.sessions_ended
