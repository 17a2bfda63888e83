"""Follow two runs at both bounds of unknown data: unknown is never zero.

A transcript of another agent may lack tools, tokens, prices, times, the context length, call statuses or stop
reasons. Its facts are the lower bound. So both runs are followed over the recorded facts, and again over
facts at the upper bound. If both give the same result, so does everything in between. Otherwise the verdict
is inconclusive.
"""

from collections.abc import Callable, Sequence
from functools import partial

from refold.reducers import events as ev
from refold.reducers.guards import Registry
from refold.reducers.guards.protocol import reading_of
from refold.reducers.limits import TimeLimit, check_of
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Unknown
from refold.replay import known
from refold.replay.whatif.facts import Change
from refold.replay.whatif.pair import DivergencePoint, RunPair
from refold.replay.whatif.uncertainty import Effect, Uncertainty
from refold.replay.whatif.upper_bounds import FOREVER, GROWING, UNKNOWNS, stops_read, without_known_limits
from refold.replay.whatif.verdict import Verdict
from refold.replay.whatif.worst_case import TimeOwner, WorstCase, WorstCaseClock

_FAILED = "the record does not say which calls failed"


class Bounds:
    """Follows the worst cases beside the two runs until each is settled; reports uncertainties to `doubt`."""

    def __init__(
        self, near: RunPair, change: Change, registry: Registry, doubt: Callable[[Uncertainty], None]
    ) -> None:
        self._near, self._change, self._registry, self._doubt = near, change, registry, doubt
        self._cases: list[WorstCase] = []
        self._lost, self._followed = set[Unknown](), set[Unknown]()
        self._unread: tuple[Policy, Policy, set[Unknown]] | None = (
            None  # lost data under policies that ignore it
        )
        self._untimed: dict[int, RunState] = {}  # the other run's state after facts of unknown time

    def take(self, seq: int, fact: ev.Fact, group: Sequence[ev.Decision]) -> None:
        """Take a fact before the two runs do. Raises as `RunPair.take`."""
        if isinstance(fact, ev.RunForked):  # events after a fork were recorded by a refold engine
            self._cases = [case for case in self._cases if case.unknown[0] in GROWING]
        self._follow(fact)
        for case in self._cases:
            case.take(seq, fact, group)

    def pass_by(self, seq: int, event: ev.Event) -> None:
        """Take an event that only advances the position in the log."""
        for case in self._cases:
            case.pass_by(seq, event)

    def _follow(self, fact: ev.Fact) -> None:
        """Start the worst cases for data that this fact or an earlier one lacks and a rule reads."""
        near, before = self._near, set(self._lost)
        state = near.recorded.state
        if not (state.seq or isinstance(fact, ev.RunStarted)):
            return
        if _is_at_once(fact, state):
            before.add(Unknown.TIME)
        lost = before | {
            kind for kind, bound in UNKNOWNS.items() if kind not in before and bound.is_lost(fact)
        }
        if isinstance(fact, ev.RunStarted):
            old, new = fact.policy, self._change(fact.policy)
        else:
            old, new = state.policy, near.derived.state.policy
            self._lost = lost.intersection(GROWING)
        if near.found is not None or lost <= self._followed or self._is_unread(old, new, lost):
            return
        policy = without_known_limits(new, GROWING, old.limits)
        for kind, bound in UNKNOWNS.items():
            if kind in lost - self._followed and bound.is_read(old, policy, self._registry):
                self._follow_kind(kind, policy, lost_before=kind in before)

    def _is_unread(self, old: Policy, new: Policy, lost: set[Unknown]) -> bool:
        """Return whether no rule reads the lost data, as it was for earlier facts."""
        if self._unread is not None:
            one, other, unread = self._unread
            if one is old and other is new and lost <= unread:
                return True
        policy = without_known_limits(new, GROWING, old.limits)
        left = lost - self._followed
        found = old == new or not any(UNKNOWNS[kind].is_read(old, policy, self._registry) for kind in left)
        self._unread = (old, new, left) if found else None
        return found

    def _follow_kind(self, kind: Unknown, policy: Policy, *, lost_before: bool) -> None:
        self._followed.add(kind)
        cases = self._begin(kind, policy)
        for case in cases if lost_before else ():
            case.raise_before(kind)
        self._cases += cases

    def _begin(self, kind: Unknown, policy: Policy) -> list[WorstCase]:
        """Return the worst cases of one kind, also combined with additional tools, as rules may need both."""
        begin = partial(WorstCase, self._near, self._change, self._registry, kind)
        if kind is Unknown.TIME:
            return self._begin_clocks(policy)
        if kind is Unknown.STOP:
            return [begin(stop=reason) for reason in stops_read(policy)]
        beside = [case for case in self._cases if case.unknown == (Unknown.TOOLS,) and kind not in GROWING]
        return [begin(), *(case.extend(kind) for case in beside)]

    def _begin_clocks(self, policy: Policy) -> list[WorstCase]:
        limits = [
            limit for limit in policy.limits if isinstance(limit, TimeLimit) and limit.value is not None
        ]
        people: set[TimeOwner] = {"agent" if limit.credit.person else "anybody" for limit in limits}
        return [
            WorstCaseClock(self._near, self._change, self._registry, whose=whose, first=first)
            for first in sorted({False, *(limit.clock == "first_response" for limit in limits)})
            for whose in (*sorted(people), "person")
        ]

    def judge(self, seq: int, fact: ev.Fact) -> None:
        """Evaluate after the two runs have taken the fact."""
        if any(not case.settled for case in self._cases):
            self._untimed[seq] = self._near.derived.state
        if isinstance(fact, ev.ToolReturned) and known.failed(fact) is None:
            self._judge_guards(seq)
        self._settle()

    def finish(self) -> None:
        """Handle the end of the record."""
        for case in self._cases:
            if isinstance(case, WorstCaseClock):
                case.release(case.recorded.state.at + FOREVER)
        self._settle()

    def _settle(self) -> None:
        near, reported = self._near.found, list[tuple[Effect, set[Unknown]]]()
        for case in [case for case in self._cases if case.settled and (near or case.found)]:
            self._cases.remove(case)
            if not self._near.differs:  # the unknown data did not matter to it
                self._followed -= set(case.unknown)
                continue
            effect = self._effect(near, case)
            # If one unknown is sufficient, do not report its combination with another.
            if effect and not any(effect == other and part < set(case.unknown) for other, part in reported):
                self._report(near, case, effect)
                reported.append((effect, set(case.unknown)))

    def _report(self, near: DivergencePoint | None, case: WorstCase, effect: Effect) -> None:
        found = min(filter(None, (near, case.found)), key=lambda each: each.fact)
        after = self._untimed.get(found.fact, self._near.derived.state)
        self._doubt(Uncertainty(found.fact, self._why(case), effect, after))

    def _effect(self, near: DivergencePoint | None, case: WorstCase) -> Effect | None:
        """Return how the result at the two bounds differs; None if it does not."""
        found = case.found
        if near is None or (found is not None and found.fact < near.fact):
            assert found is not None
            return self._effect_of_worst(found, case)
        if near.mismatch.kind == "unknown":
            return None
        if near.verdict is Verdict.STOPS and found is not None and _is_out_of_time(found):
            return _end_by(found, Unknown.TIME)
        stops = near.verdict is Verdict.STOPS
        if found is None or stops != (found.verdict is Verdict.STOPS) or self._may_warn(case):
            return "rests"
        return None if near.code == found.code else "stops"

    def _effect_of_worst(self, found: DivergencePoint, case: WorstCase) -> Effect | None:
        """Return the effect if only the worst case diverges."""
        recorded, kind = case.recorded.state, case.unknown[0]
        limit = recorded.limit
        if limit is not None and (limit.type, limit.measure) == UNKNOWNS[kind].limit:
            # The record shows the effect of limits that were in force; the worst case is without them.
            return None if recorded.ended else "rests"
        return "rests" if self._may_warn(case) else _end_by(found, kind)

    def _may_warn(self, case: WorstCase) -> bool:
        """Return whether a guard may warn on some failures, where it would stop on all of them."""
        readings = [reading_of(watch.guard) for watch in self._near.derived.state.guards]
        return any(
            kind in reading.monotone and reading.warns for kind in case.unknown for reading in readings
        )

    def _judge_guards(self, seq: int) -> None:
        """Report a call of unknown status if a guard that observes it is not monotone."""
        near = self._near
        for watch in near.derived.state.guards if near.found is None else ():
            guard = watch.guard
            observes = guard is not None and ev.ToolReturned in guard.observes
            if observes and Unknown.ERRORS not in reading_of(guard).monotone:
                self._doubt(Uncertainty(seq, f"guard {watch.name}: {_FAILED}", "rests", near.derived.state))

    def _why(self, case: WorstCase) -> str:
        state = self._near.derived.state
        words = [UNKNOWNS[kind].words(state) for kind in case.unknown]
        if case.unknown[0] in GROWING:
            return words[0]
        near = [who for who in map(_speaker, self._near.events) if who]
        worst = [who for who in map(_speaker, case.events) if who]
        who = next((who for who in worst if who not in near), next(iter((*worst, *near)), ""))
        return f"{who}{': ' if who else ''}the record does not say {' or '.join(words)}"


def _end_by(found: DivergencePoint, kind: Unknown) -> Effect:
    """Return the effect if only the worst case diverges."""
    if found.verdict is not Verdict.STOPS and not (kind is Unknown.TIME and _is_out_of_time(found)):
        return "asks"
    timeout = found.other.policy.call_timeout
    # Work that started shortly before its deadline is cut off and retried, a little later than at either
    # bound.
    return "rests" if kind is Unknown.TIME and (timeout.nanoseconds or timeout.whole_seconds) else "stops"


def _is_at_once(fact: ev.Fact, state: RunState) -> bool:
    """Return whether a response has the same time as the start, which means that the time is unknown."""
    answers = isinstance(fact, ev.ModelResponded | ev.ModelFailed) and Unknown.TIME not in fact.unknown
    return answers and bool(state.setup.unknown) and fact.at == state.lineage.at


def _is_out_of_time(found: DivergencePoint) -> bool:
    """Return whether a time limit, checked before every request, would have cut something off."""
    policy = found.other.policy
    limits = [limit for limit in policy.limits if isinstance(limit, TimeLimit)]
    return (
        found.mismatch.kind == "cut_off"
        and policy.grace is None
        and all(check_of(limit) == "preflight" for limit in limits)
    )


def _speaker(event: ev.Event) -> str:
    match event:
        case ev.GuardTripped(guard=name):
            return f"guard {name}"
        case ev.HistoryPruned(name=name) | ev.SummaryRequested(name=name):
            return f"pass {name}"
        case ev.MessageTrimmed(name=name, cause=cause) | ev.CallRefused(name=name, cause=cause):
            kind = {Cause.HISTORY: "pass", Cause.GUARD: "guard"}.get(cause, "")
            return f"{kind} {name}" if kind else ""
        case _:
            return ""
