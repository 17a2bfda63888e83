"""Processing of shards by an executor whose workers may die.

- A failed task (a missing file, a guard that cannot be imported) ends its shard with the problem. Others
  continue.
- A lost worker costs only the shards in progress: any of them may have killed it. They are submitted again.
  The last of `Workers.tries` attempts is made alone, after all other shards: if the worker dies again, the
  shard is the cause, and is ended with the reason.
- If no shard is finished for `Workers.idle` seconds, those in progress are given up. If none of those that
  are ahead was finished either, the executor is considered dead, and all shards are given up.

Each shard is ended once. Results arrive in shard order; those of shards that were tried alone come last.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, NamedTuple, TypeVar

import msgspec

from refold.reducers.errors import RefoldError
from refold.replay.shards import Shard, ShardEnd, Task

AHEAD = 32
"""Default size of the window. The results of its finished shards are in memory."""

T = TypeVar("T")


class Diagnosis(NamedTuple):
    """What the exception of a future means: the problem, and whether a worker was lost."""

    problem: str
    lost: bool


def diagnose(error: BaseException) -> Diagnosis:
    """Return what an exception from an executor of `concurrent.futures` means."""
    return Diagnosis(str(error) or type(error).__name__, lost=isinstance(error, BrokenExecutor))


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """An executor for shards, and what to do when it loses workers. Without an executor: this process.

    `replace` starts another executor when the first is broken; one that recovers by itself needs none.
    `alone` starts an executor for the last of `tries` attempts. `ahead` is the number of shards that are in
    progress, or finished and not yet yielded. `idle` is in seconds; None waits forever.
    """

    executor: Executor | None = None
    replace: Callable[[], AbstractContextManager[Executor]] | None = None
    alone: Callable[[], AbstractContextManager[Executor]] | None = None
    tries: int = 1
    ahead: int = AHEAD
    idle: float | None = None
    diagnose: Callable[[BaseException], Diagnosis] = diagnose


def run_task(
    work: Sequence[Shard], workers: Workers | Executor | None, task: Task[T], *, held: int | None = None
) -> Generator[T | ShardEnd]:
    """Yield each shard's results, followed by its `ShardEnd`.

    A bare executor gets each shard once: those of lost workers are not tried again. A shard of more than
    `held` events is processed in this process, because results from other processes stay in memory.
    """
    if not isinstance(workers, Workers):
        workers = Workers(executor=workers)
    with ExitStack() as stack:
        running = _Dispatch(work, workers, task, held, stack)
        yield from running.process_together()
        yield from running.process_alone()


def list_results(shard: Shard, task: Task[T]) -> list[T]:
    """Return all results of a task for a shard, to be sent back from a process."""
    return list(task(shard))


class _Part(msgspec.Struct, Generic[T]):
    """A shard in the window. Without a future, it is processed here. `lost` counts its workers that died."""

    shard: Shard
    future: "Future[list[T]] | None"
    lost: int = 0

    @property
    def running(self) -> bool:
        return self.future is not None and not self.future.done()

    @property
    def error(self) -> BaseException | None:
        """The exception of a finished future."""
        if self.future is None or not self.future.done():
            return None
        try:
            return self.future.exception()
        except CancelledError as error:  # by the executor
            return error

    def cancel(self) -> None:
        if self.future is not None:
            self.future.cancel()


class _Dispatch(Generic[T]):
    """The shards that are not ended: not submitted, in the window, or suspected of killing their workers."""

    def __init__(
        self, work: Sequence[Shard], workers: Workers, task: Task[T], held: int | None, stack: ExitStack
    ) -> None:
        self._workers, self._task, self._held, self._stack = workers, task, held, stack
        self._executor = workers.executor
        self._left = deque(work)
        self._window: list[_Part[T]] = []
        self._suspects: deque[_Part[T]] = deque()

    def process_together(self) -> Iterator[T | ShardEnd]:
        """Yield the results of all shards except suspects."""
        try:
            while self._fill_window():
                first = self._window[0]
                if not self._wait_for(first):
                    yield from self._give_up()
                elif self._is_lost(first):
                    self._retry_lost()
                else:
                    yield from self._results_of(self._window.pop(0))
        finally:  # the caller stopped reading
            for part in self._window:
                part.cancel()

    def process_alone(self) -> Iterator[T | ShardEnd]:
        """Yield the results of the suspects, one at a time."""
        while self._suspects and self._workers.alone is not None:
            with self._workers.alone() as executor:
                self._executor, lost = executor, False
                while self._suspects and not lost:  # an executor that broke is not used again
                    part = self._suspects.popleft()
                    part.future = self._submit(part.shard)
                    self._window = [part]
                    if not self._wait_for(part):
                        yield from self._give_up()
                        continue
                    lost = self._is_lost(part)
                    yield from self._results_of(part)

    def _fill_window(self) -> bool:
        """Submit more shards, up to `ahead`; return whether any is in the window."""
        while self._left and len(self._window) < self._workers.ahead:
            shard = self._left.popleft()
            self._window.append(_Part(shard, self._submit(shard)))
        return bool(self._window)

    def _submit(self, shard: Shard) -> "Future[list[T]] | None":
        """Submit the shard; None means to process it here."""
        if self._executor is None or (self._held is not None and shard.events > self._held):
            return None
        try:
            try:
                return self._executor.submit(list_results, shard, self._task)
            except BrokenExecutor:
                if self._workers.replace is None:
                    raise
                self._executor = self._stack.enter_context(self._workers.replace())
                return self._executor.submit(list_results, shard, self._task)
        except RuntimeError as error:  # it broke or was shut down
            refused: Future[list[T]] = Future()
            refused.set_exception(error)
            return refused

    def _wait_for(self, part: _Part[T]) -> bool:
        """Wait until a part is finished; return False if none of the window was for `idle` seconds."""
        while part.running:
            futures = [each.future for each in self._window if each.future is not None and each.running]
            if not wait(futures, self._workers.idle, FIRST_COMPLETED).done:
                return False
        return True

    def _is_lost(self, part: _Part[T]) -> bool:
        """Return whether the part's worker died, if that is a reason to try again."""
        error = part.error
        return self._workers.tries > 1 and error is not None and self._workers.diagnose(error).lost

    def _retry_lost(self) -> None:
        """Submit all parts of lost workers again, except for those whose next attempt is the last."""
        window, self._window = self._window, []
        for part in window:
            if self._is_lost(part):
                part.lost += 1
                if part.lost >= self._workers.tries - 1:
                    self._suspects.append(part)
                    continue
                part.future = self._submit(part.shard)
            self._window.append(part)

    def _give_up(self) -> Iterator[ShardEnd]:
        """End the running parts of the window; if none is finished, end all shards."""
        running = [part for part in self._window if part.running]
        dead = not any(part.future is not None and part.future.done() for part in self._window)
        self._window = [part for part in self._window if part not in running]
        for part in running:
            part.cancel()
        given_up = [part.shard for part in running]
        if dead:
            given_up += [*(part.shard for part in self._suspects), *self._left]
            self._suspects.clear()
            self._left.clear()
        yield from _end_all(given_up, f"no part was finished within {self._workers.idle:g} s")

    def _results_of(self, part: _Part[T]) -> Iterator[T | ShardEnd]:
        error = part.error
        if part.future is None:
            yield from self._process_here(part.shard)
        elif error is None:
            yield from part.future.result()
            yield ShardEnd(part.shard)
        else:  # any exception: a worker that could not import a guard leaves nothing else
            yield ShardEnd(part.shard, self._describe(part, error))

    def _describe(self, part: _Part[T], error: BaseException) -> str:
        found = self._workers.diagnose(error)
        if found.lost and part.lost:
            tries = self._workers.tries
            return f"its worker died on each of {tries} attempts, on the last one alone: {found.problem}"
        return found.problem

    def _process_here(self, shard: Shard) -> Iterator[T | ShardEnd]:
        try:
            yield from self._task(shard)
        except RefoldError as error:
            yield ShardEnd(shard, str(error))
        else:
            yield ShardEnd(shard)


def _end_all(given_up: Iterable[Shard], problem: str) -> Iterator[ShardEnd]:
    for shard in given_up:
        yield ShardEnd(shard, problem)
