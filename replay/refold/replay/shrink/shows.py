"""What a shrunk log is to show: that something held of a state, or that a decision does not follow."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from refold.reducers.errors import RefoldError
from refold.reducers.events import Decision, Event, Fact, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.rules import rules_of
from refold.reducers.state import NEW, RunState
from refold.reducers.tokenizers import MissingTokenizer
from refold.replay.audit import Difference, parting, same, unjudged
from refold.replay.shrink.rederivation import Log


def ever(holds: Callable[[RunState], bool], registry: Registry = BUILTIN) -> Callable[[Log], bool]:
    """Whether it holds after some event of the log."""
    return lambda log: any(holds(state) for state in log.states(registry))


class Parted(NamedTuple):
    """The first decision of a log that does not follow: on which fact, and how it parts from what does.

    `recorded` and `derived` are None where that side has nothing. As a `Twist` it does the same to other decisions.
    """

    place: int
    difference: Difference
    recorded: Decision | None
    derived: Decision | None
    order: tuple[str, ...]

    def applied(self, decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions with this difference, where they have what differs."""
        found, recorded = [*decisions], self.recorded
        if self.difference is Difference.REORDERED:
            return sorted(
                found, key=lambda each: self.order.index(kind_of(each)) if kind_of(each) in self.order else -1
            )
        at = next((n for n, each in enumerate(found) if type(each) is type(self.derived)), None)
        if recorded is None:
            return found if at is None else [*found[:at], *found[at + 1 :]]
        if self.derived is None:
            return [*found, recorded]
        if at is None:
            return found
        return [*found[:at], self._changed(recorded, found[at]), *found[at + 1 :]]

    def _changed(self, recorded: Decision, decision: Decision) -> Decision:
        derived = self.derived
        if type(recorded) is not type(decision):
            return recorded
        names = recorded.__struct_fields__
        differing = {
            name: getattr(recorded, name)
            for name in names
            if getattr(recorded, name) != getattr(derived, name)
        }
        return replace(decision, **differing)


def first_parting(events: Sequence[Event], registry: Registry = BUILTIN) -> Parted | None:
    """The first decision of a log that does not follow from its facts; None: there is none. Raises as `evolve`."""
    state, facts = NEW, 0
    starts = [place for place, event in enumerate(events) if not isinstance(event, Decision)]
    for start, end in pairwise([*starts, len(events)]):
        state = evolve(state, events[start], registry)
        first, group = events[start], [each for each in events[start + 1 : end] if isinstance(each, Decision)]
        if isinstance(first, Fact):
            derived = [decision for decision, _ in rules_of(state)(state, first)]
            if not same(state, group, derived) and not unjudged(state, (*group, *derived)):
                return _parted(facts, state, group, derived)
            facts += 1
        for decision in group:
            state = evolve(state, decision, registry)
    return None


def _parted(fact: int, state: RunState, group: list[Decision], derived: list[Decision]) -> Parted:
    place, difference = parting(state, group, derived)
    recorded = group[place] if place < len(group) and difference is not Difference.MISSING else None
    expected = derived[place] if place < len(derived) and difference is not Difference.EXTRA else None
    return Parted(fact, difference, recorded, expected, tuple(map(kind_of, group)))


def parts_alike(wanted: Parted, registry: Registry = BUILTIN) -> Callable[[Log], bool]:
    """Whether the first decision that does not follow parts in the same way: the same kind, in the same fields."""
    marks = _marks(wanted)

    def shows(log: Log) -> bool:
        try:
            first = first_parting([each.event for each in log.events], registry)
        except MissingTokenizer:
            raise
        except RefoldError:
            return False
        return first is not None and _marks(first) == marks

    return shows


def _marks(parted: Parted) -> tuple[Difference, str, set[str]]:
    recorded, derived = parted.recorded, parted.derived
    said = recorded or derived
    kind = kind_of(said) if said is not None else ""
    if recorded is None or type(recorded) is not type(derived):
        return parted.difference, kind, set()
    names = recorded.__struct_fields__
    return (
        parted.difference,
        kind,
        {name for name in names if getattr(recorded, name) != getattr(derived, name)},
    )
