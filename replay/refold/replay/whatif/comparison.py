"""`whatif`: what would another policy have decided over the same facts, and how far is that evidence?

Two runs are folded side by side: the recorded one, and one that is derived from the same facts under the other policy. As
long as both ask the same of the world, the next recorded fact is what the world would have answered. Where the other run
ends, it ends exactly there. Where it asks for something else nobody knows the answer: what follows is no evidence.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.reducers.checkpoint import encoded
from refold.reducers.doubts import underway
from refold.reducers.errors import DamagedLog, RefoldError
from refold.reducers.events import (
    ClockRead,
    Decision,
    Event,
    Fact,
    HistoryPruned,
    MessageTrimmed,
    RunForked,
    RunResumed,
    kind_of,
)
from refold.reducers.folds import advance
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.machine import target
from refold.reducers.policy import Policy
from refold.reducers.state import NEW
from refold.replay.causes import spoken
from refold.replay.reader import event_of, stored_events
from refold.replay.whatif.clock import attended, cut_off, expected, reached, rings
from refold.replay.whatif.contexts import Contexts, with_context
from refold.replay.whatif.ends import Ends
from refold.replay.whatif.facts import Change, carried_over
from refold.replay.whatif.found import Found, proven
from refold.replay.whatif.places import place_of
from refold.replay.whatif.prices import Bill, Prices, priced
from refold.replay.whatif.shown import OF_THE_FACT, Parted, Side, Windows, apart
from refold.replay.whatif.unsaid import Doubt, Unsaid
from refold.replay.whatif.unseen import Unseen
from refold.replay.whatif.verdict import MOST, Fired, Spend, Verdict, WhatIf, spend_of
from refold.replay.whatif.words import Changed
from refold.store.protocol import Store

_UNATTENDED = "a deadline fell into a time for which the record does not say whether an engine had the run"
_NO_GUARDS: Registry = {}  # the recorded run is followed as it stands: nobody is asked anything


async def whatif(
    store: Store,
    run: str,
    policy: Policy | Change,
    registry: Registry = BUILTIN,
    *,
    prices: Prices | None = None,
    contexts: Contexts | None = None,
) -> WhatIf:
    """What another policy would have decided over a run's facts. A function changes whatever policy was in force.

    `prices` are for answers of which the record has none, `contexts` for a model whose context it does not say. Raises `UnknownRun`, `DamagedLog`, and `NewerLog` for rules that
    are not known here.
    """
    (found,) = await side_by_side(store, run, (policy,), registry, prices=prices, contexts=contexts)
    return found


async def side_by_side(
    store: Store,
    run: str,
    policies: Sequence[Policy | Change],
    registry: Registry = BUILTIN,
    *,
    shared: int = 0,
    prices: Prices | None = None,
    contexts: Contexts | None = None,
) -> tuple[WhatIf, ...]:
    """`whatif` of several policies, in their order; the log is read once. Raises as that.

    The events up to `shared` are counted with another run, of which this one is a fork: see `Prefixes`.
    """
    comparisons = [
        Comparison(run, policy, registry, shared=shared, prices=prices, contexts=contexts)
        for policy in policies
    ]
    async for stored in stored_events(store, run):
        event = event_of(stored)
        for comparison in comparisons:
            comparison.take(stored.seq, event)
    return tuple(comparison.result() for comparison in comparisons)


class Comparison:
    """Takes a recorded run's events in order, and follows both runs until they part."""

    def __init__(
        self,
        run: str,
        policy: Policy | Change,
        registry: Registry = BUILTIN,
        *,
        shared: int = 0,
        prices: Prices | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        self._run, self._registry, self._contexts = run, registry, contexts
        self._context: int | None = None  # that the table says
        self._bill = Bill(prices)
        self._counted, self._spent = shared, Spend()  # the prefix that another run counts, and what it cost
        self._change: Change = (lambda _: policy) if isinstance(policy, Policy) else policy
        self.recorded, self.derived = Side(NEW), Side(NEW)
        self._unsaid = Unsaid(self.recorded, self.derived)
        self._ends = Ends(self.recorded, self.derived, self._unsaid.doubt)
        self._events: Sequence[Event] = ()  # those that the other run took last
        self._windows = Windows()
        self._fact: Fact | None = None
        self._fact_seq = self._shared = 0
        self._group: list[Decision] = []
        self._fired: list[Fired] = []
        self._more = 0
        self._found: Found | None = None
        self._unseen = Unseen()
        self.origins: dict[
            int, int
        ] = {}  # facts whose event number in the other run is another, by that number
        self.changes: list[
            tuple[int, HistoryPruned | MessageTrimmed]
        ] = []  # of the other run's window, by the fact

    @property
    def last_fact(self) -> int:
        """The event number of the last fact that was taken."""
        return self._fact_seq

    @property
    def parted_after(self) -> int:
        """The event number of the fact at which the two parted; 0 while they have not."""
        found = self._proven()
        return 0 if found is None else found.fact

    def take(self, seq: int, event: Event) -> None:
        """Take one event. Raises `DamagedLog` where it cannot stand, `NewerLog` for rules that are not known."""
        if seq != self.recorded.state.seq + len(self._group) + (self._fact is not None) + 1:
            raise DamagedLog(self._run, seq, "an event before it is missing")
        if isinstance(event, Decision):
            if self._fact is None:
                raise DamagedLog(self._run, seq, f"a {kind_of(event)} that follows no fact")
            self._group.append(event)
            return
        self._unsaid.hear(event)
        self._finish()
        if isinstance(event, Fact):
            self._fact, self._fact_seq = self._told(event), seq
        else:
            self._follow(seq, event)
            if self._found is None:
                self.derived.fold(event, self._registry)
                self._ends.pass_by(event, self._registry)
                self._shared = seq

    def _told(self, fact: Fact) -> Fact:
        told = with_context(fact, self._contexts)
        if told is not fact:
            self._context = getattr(told, "context", None)
        return told

    def result(self) -> WhatIf:
        """What is known at the end of the record."""
        self._finish()
        one, found = self.recorded.state, self._proven()
        other = self.derived.state if found is None else found.other
        doubted = found is not None and found.doubted
        shared = found.fact if found is not None and doubted else self._shared
        told = WhatIf(
            run=self._run,
            verdict=Verdict.AGREE if found is None else found.verdict,
            events=one.seq,
            fact=shared,
            agent_state=str(other.agent_state),
            code=other.outcome.code if other.outcome else "",
            recorded_state=str(one.agent_state),
            recorded_code=one.outcome.code if one.outcome else "",
            until=spend_of(other),
            shared=self._counted,
            fired=tuple(fired for fired in self._fired if not doubted or fired.fact <= shared),
            more=0 if doubted else self._more,
            unknown=tuple(dict.fromkeys(doubt.why for doubt in self._doubts())),
            prices=self._bill.name,
            priced=self._bill.answers,
            contexts=self._contexts.name if self._contexts else "",
            context=self._context,
            unseen=self._unseen.listed(self.origins, MOST) if found is None else (),
        )
        return told if found is None else self._parted(told, found)

    def _proven(self) -> Found | None:
        return proven(self._found, self._doubts(), self.derived.state)

    def _doubts(self) -> list[Doubt]:
        return self._unsaid.doubts(parted=self._found is not None)

    def _parted(self, told: WhatIf, found: Found) -> WhatIf:
        stopping = found.other.stopping
        if found.verdict is Verdict.STOPS and stopping is not None and not found.other.ended:
            end = target(found.other.agent_state, stopping.trigger, found.other.came_from)
            told = replace(told, agent_state=str(end), code=stopping.code)
        saved = again = Spend()
        if found.verdict is Verdict.STOPS:
            saved, again = self._spend() - found.counted, self._spent - found.counted
        return replace(
            told,
            seq=found.seq,
            turn=found.turn,
            kind=found.parted.kind,
            why=found.parted.why,
            recorded=found.recorded,
            derived=found.derived,
            saved=saved,
            again=again,
            exact=found.exact and not self._unsaid.more,
            unknown=told.unknown or ((found.parted.why,) if found.verdict is Verdict.UNJUDGED else ()),
            state=encoded(found.other).decode(),
        )

    def _finish(self) -> None:
        fact, group = self._fact, self._group
        if fact is None:
            return
        self._fact, self._group = None, []
        parted = self._found is not None
        self._bill.look(fact, self.recorded.state)
        if self._found is not None:
            self._follow_all(fact, group)
        elif self._reaches(fact):
            self._unsaid.take(self._fact_seq, fact)
            self._compare(fact, group)
        else:
            self._follow_all(fact, group)
            self._charge(fact)
        self._unsaid.done(fact, parted=parted)

    def _compare(self, fact: Fact, group: Sequence[Decision]) -> None:
        derived = self._derived(fact)
        self._follow_all(fact, group)
        if isinstance(derived, Parted):
            self._part(derived, group, ())
        else:
            self._shared = self._fact_seq
            self._judge(group, derived)

    def _charge(self, fact: Fact) -> None:
        """What was under way when a clock stopped the run counts as spent, to the end that the record knows."""
        found = self._found
        # Whoever takes up a run that waited for a person ends it a little later than its clock would have.
        if (
            found is None
            or found.verdict is not Verdict.STOPS
            or (found.exact and not isinstance(fact, RunResumed))
        ):
            return
        spent = _until(self._spend(), found.counted)
        self._found = replace(found, counted=spent, exact=False)

    def _reaches(self, fact: Fact) -> bool:
        """Let the time pass until the fact: a clock that only the other policy set rings first. False: they part there."""
        before = None
        self._unsaid.pass_time(reached(fact))
        while (instant := rings(self.recorded.state, self.derived.state, reached(fact))) is not None:
            cut = cut_off(self.recorded.state, self.derived.state, instant)
            if cut is None and (instant == before or not attended(self.derived.state, fact, instant)):
                cut = Parted("unknown", _UNATTENDED)
            if cut is not None:
                self._part(cut, (), ())
                return False
            before = instant
            clock = ClockRead(at=max(self.derived.state.at, instant), due=instant)
            rung = self._advanced(clock, clock)
            if not self._judge((), rung, clock=True):
                return False
        return True

    def _derived(self, fact: Fact) -> Sequence[Decision] | Parted:
        """What the other run decides on the fact; or in what the fact itself would have been another."""
        recorded, derived = self.recorded.state, self.derived.state
        if isinstance(fact, ClockRead) and not expected(recorded, derived, fact):
            return ()
        cut = cut_off(recorded, derived, reached(fact), fact)
        taken, fact = fact, priced(fact, self._bill.cost)
        carried = cut or carried_over(fact, recorded, derived, self._change, self._registry)
        if isinstance(carried, Parted):
            return carried
        if isinstance(carried, Changed):
            self._unseen.add(derived.seq + 1, carried.parted)
            carried = carried.fact
        try:
            return self._advanced(carried, taken)
        except RefoldError as error:
            return Parted("fact", f"the other run has no place for it: {error}")

    def _advanced(self, fact: Fact, recorded: Fact) -> Sequence[Decision]:
        first = self.derived.state.seq + 1
        self._ends.take(fact, recorded, self._registry)
        state, events = advance(self.derived.state, fact, self._registry)
        self._events = events
        self.derived.take(events, state)
        if first != self._fact_seq and not isinstance(fact, ClockRead):
            self.origins[first] = self._fact_seq
        for event in events:
            self._note(event)
            if isinstance(event, HistoryPruned | MessageTrimmed):
                self.changes.append((self._fact_seq, event))
        return [event for event in events if isinstance(event, Decision)]

    def _note(self, event: Event) -> None:
        said = spoken(event)
        if said is None:
            return
        fired = Fired(fact=self._fact_seq, who=said.who, said=said.said, code=said.code)
        if len(self._fired) < MOST:
            self._fired.append(fired)
        else:
            self._more += 1

    def _follow_all(self, fact: Fact, group: Sequence[Decision]) -> None:
        self._bill.add()
        for place, event in enumerate((fact, *group)):
            self._follow(self._fact_seq + place, event)

    def _follow(self, seq: int, event: Event) -> None:
        try:
            self.recorded.fold(event, _NO_GUARDS)
        except RefoldError as error:
            raise DamagedLog(self._run, seq, str(error)) from error
        # A fork takes back what was asked at its place: its own spending begins behind that.
        if seq == self._counted or (seq == self._counted + 1 and isinstance(event, RunForked)):
            self._spent = self._spend()

    def _spend(self) -> Spend:
        """What the recorded run has used up, as far as it can be priced."""
        return self._bill.charged(spend_of(self.recorded.state))

    def _judge(self, group: Sequence[Decision], derived: Sequence[Decision], *, clock: bool = False) -> bool:
        """Whether the two are still one for the world."""
        other = self.derived.state
        found = apart(self.recorded, self.derived, self._windows)
        self._ends.judge(found, self._events)
        if found is not None:
            why = self._unseen.reason(other, found.parted)
            if clock and not found.stops and why.kind != "unknown" and not self.recorded.state.ended:
                why = Parted("clock", f"a deadline passed: {why.why}")
            self._part(why, group, derived, stops=found.stops)
        told = self._unseen.told(other)
        if self._found is None and told is not None:
            self._part(told, group, derived)
        return self._found is None

    def _part(
        self, apart: Parted, group: Sequence[Decision], derived: Sequence[Decision], *, stops: bool = False
    ) -> None:
        place, recorded, other = place_of(group, derived)
        state = self.derived.state
        verdict = (
            Verdict.STOPS if stops else Verdict.UNJUDGED if apart.kind == "unknown" else Verdict.DIVERGES
        )
        under_way = state.request or state.summary or any(underway(state))
        exact = stops and not under_way
        spent = spend_of(state) if exact else self._spend()
        self._found = Found(
            verdict=verdict,
            fact=self._fact_seq,
            seq=self._fact_seq + place,
            turn=(state if stops or apart.kind in OF_THE_FACT else self.recorded.state).spent.steps,
            parted=apart,
            recorded=recorded,
            derived=other,
            other=state,
            counted=_until(spent, spend_of(state)) if stops else spent,
            exact=exact,
        )


def _until(spent: Spend, other: Spend) -> Spend:
    """What was spent, with the time that had passed in the other run."""
    return replace(spent, duration=other.duration, waited=other.waited)
