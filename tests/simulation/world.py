"""What outlives every process: the log, the clock on the wall, what tools did or set going, and what anybody
was told.
"""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context

import msgspec
import trio

from refold.reducers import codec
from refold.reducers.events import Event, ToolsDispatched
from refold.reducers.folds import fold
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Replay
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record
from simulation.faults import Faults
from simulation.virtual import Order, WallClock

Call = tuple[str, str]
"""A call by its run and its id in it."""


class Execution(msgspec.Struct):
    """A tool was run for a call, under `key`. `acted`: it came as far as doing what it does."""

    process: int
    tool: str
    replay: Replay
    key: str
    acted: bool = False


class World:
    """One simulated world. `owner` tells the process of a task.

    `violations` are the promises that were found broken in it, each a sentence.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults,
        owner: Callable[[trio.lowlevel.Task], object],
        *,
        trace: bool = False,
    ) -> None:
        self.chance = random.Random(f"world {seed}")
        self.faults, self.wall = faults, WallClock()
        self.order = Order(seed, owner)
        self.store = MemoryStore(self.wall.seconds)
        self.executions: dict[Call, list[Execution]] = {}
        self.asked: Counter[str] = (
            Counter()
        )  # how often which thing was said to a model: it may answer otherwise
        self.violations: list[str] = []
        self.dead: set[str] = set()  # processes that are surely gone
        self.kills = 0
        self.rivals = 0
        self._trace = trace
        self._effects: trio.Nursery | None = None
        self._dispatched: set[Call] = set()
        self._fences: dict[Call, int] = {}
        self._given: dict[str, int] = {}  # by run: the newest token
        self._writers: dict[str, dict[int, int]] = {}  # by run: the process that wrote under each token
        self.logs: dict[str, list[Event]] = {}  # as they were committed
        self.states: dict[str, RunState] = {}
        self.kept: dict[str, dict[int, bytes]] = {}  # by run: hashes of heads that an append returned
        self.reported: dict[tuple[str, int], Event] = {}  # what a subscriber was told, by run and number

    def say(self, text: Callable[[], str]) -> None:
        """Print a line of the trace, if one is wanted."""
        if self._trace:
            print(f"{trio.current_time():12.3f}  {text()}")

    def wrong(self, violation: str) -> None:
        """A promise was broken."""
        if violation not in self.violations:
            self.violations.append(violation)

    # What goes through a process's store

    def leased(self, lease: Lease) -> None:
        """A lease was given, whatever its holder will learn of it."""
        self._given[lease.run] = max(lease.token, self._given.get(lease.run, 0))

    def written(self, process: int, lease: Lease, head: Head, records: Sequence[Record]) -> None:
        """An append was committed, whatever its writer will learn of it."""
        run = lease.run
        writers = self._writers.setdefault(run, {})
        if writers.setdefault(lease.token, process) != process:
            self.wrong(f"run {run}: processes {writers[lease.token]} and {process} wrote under one lease")
        if lease.token < self._given.get(run, 0):
            self.wrong(
                f"run {run}: process {process} wrote under token {lease.token}, and {self._given[run]} was given"
            )
        if head.seq == len(self.logs.get(run, ())) + len(records):
            self._learn(run, [codec.decode(each.kind, each.body, each.content) for each in records])

    async def learn(self) -> None:
        """Read what was committed by an append that was cancelled before it returned."""
        heads = [entry async for chunk in self.store.runs() for entry in chunk]
        for run, head in heads:
            known = len(self.logs.get(run, ()))
            if head.seq > known:
                pages = self.store.read(run, after=known)
                stored = [each async for chunk in pages for each in chunk]
                self._learn(run, [codec.decode(each.kind, each.body, each.content) for each in stored])

    def acknowledged(self, run: str, head: Head) -> None:
        """An append returned this head to its writer."""
        self.kept.setdefault(run, {})[head.seq] = head.hash

    def _learn(self, run: str, events: Sequence[Event]) -> None:
        self.logs.setdefault(run, []).extend(events)
        self.states[run] = fold(events, self.states.get(run, NEW))
        for event in events:
            if isinstance(event, ToolsDispatched):
                self._dispatched.update((run, call) for call in event.calls)

    # What goes through a process's subscribers

    def told(self, run: str, seq: int, event: Event) -> None:
        """A subscriber was told that this event is recorded."""
        if len(self.logs.get(run, ())) < seq:
            self.wrong(f"run {run} event {seq}: reported as recorded before it was")
        self.reported[run, seq] = event

    # What goes through a process's tools

    def began(self, call: Call, execution: Execution) -> None:
        """A tool was run for this call."""
        if call not in self._dispatched:
            self.wrong(f"run {call[0]} call {call[1]}: run before its dispatch was recorded")
        self.executions.setdefault(call, []).append(execution)

    @asynccontextmanager
    async def going_on(self) -> AsyncGenerator[None]:
        """While the block runs effects may be set going; those that are on their way when it ends are waited
        for.
        """
        async with trio.open_nursery() as self._effects:
            yield

    def send(self, call: Call, execution: Execution, epoch: int, takes: float) -> trio.Event:
        """Set an effect going, as a request or a program of its own: it acts after a time, whether or not its
        process lives.

        Returns what is set once it has acted, or was refused.
        """
        over = trio.Event()

        def act() -> None:
            execution.acted = self.takes(call, epoch)
            self.say(
                lambda: (
                    f"{execution.tool} {call[0]}/{call[1]} of p{execution.process} acts: {execution.acted}"
                )
            )
            over.set()

        async def later() -> None:
            await trio.sleep(takes)
            act()

        if takes:
            assert self._effects is not None
            # Out of the context of its process, which may stand still or be gone by then.
            Context().run(self._effects.start_soon, later)
        else:
            act()
        return over

    def fence(self, call: Call, epoch: int) -> None:
        """From now on whoever comes for this call under an older epoch is refused."""
        self._fences[call] = max(epoch, self._fences.get(call, 0))

    def takes(self, call: Call, epoch: int) -> bool:
        """Whether the world still takes what an engine of this epoch does for the call."""
        return epoch >= self._fences.get(call, 0)

    def acted(self, call: Call) -> bool:
        """Whether a tool did for this call what it does."""
        return any(execution.acted for execution in self.executions.get(call, ()))
