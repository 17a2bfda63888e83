"""`whatif`: derive the decisions of another policy from the same facts, as long as they are evidence.

The recorded run and the derived one are folded side by side. While both request the same things, the next
recorded fact answers both. If the other run ends, it ends at that point. If it makes a different request, its
answer is unknown and the rest of the record is not evidence.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.errors import Damaged, DamagedLog, Inconclusive, RefoldError, WrongUse
from refold.reducers.evolution import encode_value
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.machine import target
from refold.reducers.named_tools import find_unmatched_names
from refold.reducers.policy import Policy
from refold.replay.reader import Follower, Step, follow, follow_all, stored_events
from refold.replay.shards import Shard
from refold.replay.summary import task_of
from refold.replay.whatif.bounds import Bounds
from refold.replay.whatif.facts import Change
from refold.replay.whatif.losses import Losses
from refold.replay.whatif.pair import DivergencePoint, RunPair
from refold.replay.whatif.tables import (
    ArgumentSchemas,
    Contexts,
    Prices,
    add_context,
    add_price,
    close_price,
)
from refold.replay.whatif.uncertainty import Effect, Uncertainty, prove
from refold.replay.whatif.unjudged_calls import UnjudgedCalls
from refold.replay.whatif.verdict import MOST, Prefixes, Spend, Verdict, WhatIf, spend_of
from refold.store.protocol import Store
from refold.store.scans import open_scan


async def whatif(
    store: Store,
    run: str,
    policy: Policy | Change,
    registry: Registry = BUILTIN,
    *,
    prices: Prices | None = None,
    contexts: Contexts | None = None,
) -> WhatIf:
    """Derive what another policy would have decided over a run's facts.

    A function changes the policy in force. `prices` are for responses without a recorded price, `contexts`
    for models without a recorded context length. Raises `UnknownRun`, `DamagedLog`, and `NewerLog` for
    unknown rules.
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
    """Do `whatif` for several policies, in order, reading the log once. Raises as `whatif`.

    Events up to `shared` are counted with the run that this one forks: see `Prefixes`.
    """
    comparisons = [
        Comparison(run, policy, registry, shared=shared, prices=prices, contexts=contexts)
        for policy in policies
    ]
    await follow(stored_events(store, run), *comparisons)
    return _results(comparisons)


def ask_all(
    shard: Shard,
    policies: Sequence[Policy | Change],
    registry: Registry = BUILTIN,
    *,
    prices: Prices | None = None,
    contexts: Contexts | None = None,
) -> Iterator[tuple[str, tuple[WhatIf, ...] | RefoldError]]:
    """Do `side_by_side` for each run of a shard, or yield the problem; the policy may be invalid, too.

    Events that a fork shares with an earlier run of the shard are counted there.
    """
    prefixes = Prefixes()
    with open_scan(shard.address) as scan:
        for run in shard.runs:
            try:
                lineage = scan.lineage(run)
                shared = prefixes.shared(run, lineage)
                comparisons = [
                    Comparison(run, policy, registry, shared=shared, prices=prices, contexts=contexts)
                    for policy in policies
                ]
                follow_all(scan.records(run), *comparisons)
                found = _results(comparisons)
            except (Inconclusive, Damaged, WrongUse) as error:
                yield run, error
            else:
                prefixes.count(run, lineage, found[0].events)
                yield run, found


def _results(comparisons: Sequence["Comparison"]) -> tuple[WhatIf, ...]:
    for comparison in comparisons:
        if comparison.problem is not None:
            raise comparison.problem
    return tuple(comparison.result() for comparison in comparisons)


class Comparison(Follower[WhatIf]):
    """Follows the recorded run and the one under another policy until they diverge."""

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
        self._run, self._registry, self._prices, self._contexts = run, registry, prices, contexts
        self._counted = shared
        self._context: int | None = None  # context length from the table
        self._priced = 0  # responses priced by the table
        change: Change = (lambda _: policy) if isinstance(policy, Policy) else policy
        self._near = RunPair(run, change, registry, shared)
        self.recorded, self.derived = self._near.recorded, self._near.derived
        self.origins, self.changes = self._near.origins, self._near.changes
        self._doubts: dict[tuple[str, Effect], Uncertainty] = {}  # each once, at its first fact
        self._losses = Losses(self._near, self._doubt)
        self._bounds = Bounds(self._near, change, registry, self._doubt)
        self._schemas = ArgumentSchemas()
        self._calls = UnjudgedCalls(self._near, self._doubt)
        self._task: str | None = ""
        self._fact: ev.Fact | None = None
        self._fact_seq = 0
        self._group: list[ev.Decision] = []

    @property
    def last_fact(self) -> int:
        """Event number of the last fact taken."""
        return self._near.fact

    @property
    def diverged_after(self) -> int:
        """Event number of the fact at which the two diverged; 0 if they have not."""
        found = self._prove()
        return 0 if found is None else found.fact

    def take(self, step: Step) -> None:
        """Take one event. Raises `DamagedLog` if it is invalid here, `NewerLog` for unknown rules."""
        seq, event = step.stored.seq, step.event
        if seq != self.recorded.state.seq + len(self._group) + (self._fact is not None) + 1:
            raise DamagedLog(self._run, seq, "an event before it is missing")
        if isinstance(event, ev.Decision):
            if self._fact is None:
                raise DamagedLog(self._run, seq, f"a {ev.kind_of(event)} without a fact before it")
            self._group.append(event)
            return
        if isinstance(event, ev.RunStarted):
            self._task = task_of(event)
        self._losses.observe(event)
        self._finish()
        if isinstance(event, ev.Fact):
            self._fact, self._fact_seq = event, seq
        else:
            self._near.pass_by(seq, event)
            self._bounds.pass_by(seq, event)

    def end(self) -> None:
        """Handle the end of the record. Raises as `take`."""
        self._finish()
        self._bounds.finish()
        self._losses.finish()

    def result(self) -> WhatIf:
        """Return the result at the end of the record."""
        near, found = self._near, self._prove()
        one = self.recorded.state
        other = self.derived.state if found is None else found.other
        doubted = found is not None and found.doubted
        shared = found.fact if found is not None and doubted else near.shared
        told = WhatIf(
            run=self._run,
            verdict=Verdict.AGREE if found is None else found.verdict,
            began=one.lineage.at,
            task=self._task,
            events=one.seq,
            fact=shared,
            agent_state=str(other.agent_state),
            code=other.outcome.code if other.outcome else "",
            recorded_state=str(one.agent_state),
            recorded_code=one.outcome.code if one.outcome else "",
            until=spend_of(other),
            shared=self._counted,
            fired=tuple(fired for fired in near.fired if not doubted or fired.fact <= shared),
            more=0 if doubted else near.more,
            unknown=tuple(dict.fromkeys(doubt.why for doubt in self._in_order())),
            prices=self._prices.name if self._prices else "",
            priced=self._priced,
            contexts=self._contexts.name if self._contexts else "",
            context=self._context,
            unseen=near.unseen.list_first(self.origins, MOST) if found is None else (),
            tools=len(self.derived.state.setup.tools),
            unfit=tuple(
                find_unmatched_names(
                    other.policy, self.derived.state.setup.tools, self._schemas.schemas, self._registry
                )
            ),
        )
        return told if found is None else self._add_divergence(told, found)

    def _doubt(self, doubt: Uncertainty) -> None:
        known = self._doubts.get((doubt.why, doubt.effect))
        if known is None or doubt.seq < known.seq:
            self._doubts[doubt.why, doubt.effect] = doubt

    def _in_order(self) -> list[Uncertainty]:
        return sorted(self._doubts.values(), key=lambda doubt: doubt.seq)

    def _prove(self) -> DivergencePoint | None:
        return prove(self._near.found, self._in_order(), self.derived.state)

    def _add_divergence(self, told: WhatIf, found: DivergencePoint) -> WhatIf:
        stopping = found.other.stopping
        if found.verdict is Verdict.STOPS and stopping is not None and not found.other.ended:
            end = target(found.other.agent_state, stopping.trigger, found.other.came_from)
            told = replace(told, agent_state=str(end), code=stopping.code)
        saved = again = Spend()
        if found.verdict is Verdict.STOPS:
            saved = spend_of(self.recorded.state) - found.counted
            again = self._near.before - found.counted
        return replace(
            told,
            seq=found.seq,
            turn=found.turn,
            kind=found.mismatch.kind,
            why=found.mismatch.why,
            subject=found.subject,
            recorded=found.recorded,
            derived=found.derived,
            saved=saved,
            again=again,
            exact=found.exact and not self._losses.more,
            unknown=told.unknown or ((found.mismatch.why,) if found.verdict is Verdict.INCONCLUSIVE else ()),
            state=encode_value(found.other).decode(),
        )

    def _finish(self) -> None:
        if self._fact is None:
            return
        seq, fact, group = self._fact_seq, self._add_tables(self._fact), self._group
        self._fact, self._group = None, []
        diverged = self._near.found is not None
        self._bounds.take(seq, fact, group)
        self._schemas.take(fact, self.derived.state.policy)
        self._near.take(seq, fact, group)
        self._bounds.judge(seq, fact)
        self._losses.judge(seq, fact, diverged=diverged)
        self._calls.judge(seq, fact)

    def _add_tables(self, fact: ev.Fact) -> ev.Fact:
        """Add data to the fact that only the caller's tables have."""
        fact = close_price(fact, self.recorded.state)
        known = add_price(fact, self.recorded.state, self._prices)
        self._priced += known is not fact
        told = add_context(known, self._contexts)
        if told is not known:
            self._context = getattr(told, "context", None)
        return told
