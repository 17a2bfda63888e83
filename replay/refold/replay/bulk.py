"""Bulk audits: many runs, in shards.

Merging totals is commutative. Totals name each run whose decisions were not all derived again, and each
unfinished shard.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

import msgspec

from refold.reducers.errors import Damaged, DamagedLog, Inconclusive
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import Audit, Auditor
from refold.replay.dispatch import Workers, run_task
from refold.replay.reader import follow_all
from refold.replay.shards import Shard
from refold.store.bundles import DamagedBundle, UnjudgedBundle
from refold.store.chain import START
from refold.store.protocol import Head, Stored, UnknownRun
from refold.store.scans import whole_logs

KEPT = 10_000
"""Maximum number of runs that totals list per kind; further ones are only counted."""


class AuditedRun(msgspec.Struct, frozen=True, kw_only=True):
    """An audited run, or a bundle (named by its path) that cannot be read to the end.

    `audit` is None if no audit was possible: then `damaged` or `unjudged` says why. `policy` is the digest of
    the run's last policy, hex; `head` is the hash of its last event, hex.
    """

    run: str
    audit: Audit | None = None
    damaged: str = ""
    unjudged: str = ""
    policy: str = ""
    head: str = ""

    @property
    def verdict(self) -> str:
        """`clean`, `differs`, `damaged`, or `unjudged`."""
        if self.damaged or (self.audit is not None and self.audit.damaged):
            return "damaged"
        if self.audit is None:
            return "unjudged"
        return "differs" if self.audit.differences else "clean" if self.audit.clean else "unjudged"


class RunFinding(msgspec.Struct, frozen=True, order=True):
    """A run or shard, and what was found."""

    name: str
    why: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of audits of many runs.

    `verdicts`, `rules` and `policies` count runs by verdict, rule version and policy digest. `imported`
    counts runs whose decisions were derived from transcripts. The lists hold the first `KEPT` by name.
    `unchecked` are unfinished shards, whose runs were not audited.
    """

    runs: int = 0
    clean: int = 0
    events: int = 0
    facts: int = 0
    decisions: int = 0
    imported: int = 0
    differing: tuple[RunFinding, ...] = ()
    unjudged: tuple[RunFinding, ...] = ()
    damaged: tuple[RunFinding, ...] = ()
    unchecked: tuple[RunFinding, ...] = ()
    verdicts: dict[str, int] = {}
    rules: dict[str, int] = {}
    policies: dict[str, int] = {}

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            runs=self.runs + other.runs,
            clean=self.clean + other.clean,
            events=self.events + other.events,
            facts=self.facts + other.facts,
            decisions=self.decisions + other.decisions,
            imported=self.imported + other.imported,
            differing=_first(self.differing, other.differing),
            unjudged=_first(self.unjudged, other.unjudged),
            damaged=_first(self.damaged, other.damaged),
            unchecked=_first(self.unchecked, other.unchecked),
            verdicts=dict(sorted((Counter(self.verdicts) + Counter(other.verdicts)).items())),
            rules=dict(sorted((Counter(self.rules) + Counter(other.rules)).items())),
            policies=dict(sorted((Counter(self.policies) + Counter(other.policies)).items())),
        )


def _first(some: tuple[RunFinding, ...], others: tuple[RunFinding, ...] = ()) -> tuple[RunFinding, ...]:
    return tuple(sorted((*some, *others))[:KEPT])


def audit_shard(shard: Shard, registry: Callable[[], Registry] = lambda: BUILTIN) -> tuple[AuditedRun, ...]:
    """Audit each run of a shard. Raises only if the file cannot be read.

    A damaged bundle, or one of a newer version, is reported by its path after the runs that could be read.
    """
    return tuple(_audits(shard, registry()))


def _audits(shard: Shard, guards: Registry) -> Iterator[AuditedRun]:
    try:
        for run, records in whole_logs(shard.address, shard.runs):
            yield _judge_run(run, records, guards)
    except DamagedBundle as error:
        yield AuditedRun(run=shard.address, damaged=str(error))
    except UnjudgedBundle as error:
        yield AuditedRun(run=shard.address, unjudged=str(error))


def _judge_run(run: str, records: Iterator[Stored], registry: Registry) -> AuditedRun:
    auditor, held = Auditor(run, registry), _Held(records)
    try:
        follow_all(held, auditor)
    except UnknownRun as error:  # listed, but without any event
        return AuditedRun(run=run, damaged=str(error))
    problem = auditor.problem
    if isinstance(problem, Inconclusive):
        return AuditedRun(run=run, unjudged=str(problem))
    result = auditor.result()
    if isinstance(problem, Damaged) and not (isinstance(problem, DamagedLog) and result.events):
        return AuditedRun(run=run, damaged=str(problem))
    if not result.events:
        return AuditedRun(run=run, damaged="its log has no events")
    return AuditedRun(run=run, audit=result, policy=auditor.policy, head=held.head.hash.hex())


class _Held(Iterator[Stored]):
    """Iterator over the records of a log. `head` is the last record that was followed by a valid read."""

    def __init__(self, records: Iterator[Stored]) -> None:
        self._records = records
        self.head: Head = START
        self._last: Head = START

    def __next__(self) -> Stored:
        self.head = self._last
        self._last = stored = next(self._records)
        return stored


def sum_totals(judged: Iterable[AuditedRun]) -> Totals:
    """Return the totals of these runs."""
    every = list(judged)
    audits = [each.audit for each in every if each.audit is not None]
    found: dict[str, list[RunFinding]] = {"clean": [], "differs": [], "unjudged": [], "damaged": []}
    for each in every:
        found[each.verdict].append(RunFinding(each.run, _why(each)))
    return Totals(
        runs=len(every),
        clean=len(found["clean"]),
        events=sum(audit.events for audit in audits),
        facts=sum(audit.facts for audit in audits),
        decisions=sum(audit.decisions for audit in audits),
        imported=sum(audit.imported for audit in audits),
        differing=_first(tuple(found["differs"])),
        unjudged=_first(tuple(found["unjudged"])),
        damaged=_first(tuple(found["damaged"])),
        verdicts=_count_values(each.verdict for each in every),
        rules=_count_values(str(audit.rules) for audit in audits),
        policies=_count_values(each.policy for each in every if each.policy),
    )


def _count_values(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _why(judged: AuditedRun) -> str:
    audit = judged.audit
    if judged.damaged or judged.unjudged or audit is None:
        return judged.damaged or judged.unjudged
    if audit.damaged:
        return audit.damaged
    if judged.verdict == "clean":
        return ""
    if audit.differences:
        first = audit.findings[0]
        return f"{audit.differences} differences, the first at event {first.seq}: {first.kind} is {first.difference}"
    return "; ".join(audit.blind) or "some of its decisions cannot be derived again"


def audit_all(
    work: Sequence[Shard],
    workers: Workers | Executor | None,
    registry: Callable[[], Registry],
    seen: Callable[[Shard, Sequence[AuditedRun]], None] | None = None,
) -> Totals:
    """Audit all shards, in this process without an executor; see `run_task`.

    `seen` is called for each finished shard. An unfinished shard is listed in `unchecked`.
    """
    totals = Totals()
    judged: list[AuditedRun] = []
    for each in run_task(work, workers, partial(audit_shard, registry=registry)):
        if isinstance(each, AuditedRun):
            judged.append(each)
            continue
        if each.problem:
            judged = []
            totals += Totals(
                unchecked=(RunFinding(each.shard.name, each.problem),), verdicts={"unchecked": 1}
            )
        totals += sum_totals(judged)
        if seen is not None:
            seen(each.shard, judged)
        judged = []
    return totals
