"""What the runs of a test session reached: counted from the events that engines append.

The reducers have no hook for this. Each appended fact is folded again, and its decisions are derived again,
with a callback for readers of the rules that shows which rule made each decision.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from refold.engine.journal import Journal
from refold.reducers.errors import RefoldError
from refold.reducers.events import (
    KINDS,
    CallRefused,
    Event,
    Fact,
    GuardTripped,
    LimitReached,
    PolicyAmended,
    RunForked,
    RunStarted,
    StateChanged,
    kind_of,
)
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN
from refold.reducers.machine import MOVES
from refold.reducers.policy import Policy
from refold.reducers.rules import order
from refold.reducers.rules.flow import Entry, FirstOf, Flow, WithoutCalls
from refold.reducers.rules.guards import Guards
from refold.reducers.rules.limits import Limits, TimeLimits
from refold.reducers.rules.order import ORDER, rules_of
from refold.reducers.rules.requests import Request
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause

_PERMISSIONS = "permissions"


class Section(NamedTuple):
    """A part of the report: the names of what was reached, and of what was not."""

    name: str
    reached: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def percent(self) -> float:
        """The reached share in percent; 100 if there is nothing to reach."""
        known = len(self.reached) + len(self.missed)
        return 100 * len(self.reached) / known if known else 100.0


class Collector:
    """Counts of the events that `Journal.append` wrote between `begin` and `end`, by section and name.

    `possible` has what the policies of the runs could have reached: their guards, limits and permission
    rules. Machine, rules, event kinds and policy keys are known without a run.
    """

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in _SECTIONS}
        self.possible: dict[str, set[str]] = {name: set() for name in _SECTIONS}
        self.possible["moves"] |= {
            f"{source} --{trigger}--> {target}"
            for (source, trigger), targets in MOVES.items()
            for target in targets
        }
        self.possible["event kinds"] |= {*KINDS}
        self.possible["decision rules"] |= {name_of(entry) for entries in ORDER.values() for entry in entries}
        self.possible["policy keys"] |= {each.name for each in msgspec.structs.fields(Policy)} - {"schema"}
        self.runs = 0
        self._append = Journal.append

    def begin(self) -> None:
        """Observe every append of this process."""
        original, take = self._append, self.take

        async def append(
            self: Journal, before: RunState, after: RunState, events: Sequence[Event], salt: bytes
        ) -> None:
            await original(self, before, after, events, salt)
            take(before, after, events)

        Journal.append = append  # type: ignore[method-assign]

    def end(self) -> None:
        """Restore what `begin` replaced."""
        Journal.append = self._append  # type: ignore[method-assign]

    def take(self, before: RunState, after: RunState, events: Sequence[Event]) -> None:
        """Count a fact with its decisions. `before` and `after` are the states around them."""
        self.runs += before.seq == 0
        for event in events:
            self.counts["event kinds"][kind_of(event)] += 1
            if isinstance(event, RunStarted | RunForked | PolicyAmended):
                self._take_policy(after.policy)
            self._take_event(event, after)
        if isinstance(events[0], Fact):
            self._take_rules(before, after, events[0])

    def _take_policy(self, policy: Policy) -> None:
        default = Policy()
        for field in msgspec.structs.fields(Policy):
            if getattr(policy, field.name) != getattr(default, field.name):
                self.counts["policy keys"][field.name] += 1
        self.possible["limits"] |= {limit.name for limit in policy.limits if limit.value is not None}
        for entry in policy.guards:
            name = str(entry["name"])
            self.possible["guards"].add(name)
            if entry["guard"] == _PERMISSIONS:
                rules: Any = entry.get("rules", ())
                self.possible["permission rules"] |= {f"{name}.rules[{index}]" for index in range(len(rules))}

    def _take_event(self, event: Event, after: RunState) -> None:
        match event:
            case StateChanged():
                self.counts["moves"][f"{event.source} --{event.trigger}--> {event.target}"] += 1
            case LimitReached():
                self.counts["limits"][event.limit.name] += 1
            case GuardTripped():
                self._take_verdict(event.guard, str(event.verdict), event.measured, after)
            case CallRefused(cause=Cause.GUARD):
                self._take_verdict(event.name, "refuse", event.measured, after)
            case _:
                name = getattr(event, "guard", "") or getattr(event, "name", "")
                if getattr(event, "cause", Cause.GUARD) is Cause.GUARD and name in self.possible["guards"]:
                    self._take_verdict(name, kind_of(event), getattr(event, "measured", {}), after)

    def _take_verdict(self, guard: str, verdict: str, measured: Mapping[str, Any], after: RunState) -> None:
        self.counts["guards"][guard] += 1
        self.counts["verdicts"][f"{guard} {verdict}"] += 1
        kinds = {watch.name: watch.kind for watch in after.guards}
        if kinds.get(guard) == _PERMISSIONS and "rule" in measured:
            self.counts["permission rules"][f"{guard}.rules[{measured['rule']}]"] += 1

    def _take_rules(self, before: RunState, after: RunState, fact: Fact) -> None:
        """Attribute the decisions on a fact to the rules that made them."""
        guards: dict[str, type[Any]] = dict(BUILTIN)
        guards |= {watch.kind: type(watch.guard) for watch in after.guards if watch.guard is not None}
        looked: list[tuple[str, int]] = []

        def look(entry: Entry, flow: Flow) -> None:
            looked.append((name_of(entry), len(flow.said)))

        try:
            state = evolve(before, fact, guards)
            said = rules_of(state)(state, fact, look)
        except RefoldError:  # a fact that is not folded alone, such as a late result
            return
        ends = [count for _, count in looked[1:]] + [len(said)]
        for (name, begun), ended in zip(looked, ends, strict=False):
            self.counts["decision rules"][name] += ended - begun

    def plain(self) -> dict[str, Any]:
        """Return the counts as plain data, which another process can add."""
        return {
            "counts": {name: dict(counter) for name, counter in self.counts.items()},
            "possible": {name: sorted(names) for name, names in self.possible.items()},
            "runs": self.runs,
        }

    def add(self, counted: Mapping[str, Any]) -> None:
        """Add the counts of another process."""
        for name, counter in counted["counts"].items():
            self.counts[name].update(counter)
        for name, names in counted["possible"].items():
            self.possible[name].update(names)
        self.runs += counted["runs"]

    def sections(self) -> list[Section]:
        """Return the parts of the report in their order."""
        return [self._section(name) for name in _SECTIONS if name != "verdicts"]

    def _section(self, name: str) -> Section:
        counter, possible = self.counts[name], self.possible[name]
        reached = {each for each in possible if counter[each]}
        return Section(name, tuple(sorted(reached)), tuple(sorted(possible - reached)))

    def verdicts(self) -> list[tuple[str, str, int]]:
        """Return the guards with their verdicts, and how often each was returned."""
        counted = [(name.rsplit(" ", 1), count) for name, count in self.counts["verdicts"].items()]
        return sorted((guard, verdict, count) for (guard, verdict), count in counted)

    def percent(self) -> float:
        """Return the reached share of the rows of all sections, in percent."""
        sections = self.sections()
        reached = sum(len(each.reached) for each in sections)
        known = reached + sum(len(each.missed) for each in sections)
        return 100 * reached / known if known else 100.0


_SECTIONS = (
    "moves",
    "event kinds",
    "decision rules",
    "guards",
    "permission rules",
    "limits",
    "policy keys",
    "verdicts",
)
_NAMES = {id(value): name for name, value in vars(order).items() if not name.startswith("_")}


def name_of(entry: Entry) -> str:
    """Return the name of an entry of the order of checks. An entry of several phases has one name."""
    match entry:
        case FirstOf() | WithoutCalls():
            return " | ".join(_names(entry.entries))
        case Guards():
            return f"guards {entry.place}"
        case TimeLimits():
            return "time limits"
        case Limits():
            return f"limits {entry.check}"
        case Request():
            return "request"
        case _:
            return getattr(entry, "__name__", "") or _NAMES.get(id(entry), "progress")


def _names(entries: Iterable[Entry]) -> list[str]:
    return [name_of(entry) for entry in entries]
