"""The thread that writes: what waits at the same time is written together.

While one group of appends is committed, the next one gathers. Changes of claims are grouped in the same way,
so a worker that takes or releases many runs waits for one commit.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple

import msgspec

from refold.reducers.errors import RefoldError
from refold.store.base import Claims
from refold.store.postgres import schema
from refold.store.postgres.appends import Append, Appender
from refold.store.postgres.claims import RunRow, read_rows
from refold.store.postgres.connection import Link, SqlRow
from refold.store.postgres.threads import CallJob, Job, StopJob, wake
from refold.store.protocol import Head

GROUP_ROWS = 1000
GROUP_BYTES = 4 * 2**20
"""Limits of a group, so that a commit stays short. The last append may exceed them: it is never split."""

P = ParamSpec("P")
T = TypeVar("T")
Args = TypeVarTuple("Args")
_ENCODER = msgspec.json.Encoder()


class _AppendJob(Job[Head]):
    def __init__(self, append: Append) -> None:
        super().__init__()
        self.append = append


class _RuleJob(Job[Any]):
    """A lease rule for one run, the first of its arguments or the run of a lease."""

    def __init__(self, rule: Callable[..., Any], args: Sequence[Any]) -> None:
        super().__init__()
        self.rule, self.args = rule, args
        self.run: str = getattr(args[0], "run", args[0])


class Committer:
    """The writing thread of a store, with the connection `link`.

    In a forked process the thread does not exist: calls raise `WrongUse`.
    """

    def __init__(self, link: Link, channel: str) -> None:
        self._link, self._channel = link, channel
        self._appender = Appender(link)
        self._queue: SimpleQueue[Job[Any]] = SimpleQueue()
        self._left: deque[_AppendJob] = deque()
        self._thread = threading.Thread(target=self._loop, name="refold-store-commits", daemon=True)
        self._thread.start()

    async def append(self, append: Append) -> Head:
        """See `Store.append`. When it raises, cancellation included, no work is still in progress."""
        return await self._do(_AppendJob(append))

    async def transact(self, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:
        """Run a lease rule: see `claims`."""
        result: T = await self._do(_RuleJob(rule, args))
        return result

    async def call(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(link, ...)`, again while the connection is lost: see `Link.retry`."""
        result: T = await self._do(CallJob(lambda link: link.retry(function, *args, **kwargs)))
        return result

    async def confirm(self, run: str) -> None:
        """If the run's last append has an unknown outcome, find it out. Raises `StoreUnavailable`."""
        if run in self._appender.unsure:
            await self._do(CallJob(lambda _: self._appender.confirm(run)))

    async def aclose(self) -> None:
        """Close the connection after the work that waits, and end the thread.

        If the connection is lost, the work fails at once, and the outcome of what was sent is unknown. In a
        forked process it does nothing.
        """
        if self._link.foreign:
            return
        self._link.closing.set()
        job = StopJob()
        self._queue.put(job)
        await job.reply.finish()

    async def _do(self, job: Job[T]) -> T:
        self._link.check_process()
        self._queue.put(job)
        try:
            return await job.reply.get()
        except BaseException:
            if not job.reply.over and not job.withdraw():
                await job.reply.finish()
            raise

    def _loop(self) -> None:
        while True:
            jobs = self._take()
            appends = [job for job in jobs if isinstance(job, _AppendJob)]
            rules = [job for job in jobs if isinstance(job, _RuleJob)]
            if rules:
                self._apply(rules)
            if appends:
                self._commit(appends)
            for job in jobs:
                if isinstance(job, CallJob | StopJob):
                    job.run(self._link)
                if isinstance(job, StopJob):
                    return

    def _take(self) -> list[Job[Any]]:
        """Return the jobs that wait, in order, at least one; appends beyond a group's size wait on."""
        jobs: list[Job[Any]] = []
        left, self._left = self._left, deque()
        count = size = 0
        while True:
            try:
                job = left.popleft() if left else self._queue.get(block=not jobs and not self._left)
            except Empty:
                return jobs
            if isinstance(job, _AppendJob):
                if count >= GROUP_ROWS or size >= GROUP_BYTES:
                    self._left.append(job)
                    continue
                count, size = count + len(job.append.records), size + job.append.size
            elif isinstance(job, StopJob) and self._left:
                self._queue.put(job)
                return [each for each in jobs if each.take()]
            if job.take():
                jobs.append(job)

    def _commit(self, jobs: Sequence[_AppendJob]) -> None:
        try:
            self._appender.commit([job.append for job in jobs])
        except BaseException as error:  # a bug must not leave callers waiting for ever
            for job in jobs:
                job.append.outcome = job.append.outcome or error
        for job in jobs:
            outcome = job.append.outcome
            if isinstance(outcome, BaseException):
                job.reply.set(None, outcome)
            else:
                job.reply.set(outcome)
        wake([job.reply for job in jobs])

    def _apply(self, jobs: Sequence[_RuleJob]) -> None:
        """Run rules on the rows of their runs, and write what they changed; again for rows that changed.

        After an error each job is tried alone, so that only those fail that cause it.
        """
        left = list(jobs)
        while left:
            now: dict[str, _RuleJob] = {}
            for job in left:
                now.setdefault(job.run, job)  # a second rule for a run waits for the first
            done, failed = set[str](), None
            try:
                with self._link.on_behalf(min(job.queued for job in left), partial(_all_abandoned, left)):
                    self._link.retry(_apply_rules, now, self._channel, done)
            except BaseException as error:
                failed = error
            for run in done:
                self._appender.forget(run)
            wake([now[run].reply for run in done])
            left = [job for job in left if now[job.run] is not job or job.run not in done]
            if failed is not None and len(left) > 1:
                for job in left:
                    self._apply([job])
                return
            if failed is not None and left:
                left[0].reply.set(None, failed)
                wake([left[0].reply])
                return


def _apply_rules(link: Link, jobs: dict[str, _RuleJob], channel: str, done: set[str]) -> None:
    """Run a rule for each run. Add to `done` the runs whose change was written, or that needed none."""
    jobs = {run: job for run, job in jobs.items() if run not in done}  # this may be another attempt
    names = _ENCODER.encode(sorted(jobs)).decode()
    found = dict[str, RunRow]()
    for run, rows in _by_run(link.execute(schema.RUNS_NOW, [names])).items():
        try:
            found |= read_rows(link.shown, rows)
        except RefoldError as error:
            if run not in jobs:
                raise
            jobs.pop(run).reply.set(None, error)
            done.add(run)
    if any(row.astray for row in found.values()):
        link.execute(schema.CUT_CLAIMS)
        return  # run the rules on what the rows are now
    ((now,),) = link.execute(schema.TIME) if len(found) < len(jobs) else ((0,),)
    changed, added = list[dict[str, Any]](), list[dict[str, Any]]()
    for run, job in jobs.items():
        row = found.get(run) or RunRow.new(link.shown, run, now)
        try:
            job.reply.set(job.rule(row, *job.args))
        except RefoldError as error:
            job.reply.set(None, error)
            done.add(run)
            continue
        if not row.changed:
            done.add(run)
        else:
            (changed if row.number else added).append(row.change())
    if added:
        done |= _written(link.execute(schema.ADD_CLAIMS, [_ENCODER.encode(added).decode()]))
    if changed:
        done |= _written(link.execute(schema.SET_CLAIMS, [_ENCODER.encode(changed).decode(), channel]))


def _by_run(found: Sequence[SqlRow]) -> dict[str, list[SqlRow]]:
    """Group rows by run, the first column, so that a damaged row is an error of its run only."""
    rows = defaultdict[str, list[SqlRow]](list)
    for row in found:
        rows[row[0].decode(errors="replace")].append(row)
    return rows


def _all_abandoned(jobs: Sequence[_RuleJob]) -> bool:
    return all(job.is_abandoned() for job in jobs)


def _written(found: Sequence[SqlRow]) -> set[str]:
    return {name.decode() for name, *_ in found}
