"""Every fault at every place of a scenario by hand: the n-th use of each point, until none is left."""

from collections.abc import Iterator
from itertools import count

from refold.testing.simulation.faults import Fault, Kind, Point, kinds
from refold.testing.simulation.schedule import Outcome
from simulation.plays import Play, of_faults

_EVERYWHERE = (Point.APPEND, Point.LEASE)
"""Points at which every harmful kind happens at every use. Elsewhere the kinds take turns, except kills."""

_HARMFUL = (Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.KILL, Kind.LATE)
_MOST = {Point.RENEW: 6, Point.CLAIM: 6, Point.HEAD: 12}
"""Points that are used for as long as a run takes, always in the same way."""


def plays(scenario: str, *, everything: bool = False) -> Iterator[tuple[Play, Outcome]]:
    """Play the scenario with each fault in turn: the n-th use of each point, until no fault fires."""
    yield _play(of_faults(scenario))
    for point in Point:
        for nth in count(1):
            played = [_play(of_faults(scenario, fault)) for fault in _faults_at(point, nth, everything)]
            yield from played
            if not any(outcome.fired for _, outcome in played) or nth == _MOST.get(point):
                break


def _play(made: Play) -> tuple[Play, Outcome]:
    return made, made.play()


def _faults_at(point: Point, nth: int, everything: bool) -> Iterator[Fault]:
    possible = kinds(point)
    always = _HARMFUL if point in _EVERYWHERE else (Kind.KILL,)
    others = [kind for kind in possible if kind not in always]
    for kind in possible:
        if everything or kind in always or kind is others[nth % len(others)]:
            yield Fault(kind, point, nth)
    if Kind.FAIL in possible and (everything or nth % 4 == 1):
        yield Fault(Kind.FAIL, point, nth, lasts=True)
