"""What a shrunk log is to show: that something held of a state, or that a decision does not follow."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from refold.reducers.errors import RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.events import Decision, Event, Fact, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.rules import rules_of
from refold.reducers.state import NEW, RunState
from refold.replay.parting import Difference, Parting, parting, unjudged
from refold.replay.shrink.rederivation import Log


def ever(holds: Callable[[RunState], bool], registry: Registry = BUILTIN) -> Callable[[Log], bool]:
    """Whether it holds after some event of the log."""
    return lambda log: any(holds(state) for state in log.states(registry))


class Parted(NamedTuple):
    """The first decision of a log that does not follow: on which fact, how it parts from what does, the kinds recorded there.

    As a `Twist` it does the same to other decisions.
    """

    place: int
    how: Parting
    order: tuple[str, ...]

    def applied(self, decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions with this difference, where they have what differs."""
        found, recorded, derived = [*decisions], self.how.recorded, self.how.derived
        if self.how.difference is Difference.REORDERED:
            return sorted(
                found, key=lambda each: self.order.index(kind_of(each)) if kind_of(each) in self.order else -1
            )
        at = next((n for n, each in enumerate(found) if type(each) is type(derived)), None)
        if recorded is None:
            return found if at is None else [*found[:at], *found[at + 1 :]]
        if derived is None:
            return [*found, recorded]
        if at is None:
            return found
        return [*found[:at], self._changed(recorded, found[at]), *found[at + 1 :]]

    def _changed(self, recorded: Decision, decision: Decision) -> Decision:
        if type(recorded) is not type(decision):
            return recorded
        return replace(decision, **{name: getattr(recorded, name) for name in self.how.fields})


def first_parting(events: Sequence[Event], registry: Registry = BUILTIN) -> Parted | None:
    """The first decision of a log that does not follow from its facts; None: there is none. Raises as `evolve`."""
    state, facts = NEW, 0
    starts = [place for place, event in enumerate(events) if not isinstance(event, Decision)]
    for start, end in pairwise([*starts, len(events)]):
        state = evolve(state, events[start], registry)
        first, group = events[start], [each for each in events[start + 1 : end] if isinstance(each, Decision)]
        if isinstance(first, Fact):
            derived = [decision for decision, _ in rules_of(state)(state, first)]
            how = parting(state, group, derived)
            if how is not None and not unjudged(state, (*group, *derived)):
                return Parted(facts, how, tuple(map(kind_of, group)))
            facts += 1
        for decision in group:
            state = evolve(state, decision, registry)
    return None


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
    return parted.how.difference, parted.how.kind, set(parted.how.fields)
