"""Audits in bulk: many runs, on as many cores or machines as an executor has, with results that merge.

Merging is free of order. Every run is named whose decisions were not all derived again, and every shard that nobody
finished.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import msgspec

from refold.reducers.errors import CannotJudge, Damaged, DamagedLog
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import Audit, Auditor
from refold.replay.following import follow_all
from refold.replay.shards import Shard, worked
from refold.store.bundles import DamagedBundle, UnjudgedBundle, whole_logs
from refold.store.chain import START
from refold.store.protocol import Head, Stored, UnknownRun

KEPT = 10_000
"""Runs that a summary names, of each kind; further ones are among `runs`, and not among `clean`."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A run after its audit, or a bundle, by its path, that cannot be read to its end.

    `audit` is None where nothing could be said: then `damaged` or `unjudged` says why.
    `policy` is the digest of the policy that the run ended under, hex; `head` the hash of its last event, hex.
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


class Named(msgspec.Struct, frozen=True, order=True):
    """A run, or a shard, and what is to be said of it."""

    name: str
    why: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What audits of many runs came to. `verdicts`, `rules` and `policies` count runs: by what was found, by version and
    by the policy's digest.

    `imported` of them were derived from transcripts. The lists hold the first `KEPT` by name. `unchecked` are shards that nobody finished: of their runs nothing is known.
    """

    runs: int = 0
    clean: int = 0
    events: int = 0
    facts: int = 0
    decisions: int = 0
    imported: int = 0
    differing: tuple[Named, ...] = ()
    unjudged: tuple[Named, ...] = ()
    damaged: tuple[Named, ...] = ()
    unchecked: tuple[Named, ...] = ()
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


def _first(some: tuple[Named, ...], others: tuple[Named, ...] = ()) -> tuple[Named, ...]:
    return tuple(sorted((*some, *others))[:KEPT])


def audit_shard(shard: Shard, registry: Callable[[], Registry] = lambda: BUILTIN) -> tuple[Judged, ...]:
    """Audit each run of a shard. Raises only where the file itself cannot be read.

    A bundle that is not what was packed, or of a newer version, stands by its path behind those of its runs that were read.
    """
    return tuple(_audits(shard, registry()))


def _audits(shard: Shard, guards: Registry) -> Iterator[Judged]:
    try:
        for run, records in whole_logs(Path(shard.path), shard.runs):
            yield _judged(run, records, guards)
    except DamagedBundle as error:
        yield Judged(run=shard.path, damaged=str(error))
    except UnjudgedBundle as error:
        yield Judged(run=shard.path, unjudged=str(error))


def _judged(run: str, records: Iterator[Stored], registry: Registry) -> Judged:
    auditor, held = Auditor(run, registry), _Held(records)
    try:
        follow_all(held, auditor)
    except UnknownRun as error:  # listed, and not one event of it is there
        return Judged(run=run, damaged=str(error))
    problem = auditor.problem
    if isinstance(problem, CannotJudge):
        return Judged(run=run, unjudged=str(problem))
    result = auditor.result()
    if isinstance(problem, Damaged) and not (isinstance(problem, DamagedLog) and result.events):
        return Judged(run=run, damaged=str(problem))
    if not result.events:
        return Judged(run=run, damaged="not one event of it is there")
    return Judged(run=run, audit=result, policy=auditor.policy, head=held.head.hash.hex())


class _Held(Iterator[Stored]):
    """The records of a log. `head` is the last after which one more was asked for: nothing was wrong with it."""

    def __init__(self, records: Iterator[Stored]) -> None:
        self._records = records
        self.head: Head = START
        self._last: Head = START

    def __next__(self) -> Stored:
        self.head = self._last
        self._last = stored = next(self._records)
        return stored


def summed(judged: Iterable[Judged]) -> Totals:
    """What these runs come to."""
    every = list(judged)
    audits = [each.audit for each in every if each.audit is not None]
    found: dict[str, list[Named]] = {"clean": [], "differs": [], "unjudged": [], "damaged": []}
    for each in every:
        found[each.verdict].append(Named(each.run, _why(each)))
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
        verdicts=_counted(each.verdict for each in every),
        rules=_counted(str(audit.rules) for audit in audits),
        policies=_counted(each.policy for each in every if each.policy),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _why(judged: Judged) -> str:
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
    executor: Executor | None,
    registry: Callable[[], Registry],
    seen: Callable[[Shard, Sequence[Judged]], None] | None = None,
    fresh: Callable[[], Executor] | None = None,
) -> Totals:
    """Audit all shards, in this process without an executor: see `worked`. `seen` is told of each as it is done.

    A shard that nobody finished is `unchecked`.
    """
    totals = Totals()
    judged: list[Judged] = []
    for each in worked(work, executor, partial(audit_shard, registry=registry), fresh):
        if isinstance(each, Judged):
            judged.append(each)
            continue
        if each.problem:
            judged = []
            totals += Totals(unchecked=(Named(each.shard.name, each.problem),), verdicts={"unchecked": 1})
        totals += summed(judged)
        if seen is not None:
            seen(each.shard, judged)
        judged = []
    return totals
