"""Runs of a store in parts that processes, or other machines which see the same file, look through one by one.

What is to be looked through is cut into shards, each some runs of a store or one bundle. A task is a function that can be
sent somewhere else: it is given a shard, and finds something in it. What it finds comes in the order of the shards, however
many are under way. No shard is lost without a word: of each is told that it ended, and why if nobody finished it.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from refold.reducers.errors import RefoldError

SHARD = 20_000
"""Events of a shard, about: a second or two of work, so that no core waits long for another at the end."""

_AHEAD = 32  # shards that are under way, or done and not yet told of: what they found is held
HELD = 50_000
"""Events of a shard of which what is found may be held, where a task tells of each."""

T = TypeVar("T")


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs of the store in the file `path`, with so many events; of a bundle all of them, and `runs` is empty."""

    path: str
    runs: tuple[str, ...] = ()
    events: int = 0

    @property
    def name(self) -> str:
        """What people are told of it."""
        if not self.runs:
            return self.path
        first, *others = self.runs
        more = f" and {len(others)} more" if others else ""
        return f"{self.path}: run {first}{more}"


class Ended(NamedTuple):
    """There is no more from a shard. `problem`: nobody finished it, and why; `broke`: its executor broke on it."""

    shard: Shard
    problem: str = ""
    broke: bool = False


Task = Callable[[Shard], Iterable[T]]
"""What is found in a shard. To be sent to a process it is a function of a module, or `partial` of one."""


def shards(
    path: Path,
    runs: Iterable[tuple[str, int]],
    size: int = SHARD,
    *,
    families: Mapping[str, str] | None = None,
) -> list[Shard]:
    """The runs of a store, each with its number of events, cut into shards of about `size` events.

    Runs of one family, if it is said which they are of, come into one shard, where the first of them stands.
    """
    found: list[Shard] = []
    names: list[str] = []
    events = 0
    for members in _grouped(runs, families or {}):
        names += [run for run, _ in members]
        events += sum(count for _, count in members)
        if events >= size:
            found.append(Shard(path=str(path), runs=tuple(names), events=events))
            names, events = [], 0
    return [*found, Shard(path=str(path), runs=tuple(names), events=events)] if names else found


def _grouped(
    runs: Iterable[tuple[str, int]], families: Mapping[str, str]
) -> Iterable[Sequence[tuple[str, int]]]:
    groups: dict[str, list[tuple[str, int]]] = {}
    for run, count in runs:
        groups.setdefault(families.get(run, run), []).append((run, count))
    return groups.values()


def worked(
    work: Sequence[Shard],
    executor: Executor | None,
    task: Task[T],
    fresh: Callable[[], Executor] | None = None,
    *,
    held: int | None = None,
) -> Generator[T | Ended]:
    """What the task finds in each shard, and then that it ended; in this process without an executor.

    What fails for one shard (a file that is gone, a worker that died) is no reason to stop. An executor that breaks takes with
    it all that it had not done. That is tried again, one shard after the other, on executors that `fresh` makes, and comes
    last. A shard of more than `held` events is looked through here: elsewhere all that is found in it has to be held.
    """
    left: list[Shard] = []
    for each in _worked(work, executor, task, held):
        if isinstance(each, Ended) and each.broke and fresh is not None:
            left.append(each.shard)
        else:
            yield each
    while left and fresh is not None:
        with fresh() as other:
            broke = False
            while left and not broke:  # on one that broke nothing more is done: the next shard has another
                for each in _worked([left.pop(0)], other, task, None):
                    broke = isinstance(each, Ended) and each.broke
                    yield each


def _worked(
    work: Sequence[Shard], executor: Executor | None, task: Task[T], held: int | None
) -> Iterator[T | Ended]:
    left = deque(work)
    waiting: deque[tuple[Shard, Future[list[T]] | None]] = deque()
    try:
        while left or waiting:
            while left and len(waiting) < _AHEAD:
                shard = left.popleft()
                here = executor is None or (held is not None and shard.events > held)
                waiting.append(
                    (shard, None if here or executor is None else _submitted(executor, shard, task))
                )
            shard, future = waiting.popleft()
            if future is None:
                yield from _here(shard, task)
            else:
                yield from _fetched(shard, future)
    finally:  # whoever has seen enough looks no further
        for _, future in waiting:
            if future is not None:
                future.cancel()


def _here(shard: Shard, task: Task[T]) -> Iterator[T | Ended]:
    try:
        yield from task(shard)
    except RefoldError as error:
        yield Ended(shard, str(error))
    else:
        yield Ended(shard)


def _fetched(shard: Shard, future: "Future[list[T]]") -> Iterator[T | Ended]:
    problem = future.exception()
    if problem is None:
        yield from future.result()
        yield Ended(shard)
    else:
        # Whatever it is: of a worker that was killed, or could not import a guard, nothing else would be left.
        told = str(problem) or type(problem).__name__
        yield Ended(shard, told, broke=isinstance(problem, BrokenExecutor))


def _submitted(executor: Executor, shard: Shard, task: Task[T]) -> "Future[list[T]]":
    try:
        return executor.submit(listed, shard, task)
    except RuntimeError as error:  # it broke, or was shut down, while there was still something to hand over
        refused: Future[list[T]] = Future()
        refused.set_exception(error)
        return refused


def listed(shard: Shard, task: Task[T]) -> list[T]:
    """All that a task finds in a shard: what a process sends back."""
    return list(task(shard))
