"""Permission rules over the recorded calls of runs: which rule decides each call, and what became of it.

Each call is judged by itself. That a call was made is evidence only up to the first call that the rules would
have refused in its run: with the refusal, the agent might have done something else. Later calls are counted
apart.
"""

from collections.abc import Iterable, Mapping

import msgspec

from refold.reducers import events as ev
from refold.reducers.guards.permissions import Permissions
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.rules import matching_rules
from refold.replay import known
from refold.replay.reader import Follower, Step
from refold.replay.source_words import describe_loss, is_lost


class RuleHits(msgspec.Struct, kw_only=True):
    """What one rule decides: calls, and runs with such calls.

    `succeeded`, `failed` and `refused` is what became of them; of the others it is not recorded. `later`
    calls follow a refused call of their run. `first` and `last` are instants of these calls, `sample` the
    address of the first. `beside`: the rule matches more calls, which a stricter rule decides. `seen` are all
    calls of its tools.
    """

    calls: int = 0
    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    refused: int = 0
    later: int = 0
    first: int | None = None
    last: int | None = None
    sample: str = ""
    beside: int = 0
    seen: int = 0


class PermissionHits(msgspec.Struct, kw_only=True):
    """What a list of rules decides over runs. `rules` by index; `unruled` are calls that no rule matches.

    `unknown` has the number of calls that the rules cannot judge, by reason. `incomplete` has the number of
    runs whose source may have more calls, by reason. `erased` calls have no arguments any more; `unread` runs
    could not be read. `stopped` runs have a refused call.
    """

    runs: int = 0
    calls: int = 0
    rules: dict[int, RuleHits] = {}
    unruled: int = 0
    unknown: dict[str, int] = {}
    incomplete: dict[str, int] = {}
    erased: int = 0
    unread: int = 0
    stopped: int = 0


class HitCounter(Follower[PermissionHits]):
    """Counts what a guard's rules decide about the calls of one run."""

    def __init__(self, guard: Permissions) -> None:
        self._guard, self._found = guard, PermissionHits(runs=1)
        self._own = guard.start()
        self._open: dict[str, RuleHits] = {}
        self._refused = False

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        event = step.event
        if type(event) in self._guard.observes and not self._lacks_payload(event):
            self._own = self._guard.observe(self._own, event)
        match event:
            case ev.ModelResponded(calls=calls, content=content):
                self._open = {}
                texts = content.arguments if content is not None else [None] * len(calls)
                address = f"{step.stored.run}@e{step.stored.seq}"
                for call, arguments in zip(calls, texts, strict=True):
                    self._judge(call, arguments, event.at, address)
            case ev.ToolReturned(call=call) if call in self._open:
                self._settle(self._open.pop(call), event)
            case ev.CallRefused(call=call) if call in self._open:
                self._open.pop(call).refused += 1
            case ev.Diagnosed(code=code) if is_lost(event):
                self._found.incomplete[describe_loss(code)] = 1
            case _:
                pass

    def _lacks_payload(self, event: ev.Event) -> bool:
        return isinstance(event, ev.ModelResponded) and event.content is None

    def _judge(self, call: ev.Call, arguments: str | None, at: int, address: str) -> None:
        found = self._found
        found.calls += 1
        if arguments is None:
            found.erased += 1
            return
        made, decision = ToolCall(call.name, arguments, self._own.folders), self._own.decisions[call.id]
        for place, rule in enumerate(self._guard.rules):
            if rule.is_for(call.name):
                found.rules.setdefault(place, RuleHits()).seen += 1
        for place in matching_rules(self._guard.rules, made) - {decision.rule}:
            found.rules.setdefault(place, RuleHits()).beside += 1
        if decision.effect == "unknown":
            found.unknown[decision.why] = found.unknown.get(decision.why, 0) + 1
        elif decision.rule is None:
            found.unruled += 1
        else:
            hits = found.rules.setdefault(decision.rule, RuleHits())
            hits.runs = 1
            hits.calls += 1
            hits.later += self._refused
            hits.first = at if hits.first is None else hits.first
            hits.last, hits.sample = at, hits.sample or address
            self._open[call.id] = hits
        if decision.effect == "refuse" and not self._refused:
            self._refused, found.stopped = True, 1

    def _settle(self, hits: RuleHits, event: ev.ToolReturned) -> None:
        if event.refused_by is not None:
            hits.refused += 1
        elif known.recorded(event):
            failed = known.failed(event)
            hits.succeeded += failed is False
            hits.failed += failed is True

    def result(self) -> PermissionHits:
        """Return what was counted."""
        return self._found


def merge_hits(parts: Iterable[PermissionHits]) -> PermissionHits:
    """Return the sum of counts of different runs."""
    total = PermissionHits()
    for part in parts:
        for name in ("runs", "calls", "unruled", "erased", "unread", "stopped"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        _add_counts(total.unknown, part.unknown)
        _add_counts(total.incomplete, part.incomplete)
        for place, hits in part.rules.items():
            _add(total.rules.setdefault(place, RuleHits()), hits)
    return total


def _add_counts(total: dict[str, int], other: Mapping[str, int]) -> None:
    for key, count in other.items():
        total[key] = total.get(key, 0) + count


def _add(total: RuleHits, other: RuleHits) -> None:
    if other.first is not None and (total.first is None or other.first < total.first):
        total.first, total.sample = other.first, other.sample
    total.last = max((at for at in (total.last, other.last) if at is not None), default=None)
    for name in ("calls", "runs", "succeeded", "failed", "refused", "later", "beside", "seen"):
        setattr(total, name, getattr(total, name) + getattr(other, name))
