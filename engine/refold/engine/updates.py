"""What subscribers of a live run are told.

Each stream of a model ends with exactly one `Finished`, however it ends. A slow subscriber holds nothing up,
and does not grow: what it has no room for is dropped, and it is told how much. Recorded events are in the log
anyway; the end of a stream of which it was shown a part is always delivered.

`evolve` does not need it: it is for people, who draw it and hang callbacks on a run
(`run.machine.on_enter_COMPLETED(tell_me)`), and for a test that holds the two against each other.
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
    """An event that is on disk, as durable as the store promises. `seq` is its number in the run."""

    seq: int
    event: Event


class Streamed(msgspec.Struct, frozen=True, tag="streamed"):
    """A piece of an answer to the request made at event `request`. Not recorded yet, and perhaps never."""

    request: int
    delta: Delta


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The stream of the request made at event `request` is over, in its own time or `cancelled`; its fact
    follows.
    """

    request: int
    cancelled: bool = False


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """So many updates were dropped here, because they were not taken in time."""

    count: int


class Delegated(msgspec.Struct, frozen=True, tag="delegated"):
    """The call is served by the child run `run` from here on, begun or taken up.

    Its end is recorded: `child_ended`.
    """

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
    """All that listen to one run, as long as they are kept by somebody else.

    False while there is no one to tell.
    """

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
    """An iteration over a run's updates.

    No generator: one that is left early would be closed who knows where.
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
    """An iteration over a run's text: every answer's, as it streams, with an empty line between two answers.

    Nothing is dropped for who reads slowly. Of a request that failed half-way, what had arrived was given;
    the next try begins anew behind an empty line.
    """

    def __init__(self, start: Callable[[], Background]) -> None:
        self.updates = Updates(start, room=_EVERY_PIECE)
        self._last: int | None = None  # the request of which the last piece came

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
                return request, answer.text if answer else ""  # it came in one piece
            case _:
                return 0, ""


class LiveAgent:
    """What the machine moves: an agent that is in one state and remembers in which one it asked.

    Callbacks hang on `machine`: `agent.machine.on_enter_WAITING_FOR_INPUT(ring_a_bell)`.
    """

    state: str
    trigger: Callable[[str], bool]  # given by transitions

    def __init__(self) -> None:
        self.came_from: str | None = None
        self.machine = Machine(model=self, **_definition(self))

    def put(self, update: Update) -> None:
        """Follow the run: see `Listener`."""
        if isinstance(update, Recorded) and isinstance(update.event, StateChanged):
            # A person's answer leads back to where the agent asked: the table's two targets need to know.
            self.follow(update.event.trigger, update.event.target)

    def close(self) -> None:
        """It stays where the run stands, which may go on."""

    def follow(self, trigger: str, came_from: str | None) -> None:
        """Make a recorded move; callbacks run. Raises `transitions.MachineError` if the table has none
        such.
        """
        self.came_from = came_from
        self.trigger(trigger)


def mermaid() -> str:
    """The machine as a Mermaid state diagram, drawn by `transitions` from the table."""
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
        # Of two targets the state in which the agent asked is the one.
        move["conditions"] = lambda: agent.came_from == target
    return move
