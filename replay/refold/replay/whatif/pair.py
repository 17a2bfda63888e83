"""Follow two runs over the same facts until they diverge.

While both runs request the same things, the next recorded fact answers both. If the other run ends, it ends
at that point. If it makes a different request, its answer is unknown and the rest of the record is not
evidence.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.errors import DamagedLog, RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.folds import advance
from refold.reducers.guards import Registry
from refold.reducers.pending import underway
from refold.reducers.policy import Policy
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Unknown
from refold.replay.figures import find_verdict
from refold.replay.parting import place_of
from refold.replay.whatif.facts import Change, ChangedFact, carry_over
from refold.replay.whatif.lockstep import FOUNDING, decide_alike, is_alike
from refold.replay.whatif.mismatches import (
    OF_CALLS,
    OF_THE_FACT,
    ComparedRun,
    Mismatch,
    UnobservedChanges,
    Windows,
    find_cut_off,
    find_mismatch,
    is_attended,
    is_expected,
    next_ring,
    time_before,
)
from refold.replay.whatif.upper_bounds import add_tools
from refold.replay.whatif.verdict import (
    ENDED_BY,
    MOST,
    Intervention,
    LatestCalls,
    Spend,
    Subject,
    Verdict,
    name_subject,
    spend_of,
)

_UNATTENDED = "a deadline passed while it is not recorded whether an engine had the run"
_SILENT: frozenset[type[ev.Event]] = frozenset(
    {ev.ModelResponded, ev.ToolReturned, ev.ModelRequested, ev.ToolsDispatched, ev.StateChanged}
)
"""The most frequent events, which are no verdicts and do not compact the history."""
_NO_GUARDS: Registry = {}  # decisions of the recorded run come from the log, so no guard runs


class DivergencePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how two runs diverge, by event number, with the state of the other run.

    `counted` is the part of the recorded spending that the other run would also have; `exact` means exact to
    the token. `doubted` means that the record lacks the data for a verdict.
    """

    verdict: Verdict
    fact: int
    seq: int
    turn: int
    mismatch: Mismatch
    subject: Subject | None = None
    recorded: str | None = None
    derived: str | None = None
    other: RunState
    code: str = ""
    counted: Spend = Spend()
    exact: bool = True
    doubted: bool = False


class RunPair:
    """Follows a recorded run fact by fact and derives the other run from the same facts."""

    apart: bool = False
    """Derive both runs of every pair, which tests compare with what is derived once for both."""

    def __init__(self, run: str, change: Change, registry: Registry, shared: int = 0) -> None:
        self.run, self._change, self._registry = run, change, registry
        self._counted, self.before = shared, Spend()
        """Spending up to the end of the prefix that another run already counts."""
        self.recorded, self.derived = ComparedRun(NEW), ComparedRun(NEW)
        self._windows, self.unseen = Windows(), UnobservedChanges()
        self._tools: tuple[ev.Manifest, ...] = ()
        self._given = LatestCalls()
        self.events: Sequence[ev.Event] = ()
        """Events that the other run took last."""
        self.found: DivergencePoint | None = None
        self._joined: tuple[Policy, Policy] | None = None  # policies under which one state serves both runs
        self.fact = self.shared = 0
        """The last fact, and the last event that both runs have."""
        self.reached = True
        """Whether both runs reached the last fact before a deadline separated them."""
        self.fired: list[Intervention] = []
        self.more = 0
        self.origins: dict[int, int] = {}
        """Recorded event number of facts that have a different number in the other run."""
        self.changes: list[tuple[int, ev.HistoryPruned | ev.MessageTrimmed]] = []
        """Compaction events of the other run, each with its fact."""

    def copy_position(self, other: "RunPair") -> None:
        """Copy the position of another pair."""
        for side, theirs in ((self.recorded, other.recorded), (self.derived, other.derived)):
            side.state, side.harness = theirs.state, dict(theirs.harness)
        self.unseen, self._tools = other.unseen.copy(), other._tools

    @property
    def differs(self) -> bool:
        """Whether the policies differ. Unknown data cannot matter for equal policies."""
        return self.recorded.state.policy != self.derived.state.policy

    def pass_by(self, seq: int, event: ev.Event) -> None:
        """Take an event that only advances the position in the log.

        Raises `DamagedLog` if the event is invalid here.
        """
        self.follow(seq, event)
        if self.found is None:
            self.derived.fold(event, self._registry)
            self.shared = seq

    def take(self, seq: int, fact: ev.Fact, group: Sequence[ev.Decision]) -> None:
        """Take a fact with the decisions recorded for it. Raises as `pass_by`."""
        self.fact = seq
        self._given.take(fact)
        self._offer_more(fact)
        joined = self._is_joined()
        if joined and self._take_joined(fact, group):
            return
        self._take_apart(seq, fact, group)
        self._joined = None
        if (joined or isinstance(fact, FOUNDING)) and self.found is None and not self.apart:
            self._join()

    def _is_joined(self) -> bool:
        """Return whether the two runs have the same state, apart from their policies."""
        if self._joined is None:
            return False
        one, other = self._joined
        same = self.recorded.state.policy is one and self.derived.state.policy is other
        return same or self._join()  # a bound on unknown data changes policies

    def _join(self) -> bool:
        one, other = self.recorded.state, self.derived.state
        alike = not self.unseen and is_alike(one, other) and self.recorded.harness == self.derived.harness
        self._joined = (one.policy, other.policy) if alike else None
        return alike

    def _take_joined(self, fact: ev.Fact, group: Sequence[ev.Decision]) -> bool:
        """Take a fact on which both runs decide the same, and derive it once; False if they may not."""
        if isinstance(fact, FOUNDING) or self.fact <= self._counted <= self.fact + len(group):
            return False
        one, other = self.recorded.state, self.derived.state
        carried = carry_over(fact, one, other, self._change, self._registry)
        if not isinstance(carried, ev.Fact) or (carried is not fact and carried != fact):
            return False
        after = decide_alike(other, fact, group, self._registry)
        if after is None:
            return False
        self.reached, self.shared = True, self.fact
        self._accept(*after)
        self.recorded.take(after[1], replace(after[0], setup=one.setup, guards=one.guards))
        return True

    def _take_apart(self, seq: int, fact: ev.Fact, group: Sequence[ev.Decision]) -> None:
        self.reached = self.found is None and self._fire_deadlines(fact)
        if not self.reached:
            parted_now = self.found is not None and self.found.fact == seq
            self._follow_all(fact, group)
            if parted_now:
                self._charge(fact)
            return
        derived = self._derive(fact)
        self._follow_all(fact, group)
        if isinstance(derived, Mismatch):
            self._diverge(derived, group, ())
        else:
            self.shared = seq
            self._judge(group, derived)

    def _follow_all(self, fact: ev.Fact, group: Sequence[ev.Decision]) -> None:
        for place, event in enumerate((fact, *group)):
            self.follow(self.fact + place, event)

    def follow(self, seq: int, event: ev.Event) -> None:
        """Fold an event into the recorded run only. Raises `DamagedLog` if it is invalid here."""
        try:
            self.recorded.fold(event, _NO_GUARDS)
        except RefoldError as error:
            raise DamagedLog(self.run, seq, str(error)) from error
        # A fork repeats the request at its fork point: its own usage begins after that.
        if seq == self._counted or (seq == self._counted + 1 and isinstance(event, ev.RunForked)):
            self.before = spend_of(self.recorded.state)

    def _offer_more(self, fact: ev.Fact) -> None:
        """Add a tool that was called to the offered tools, even if the source does not list it."""
        if isinstance(fact, ev.RunStarted):
            self._tools = fact.tools
        state = self.derived.state
        if not state.seq or Unknown.TOOLS not in state.setup.unknown:
            return
        if isinstance(
            fact, ev.RunForked
        ):  # a refold engine, which records the offered tools, wrote what follows
            self.offer(self._tools)
        elif isinstance(fact, ev.ModelResponded):
            self.offer(add_tools(state.setup.tools, (call.name for call in fact.calls)))

    def offer(self, tools: tuple[ev.Manifest, ...]) -> None:
        """Set the tools of both runs."""
        for side in (self.recorded, self.derived):
            if side.state.setup.tools != tools:
                side.state = replace(side.state, setup=replace(side.state.setup, tools=tools))

    def _charge(self, fact: ev.Fact) -> None:
        """Count work in progress when a deadline stopped the run as spent, to its recorded end."""
        found = self.found
        # A resuming engine ends a run that waited for an operator a little later than its deadline.
        if (
            found is None
            or found.verdict is not Verdict.STOPS
            or (found.exact and not isinstance(fact, ev.RunResumed))
        ):
            return
        spent = _spend_until(spend_of(self.recorded.state), found.counted)
        self.found = replace(found, counted=spent, exact=False)

    def _fire_deadlines(self, fact: ev.Fact) -> bool:
        """Fire the deadlines of the other policy that precede the fact. Return whether both continue."""
        before = None
        while (instant := next_ring(self.recorded.state, self.derived.state, time_before(fact))) is not None:
            cut = find_cut_off(self.recorded.state, self.derived.state, instant)
            if cut is None and (instant == before or not is_attended(self.derived.state, fact, instant)):
                cut = Mismatch("unknown", _UNATTENDED)
            if cut is not None:
                self._diverge(cut, (), ())
                return False
            before = instant
            rings = ev.ClockRead(at=max(self.derived.state.at, instant), due=instant)
            if not self._judge((), self._advance(rings), clock=True):
                return False
        return True

    def _derive(self, fact: ev.Fact) -> Sequence[ev.Decision] | Mismatch:
        """Return the other run's decisions on the fact, or the mismatch in the fact itself."""
        recorded, derived = self.recorded.state, self.derived.state
        if isinstance(fact, ev.ClockRead) and not is_expected(recorded, derived, fact):
            return ()
        cut = find_cut_off(recorded, derived, time_before(fact), fact)
        carried = cut or carry_over(fact, recorded, derived, self._change, self._registry)
        if isinstance(carried, Mismatch):
            return carried
        if isinstance(carried, ChangedFact):
            self.unseen.add(derived.seq + 1, carried.parted)
            carried = carried.fact
        try:
            return self._advance(carried)
        except MissingTokenizer:
            raise
        except RefoldError as error:
            return Mismatch("fact", f"the fact is invalid in the other run: {error}")

    def _advance(self, fact: ev.Fact) -> Sequence[ev.Decision]:
        first = self.derived.state.seq + 1
        self._accept(*advance(self.derived.state, fact, self._registry))
        if first != self.fact and not isinstance(fact, ev.ClockRead):
            self.origins[first] = self.fact
        return [event for event in self.events if isinstance(event, ev.Decision)]

    def _accept(self, state: RunState, events: Sequence[ev.Event]) -> None:
        """Take the events of the other run, and the state after them."""
        self.events = events
        self.derived.take(events, state)
        for event in events:
            if type(event) in _SILENT:
                continue
            self._note(event)
            if isinstance(event, ev.HistoryPruned | ev.MessageTrimmed):
                self.changes.append((self.fact, event))

    def _note(self, event: ev.Event) -> None:
        said = find_verdict(event)
        if said is None:
            return
        fired = Intervention(fact=self.fact, who=said.who, said=said.said, code=said.code)
        if len(self.fired) < MOST:
            self.fired.append(fired)
        else:
            self.more += 1

    def _judge(
        self, group: Sequence[ev.Decision], derived: Sequence[ev.Decision], *, clock: bool = False
    ) -> bool:
        """Return whether the two runs still behave the same."""
        other = self.derived.state
        found = find_mismatch(self.recorded, self.derived, self._windows)
        if found is not None:
            why = self.unseen.explain(other, found)
            if clock and not why.stops and why.kind != "unknown" and not self.recorded.state.ended:
                why = Mismatch("clock", f"a deadline passed: {why.why}")
            self._diverge(why, group, derived)
        told = self.unseen.find_reader(other)
        if self.found is None and told is not None:
            self._diverge(told, group, derived)
        return self.found is None

    def _diverge(self, found: Mismatch, group: Sequence[ev.Decision], derived: Sequence[ev.Decision]) -> None:
        state = self.derived.state
        place, recorded, other = place_of(state, group, derived)
        subject = self._subject(found, group, derived)
        if subject is not None:
            found = name_subject(subject, found)
        stops = found.stops
        under_way = state.request or state.summary or any(underway(state))
        exact = stops and not under_way
        spent = spend_of(state if exact else self.recorded.state)
        self.found = DivergencePoint(
            verdict=_verdict_of(found),
            fact=self.fact,
            seq=self.fact + place,
            turn=(state if stops or found.kind in OF_THE_FACT else self.recorded.state).spent.steps,
            mismatch=found,
            subject=subject,
            recorded=recorded,
            derived=other,
            other=state,
            code=found.code,
            counted=_spend_until(spent, spend_of(state)) if stops else spent,
            exact=exact,
        )

    def _subject(
        self, found: Mismatch, group: Sequence[ev.Decision], derived: Sequence[ev.Decision]
    ) -> Subject | None:
        """Return the call that a rule of either policy matched, if the runs differ in a call."""
        if not (found.code in ENDED_BY if found.stops else found.kind in OF_CALLS):
            return None
        subject = self._given.subject(self.derived.state.policy, derived)
        if subject is not None or found.stops:
            return subject
        return self._given.subject(self.recorded.state.policy, group)


def _verdict_of(found: Mismatch) -> Verdict:
    if found.stops:
        return Verdict.STOPS
    return Verdict.INCONCLUSIVE if found.kind == "unknown" else Verdict.DIVERGES


def _spend_until(spent: Spend, other: Spend) -> Spend:
    """Return the spending with the elapsed time of the other run."""
    return replace(spent, duration=other.duration, waited=other.waited)
