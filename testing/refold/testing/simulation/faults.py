"""Faults as data: what fails, at which use of which component, once or repeatedly.

A fault is written `kind:point:n`, or `kind:point:n+` if it lasts. `kill:append:7` kills the process at the
seventh append of the schedule, counted over all processes.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum, unique

import msgspec

from refold.reducers.errors import WrongUse


@unique
class Kind(StrEnum):
    """What happens."""

    FAIL = "fail"  # an error; nothing was done
    LOSE = "lose"  # an error with unknown outcome; nothing was done
    TEAR = "tear"  # an error with unknown outcome; it was done
    ROB = "rob"  # another engine takes the run over by force; then an error, and nothing was done
    HANG = "hang"  # no response, ever
    SLOW = "slow"  # it was done, and the response arrives after the lease has expired
    KILL = "kill"  # the process dies before it is done
    LATE = "late"  # the process dies after it was done, without knowing that
    STOP = "stop"  # the task that awaits the run is cancelled
    CANCEL = "cancel"  # an operator cancels the run
    PAUSE = "pause"  # the whole process is suspended until its lease has expired
    BACK = "back"  # the wall clock is set back by an hour
    FORTH = "forth"  # the wall clock is set forward by an hour
    TWICE = "twice"  # the call runs a second time, under the same idempotency key


@unique
class Point(StrEnum):
    """Where it happens: a use of the store, of a model, or of a tool."""

    APPEND = "append"
    READ = "read"
    HEAD = "head"
    LEASE = "lease"
    RENEW = "renew"
    RELEASE = "release"
    SNAPSHOT = "snapshot"
    CLAIM = "claim"
    ASK = "ask"  # a request reaches a model
    SAY = "say"  # a model streams a delta
    BEGIN = "begin"  # a call reaches a tool, which has done nothing yet
    AWAIT = "await"  # a tool waits in the middle of its work: any of its `await`s
    SEND = "send"  # an effect is on its way, and happens even if its process dies
    ACT = "act"  # a tool has done its work, and has not returned its result yet
    RERUN = "rerun"  # a call of an idempotent or read-only tool has returned
    RECONCILE = "reconcile"  # a tool is asked for the outcome of a call


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
_STORE_ONLY = (Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.SLOW, Kind.LATE)
_SILENT = (Kind.HANG, Kind.KILL, Kind.STOP, Kind.CANCEL, Kind.PAUSE, Kind.BACK, Kind.FORTH)


def kinds(point: Point) -> tuple[Kind, ...]:
    """Return the kinds of faults that are possible at a point."""
    if point in STORE:
        return (*_STORE_ONLY, Kind.ROB, *_SILENT)
    match point:
        case Point.RERUN:
            return (Kind.TWICE,)
        case Point.AWAIT:  # no error: `anyio.sleep` does not raise any
            return _SILENT
        case Point.ACT:
            return (Kind.FAIL, Kind.SLOW, Kind.ROB, *_SILENT)
        case _:
            return (Kind.FAIL, Kind.ROB, *_SILENT)


class Fault(msgspec.Struct, frozen=True):
    """A fault at the `nth` use of `point`, counted from 1; if it `lasts`, also at later uses."""

    kind: Kind
    point: Point
    nth: int
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.point}:{self.nth}{'+' if self.lasts else ''}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Return the fault that is written so. Raises `WrongUse` for any other text."""
        parts = text.split(":")
        try:
            kind, point, nth = parts
            fault = cls(Kind(kind), Point(point), int(nth.removesuffix("+")), nth.endswith("+"))
        except ValueError:
            fault = None
        if fault is None or fault.nth < 1 or fault.kind not in kinds(fault.point):
            known = f"points are {', '.join(Point)}"
            if len(parts) == 3 and parts[1] in tuple(Point):
                known = f"at {parts[1]}, the kinds are {', '.join(kinds(Point(parts[1])))}"
            raise WrongUse(f"fault {text!r}: expected kind:point:number, as in kill:append:7; {known}")
        return fault


_LASTING_USES = 30
"""Uses for which a lasting fault fires: more than the retries of any policy that stops retrying."""


class Faults:
    """The planned faults of one schedule, and how often each kind fired."""

    def __init__(self, planned: tuple[Fault, ...] = ()) -> None:
        self.planned = planned
        self.fired: Counter[Kind] = Counter()
        self.effective: set[Fault] = set()  # planned faults that fired
        self.uses: Counter[Point] = Counter()
        self._over = False

    def next(self, point: Point) -> Kind | None:
        """Count a use of `point`, and return the fault that happens at it."""
        self.uses[point] += 1
        if self._over:
            return None
        for fault in self.planned:
            nth = self.uses[fault.point]
            if fault.point is point and fault.nth <= nth <= fault.nth + _LASTING_USES * fault.lasts:
                self.fired[fault.kind] += 1
                self.effective.add(fault)
                return fault.kind
        return None

    def stop(self) -> None:
        """Let no further fault happen."""
        self._over = True


_LIKELY = (Point.APPEND,) * 5 + (Point.ACT, Point.BEGIN, Point.SEND, Point.ASK, Point.SAY) * 2
_LIKELY_TOOLS = (
    *(Point.APPEND, Point.BEGIN, Point.AWAIT, Point.SEND, Point.ACT, Point.RECONCILE),
    *(Point.AWAIT, Point.ACT, Point.RERUN, Point.RERUN, Point.RECONCILE),
)
_DEADLY = (Kind.KILL, Kind.LATE)
_SERIOUS = (Kind.KILL, Kind.LATE, Kind.PAUSE, Kind.TWICE)
_LASTING = (Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.HANG, Kind.SLOW, Kind.KILL, Kind.LATE, Kind.STOP)


def draw_faults(chance: random.Random) -> tuple[Fault, ...]:
    """Draw zero to six faults for a run of unknown length; most are at appends and tools, most are deadly."""
    others = tuple(point for point in Point if point not in (Point.AWAIT, Point.RERUN))
    return tuple(
        _draw_fault(chance, chance.choice(_LIKELY if chance.random() < 0.7 else others), 12, ())
        for _ in range(chance.choice((0, 1, 2, 2, 3, 4, 6)))
    )


def draw_swarm(chance: random.Random, uses: Mapping[Point, int]) -> tuple[Fault, ...]:
    """Draw one to five faults of a random subset of kinds, at points that a run uses.

    A subset leaves most kinds out, so that faults of a kind can meet often and undisturbed by others.

    Args:
        chance: the source of randomness.
        uses: how often a schedule without faults used each point. Points that it did not list are left out.
    """
    swarm = [kind for kind in Kind if chance.random() < (0.6 if kind in _SERIOUS else 0.3)] or [Kind.KILL]
    places = [point for point in Point if point in uses and _possible(point, swarm)]
    likely = [point for point in _LIKELY_TOOLS if point in places]
    drawn: list[Fault] = []
    for _ in range(chance.choice((1, 1, 2, 2, 3, 5))):
        if not places:
            break
        point = chance.choice(likely if likely and chance.random() < 0.7 else places)
        drawn.append(_draw_fault(chance, point, max(2, uses[point] + 1), swarm))
    return tuple(drawn)


def _possible(point: Point, swarm: Sequence[Kind]) -> list[Kind]:
    return [kind for kind in kinds(point) if kind in swarm]


def _draw_fault(chance: random.Random, point: Point, most: int, swarm: Sequence[Kind]) -> Fault:
    possible = (
        _possible(point, swarm)
        if swarm
        else [kind for kind in kinds(point) if chance.random() < 0.5 or kind in _DEADLY]
    )
    kind = chance.choice(possible)
    lasts = kind in _LASTING and chance.random() < 0.15
    return Fault(kind, point, chance.randint(1, most), lasts)
