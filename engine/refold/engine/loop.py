"""The loop that drives a run: start pending effects, take the next fact, decide, append, then notify.

Effects are read off the state. Facts arrive in one queue, and `advance` derives the decisions. Beside the
state, the loop remembers only which effects are in flight.

A single effect is served in the task that drives: a task for each would cost more than the decisions. If a
fact arrives meanwhile, another task continues to drive, and the first only queues the facts of its effect.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import cast

import anyio
import anyio.abc
import msgspec

from refold.engine.clock import LateMaker, Maker
from refold.engine.journal import Journal, Overtaken
from refold.engine.outcomes import NEEDLESS, InFlight, abandoned, in_doubt
from refold.engine.runtime import Runtime, due_in, rings_in
from refold.engine.service import long_tool
from refold.engine.tasks import isolate, pace
from refold.engine.updates import Audience, Recorded
from refold.engine.world import Child, Work
from refold.reducers import events as ev
from refold.reducers.effects import (
    CallModel,
    Effect,
    Reconcile,
    RunTool,
    Settle,
    WaitUntil,
    doubtful,
    next_effects,
)
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance
from refold.reducers.pending import underway
from refold.reducers.state import RunState
from refold.store.protocol import StoreUnavailable

Serving = CallModel | RunTool | Reconcile
"""Effects that call a model or a tool."""

_LEFT = (CallModel, Reconcile)
"""Effects that an engine leaves to the next one if it is to stop: not started, they are never in doubt."""

AGAIN = (0.05, 0.2, 1.0)
"""Seconds before each retry of a failed write: a short lock must not make a call's outcome unknown."""


class Queued(msgspec.Struct, frozen=True):
    """A queued fact, and its effect (None: an operator or engine brings it).

    `ends`: the effect ends with it. When a tool reports on a call in doubt, only the second of two facts
    does. `late`: it is a result whose call has ended; only such annotations are recorded after the run ends.
    """

    make: Maker | LateMaker
    effect: Effect | None = None
    ends: bool = True
    late: bool = False


class Driver:
    """Drives one run from state to state until nothing is pending."""

    def __init__(
        self,
        state: RunState,
        journal: Journal,
        runtime: Runtime,
        audience: Audience,
        afterwards: Callable[[LateMaker], None],
        resumed: Maker | None,
    ) -> None:
        self.state = state
        self.journal, self._runtime, self._world = journal, runtime, runtime.world
        self._audience, self._afterwards, self._resumed = audience, afterwards, resumed
        self._queue: deque[Queued] = deque()
        self._arrived = anyio.Event()
        self._relief: Callable[[], None] | None = None  # set while the driving task serves an effect itself
        self._in_flight = InFlight()
        self.driving = False  # whether facts are accepted
        self._rests = False  # stopped because nothing can be done now
        self._pausing = False  # another engine continues after the current step
        self.introduced = False  # the log names this engine, as it must before any effect starts
        self.children: dict[str, Child] = {}

    def put(self, make: Maker, effect: Effect | None = None) -> None:
        """Queue a fact, of an effect or from outside."""
        self._queue.append(Queued(make, effect))
        self._look()

    def _look(self) -> None:
        """Wake the driving task, or start another if that one serves an effect."""
        relief, self._relief = self._relief, None
        if relief is None:
            self._arrived.set()
        else:
            relief()

    def resume(self) -> bool:
        """Record first that an engine resumed the run: started calls without an end become in doubt.

        Return False if there is nothing to resume.
        """
        if self._resumed is None or self.state.ended:
            return False
        self._queue.appendleft(Queued(self._resumed))
        self.introduced = True
        return True

    def pause(self) -> None:
        """Stop between two steps, for another engine to continue: see `Run.pause`."""
        self._pausing = True
        for child in self.children.values():
            child.pause()
        if self.driving:
            self._look()

    async def drive(self) -> None:
        """Drive until nothing is pending: the run has ended, or it or a child waits for an operator."""
        self.driving, self._rests = True, False
        self._pace = pace()
        self._context = copy_context()
        try:
            await self._drive()
            while self._queue:  # facts that arrived while the last tasks ended
                await self._drive()
            if not self._rests:  # a task of this loop was cancelled from outside
                raise anyio.get_cancelled_exc_class()
        finally:
            self.driving = False
            for queued in [each for each in self._queue if each.late]:
                self._queue.remove(queued)
                self.late(cast("LateMaker", queued.make))

    async def _drive(self) -> None:
        async with anyio.create_task_group() as tasks:
            await self._step_by_step(tasks)

    async def _step_by_step(self, tasks: anyio.abc.TaskGroup) -> None:
        """Drive until nothing is left to do, or another task continues."""
        while True:
            await self._pace.turn()
            # Queued facts come before effects: a resumption may forbid to start an open call again, and a
            # cancellation to start any.
            if not self._queue:
                if self.state.unattended and not self._pausing and self.resume():
                    continue
                effects = self._wanted()
                self._in_flight.let_go(effects)
                alone = self._start(effects, tasks)
                if alone is not None:
                    if not await self._serve_here(alone, tasks):
                        return
                    continue
                now, timers = self._world.clock.now(), not self._pausing
                if not (self._queue or self._in_flight.busy(self.state, now, timers=timers)):
                    if self._in_flight.clear():  # the log still has it as pending, as after a crash
                        tasks.cancel_scope.cancel()
                    self._rests = True
                    return
            queued = await self._next()
            if queued is not None:
                await self._record(queued)
            if self.journal.snapshot_due(self.state):
                tasks.start_soon(self.journal.snapshot, self.state)

    def _wanted(self) -> Sequence[Effect]:
        """Return the pending effects, without those that are left to another engine."""
        effects = () if self.state.unattended else next_effects(self.state)
        if not self._pausing:
            return effects
        return [each for each in effects if not isinstance(each, _LEFT) or self._in_flight.holds(each)]

    async def _serve_here(self, effect: Serving, tasks: anyio.abc.TaskGroup) -> bool:
        """Serve an effect in this task and queue its facts; return False if another task drives now."""
        relief = self._relief = partial(self._relieve, tasks)
        try:
            facts = await isolate(self._facts(effect, self.state, effect))
        finally:
            drives = self._relief is relief
            if drives:
                self._relief = None
        self._queue.extend(_queue_facts(facts, effect))
        if not drives:
            self._look()
        return drives

    def _relieve(self, tasks: anyio.abc.TaskGroup) -> None:
        # Run in a copy of the starter's context, as tools do; the original may be in use.
        self._context.copy().run(tasks.start_soon, self._step_by_step, tasks)

    async def leave(self) -> None:
        """Record queued facts and start nothing; another engine continues."""
        while self._queue:
            await self._record(self._queue.popleft())

    @property
    def due(self) -> float | None:
        """Seconds until the run is runnable again; None: not before an operator acts."""
        due = due_in if self._pausing else rings_in  # a pause leaves effects that did not start
        return due(self.state, self._world.clock.now()) if self._rests else 0.0

    def late(self, make: LateMaker) -> None:
        """Queue a result that arrives after its call has ended. Call it in the event loop's thread."""
        if self._world.anonymous:
            return  # where it lands in the log depends on chance
        if self.driving:
            self._queue.append(Queued(make, late=True))
            self._look()
        else:
            self._afterwards(make)

    def _start(self, effects: Sequence[Effect], tasks: anyio.abc.TaskGroup) -> Serving | None:
        """Start effects that are not in flight yet; return a single one to serve in this task."""
        served: list[Serving] = []
        for effect in effects:
            if self._in_flight.holds(effect):
                continue
            if isinstance(effect, Settle) and self._in_flight.cut_off(effect):
                continue
            scope = self._in_flight.begin(effect)
            match effect:
                case WaitUntil():
                    tasks.start_soon(self._wait, effect, scope)
                case Settle():
                    self._settle(effect, scope, tasks)
                case _:
                    served.append(effect)
        if len(served) == 1 and not self._queue:
            return served[0]
        for effect in served:
            tasks.start_soon(self._serve, effect, self.state, effect)
        return None

    def _settle(self, effect: Settle, scope: anyio.CancelScope, tasks: anyio.abc.TaskGroup) -> None:
        """Settle an effect without a task.

        For a call that started a child run, end the child run first.
        """
        if effect.call is None:
            self.put(abandoned(effect.seq), effect)
            return
        going_on = next_effects(msgspec.structs.replace(self.state, stopping=None))
        runs = (each for each in going_on if isinstance(each, RunTool) and each.call == effect.call)
        call = next(runs, None)
        if call is None or long_tool(self._world.tools, self.state, call) is None:
            self.put(in_doubt(effect.call), effect)
            return
        scope.cancel()
        tasks.start_soon(self._serve, call, self.state, effect)

    async def _next(self) -> Queued | None:
        """Return the next fact, or None if a call was set aside instead."""
        if not self._queue and self.state.asked_at is not None:
            # Only a clock runs here: release the lease so that others can record an answer.
            await self.journal.tenure.let_go(rings_in(self.state, self._world.clock.now()))
        if not self._queue:
            self._arrived = anyio.Event()
            await self._arrived.wait()
            await self._pace.turn()
        return self._queue.popleft() if self._queue else None

    async def _record(self, queued: Queued) -> None:
        """Decide what follows from one fact, append both atomically, then notify."""
        if not self._is_awaited(queued):
            return
        if self._resumed is not None and not (self.introduced or queued.late):
            self.introduced = True
            await self._record(Queued(self._resumed))
        if self._pausing and isinstance(queued.effect, CallModel) and not doubtful(self.state):
            await self._leave_calls()
        before, events = await self._write(queued)
        if self._audience:
            for seq, event in enumerate(events, before.seq + 1):
                self._audience.tell(Recorded(seq, event))

    async def _leave_calls(self) -> None:
        """Record that this engine starts nothing more, so that no call of the response is in doubt."""
        resumed = self._resumed
        if resumed is None or self.state.unattended or self.state.ended:
            return

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:
            return msgspec.structs.replace(resumed(state, at, salt), downtime=0, unattended=True)

        await self._record(Queued(make))

    async def _write(self, queued: Queued) -> tuple[RunState, Sequence[ev.Event]]:
        """Append a fact and its decisions.

        If the outcome of the write is unknown, the log is read again.
        """
        waits = iter(AGAIN)
        while True:
            before = self.state
            at = max(before.at, self._world.clock.stamp())
            salt = self._runtime.salts(before.seq + 1)
            after, events = self._derive(before, queued.make(before, at, salt))
            try:
                await self.journal.append(before, after, events, salt)
                self.state = after
                return before, events
            except StoreUnavailable as error:
                await self._read_again(before, after, waits, error)
            if self.state == after:
                return before, events

    def _derive(self, state: RunState, event: ev.Fact | ev.Annotation) -> tuple[RunState, Sequence[ev.Event]]:
        if isinstance(event, ev.Annotation):
            return evolve(state, event, self._runtime.registry), (event,)
        return advance(state, event, self._runtime.registry)

    async def _read_again(
        self, before: RunState, after: RunState, waits: Iterator[float], error: StoreUnavailable
    ) -> None:
        """Reload the state from the log. Raises `error` if the store fails for too long."""
        while True:
            wait = next(waits, None)
            if wait is None:
                raise error
            await anyio.sleep(wait)
            try:
                state = await self.journal.load(self._runtime.registry)
                # Another engine may have written the same state under its own name: check the lease as well.
                # The append that ends a run gives the lease back, and no effect follows it.
                if not state.ended:
                    await self.journal.tenure.confirm()
            except StoreUnavailable:
                continue
            self.state = state
            if state not in (before, after):
                raise Overtaken(before.setup.run) from error
            return

    def _is_awaited(self, queued: Queued) -> bool:
        if queued.effect is None:
            return queued.late or not self.state.ended  # cancellations after the end have no effect
        held = queued.effect in self._in_flight
        if queued.ends:
            self._in_flight.end(queued.effect)
        return held and not self._is_needless(queued.effect)

    def _is_needless(self, effect: Effect) -> bool:
        # Two deadlines may pass at once, and the first may leave nothing for the second. An operator may
        # resolve a call just before its outcome is settled as unknown, or while its tool is asked.
        if isinstance(effect, RunTool):
            return all(call.id != effect.call for call in underway(self.state))
        return isinstance(effect, NEEDLESS) and effect not in next_effects(self.state)

    async def _serve(self, effect: Serving, state: RunState, held: Effect) -> None:
        """Serve an effect begun at `state`; its last fact ends `held`, the effect itself or its settling."""
        self._queue.extend(_queue_facts(await isolate(self._facts(effect, state, held)), held))
        self._look()

    async def _facts(self, effect: Serving, state: RunState, held: Effect) -> Sequence[Maker]:
        lease = await self.journal.tenure.assure()

        def aside() -> None:
            self._in_flight.put_aside(held)
            self._look()

        work = Work(
            effect=effect,
            state=state,
            world=self._world,
            journal=self.journal,
            stopwatch=self._world.clock.stopwatch(effect),
            scope=self._in_flight[held],
            epoch=lease.token,
            audience=self._audience,
            late=self.late,
            aside=aside,
            pausing=lambda: self._pausing,
            serve=self._runtime.serve,
            children=self.children,
        )
        return await self._runtime.serve(work)

    async def _wait(self, effect: WaitUntil, scope: anyio.CancelScope) -> None:
        with scope:
            await self._world.clock.sleep_until(effect.at)
        if not scope.cancelled_caught:
            self.put(lambda state, at, salt: ev.ClockRead(at=at, due=effect.at), effect)  # noqa: ARG005


def _queue_facts(facts: Sequence[Maker], effect: Effect) -> list[Queued]:
    """Queue the facts of an effect; the last one ends it."""
    *others, last = facts
    return [*[Queued(make, effect, ends=False) for make in others], Queued(last, effect)]
