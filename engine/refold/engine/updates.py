"""Live updates of a run for its subscribers, and the live state machine.

Each stream of a model ends with exactly one `Finished`, however it ends. A slow subscriber does not block the
run or grow without bound: updates beyond its capacity are dropped, and it receives their number. Recorded
events are in the log in any case. If a part of a stream was delivered, its end is delivered, too.

The machine is not used to derive states. It is for callbacks (`run.machine.on_enter_COMPLETED(notify)`), for
the diagram, and for a test that compares it with `evolve`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, Self
from weakref import ref

import anyio
import msgspec
from transitions import Machine
from transitions.extensions import GraphMachine

from refold.engine.models.protocol import Delta, TextDelta
from refold.engine.tasks import Background
from refold.reducers.events import Event, ModelResponded, StateChanged
from refold.reducers.machine import INITIAL, MOVES, AgentState

_ROOM = 10_000


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """An event on disk, as durable as the store guarantees. `seq` is its number in the run."""

    seq: int
    event: Event


class Streamed(msgspec.Struct, frozen=True, tag="streamed"):
    """A part of a response to the request at event `request`. It may never be recorded."""

    request: int
    delta: Delta


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The stream of the request at event `request` ended or was `cancelled`; its fact follows."""

    request: int
    cancelled: bool = False


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """The number of updates dropped here because they were not taken in time."""

    count: int


class Delegated(msgspec.Struct, frozen=True, tag="delegated"):
    """The child run `run` serves the call from here on; it began or resumed.

    `child_ended` records its end.
    """

    call: str
    run: str


Update = Recorded | Streamed | Finished | Delegated | Missed


class Listener(Protocol):
    """A subscriber to a run's updates."""

    def put(self, update: Update) -> None:
        """Deliver an update; never waits."""
        ...

    def close(self) -> None:
        """The run has stopped; there are no more updates until it continues."""
        ...


class Audience:
    """The listeners of one run, held by weak references. False without listeners."""

    def __init__(self) -> None:
        self._listeners: list[ref[Listener]] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        """Deliver later updates to this listener, too."""
        self._listeners.append(ref(listener, self._listeners.remove))

    def tell(self, update: Update) -> None:
        """Deliver the update to each listener."""
        for listener in self._here():
            listener.put(update)

    def close(self) -> None:
        """Close each listener: the run has stopped."""
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
        self._begun: set[int] = set()  # streams that were delivered in part and have not ended
        self._over = False
        self._changed = anyio.Event()

    def put(self, update: Update) -> None:
        """Deliver an update; never waits. Only one update per unfinished stream may exceed the capacity."""
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
        """End the subscription."""
        self._tell_missed()
        self._over = True
        self._changed.set()

    def _tell_missed(self) -> None:
        if self._missed:
            self._waiting.append(Missed(self._missed))
            self._missed = 0

    async def take(self) -> Update | None:
        """Wait for the next update; None when the run has stopped and all updates were taken."""
        while not self._waiting:
            if self._over:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        return self._waiting.popleft()


class Updates(Subscription):
    """An async iterator over a run's updates.

    It is not a generator, whose clean-up after an early exit would run at an unknown place.
    """

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


_EVERY_PIECE = 2**62
_BETWEEN = "\n\n"


class StreamedText:
    """An async iterator over the text of a run's responses as it streams, with an empty line between two.

    Nothing is dropped for slow readers. The partial text of a failed request is included; the next attempt
    follows after an empty line.
    """

    def __init__(self, start: Callable[[], Background]) -> None:
        self.updates = Updates(start, room=_EVERY_PIECE)
        self._last: int | None = None  # the request of the last piece

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            request, piece = self._piece(await anext(self.updates))
            if piece:
                between = "" if self._last in (None, request) else _BETWEEN
                self._last = request
                return between + piece

    def _piece(self, update: Update) -> tuple[int, str]:
        match update:
            case Streamed(request=request, delta=TextDelta(text=text)):
                return request, text
            case Recorded(event=ModelResponded(request=request, content=answer)) if request != self._last:
                return request, answer.text if answer else ""  # the response was not streamed
            case _:
                return 0, ""


class LiveAgent:
    """The model of the state machine: an agent in one state, which remembers where it waited from.

    Callbacks are added on `machine`: `agent.machine.on_enter_WAITING_FOR_INPUT(notify)`.
    """

    state: str
    trigger: Callable[[str], bool]  # set by transitions

    def __init__(self) -> None:
        self.came_from: str | None = None
        self.machine = Machine(model=self, **_definition(self))

    def put(self, update: Update) -> None:
        """Follow the run: see `Listener`."""
        if isinstance(update, Recorded) and isinstance(update.event, StateChanged):
            # An operator's answer leads back to the state that waited: the table's two targets depend on it.
            self.follow(update.event.trigger, update.event.target)

    def close(self) -> None:
        """Keep the state: the run may continue."""

    def follow(self, trigger: str, came_from: str | None) -> None:
        """Make a recorded move; callbacks run. Raises `transitions.MachineError` if the table lacks it."""
        self.came_from = came_from
        self.trigger(trigger)


def mermaid() -> str:
    """Return the machine as a Mermaid state diagram, drawn by `transitions` from the table."""
    agent = LiveAgent()
    drawn = GraphMachine(model=agent, graph_engine="mermaid", title="AgentState", **_definition(agent))
    return "\n".join(line.rstrip() for line in str(drawn.get_graph().source).splitlines())


def _definition(agent: LiveAgent) -> dict[str, Any]:
    return {
        "states": [str(state) for state in AgentState],
        "transitions": [
            _move(agent, str(source), str(trigger), str(target), chosen=len(targets) > 1)
            for (source, trigger), targets in MOVES.items()
            for target in targets
        ],
        "initial": str(INITIAL),
        "auto_transitions": False,
    }


def _move(agent: LiveAgent, source: str, trigger: str, target: str, *, chosen: bool) -> dict[str, Any]:
    move: dict[str, Any] = {"trigger": trigger, "source": source, "dest": target}
    if chosen:
        # Two targets: the move leads to the state that waited.
        move["conditions"] = lambda: agent.came_from == target
    return move
