"""The loop: while anything is pending, start it, take the next fact, decide, append, and only then tell
anyone.

What is to happen is read off the state, what happened comes through one queue, and what follows is decided by
`advance`. All that is remembered beside the state is what is in flight.

One effect alone is served in the task that drives: a task for each would cost more than what is decided. If
something arrives meanwhile, another task drives on, and the first only brings the fact in which its effect
ends.
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
from refold.engine.runtime import Runtime, rings_in
from refold.engine.service import long_tool
from refold.engine.tasks import isolated, pace
from refold.engine.updates import Audience, Recorded
from refold.engine.world import Child, Work
from refold.reducers import events as ev
from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool, Settle, WaitUntil, next_effects
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance
from refold.reducers.pending import underway
from refold.reducers.state import RunState
from refold.store.protocol import StoreUnavailable

Serving = CallModel | RunTool | Reconcile
"""Effects that the world serves: what asks a model or a tool."""

AGAIN = (0.05, 0.2, 1.0)
"""Seconds before a write that failed is tried again: what a tool has done is not to be in doubt for a short
lock.
"""


class Queued(msgspec.Struct, frozen=True):
    """A fact to be, and the effect that it belongs to (None: a person or an engine brings it unasked).

    `ends`: the effect ends with it. Of the two facts that tell what a tool knows of a call in doubt only the
    last does. `late`: an annotation to be, for which nothing waits; the only thing that is recorded after the
    end.
    """

    make: Maker | LateMaker
    effect: Effect | None = None
    ends: bool = True
    late: bool = False


class Driver:
    """Drives one run from one state to the next, until nothing is left to do."""

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
        self._relief: Callable[[], None] | None = None  # while the task that drives serves an effect itself
        self._in_flight = InFlight()
        self.driving = False  # facts are taken
        self._rests = False  # stopped because nothing can be done now
        self.introduced = False  # the log says that this engine is here, as it must before anything is begun
        self.children: dict[str, Child] = {}

    def put(self, make: Maker, effect: Effect | None = None) -> None:
        """Queue a fact: clocks, cancellations and people come this way."""
        self._queue.append(Queued(make, effect))
        self._look()

    def _look(self) -> None:
        """Have somebody look at what there is to do now."""
        relief, self._relief = self._relief, None
        if relief is None:
            self._arrived.set()
        else:
            relief()

    def resume(self) -> None:
        """Record first that an engine took the run up: calls whose end is unknown are in doubt then."""
        if self._resumed is not None and not self.state.ended:
            self._queue.appendleft(Queued(self._resumed))
            self.introduced = True

    async def drive(self) -> None:
        """Go on until nothing is pending: the run has ended, or a person must act, in it or in a child of
        it.
        """
        self.driving, self._rests = True, False
        self._pace = pace()
        self._context = copy_context()
        try:
            await self._drive()
            while self._queue:  # what came while the last tasks ended
                await self._drive()
            if not self._rests:  # others have cancelled a task of ours
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
        """Go on until nothing is left to do, or another task drives on."""
        while True:
            await self._pace.turn()
            # What is known comes first: a resumption may say that an open call must not be started again, a
            # cancellation that nothing may.
            if not self._queue:
                if self.state.unattended and self._resumed is not None and not self.state.ended:
                    self.resume()
                    continue
                effects = () if self.state.unattended else next_effects(self.state)
                self._in_flight.let_go(effects)
                alone = self._start(effects, tasks)
                if alone is not None:
                    if not await self._serve_here(alone, tasks):
                        return
                    continue
                if not (self._queue or self._in_flight.busy(self.state, self._world.clock.now())):
                    if self._in_flight.clear():  # for the log it is still pending, as after a crash
                        tasks.cancel_scope.cancel()
                    self._rests = True
                    return
            queued = await self._next()
            if queued is not None:
                await self._record(queued)
            if self.journal.snapshot_due(self.state):
                tasks.start_soon(self.journal.snapshot, self.state)

    async def _serve_here(self, effect: Serving, tasks: anyio.abc.TaskGroup) -> bool:
        """Serve it in this task, and queue its facts.

        False if something has arrived meanwhile: another task drives now.
        """
        relief = self._relief = partial(self._relieve, tasks)
        try:
            facts = await isolated(self._facts(effect, self.state, effect))
        finally:
            drives = self._relief is relief
            if drives:
                self._relief = None
        self._queue.extend(_queued(facts, effect))
        if not drives:
            self._look()
        return drives

    def _relieve(self, tasks: anyio.abc.TaskGroup) -> None:
        # In the context of the run's starter, as its tools run, whoever brings something. A copy, for it may
        # be in use.
        self._context.copy().run(tasks.start_soon, self._step_by_step, tasks)

    async def leave(self) -> None:
        """Record what is queued, and start nothing: the next engine goes on."""
        while self._queue:
            await self._record(self._queue.popleft())

    @property
    def due(self) -> float | None:
        """In how many seconds the run wants an engine, now that this one stops; None: not before a person
        acts.
        """
        return self._rings_in() if self._rests else 0.0

    def _rings_in(self) -> float | None:
        return rings_in(self.state, self._world.clock.now())

    def late(self, make: LateMaker) -> None:
        """A result for which nothing waits any more; in the event loop's thread."""
        if self.driving:
            self._queue.append(Queued(make, late=True))
            self._look()
        else:
            self._afterwards(make)

    def _start(self, effects: Sequence[Effect], tasks: anyio.abc.TaskGroup) -> Serving | None:
        """Begin what is not in flight yet. One that is alone to be served is given back, to be served
        here.
        """
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
        """Settle what no task holds.

        If it is a call that started a child run, that is there, and is to end first.
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
        """The next fact; None where nothing came, but a call was put aside."""
        if not self._queue and self.state.asked_at is not None:
            # Only a clock runs here: an answer from elsewhere must find the run free.
            await self.journal.tenure.let_go(self._rings_in())
        if not self._queue:
            self._arrived = anyio.Event()
            await self._arrived.wait()
            await self._pace.turn()
        return self._queue.popleft() if self._queue else None

    async def _record(self, queued: Queued) -> None:
        """One fact: decide what follows, write both as one, and only then move on and tell."""
        if not self._awaited(queued):
            return
        if self._resumed is not None and not (self.introduced or queued.late):
            self.introduced = True
            await self._record(Queued(self._resumed))
        before, events = await self._written(queued)
        if self._audience:
            for seq, event in enumerate(events, before.seq + 1):
                self._audience.tell(Recorded(seq, event))

    async def _written(self, queued: Queued) -> tuple[RunState, Sequence[ev.Event]]:
        """Bring a fact into the log.

        Where it is unknown whether that went well, the log is read again, never guessed.
        """
        waits = iter(AGAIN)
        while True:
            before = self.state
            at = max(before.at, self._world.clock.stamp())
            salt = self._runtime.salts(before.seq + 1)
            after, events = self._derived(before, queued.make(before, at, salt))
            try:
                await self.journal.append(before, after, events, salt)
                self.state = after
                return before, events
            except StoreUnavailable as error:
                await self._read_again(before, after, waits, error)
            if self.state == after:
                return before, events

    def _derived(
        self, state: RunState, event: ev.Fact | ev.Annotation
    ) -> tuple[RunState, Sequence[ev.Event]]:
        if isinstance(event, ev.Annotation):
            return evolve(state, event, self._runtime.registry), (event,)
        return advance(state, event, self._runtime.registry)

    async def _read_again(
        self, before: RunState, after: RunState, waits: Iterator[float], error: StoreUnavailable
    ) -> None:
        """Drop the state for the one that the log says. Raises `error` when the store fails for too long."""
        while True:
            wait = next(waits, None)
            if wait is None:
                raise error
            await anyio.sleep(wait)
            try:
                state = await self.journal.load(self._runtime.registry)
                # Another engine may have written just the same, but for its name: equal states do not tell.
                await self.journal.tenure.confirm()
            except StoreUnavailable:
                continue
            self.state = state
            if state not in (before, after):
                raise Overtaken(before.setup.run) from error
            return

    def _awaited(self, queued: Queued) -> bool:
        if queued.effect is None:
            return queued.late or not self.state.ended  # else it was asked for after the end
        held = queued.effect in self._in_flight
        if queued.ends:
            self._in_flight.end(queued.effect)
        return held and not self._in_vain(queued.effect)

    def _in_vain(self, effect: Effect) -> bool:
        # Two clocks may ring in one moment, and what the first led to may leave nothing for the second; a
        # person may say how a call ended just before the model is told that it is unknown, or while its tool
        # is asked.
        if isinstance(effect, RunTool):
            return all(call.id != effect.call for call in underway(self.state))
        return isinstance(effect, NEEDLESS) and effect not in next_effects(self.state)

    async def _serve(self, effect: Serving, state: RunState, held: Effect) -> None:
        """See an effect through, begun at `state`; its last fact ends `held`, which is the effect or settles
        it.
        """
        self._queue.extend(_queued(await isolated(self._facts(effect, state, held)), held))
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
            children=self.children,
        )
        return await self._runtime.serve(work)

    async def _wait(self, effect: WaitUntil, scope: anyio.CancelScope) -> None:
        with scope:
            await self._world.clock.sleep_until(effect.at)
        if not scope.cancelled_caught:
            self.put(lambda state, at, salt: ev.ClockRead(at=at, due=effect.at), effect)  # noqa: ARG005


def _queued(facts: Sequence[Maker], effect: Effect) -> list[Queued]:
    """The facts in which an effect ends, with the last of them."""
    *others, last = facts
    return [*[Queued(make, effect, ends=False) for make in others], Queued(last, effect)]
