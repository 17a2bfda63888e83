"""Every place at which something can go wrong in a scenario by hand, one after the other, until none is
left.
"""

from collections.abc import Iterator
from itertools import count

from simulation.faults import Fault, Kind, Point, kinds
from simulation.schedule import Outcome, Plan, play

_THOROUGHLY = (Point.APPEND, Point.LEASE)
"""Where all that is sure to hurt goes wrong at every use. Elsewhere the kinds take turns, but for a kill."""

_SURELY = (Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.KILL, Kind.LATE)
_MOST = {Point.RENEW: 6, Point.CLAIM: 6, Point.HEAD: 12}
"""Who looks after a lease does the same for as long as the run takes."""


def outcomes(scenario: str, *, everything: bool = False) -> Iterator[Outcome]:
    """Play the scenario with each fault in turn: the n-th use of each point, for n = 1, 2, 3, ... until none
    fires.
    """
    yield play(Plan(scenario=scenario))
    for point in Point:
        for nth in count(1):
            played = [play(Plan(scenario=scenario, faults=(fault,))) for fault in _at(point, nth, everything)]
            yield from played
            if not any(outcome.fired for outcome in played) or nth == _MOST.get(point):
                break


def _at(point: Point, nth: int, everything: bool) -> Iterator[Fault]:
    possible = kinds(point)
    surely = _SURELY if point in _THOROUGHLY else (Kind.KILL,)
    others = [kind for kind in possible if kind not in surely]
    for kind in possible:
        if everything or kind in surely or kind is others[nth % len(others)]:
            yield Fault(kind, point, nth)
    if everything or nth % 4 == 1:
        yield Fault(Kind.FAIL, point, nth, lasts=True)
