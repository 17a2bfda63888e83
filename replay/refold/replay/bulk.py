"""Parallel processing of many runs in shards, and bulk audits.

A shard is some runs of a store, or one bundle. A task is a picklable function from a shard to results.
Results arrive in shard order regardless of parallelism. The end of every shard is reported, with the problem
if it was not finished. Merging totals is commutative. Totals name each run whose decisions were not all
derived again, and each unfinished shard.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from os import PathLike, fspath
from typing import NamedTuple, TypeVar

import msgspec

from refold.reducers.errors import Damaged, DamagedLog, Inconclusive, RefoldError
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import Audit, Auditor
from refold.replay.reader import follow_all
from refold.store.bundles import DamagedBundle, UnjudgedBundle
from refold.store.chain import START
from refold.store.opening import store_address
from refold.store.protocol import Head, Stored, UnknownRun
from refold.store.scans import whole_logs

SHARD = 20_000
"""Approximate number of events in a shard: one or two seconds of work, so that cores finish together."""

_AHEAD = 32  # shards in progress, or finished and not yet yielded: their results are in memory
HELD = 50_000
"""Maximum number of events in a shard whose results go to memory, for tasks with a result per event."""

T = TypeVar("T")


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs of the store at `address`; for a bundle's file, `runs` is empty and means all of them."""

    address: str
    runs: tuple[str, ...] = ()
    events: int = 0

    @property
    def name(self) -> str:
        """Name of the shard for display, without passwords."""
        shown = store_address(self.address).shown
        if not self.runs:
            return shown
        first, *others = self.runs
        more = f" and {len(others)} more" if others else ""
        return f"{shown}: run {first}{more}"


class ShardEnd(NamedTuple):
    """End of a shard's results.

    `problem` says why it was not finished; `broke` means that its executor broke on it.
    """

    shard: Shard
    problem: str = ""
    broke: bool = False


Task = Callable[[Shard], Iterable[T]]
"""Yields results for a shard. To be sent to a process, it must be a module function or a `partial` of one.
"""


def shards(
    address: str | PathLike[str],
    runs: Iterable[tuple[str, int]],
    size: int = SHARD,
    *,
    families: Mapping[str, str] | None = None,
) -> list[Shard]:
    """Split the runs of a store, each with its number of events, into shards of about `size` events.

    Runs of one family, if `families` is given, share a shard, at the position of the first of them.
    """
    found: list[Shard] = []
    names: list[str] = []
    events = 0
    for members in _group_families(runs, families or {}):
        names += [run for run, _ in members]
        events += sum(count for _, count in members)
        if events >= size:
            found.append(Shard(address=fspath(address), runs=tuple(names), events=events))
            names, events = [], 0
    return [*found, Shard(address=fspath(address), runs=tuple(names), events=events)] if names else found


def _group_families(
    runs: Iterable[tuple[str, int]], families: Mapping[str, str]
) -> Iterable[Sequence[tuple[str, int]]]:
    groups: dict[str, list[tuple[str, int]]] = {}
    for run, count in runs:
        groups.setdefault(families.get(run, run), []).append((run, count))
    return groups.values()


def run_task(
    work: Sequence[Shard],
    executor: Executor | None,
    task: Task[T],
    fresh: Callable[[], Executor] | None = None,
    *,
    held: int | None = None,
) -> Generator[T | ShardEnd]:
    """Yield each shard's results followed by its `Ended`; without an executor, work in this process.

    A failed shard (a missing file, a killed worker) does not stop the others. If an executor breaks, its
    unfinished shards are retried at the end, one at a time, on executors made by `fresh`. A shard of more
    than `held` events is processed in this process, because results from other processes stay in memory.
    """
    left: list[Shard] = []
    for each in _run_shards(work, executor, task, held):
        if isinstance(each, ShardEnd) and each.broke and fresh is not None:
            left.append(each.shard)
        else:
            yield each
    if fresh is not None:
        yield from _run_alone(left, fresh, task)


def _run_alone(left: list[Shard], fresh: Callable[[], Executor], task: Task[T]) -> Iterator[T | ShardEnd]:
    while left:
        with fresh() as executor:
            broke = False
            while left and not broke:  # a broken executor is not used again: the next shard gets a new one
                for each in _run_shards([left.pop(0)], executor, task, None):
                    broke = isinstance(each, ShardEnd) and each.broke
                    yield each


def _run_shards(
    work: Sequence[Shard], executor: Executor | None, task: Task[T], held: int | None
) -> Iterator[T | ShardEnd]:
    left = deque(work)
    waiting: deque[tuple[Shard, Future[list[T]] | None]] = deque()
    try:
        while left or waiting:
            while left and len(waiting) < _AHEAD:
                shard = left.popleft()
                waiting.append((shard, _submit(executor, shard, task, held)))
            shard, future = waiting.popleft()
            if future is None:
                yield from _run_here(shard, task)
            else:
                yield from _fetch(shard, future)
    finally:  # the caller stopped reading
        for _, future in waiting:
            if future is not None:
                future.cancel()


def _run_here(shard: Shard, task: Task[T]) -> Iterator[T | ShardEnd]:
    try:
        yield from task(shard)
    except RefoldError as error:
        yield ShardEnd(shard, str(error))
    else:
        yield ShardEnd(shard)


def _fetch(shard: Shard, future: "Future[list[T]]") -> Iterator[T | ShardEnd]:
    problem = future.exception()
    if problem is None:
        yield from future.result()
        yield ShardEnd(shard)
    else:
        # Any exception: a worker that was killed, or could not import a guard, leaves nothing else.
        told = str(problem) or type(problem).__name__
        yield ShardEnd(shard, told, broke=isinstance(problem, BrokenExecutor))


def _submit(
    executor: Executor | None, shard: Shard, task: Task[T], held: int | None
) -> "Future[list[T]] | None":
    """Submit the shard; None means to process it here."""
    if executor is None or (held is not None and shard.events > held):
        return None
    try:
        return executor.submit(list_results, shard, task)
    except RuntimeError as error:  # it broke or was shut down before all shards were submitted
        refused: Future[list[T]] = Future()
        refused.set_exception(error)
        return refused


def list_results(shard: Shard, task: Task[T]) -> list[T]:
    """Return all results of a task for a shard, to be sent back from a process."""
    return list(task(shard))


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
    executor: Executor | None,
    registry: Callable[[], Registry],
    seen: Callable[[Shard, Sequence[AuditedRun]], None] | None = None,
    fresh: Callable[[], Executor] | None = None,
) -> Totals:
    """Audit all shards, in this process without an executor; see `worked`.

    `seen` is called for each finished shard. An unfinished shard is listed in `unchecked`.
    """
    totals = Totals()
    judged: list[AuditedRun] = []
    for each in run_task(work, executor, partial(audit_shard, registry=registry), fresh):
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
