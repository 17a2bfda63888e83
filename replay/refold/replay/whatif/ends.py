"""The two runs at the far ends of what a record does not say: unknown is never zero.

An engine counts what it uses, offers what it has, and knows when. A transcript of another agent may lack the tools, the
tokens, the prices, the times, the context, which calls failed or why answers stopped, or have them of some only. Its facts hold the
least: so many tokens were used, or more; so late it was, or later. So both runs are followed over the facts as they stand,
and again over facts that hold the most that there can have been. Where that comes to the same, so does all that lies
between. Where it does not, nobody can say.
"""

from collections.abc import Callable, Sequence

from refold.reducers.events import (
    CallRefused,
    Decision,
    Event,
    Fact,
    GuardTripped,
    HistoryPruned,
    MessageTrimmed,
    ModelFailed,
    ModelResponded,
    RunForked,
    RunStarted,
    SummaryRequested,
    ToolReturned,
)
from refold.reducers.guards import Registry
from refold.reducers.guards.endings import Errors, Pivot, PrematureEnd
from refold.reducers.guards.progress import Stall
from refold.reducers.limits import TimeLimit, check_of
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Unknown
from refold.replay import known
from refold.replay.whatif.facts import Change
from refold.replay.whatif.far import Far, Late, Whose, untimed
from refold.replay.whatif.most import (
    FOREVER,
    GROWING,
    lacks,
    reads,
    stops_read,
    unlimited,
)
from refold.replay.whatif.pair import Doubt, Effect, Found, Pair
from refold.replay.whatif.verdict import UNCOUNTED, UNPRICED, UNTIMED, Verdict

_COUNTED = {
    Unknown.USAGE: ("token", "usage"),
    Unknown.COST: ("cost", "usage"),
    Unknown.TIME: ("time", "usage"),
}
"""The limits that count what grows, by type and measure."""
_SETTING = ((Unknown.TOOLS,), (Unknown.CONTEXT,), (Unknown.TOOLS, Unknown.CONTEXT))
_MORE_FOR_MORE = (Errors, Pivot, PrematureEnd, Stall)
"""Guards that speak of more failures if they speak of fewer, and of fewer successes; of others nobody here knows that."""
_SILENT = "an answer of nothing: the record does not say whether its stream broke"
_FAILED = "the record does not say which calls failed"
_MISSING = {
    Unknown.ERRORS: "which calls failed",
    Unknown.TOOLS: "which tools there were, what they weighed, or which of them only read",
    Unknown.CONTEXT: "how large the model's context was",
    Unknown.STOP: "why an answer stopped",
}


class Ends:
    """Follows the far ends beside the near one, each until it comes to something else; `doubt` is told what that leaves."""

    def __init__(
        self, near: Pair, change: Change, registry: Registry, doubt: Callable[[Doubt], None]
    ) -> None:
        self._near, self._change, self._registry, self._doubt = near, change, registry, doubt
        self._fars: list[Far] = []
        self._lacked, self._met = set[Unknown](), set[Unknown]()
        self._stood: dict[
            int, RunState
        ] = {}  # the near one, behind facts of which nobody knows when they were

    def take(self, seq: int, fact: Fact, group: Sequence[Decision]) -> None:
        """The near one is about to take a fact. Raises as `Pair.take`."""
        if isinstance(fact, RunStarted):
            self._begin(fact)
        elif isinstance(fact, RunForked):  # what follows is of an engine of ours
            self._fars = [far for far in self._fars if far.unknown[0] in GROWING]
        if self._near.recorded.state.seq:
            self._grow(fact)
        for far in self._fars:
            far.take(seq, fact, group)

    def pass_by(self, seq: int, event: Event) -> None:
        """An event that changes nothing but the place in the log."""
        for far in self._fars:
            far.pass_by(seq, event)

    def _begin(self, fact: RunStarted) -> None:
        policy = self._change(fact.policy)
        if policy == fact.policy:
            return
        met = {kind for kind in fact.unknown if reads(policy, kind)}
        self._fars += [self._far(*kinds) for kinds in _SETTING if met.issuperset(kinds)]
        if untimed(fact) and reads(unlimited(policy, GROWING, fact.policy.limits), Unknown.TIME):
            self._met.add(Unknown.TIME)
            self._fars += self._late(policy)

    def _grow(self, fact: Fact) -> None:
        """Follow the far ends of what is lacking of a fact, or was before, from where a limit asks after it."""
        near, before = self._near, set(self._lacked)
        state = near.recorded.state
        if _at_once(fact, state):
            before.add(Unknown.TIME)
        self._lacked = before | {kind for kind in GROWING if lacks(fact, kind)}
        if near.found is not None or not near.differs:
            return
        if isinstance(fact, ToolReturned) and Unknown.ERRORS in fact.unknown:
            self._mark()
        if isinstance(fact, ModelResponded) and Unknown.STOP in fact.unknown:
            self._cut()
        policy = unlimited(near.derived.state.policy, GROWING, state.policy.limits)
        for kind in GROWING:
            if kind not in self._lacked or kind in self._met or not reads(policy, kind):
                continue
            self._met.add(kind)
            fars = self._late(policy) if kind is Unknown.TIME else [self._far(kind)]
            for far in fars if kind in before else ():
                far.begin_with_most(kind)
            self._fars += fars

    def _mark(self) -> None:
        """Follow the far ends of which calls failed, from the first of which the record does not say it.

        Beside a tool that may have been there, too: a guard may ask for one once a call has failed.
        """
        policy, recorded = self._near.derived.state.policy, self._near.recorded.state.policy
        if Unknown.ERRORS in self._met or not (
            reads(policy, Unknown.ERRORS) or policy.texts != recorded.texts
        ):
            return
        self._met.add(Unknown.ERRORS)
        tools = [far for far in self._fars if far.unknown == (Unknown.TOOLS,)]
        self._fars += [self._far(Unknown.ERRORS), *(far.also(Unknown.ERRORS) for far in tools)]

    def _cut(self) -> None:
        """Follow the far ends of why an answer stopped, one for each reason of which the other policy makes a difference."""
        if Unknown.STOP in self._met:
            return
        for reason in stops_read(self._near.derived.state.policy):
            self._met.add(Unknown.STOP)
            far = self._far(Unknown.STOP)
            far.stop = reason
            self._fars.append(far)

    def _far(self, *kinds: Unknown) -> Far:
        return Far(self._near, self._change, self._registry, *kinds)

    def _late(self, policy: Policy) -> list[Far]:
        limits = [
            limit for limit in policy.limits if isinstance(limit, TimeLimit) and limit.value is not None
        ]
        people: set[Whose] = {"agent" if limit.credit.person else "anybody" for limit in limits}
        return [
            Late(self._near, self._change, self._registry, whose=whose, first=first)
            for first in sorted({False, *(limit.clock == "first_response" for limit in limits)})
            for whose in (*sorted(people), "person")
        ]

    def judge(self, seq: int, fact: Fact) -> None:
        """The near one has taken the fact, too."""
        if any(not far.settled for far in self._fars):
            self._stood[seq] = self._near.derived.state
        if isinstance(fact, ToolReturned) and known.failed(fact) is None:
            self._look_at_guards(seq)
        self._settle()

    def finish(self) -> None:
        """The record ends."""
        for far in self._fars:
            if isinstance(far, Late):
                far.release(far.recorded.state.at + FOREVER)
        self._settle()

    def _settle(self) -> None:
        near, told = self._near.found, list[tuple[Effect, tuple[Unknown, ...]]]()
        for far in [far for far in self._fars if far.settled and (near or far.found)]:
            self._fars.remove(far)
            if not self._near.differs:  # what the record does not say was no other for it
                self._met -= set(far.unknown)
                continue
            effect = self._effect(near, far)
            # Of two things that are unknown one may be enough.
            if effect and not any(effect == other and set(part) < set(far.unknown) for other, part in told):
                found = min((each for each in (near, far.found) if each), key=lambda each: each.fact)
                after = self._stood.get(found.fact, self._near.derived.state)
                self._doubt(Doubt(found.fact, self._why(far), effect, after))
                told.append((effect, far.unknown))

    def _effect(self, near: Found | None, far: Far) -> Effect | None:
        """What may be otherwise where the ends come to this; None: they come to the same."""
        found, one = far.found, far.recorded.state
        if found is not None and (near is None or found.fact < near.fact):
            kind = _COUNTED.get(far.unknown[0])
            if one.limit is not None and (one.limit.type, one.limit.measure) == kind:
                # The record itself tells of the limits that were in force: the far end has none of them.
                return None if one.ended else "rests"
            return "rests" if self._stalls(far) else _ended_by(found, far.unknown[0])
        assert near is not None
        if near.parted.kind == "unknown":
            return None
        if near.verdict is Verdict.STOPS and found is not None and _out_of_time(found):
            return _ended_by(found, Unknown.TIME)
        if found is None or (near.verdict is Verdict.STOPS) != (found.verdict is Verdict.STOPS):
            return "rests"
        if self._stalls(far):
            return "rests"
        return None if near.code == found.code else "stops"

    def _stalls(self, far: Far) -> bool:
        """Whether of some failures a guard may warn, and so show something else, where of all of them it would stop."""
        guards = self._near.derived.state.guards
        return Unknown.ERRORS in far.unknown and any(isinstance(watch.guard, Stall) for watch in guards)

    def _look_at_guards(self, seq: int) -> None:
        """A call that did not fail, or did: a guard that nobody here knows may count either."""
        near = self._near
        if near.found is not None:
            return
        for watch in near.derived.state.guards:
            guard = watch.guard
            if guard is not None and ToolReturned in guard.observes and type(guard) not in _MORE_FOR_MORE:
                self._doubt(Doubt(seq, f"guard {watch.name}: {_FAILED}", "rests", near.derived.state))

    def _why(self, far: Far) -> str:
        kind, state = far.unknown[0], self._near.derived.state
        if kind is Unknown.USAGE:
            return _SILENT if state.answer is not None and state.answer.silent else UNCOUNTED
        if kind in GROWING:
            return UNPRICED if kind is Unknown.COST else UNTIMED
        missing = [_MISSING[each] for each in far.unknown]
        if Unknown.CONTEXT in far.unknown and not state.setup.model:
            missing.append("which model was asked")
        if kind is Unknown.STOP and state.answer is not None and state.answer.event.stop_raw:
            missing.append(f"what {state.answer.event.stop_raw[:40]!r} means")
        whose = [who for each in (far.events, self._near.events) for who in map(_speaker, each) if who]
        near = {who for who in map(_speaker, self._near.events) if who}
        who = next((who for who in whose if who not in near), whose[0] if whose else "")
        return f"{who}{': ' if who else ''}the record does not say {' or '.join(missing)}"


def _ended_by(found: Found, kind: Unknown) -> Effect:
    """What may be otherwise where only the far end parts."""
    if found.verdict is not Verdict.STOPS and not (kind is Unknown.TIME and _out_of_time(found)):
        return "asks"
    timeout = found.other.policy.call_timeout
    # What was begun a little before its time was over is cut off, and tried again, a little later than at either end.
    return "rests" if kind is Unknown.TIME and (timeout.nanoseconds or timeout.whole_seconds) else "stops"


def _at_once(fact: Fact, state: RunState) -> bool:
    """Whether it answered the moment the run began: or nobody knows when that was."""
    answers = isinstance(fact, ModelResponded | ModelFailed) and Unknown.TIME not in fact.unknown
    return answers and bool(state.setup.unknown) and fact.at == state.lineage.at


def _out_of_time(found: Found) -> bool:
    """Whether something would have been cut off by a limit of time that is looked at before anything else is asked."""
    policy = found.other.policy
    limits = [limit for limit in policy.limits if isinstance(limit, TimeLimit)]
    return (
        found.parted.kind == "cut_off"
        and policy.grace is None
        and all(check_of(limit) == "preflight" for limit in limits)
    )


def _speaker(event: Event) -> str:
    match event:
        case GuardTripped(guard=name):
            return f"guard {name}"
        case HistoryPruned(name=name) | SummaryRequested(name=name):
            return f"pass {name}"
        case MessageTrimmed(name=name, cause=cause) | CallRefused(name=name, cause=cause):
            kind = {Cause.HISTORY: "pass", Cause.GUARD: "guard"}.get(cause, "")
            return f"{kind} {name}" if kind else ""
        case _:
            return ""
