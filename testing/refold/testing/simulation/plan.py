"""The plan of a schedule: a seed, and what deviates from an undisturbed run. Its text plays it again."""

import random
from collections.abc import Callable, Iterator

import msgspec

from refold.reducers.errors import WrongUse
from refold.testing.simulation.faults import Fault, Kind, kinds

_LATENCY = "latency="
_SEED = "seed="


class Plan(msgspec.Struct, frozen=True):
    """Everything that a schedule depends on, besides the agent.

    Args:
        seed: determines the order of tasks and all choices that are not in the plan.
        faults: the faults.
        latency: virtual seconds that each use of the store takes.
        rivals: other engines drive the run, too, at times of the seed's choice.
        remote: processes run on different machines, so the lease of a dead one must expire first.
        idle: time passes between processes, and the operator may answer later.
    """

    seed: int = 0
    faults: tuple[Fault, ...] = ()
    latency: float = 0.0
    rivals: bool = False
    remote: bool = False
    idle: bool = False

    def __str__(self) -> str:
        words = [f"{_SEED}{self.seed}", *(word for word in _FLAGS if getattr(self, word))]
        words += [f"{_LATENCY}{self.latency:g}"] if self.latency else []
        return " ".join([*words, *map(str, self.faults)])

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Return the plan that is written so. Raises `WrongUse` for any other text."""
        plan = cls()
        for word in text.split():
            if word in _FLAGS:
                plan = msgspec.structs.replace(plan, **{word: True})
            elif word.startswith(_SEED):
                plan = msgspec.structs.replace(plan, seed=int(_number(word, _SEED)))
            elif word.startswith(_LATENCY):
                plan = msgspec.structs.replace(plan, latency=_number(word, _LATENCY))
            elif ":" in word:
                plan = msgspec.structs.replace(plan, faults=(*plan.faults, Fault.parse(word)))
            else:
                raise WrongUse(
                    f"schedule: unknown word {word!r}; expected seed=NUMBER, latency=SECONDS, {', '.join(_FLAGS)}, "
                    "or faults such as kill:append:7"
                )
        return plan

    @classmethod
    def draw(cls, seed: int, draw_faults: Callable[[random.Random], tuple[Fault, ...]]) -> "Plan":
        """Return the plan of a seed, with faults that `draw_faults` chooses."""
        chance = random.Random(f"plan {seed}")
        return cls(
            seed=seed,
            faults=draw_faults(random.Random(f"faults {seed}")),
            latency=chance.choice((0.0, 0.0, 0.01, 2.0)),
            rivals=chance.random() < 0.5,
            remote=chance.random() < 0.5,
            idle=chance.random() < 0.75,
        )

    @property
    def deviations(self) -> int:
        """Return the number of faults and other deviations from an undisturbed run."""
        lasting = sum(fault.lasts for fault in self.faults)
        return len(self.faults) + lasting + sum((bool(self.latency), self.rivals, self.remote, self.idle))

    def simpler(self) -> Iterator["Plan"]:
        """Yield simpler plans: with fewer deviations, with kills for other faults, with earlier faults."""
        replace = msgspec.structs.replace
        if len(self.faults) > 2:
            for half in (self.faults[::2], self.faults[1::2]):
                yield replace(self, faults=half)
        for place in range(len(self.faults)):
            yield replace(self, faults=self.faults[:place] + self.faults[place + 1 :])
        for word in _FLAGS:
            if getattr(self, word):
                yield replace(self, **{word: False})
        if self.latency:
            yield replace(self, latency=0.0)
        if self.deviations > 1:
            for fault in self.faults:
                yield from (Plan(self.seed, (other,)) for other in _simpler_faults(fault))
        for place, fault in enumerate(self.faults):
            for other in _simpler_faults(fault):
                yield replace(self, faults=(*self.faults[:place], other, *self.faults[place + 1 :]))
        if self.seed:
            yield replace(self, seed=0)


def _simpler_faults(fault: Fault) -> Iterator[Fault]:
    """Yield the fault once instead of repeatedly, a kill instead of it, and the same at earlier uses."""
    if fault.lasts:
        yield Fault(fault.kind, fault.point, fault.nth)
    if fault.kind is not Kind.KILL and Kind.KILL in kinds(fault.point):
        yield from (Fault(Kind.KILL, fault.point, nth) for nth in range(1, min(fault.nth, _EARLIER) + 1))
    yield from (Fault(fault.kind, fault.point, nth) for nth in range(1, min(fault.nth, _EARLIER)))


_EARLIER = 8  # uses of a point that are tried
_FLAGS = ("rivals", "remote", "idle")


def _number(word: str, name: str) -> float:
    try:
        value = float(word.removeprefix(name))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise WrongUse(f"schedule: {word!r}: expected a number that is not negative after {name}")
    return value
