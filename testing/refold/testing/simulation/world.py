"""The simulated world: everything that outlives a process.

It has the log, the wall clock, the effects of tools, and all that was acknowledged or reported to anybody.
"""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Generic, Protocol, TypeVar, cast

import msgspec
import trio

from refold.reducers import codec
from refold.reducers.events import Event, ToolsDispatched
from refold.reducers.folds import fold
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Replay
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record
from refold.testing.simulation.faults import Faults
from refold.testing.simulation.violations import Violation, ViolationKind
from refold.testing.simulation.virtual import Order, WallClock

Call = tuple[str, str]
"""A call: the id of its run, and its id in that run."""

_LONGEST_LOG = 2_500
"""Events of all logs after which a schedule is endless: ten times as many as the longest test needs."""

T = TypeVar("T")


Late = Callable[[object, BaseException | None], None]
"""Receives the result or the error of an effect whose caller has stopped to wait."""


class Sender(Protocol):
    """A process whose effects are part of it, as those of its threads."""

    dead: bool
    resumed_at: float


class Execution(msgspec.Struct, eq=False):
    """One execution of a tool for a call, under an idempotency key.

    `acted`: its effect is known to have happened. `returned`: it came to its end without an exception.
    `again`: a planned fault repeats an execution whose result the engine has.
    """

    process: int
    tool: str
    replay: Replay
    key: str
    acted: bool = False
    returned: bool = False
    again: bool = False


class Delivery(Generic[T]):
    """An effect on its way. `over` is set after it has happened; then `result` has its outcome."""

    def __init__(self, act: Callable[[], T]) -> None:
        self.over = trio.Event()
        self.listener: Late | None = None  # receives the outcome if nothing waits for it any more
        self._act = act
        self._outcome: Callable[[], T] | None = None

    def happen(self) -> None:
        """Perform the effect now."""
        value: T | None = None
        error: Exception | None = None
        try:
            value = self._act()
        except Exception as raised:
            error = raised

        def outcome() -> T:
            if error is not None:
                raise error
            return cast("T", value)

        self._outcome = outcome
        self.over.set()
        if self.listener is not None:
            self.listener(value, error)

    def result(self) -> T:
        """Return what the effect returned, or raise what it raised."""
        assert self._outcome is not None
        return self._outcome()


class World:
    """What all processes of one schedule share.

    Args:
        seed: determines the order of tasks and all random choices.
        faults: the planned faults.
        owners: the process and the tool call that a task belongs to.
        state: the outside world as tools see it, of any type.
        trace: whether to record a line for each step in `trace`.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults,
        owners: Callable[[trio.lowlevel.Task], Iterable[object]],
        *,
        state: object = None,
        trace: bool = False,
    ) -> None:
        self.seed, self.chance = seed, random.Random(f"world {seed}")
        self.faults, self.wall, self.state = faults, WallClock(), state
        self.order = Order(seed, owners)
        self.store = MemoryStore(self.wall.seconds)
        self.trace: list[str] = []
        self.registry: Registry = BUILTIN  # the guards that policies may name
        self.executions: dict[Call, list[Execution]] = {}
        self.asked: Counter[str] = Counter()  # how often a model received a request
        self.violations: list[Violation] = []
        self.dead: set[str] = set()  # processes that have ended
        self.living = 0  # processes that have not
        self.kills = self.rivals = self.underway = 0  # underway: effects that have not happened yet
        self.endless = self.closed = False
        self.activity: list[object] = []  # who started to work or had an effect, in order
        self.working: set[object] = set()  # tools at work
        self.refusal: Exception | None = None  # a mistake of the caller that makes the simulation impossible
        self.logs: dict[str, list[Event]] = {}  # as they were committed
        self.states: dict[str, RunState] = {}
        self.acknowledged_heads: dict[str, dict[int, bytes]] = {}  # by run and number: hashes of heads
        self.reported: dict[tuple[str, int], Event] = {}  # by run and number: what a subscriber received
        self._traces = trace
        self._effects: trio.Nursery | None = None
        self._dispatched: set[Call] = set()
        self._tokens: dict[str, int] = {}  # by run: the newest fencing token
        self._writers: dict[str, dict[int, int]] = {}  # by run and token: the process that wrote under it

    def note(self, text: Callable[[], str]) -> None:
        """Add a line to the trace, if there is one."""
        if self._traces:
            self.trace.append(f"{trio.current_time():12.3f}  {text()}")

    def violate(self, kind: ViolationKind, text: str) -> None:
        """Record a violation, once."""
        violation = Violation(kind, text)
        if violation not in self.violations:
            self.violations.append(violation)

    def refuse(self, error: Exception) -> None:
        """Record a mistake of the caller; the first one is raised instead of an outcome."""
        self.refusal = self.refusal or error

    # Reports of the stores of processes

    def grant(self, lease: Lease) -> None:
        """Record that the store granted a lease, even if the response is lost."""
        self._tokens[lease.run] = max(lease.token, self._tokens.get(lease.run, 0))

    def commit(self, process: int, lease: Lease, head: Head, records: Sequence[Record]) -> None:
        """Record that the store committed an append, even if the response is lost."""
        run = lease.run
        writers = self._writers.setdefault(run, {})
        if writers.setdefault(lease.token, process) != process:
            self.violate(
                ViolationKind.STALE_LEASE,
                f"run {run}: processes {writers[lease.token]} and {process} wrote under one lease",
            )
        if lease.token < self._tokens.get(run, 0):
            self.violate(
                ViolationKind.STALE_LEASE,
                f"run {run}: process {process} wrote under token {lease.token}, after token {self._tokens[run]} "
                "was granted",
            )
        if head.seq == len(self.logs.get(run, ())) + len(records):
            self._add(run, [codec.decode(each.kind, each.body, each.content) for each in records])

    async def read_logs(self) -> None:
        """Read what was committed by appends that were cancelled before they returned."""
        heads = [entry async for chunk in self.store.runs() for entry in chunk]
        for run, head in heads:
            known = len(self.logs.get(run, ()))
            if head.seq > known:
                pages = self.store.read(run, after=known)
                stored = [each async for chunk in pages for each in chunk]
                self._add(run, [codec.decode(each.kind, each.body, each.content) for each in stored])

    def acknowledge(self, run: str, head: Head) -> None:
        """Record that an append returned this log head to its writer."""
        self.acknowledged_heads.setdefault(run, {})[head.seq] = head.hash

    def _add(self, run: str, events: Sequence[Event]) -> None:
        self.logs.setdefault(run, []).extend(events)
        self.states[run] = fold(events, self.states.get(run, NEW), self.registry)
        for event in events:
            if isinstance(event, ToolsDispatched):
                self._dispatched.update((run, call) for call in event.calls)
        if not self.endless and sum(map(len, self.logs.values())) > _LONGEST_LOG:
            self.endless = True
            self.violate(
                ViolationKind.ENDLESS_RUN,
                f"run {run}: its log has {len(self.logs[run]):,} events and still grows",
            )

    # Reports of the subscribers and tools of processes

    def report(self, run: str, seq: int, event: Event) -> None:
        """Record that a subscriber received this event as recorded."""
        if len(self.logs.get(run, ())) < seq:
            self.violate(
                ViolationKind.LOST_EVENT, f"run {run} event {seq}: reported as recorded before it was"
            )
        self.reported[run, seq] = event

    def begin(self, call: Call, execution: Execution) -> None:
        """Record that a tool starts to work for this call."""
        if call not in self._dispatched:
            self.violate(
                ViolationKind.EARLY_CALL,
                f"run {call[0]} call {call[1]}: run before its dispatch was recorded",
            )
        self.executions.setdefault(call, []).append(execution)

    def acted(self, call: Call) -> bool:
        """Return whether an effect of this call is known to have happened."""
        return any(execution.acted for execution in self.executions.get(call, ()))

    # Effects that outlive their process

    @asynccontextmanager
    async def receiving(self) -> AsyncGenerator[None]:
        """Accept effects while the block runs; at its end, wait for those on their way."""
        async with trio.open_nursery() as self._effects:
            yield
        self._effects = None

    def launch(self, act: Callable[[], T], seconds: float, within: Sender | None = None) -> Delivery[T]:
        """Perform an effect after these virtual seconds. With 0 seconds it happens at once.

        It happens even if the process that sent it dies, unless it is `within` that process.
        """
        delivery = Delivery(act)

        async def arrive() -> None:
            self.underway += 1
            await trio.sleep(seconds)
            if within is not None and within.resumed_at > trio.current_time():
                await trio.sleep_until(within.resumed_at)
            self.underway -= 1
            if within is None or not within.dead:
                delivery.happen()

        if seconds:
            assert self._effects is not None
            # Not in the context of its process, which may be suspended or dead by then.
            Context().run(self._effects.start_soon, arrive)
        else:
            delivery.happen()
        return delivery
