"""Workers: they drive the runnable runs of a store.

A run is runnable if it was left to workers, if an operator answered it from elsewhere, if a deadline passed
without an engine, or if its engine died. Many workers in many processes may share one store: by its lease, a
run belongs to one worker at a time.

A worker that is to stop drains: it takes no new run, and puts down each run between two steps, so that no
call's outcome is unknown because of a deployment. A run that a worker can never drive, because a newer refold
or a guard that is not installed decides in it, is left to others, and its log untouched.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel
import msgspec

from refold.engine.agent import Agent
from refold.engine.arguments import StoreSource, opened
from refold.engine.children import reachable
from refold.engine.compatibility import installed_guards, refuse_blind
from refold.engine.journal import Journal, Overtaken, event_of, source_of
from refold.engine.result import RunResult
from refold.engine.run import Run
from refold.engine.runtime import due_in, is_lost, wake_parent
from refold.engine.tasks import first
from refold.engine.tenure import BRIEF, Grant, LeaseLapsed, Tenure, clocks, new_holder
from refold.reducers.effects import doubtful
from refold.reducers.errors import Damaged, Inconclusive, NewerLog, WrongUse
from refold.reducers.events import StateChanged
from refold.reducers.rules import rules_of
from refold.reducers.state import RunState
from refold.store.protocol import LEASE_SECONDS, Held, Lease, LeaseLost, Store, StoreUnavailable, UnknownRun

POLL = 1.0
"""Seconds between two searches for runnable runs, while there are none."""

PASSED_BY = 60.0
"""Seconds for which a run is skipped that could not be driven here; another worker may have what it needs."""


DRAIN_SECONDS = 30.0
"""Seconds in which steps in progress may end before a worker stops."""


AWAY = 5.0
"""Seconds for which a run is skipped whose store was not available."""

WITHOUT_STORE = 300.0
"""Seconds for which a worker goes on searching while its store fails, as while a server is replaced."""


class TakenUp(msgspec.Struct, frozen=True, tag="taken_up"):
    """The worker drives this run now; its log had `events` events."""

    run: str
    events: int


class PutDown(msgspec.Struct, frozen=True, tag="put_down"):
    """The run has ended, or waits for an operator."""

    run: str
    result: RunResult


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The run could not be driven, or its engine stopped. `lost`: another engine has it now.

    This worker leaves the run to others for `again` seconds. If `run` is "", the search for runs failed.
    """

    run: str
    problem: str
    lost: bool = False
    again: float = 0.0


class HandedOver(msgspec.Struct, frozen=True, tag="handed_over"):
    """This worker stops, and left the run to others; its log has `events` events.

    `calls` were interrupted, because they took longer than the drain: their outcome is unknown.
    """

    run: str
    events: int
    calls: tuple[str, ...] = ()


class Skipped(msgspec.Struct, frozen=True, tag="skipped"):
    """This worker can never drive the run, and does not touch it: another worker must."""

    run: str
    problem: str


News = TakenUp | PutDown | Failed | HandedOver | Skipped


class Worker:
    """Drives the runnable runs of one store, up to `concurrency` of them in parallel.

    `agents` is an agent, for its runs and those of its handoffs, or a function that returns the agent for a
    run's state. The function raises `WrongUse` for runs that this worker leaves to others. `tell` is called
    with news. `lease` and `poll` are in seconds.
    """

    def __init__(
        self,
        store: StoreSource,
        agents: Agent | Callable[[RunState], Agent],
        *,
        concurrency: int = 8,
        lease: float = LEASE_SECONDS,
        poll: float = POLL,
        tell: Callable[[News], None] = lambda news: None,  # noqa: ARG005
    ) -> None:
        if concurrency < 1:
            raise WrongUse(f"concurrency: expected 1 or more, got {concurrency}")
        self._source, self.concurrency, self._lease, self._poll = store, concurrency, lease, poll
        self._agent_of = _one_of(agents) if isinstance(agents, Agent) else agents
        self._tell = tell
        self._driving: set[str] = set()
        self._live: dict[str, Run] = {}  # those with an engine here
        self._taken: set[str] = set()  # those of which news was told
        self._draining, self._work_scope = False, anyio.CancelScope()
        self._asking = anyio.CancelScope()  # of the present call of `take_due`
        self._passed_by: dict[str, float] = {}  # skipped runs, and until when
        self._free = anyio.Event()
        self._registry = installed_guards()
        self._searched = False
        self._holder = new_holder()
        self._failing_since: float | None = None  # when the store began to fail

    @property
    def driving(self) -> int:
        """The number of runs that are driven now."""
        return len(self._driving)

    @property
    def draining(self) -> bool:
        """Whether the worker takes no more runs."""
        return self._draining

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Take no new run, and make `run` return once the present ones are left to other workers.

        Each run is left between two steps: calls in flight end, and nothing else starts. After `seconds`,
        calls that still run are cancelled: their outcome is unknown, unless they may be repeated. Call it in
        the event loop's thread, while `run` is awaited; a second call can only shorten the drain.
        """
        self._draining = True
        self._work_scope.deadline = min(self._work_scope.deadline, anyio.current_time() + seconds)
        self._asking.deadline = min(self._asking.deadline, self._work_scope.deadline)
        for run in self._live.values():
            run.pause()
        self._free.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `drain` is called, or until cancelled: each run is then left to other workers at once.

        Call it once. With `until_idle`, return as soon as no run is runnable and none is driven here. Raises
        errors of the store if it fails for `WITHOUT_STORE` seconds, with `until_idle` at once.
        """
        try:
            async with opened(self._source) as store:
                await self._work(store, until_idle=until_idle)
        except BaseExceptionGroup as errors:
            raise first(errors) from None

    async def _work(self, store: Store, *, until_idle: bool) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._search, store)
            with self._work_scope:
                while not self.draining:
                    self._free = anyio.Event()
                    taken = await self._take(store, until_idle=until_idle)
                    for grant in taken:
                        self._driving.add(grant.lease.run)
                        tasks.start_soon(self._drive, store, grant)
                    if until_idle and self._searched and not self._driving and not taken:
                        return
                    await self._wait(store)
                while self._driving:
                    self._free = anyio.Event()
                    await self._free.wait()
            tasks.cancel_scope.cancel()

    async def _search(self, store: Store) -> None:
        """Queue runs that lost their claim, a row of the store: no engine has them or would find them.

        A claim is not part of the log, but the log shows whether the run is runnable. Each run without a
        claim is checked once in a worker's life.
        """
        try:
            while not await self._search_once(store):  # noqa: ASYNC110
                await anyio.sleep(AWAY)  # nothing tells when the store is back
        finally:
            self._searched = True
            self._free.set()

    async def _search_once(self, store: Store) -> bool:
        """Return whether the search came to its end; False if the store was not available."""
        try:
            async for chunk in store.runs():
                for run, head in chunk:
                    with suppress(Damaged, Inconclusive, UnknownRun):  # no worker could drive the run
                        if head.seq and await self._is_lost(store, run, head.seq):
                            await store.wake(run)
        except Damaged as error:  # a run that cannot be listed
            self._tell(Failed("", str(error)))
        except StoreUnavailable:
            return False  # reported by the search for due runs, which goes on as well
        return True

    async def _is_lost(self, store: Store, run: str, seq: int) -> bool:
        if await store.claim(run) is not None:
            return False
        last = [event_of(stored) for stored in await store.read_some(run, [seq])]
        if any(isinstance(event, StateChanged) and event.target.terminal for event in last):
            return False  # true of most runs; their other events need not be read
        if await source_of(store, run):
            return False
        state = await Journal(store, run, Tenure(store, run, BRIEF)).load(self._registry)
        rules_of(state)
        return is_lost(state, time.time_ns()) and await store.claim(run) is None

    async def _take(self, store: Store, *, until_idle: bool) -> list[Grant]:
        """Lease as many due runs as there is room for.

        If the worker is cancelled meanwhile, it waits for the answer and returns the leases: otherwise no
        worker could take these runs until they expire. Raises errors of the store if it fails too long.
        """
        room, now = self.concurrency - len(self._driving), anyio.current_time()
        if not room:
            return []
        self._passed_by = {run: until for run, until in self._passed_by.items() if until > now}
        since, leases, errors = clocks(), list[Lease](), list[StoreUnavailable]()

        async def ask() -> None:
            skip = {*self._driving, *self._passed_by}
            with self._asking:
                try:
                    leases.extend(
                        await store.take_due(room, holder=self._holder, seconds=self._lease, skip=skip)
                    )
                except StoreUnavailable as error:
                    errors.append(error)

        self._asking = anyio.CancelScope(shield=True, deadline=self._work_scope.deadline)
        kept = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)  # a task of its own, which only its scope can cancel
            await anyio.lowlevel.checkpoint_if_cancelled()
            kept = not self.draining
        finally:
            if not kept:
                await self._give_back(store, leases)
        if errors:
            self._failing_since = self._failing_since or now
            if until_idle or now - self._failing_since > WITHOUT_STORE:
                raise errors[0]
            self._tell(Failed("", str(errors[0])))
            return []
        self._failing_since = None
        return [Grant(lease, self._holder, since) for lease in leases] if kept else []

    async def _give_back(self, store: Store, leases: list[Lease]) -> None:
        """Make runs due again that were leased, and that this worker does not drive."""
        with anyio.move_on_after(BRIEF, shield=True), suppress(StoreUnavailable):
            for lease in leases:
                await store.release(lease, 0)

    async def _wait(self, store: Store) -> None:
        """Wait until a run may have become due, or there is room for another one."""
        with anyio.move_on_after(self._poll):
            if len(self._driving) >= self.concurrency or self._failing_since is not None:
                await self._free.wait()
                return
            async with anyio.create_task_group() as tasks:

                async def listen() -> None:
                    await store.wait_due(self._poll)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(listen)
                await self._free.wait()
                tasks.cancel_scope.cancel()

    async def _drive(self, store: Store, grant: Grant) -> None:
        run = grant.lease.run
        try:
            async with Tenure(store, run, self._lease, grant=grant) as tenure:
                await self._drive_run(store, run, tenure)
        except LeaseLapsed as error:  # no engine may have it: it is due when the lease ends in the store, too
            self._tell(Failed(run, str(error), again=AWAY))
        except (Held, LeaseLost, Overtaken) as error:
            if run in self._taken:  # otherwise another engine was faster
                self._tell(Failed(run, str(error), lost=True))
        except NewerLog as error:
            self._skip(run, error)
        except Exception as error:  # an error in one run must not stop the others
            again = AWAY if isinstance(error, StoreUnavailable) else PASSED_BY
            self._tell(Failed(run, str(error) or type(error).__name__, again=again))
            self._passed_by[run] = anyio.current_time() + again
        finally:
            self._driving.discard(run)
            self._taken.discard(run)
            self._free.set()

    async def _drive_run(self, store: Store, run: str, tenure: Tenure) -> None:
        if await source_of(store, run):
            # Imported runs are never driven; an interrupted import leaves them listed.
            self._passed_by[run] = math.inf
            return
        state = await Journal(store, run, tenure).load(self._registry)
        if not state.ended:
            rules_of(state)
        try:
            refuse_blind(state)
        except WrongUse as error:
            self._skip(run, error)
            return
        due = due_in(state, max(state.at, time.time_ns()))  # a clock that was set back must not cause a wait
        if due is None or due > 0:  # nothing to do before then; None: before an operator acts
            await wake_parent(store, state)
            tenure.due = due
            return
        agent, events = self._agent_of(state), state.seq
        del state  # do not keep a long run's state while it is driven
        if self.draining:
            return
        resumed = self._live[run] = agent.resume(run, store=store, lease=self._lease)
        resumed.adopt(tenure.pass_on())
        try:
            await self._see_through(resumed, events)
        finally:
            del self._live[run]

    def _skip(self, run: str, error: Exception) -> None:
        self._passed_by[run] = math.inf  # what is installed here does not change while the process runs
        self._tell(Skipped(run, str(error)))

    async def _see_through(self, run: Run, events: int) -> None:
        """Drive a run until it ends or waits for an operator, or until this worker stops."""
        try:
            async with run:
                async for _ in run.updates():  # the first event shows that we have the run
                    self._taken.add(run.id)
                    self._tell(TakenUp(run.id, events))
                    break
                result = await run.result()
        except anyio.get_cancelled_exc_class():
            if run.id in self._taken:
                self._tell(HandedOver(run.id, run.state.seq, doubtful(run.state)))
            raise
        if self.draining and not _waits(run.state):
            self._tell(HandedOver(run.id, run.state.seq))
        else:
            self._tell(PutDown(run.id, result))


def _waits(state: RunState) -> bool:
    """Return whether the run has ended or waits for an operator."""
    return state.ended or state.asked_at is not None


def _one_of(agent: Agent) -> Callable[[RunState], Agent]:
    def agent_of(state: RunState) -> Agent:
        name = state.setup.agent
        for each in reachable(agent):
            if each.name == name:
                return each
        raise WrongUse(f"run {state.setup.run} needs the agent {name!r}, which this worker does not have")

    return agent_of
