"""Faults as data: what goes wrong, at which use of which thing, once or for good.

A fault is written `kind:point:n`, and `kind:point:n+` if it lasts: `kill:append:7` kills the process at the
seventh append of the schedule, whichever process makes it.
"""

import random
from collections import Counter
from enum import StrEnum, unique

import msgspec


@unique
class Kind(StrEnum):
    """What goes wrong."""

    FAIL = "fail"  # an error, and nothing was done
    LOSE = "lose"  # an error that leaves the outcome open, and nothing was done
    TEAR = "tear"  # an error that leaves the outcome open, and it was done
    ROB = "rob"  # nothing is done, another engine takes the run by force, and then comes an error
    HANG = "hang"  # no answer, ever
    SLOW = "slow"  # done, and the answer comes after longer than a lease is good for
    KILL = "kill"  # the process dies before it is done
    LATE = "late"  # the process dies after it was done, before it knows
    STOP = "stop"  # whoever awaits the run is cancelled
    CANCEL = "cancel"  # somebody asks the run to stop
    PAUSE = "pause"  # the whole process stands still for longer than a lease is good for
    BACK = "back"  # the wall clock is set back by an hour
    FORTH = "forth"  # the wall clock is set forward by an hour


@unique
class Point(StrEnum):
    """Where it goes wrong: a use of the store, of a model, of a tool."""

    APPEND = "append"
    READ = "read"
    HEAD = "head"
    LEASE = "lease"
    RENEW = "renew"
    RELEASE = "release"
    SNAPSHOT = "snapshot"
    CLAIM = "claim"
    ASK = "ask"  # a request reaches a model
    SAY = "say"  # a model streams
    BEGIN = "begin"  # a call reaches a tool, which has done nothing yet
    SEND = "send"  # what the tool does is on its way, and happens whatever becomes of its process
    ACT = "act"  # the tool has done what it does, and has not returned
    RECONCILE = "reconcile"


STORE = (
    Point.APPEND,
    Point.READ,
    Point.HEAD,
    Point.LEASE,
    Point.RENEW,
    Point.RELEASE,
    Point.SNAPSHOT,
    Point.CLAIM,
)
_OF_THE_STORE = (Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.SLOW, Kind.LATE)
_OF_ALL = (Kind.ROB, Kind.HANG, Kind.KILL, Kind.STOP, Kind.CANCEL, Kind.PAUSE, Kind.BACK, Kind.FORTH)


def kinds(point: Point) -> tuple[Kind, ...]:
    """What may go wrong there."""
    return (*_OF_THE_STORE, *_OF_ALL) if point in STORE else (Kind.FAIL, *_OF_ALL)


class Fault(msgspec.Struct, frozen=True):
    """The `nth` use of `point`, counted from 1 over the schedule, goes wrong; if it `lasts`, so do those
    after it.
    """

    kind: Kind
    point: Point
    nth: int
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.point}:{self.nth}{'+' if self.lasts else ''}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """The fault that is written so. Raises `ValueError` for anything else."""
        kind, point, nth = text.split(":")
        return cls(Kind(kind), Point(point), int(nth.rstrip("+")), nth.endswith("+"))


_LONGEST = 30
"""Uses for which a fault lasts: more than any policy with an end tries again; one without has to end too."""


class Faults:
    """The faults of one schedule, and what has come of them: `fired` counts by kind."""

    def __init__(self, planned: tuple[Fault, ...] = ()) -> None:
        self.planned = planned
        self.fired: Counter[Kind] = Counter()
        self._uses: Counter[Point] = Counter()
        self._over = False

    def next(self, point: Point) -> Kind | None:
        """This is another use of `point`: what goes wrong with it."""
        self._uses[point] += 1
        if self._over:
            return None
        for fault in self.planned:
            nth = self._uses[fault.point]
            if fault.point is point and fault.nth <= nth <= fault.nth + _LONGEST * fault.lasts:
                self.fired[fault.kind] += 1
                return fault.kind
        return None

    def stop(self) -> None:
        """The world is well from here on."""
        self._over = True


_LIKELY = (Point.APPEND,) * 5 + (Point.ACT, Point.BEGIN, Point.SEND, Point.ASK, Point.SAY) * 2
_DEADLY = (Kind.KILL, Kind.LATE)
_LASTING = (Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.HANG, Kind.SLOW, Kind.KILL, Kind.LATE, Kind.STOP)


def drawn(chance: random.Random) -> tuple[Fault, ...]:
    """None to six faults, most of them where most happens, and most of them deadly."""
    return tuple(_one(chance) for _ in range(chance.choice((0, 1, 2, 2, 3, 4, 6))))


def _one(chance: random.Random) -> Fault:
    point = chance.choice(_LIKELY if chance.random() < 0.7 else tuple(Point))
    kind = chance.choice([kind for kind in kinds(point) if chance.random() < 0.5 or kind in _DEADLY])
    lasts = kind in _LASTING and chance.random() < 0.15
    return Fault(kind, point, chance.randint(1, 12), lasts)
