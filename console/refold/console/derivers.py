"""Processes that derive the files of an import ahead of the process that writes.

Files are derived in order, some ahead. If a process dies, the files that it may have worked on are derived
again, one at a time, until one of them ends its process again: only that one is not imported.
"""

import multiprocessing
from collections.abc import Generator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager

import anyio.to_thread

from refold.console import processes
from refold.console.derived_files import (
    MOST_SENT,
    Derivable,
    Refusal,
    Unsent,
    begin_process,
    decode_file,
    derive_file,
)
from refold.console.opened_files import FoundFile
from refold.reducers.errors import ExternalFailure

LEAST_BYTES = 1 << 20
"""With fewer bytes in all files, one process is faster: each process takes about half a second to start."""

_AHEAD = 16
"""Maximum files per process that are derived ahead."""

_CRASHED = "its process ended while reading it: it may need more memory than there is"


class Derivers:
    """The files of an import, derived by `jobs` processes. `kept`: their events are wanted, too."""

    def __init__(self, files: Sequence[FoundFile], named: str | None, jobs: int, *, kept: bool) -> None:
        self._files, self._named, self._jobs, self._kept = files, named, jobs, kept
        self._sizes = [size_of(file) for file in files]
        self._pool: Executor | None = None
        self._waiting: dict[int, Future[bytes]] = {}
        self._next = 0
        self._suspects: set[int] = set()  # files that a process may have died of
        self._held: dict[int, Derivable] = {}

    async def of(self, index: int) -> Derivable:
        """Return the file with this index. The indices must rise, except those that were held."""
        if index in self._held:
            return self._held.pop(index)
        if self._jobs < 2 or not self._is_sent(index):
            return Unsent()
        made: Derivable | None = None
        while made is None:
            made = await self._fetch(index)
        return made

    def hold(self, index: int, made: Derivable) -> None:
        """Keep a file that cannot be written yet. Large ones are derived again then."""
        left = MOST_SENT - sum(self._sizes[each] for each in self._held)
        self._held[index] = made if self._sizes[index] <= left else Unsent()

    async def _fetch(self, index: int) -> Derivable | None:
        """Return a file, or None if its process died with others in progress."""
        alone = index in self._suspects
        try:
            future = self._submit(index) if alone else self._submit_ahead(index)
            # In a thread, so that the event loop goes on: it renews leases, and handles signals.
            if not future.done():
                await anyio.to_thread.run_sync(future.exception, abandon_on_cancel=True)
            data = future.result()
        except BrokenExecutor:
            self._stop()
            self._next = index + 1
            if not alone:
                done = {each for each, one in self._waiting.items() if _is_whole(one)}
                self._suspects = {index} | (set(self._waiting) - done)
                self._waiting = {each: self._waiting[each] for each in done}
                return None
            self._suspects.clear()
            return Refusal(problem=f"{self._files[index].name}: {_CRASHED}", code=ExternalFailure.exit_code)
        finally:
            self._waiting.pop(index, None)
        self._suspects.discard(index)
        return decode_file(data)

    def _submit(self, index: int) -> Future[bytes]:
        if index not in self._waiting:
            if self._pool is None:
                self._pool = processes.pool(self._jobs, begin_process)
            self._waiting[index] = self._pool.submit(
                derive_file, self._files[index], self._named, kept=self._kept
            )
        return self._waiting[index]

    def _submit_ahead(self, index: int) -> Future[bytes]:
        """Submit this file, and later ones up to a limit; none that a process may have died of."""
        found = self._submit(index)
        self._next = max(self._next, index + 1)
        sent = sum(self._sizes[each] for each in self._waiting)
        while self._next < len(self._files) and self._has_room(sent):
            if self._next in self._suspects:
                break
            if self._is_sent(self._next):
                self._submit(self._next)
                sent += self._sizes[self._next]
            self._next += 1
        return found

    def _has_room(self, sent: int) -> bool:
        count = len(self._waiting)
        return count <= self._jobs or (count <= _AHEAD * self._jobs and sent < MOST_SENT)

    def _is_sent(self, index: int) -> bool:
        return not self._files[index].skipped and self._sizes[index] <= MOST_SENT

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def end(self, *, failed: bool) -> None:
        """End all processes; at once if the import failed."""
        if self._pool is None:
            return
        if failed:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
        self._stop()


@contextmanager
def derivers(
    files: Sequence[FoundFile], named: str | None, jobs: int | None, *, kept: bool
) -> Generator[Derivers]:
    """Return derived files, from at most `jobs` processes, or one per core; from none if one suffices."""
    made = Derivers(files, named, choose_jobs(files, jobs), kept=kept)
    try:
        yield made
    except BaseException:
        made.end(failed=True)
        raise
    made.end(failed=False)


def choose_jobs(files: Sequence[FoundFile], jobs: int | None) -> int:
    """Return the number of processes: 1 if there is one file, or little to read and no number was given."""
    sizes = [size_of(file) for file in files if not file.skipped]
    if jobs is None and sum(sizes) < LEAST_BYTES:
        return 1
    return min(jobs or processes.count_cores(), len(sizes))


def size_of(file: FoundFile) -> int:
    """Return the size of a file as stored, 0 if unknown."""
    total = 0
    for path in file.parts or (file.path,):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def _is_whole(future: Future[bytes]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
