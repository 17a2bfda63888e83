"""The thread that writes: what waits at the same time is written together.

While one group of appends is committed, the next one gathers. Changes of claims are grouped in the same way,
so a worker that takes or releases many runs waits for one commit.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, TypeVarTuple

import msgspec

from refold.reducers.errors import RefoldError
from refold.store.base import Claims
from refold.store.postgres import schema
from refold.store.postgres.appends import Append, Appender
from refold.store.postgres.claims import RunRow, read_rows
from refold.store.postgres.connection import Link
from refold.store.postgres.threads import Reply, wake
from refold.store.protocol import Head

GROUP_ROWS = 1000
GROUP_BYTES = 4 * 2**20
"""Limits of a group, so that a commit stays short. The last append may exceed them: it is never split."""

P = ParamSpec("P")
T = TypeVar("T")
Args = TypeVarTuple("Args")
_ENCODER = msgspec.json.Encoder()


class _Job(Generic[T]):
    """Work for the thread. `take` and `withdraw` exclude each other."""

    def __init__(self) -> None:
        self.reply = Reply[T]()
        self._lock = threading.Lock()
        self._taken = self._withdrawn = False

    def take(self) -> bool:
        """Return whether the thread may begin; False if the job was withdrawn."""
        with self._lock:
            self._taken = not self._withdrawn
            return self._taken

    def withdraw(self) -> bool:
        """Return whether the job will not begin any more."""
        with self._lock:
            self._withdrawn = not self._taken
            return self._withdrawn


class _AppendJob(_Job[Head]):
    def __init__(self, append: Append) -> None:
        super().__init__()
        self.append = append


class _RuleJob(_Job[Any]):
    """A lease rule for one run, the first of its arguments or the run of a lease."""

    def __init__(self, rule: Callable[..., Any], args: Sequence[Any]) -> None:
        super().__init__()
        self.rule, self.args = rule, args
        self.run: str = getattr(args[0], "run", args[0])


class _CallJob(_Job[Any]):
    def __init__(self, function: Callable[[Link], Any]) -> None:
        super().__init__()
        self.function = function


class _Stop(_Job[None]):
    pass


class Committer:
    """The writing thread of a store, with the connection `link`."""

    def __init__(self, link: Link, channel: str) -> None:
        self._link, self._channel = link, channel
        self._appender = Appender(link)
        self._queue: SimpleQueue[_Job[Any]] = SimpleQueue()
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
        result: T = await self._do(_CallJob(lambda link: link.retry(function, *args, **kwargs)))
        return result

    async def confirm(self, run: str) -> None:
        """If the run's last append has an unknown outcome, find it out. Raises `StoreUnavailable`."""
        if run in self._appender.unsure:
            await self._do(_CallJob(lambda _: self._appender.confirm(run)))

    async def aclose(self) -> None:
        """Close the connection after the work that waits, and end the thread."""
        job = _Stop()
        self._queue.put(job)
        await job.reply.finish()

    async def _do(self, job: _Job[T]) -> T:
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
                if isinstance(job, _CallJob):
                    _answer(job, job.function, self._link)
                if isinstance(job, _Stop):
                    self._link.drop()
                    job.reply.set(None)
                    wake([job.reply])
                    return

    def _take(self) -> list[_Job[Any]]:
        """Return the jobs that wait, in order, at least one; appends beyond a group's size wait on."""
        jobs: list[_Job[Any]] = []
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
            elif isinstance(job, _Stop) and self._left:
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
        """Run rules on the rows of their runs, and write what they changed; again for rows that changed."""
        left = list(jobs)
        while left:
            now: dict[str, _RuleJob] = {}
            for job in left:
                now.setdefault(job.run, job)  # a second rule for a run waits for the first
            try:
                done = self._link.retry(_apply_rules, now, self._channel)
            except BaseException as error:
                for job in left:
                    job.reply.set(None, error)
                wake([job.reply for job in left])
                return
            for run in done:
                self._appender.forget(run)
            wake([now[run].reply for run in done])
            left = [job for job in left if now[job.run] is not job or job.run not in done]


def _apply_rules(link: Link, jobs: dict[str, _RuleJob], channel: str) -> set[str]:
    """Run a rule for each run. Return the runs whose change was written, or that needed none."""
    names = _ENCODER.encode(sorted(jobs)).decode()
    found = read_rows(link.shown, link.execute(schema.RUNS_NOW, [names]))
    if any(row.astray for row in found.values()):
        link.execute(schema.CUT_CLAIMS)
        return set()  # run the rules on what the rows are now
    ((now,),) = link.execute(schema.TIME) if len(found) < len(jobs) else ((0,),)
    changed, added, done = list[dict[str, Any]](), list[dict[str, Any]](), set[str]()
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
        done |= {
            name.decode() for (name,) in link.execute(schema.ADD_CLAIMS, [_ENCODER.encode(added).decode()])
        }
    if changed:
        told = link.execute(schema.SET_CLAIMS, [_ENCODER.encode(changed).decode(), channel])
        done |= {name.decode() for (name,) in told}
    return done


def _answer(job: _CallJob, function: Callable[[Link], Any], link: Link) -> None:
    try:
        job.reply.set(function(link))
    except BaseException as error:
        job.reply.set(None, error)
    wake([job.reply])
