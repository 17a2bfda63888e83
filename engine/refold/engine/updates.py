"""What subscribers of a live run are told: deltas as they stream, and events once they are on disk.

Each stream of a model ends with exactly one `Finished`, however it ends. A slow subscriber holds nothing up, and does
not grow: what it has no room for is dropped, and it is told how much. Recorded events are in the log anyway; the end of
a stream of which it was shown a part is always delivered.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, Self
from weakref import ref

import anyio
import msgspec

from refold.engine.background import Background
from refold.engine.models.protocol import Delta
from refold.reducers.events import Event

_ROOM = 10_000


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """An event that is on disk, as durable as the store promises. `seq` is its number in the run."""

    seq: int
    event: Event


class Streamed(msgspec.Struct, frozen=True, tag="streamed"):
    """A piece of an answer to the request made at event `request`. Not recorded yet, and perhaps never."""

    request: int
    delta: Delta


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The stream of the request made at event `request` is over, in its own time or `cancelled`; its fact follows."""

    request: int
    cancelled: bool = False


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """So many updates were dropped here, because they were not taken in time."""

    count: int


class Delegated(msgspec.Struct, frozen=True, tag="delegated"):
    """The call is served by the child run `run` from here on, begun or taken up. Its end is recorded: `child_ended`."""

    call: str
    run: str


Update = Recorded | Streamed | Finished | Delegated | Missed


class Listener(Protocol):
    """Who is told of a run's updates."""

    def put(self, update: Update) -> None:
        """Hand over an update; never waits."""
        ...

    def close(self) -> None:
        """The run has stopped: there will be no more, until it goes on."""
        ...


class Audience:
    """All that listen to one run, as long as they are kept by somebody else. False while there is no one to tell."""

    def __init__(self) -> None:
        self._listeners: list[ref[Listener]] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        """Tell this one too, from now on."""
        self._listeners.append(ref(listener, self._listeners.remove))

    def tell(self, update: Update) -> None:
        """Hand the update to each."""
        for listener in self._here():
            listener.put(update)

    def close(self) -> None:
        """Tell each that the run has stopped."""
        for listener in self._here():
            listener.close()

    def _here(self) -> list[Listener]:
        return [listener for each in tuple(self._listeners) if (listener := each()) is not None]


class Subscription:
    """One subscriber's updates, in order, until the run stops."""

    def __init__(self, room: int = _ROOM) -> None:
        self._waiting: deque[Update] = deque()
        self._room = room
        self._missed = 0
        self._begun: set[int] = set()  # streams that were shown in part, and have not ended
        self._over = False
        self._changed = anyio.Event()

    def put(self, update: Update) -> None:
        """Hand over an update; never waits. At most one a stream that is under way goes beyond the room."""
        ends = isinstance(update, Finished) and update.request in self._begun
        if len(self._waiting) >= self._room and not ends:
            self._missed += 1
            return
        if isinstance(update, Streamed):
            self._begun.add(update.request)
        elif isinstance(update, Finished):
            self._begun.discard(update.request)
        self._tell_missed()
        self._waiting.append(update)
        self._changed.set()

    def close(self) -> None:
        """There will be no more."""
        self._tell_missed()
        self._over = True
        self._changed.set()

    def _tell_missed(self) -> None:
        if self._missed:
            self._waiting.append(Missed(self._missed))
            self._missed = 0

    async def take(self) -> Update | None:
        """The next update, once there is one; None when the run has stopped and everything was taken."""
        while not self._waiting:
            if self._over:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        return self._waiting.popleft()


class Updates(Subscription):
    """An iteration over a run's updates. No generator: one that is left early would be closed who knows where."""

    def __init__(self, start: Callable[[], Background], room: int = _ROOM) -> None:
        super().__init__(room)
        self._start = start
        self._background: Background | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        if self._background is None:
            self._background = self._start()
            if self._background.over:
                self.close()
        update = await self.take()
        if update is None:
            await self._background.join()
            raise StopAsyncIteration
        return update
