"""Looking through all runs of a store for what needs a person: in one pass, keeping only what is found."""

import heapq
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import StateChanged, kind_of
from refold.reducers.machine import AgentState
from refold.replay import figures
from refold.replay.reader import event_of
from refold.store.protocol import Head, Store, Stored

T = TypeVar("T")

Problem = Damaged | CannotJudge


class Unread(NamedTuple):
    """What a pass could not read: the runs by their ids, and the first error, None where everything was read."""

    runs: list[str]
    problem: Problem | None


def not_read(runs: Sequence[str]) -> str:
    """In words, to stand behind what was found in the others; "" where all were read."""
    return f"; {figures.counted(len(runs), 'run')} could not be read" if runs else ""


_MOVED = kind_of(StateChanged)
_LAST = 100  # events: a step of a run changes its state every few


class Oldest(Generic[T]):
    """The oldest of what was found, `most` at most; `count` is how many there were."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, int, T]] = []
        self.count = 0

    def add(self, since: int, found: T) -> None:
        """One more, of the instant `since`."""
        self.count += 1
        # The newest comes out first; of several of one instant, the one that was added last.
        entry = (-since, -self.count, found)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def rows(self) -> list[T]:
        """What was kept, the oldest first."""
        return [found for _, _, found in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


async def sweep(store: Store, look: Callable[[str], Awaitable[None]], *, waiting: bool = False) -> Unread:
    """Look at each run, or at those that may be `waiting` for a person. What could not be read.

    One that cannot be read does not keep the others from being looked at.
    """
    problem: Problem | None = None
    unread: list[str] = []
    try:
        async for chunk in store.runs():
            for run, head in chunk:
                try:
                    if head.seq and (not waiting or await _may_wait(store, run, head)):
                        await look(run)
                except (Damaged, CannotJudge) as error:
                    problem = problem or error
                    unread.append(run)
    except Damaged as error:
        return Unread(unread, problem or error)
    return Unread(unread, problem)


async def _may_wait(store: Store, run: str, head: Head) -> bool:
    """Whether the last change of state says so: most runs do not, and their logs need not be read for it.

    True where only the whole log tells, as behind many notes.
    """
    moved: Stored | None = None
    async for chunk in store.read(run, after=max(0, head.seq - _LAST), upto=head.seq):
        moved = next((each for each in reversed(chunk) if each.kind == _MOVED), moved)
    event = event_of(moved) if moved is not None else None
    return not isinstance(event, StateChanged) or event.target is AgentState.WAITING_FOR_INPUT
