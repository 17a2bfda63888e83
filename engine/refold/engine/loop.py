"""The loop: while anything is pending, start it, take the next fact, decide, append, and only then tell anyone.

What is to happen is read off the state, what happened comes through one queue, and what follows is decided by
`advance`. All that is remembered beside the state are handles on what is in flight.
"""

from collections import deque
from collections.abc import Callable, Sequence

import anyio
import anyio.abc
import msgspec

from refold.engine.journal import Journal
from refold.engine.models.protocol import Delta
from refold.engine.updates import Finished, Recorded, Streamed, Update
from refold.engine.world import Maker, World, abandoned, in_doubt
from refold.reducers.effects import CallModel, Effect, RunTool, Settle, WaitUntil, next_effects
from refold.reducers.events import ClockRead, ModelResponded
from refold.reducers.folding import advance
from refold.reducers.guards import Registry
from refold.reducers.state import RunState
from refold.reducers.views import MissingContent

Salts = Callable[[int], bytes]
"""The salt of the fact that becomes event number so-and-so."""


class Queued(msgspec.Struct, frozen=True):
    """A fact to be, and the effect that it ends (None: nobody asked for it, a person or an engine brings it)."""

    make: Maker
    effect: Effect | None = None


class Loop:
    """Drives one run from one state to the next, until nothing is left to do."""

    def __init__(
        self,
        state: RunState,
        journal: Journal,
        world: World,
        registry: Registry,
        salts: Salts,
        tell: Callable[[Update], None],
    ) -> None:
        self.state = state
        self.journal, self._world, self._registry = journal, world, registry
        self._salts, self._tell = salts, tell
        self._queue: deque[Queued] = deque()
        self._arrived = anyio.Event()
        self._in_flight: dict[Effect, anyio.CancelScope] = {}

    def put(self, make: Maker, effect: Effect | None = None) -> None:
        """Queue a fact: results, clocks, cancellations and people all come this way."""
        self._queue.append(Queued(make, effect))
        self._arrived.set()

    @property
    def waiting(self) -> bool:
        """Whether facts are queued that nobody has taken yet."""
        return bool(self._queue)

    async def drive(self) -> None:
        """Go on until nothing is pending: the run has ended, or a person must act."""
        async with anyio.create_task_group() as tasks:
            resuming = bool(self._queue)
            while True:
                # A resumption comes first: it may say that an open call must not be started again.
                if not resuming:
                    effects = next_effects(self.state)
                    self._let_go(effects)
                    self._start(effects, tasks)
                    if not (self._queue or effects or self._in_flight):
                        return
                await self._record(await self._next())
                resuming = False

    def _start(self, effects: Sequence[Effect], tasks: anyio.abc.TaskGroup) -> None:
        for effect in effects:
            if effect in self._in_flight:
                continue
            if isinstance(effect, Settle) and self._cut_off(effect):
                continue
            scope = self._in_flight[effect] = anyio.CancelScope()
            match effect:
                case CallModel():
                    tasks.start_soon(self._ask, effect, scope)
                case RunTool():
                    tasks.start_soon(self._run, effect, scope)
                case WaitUntil():
                    tasks.start_soon(self._wait, effect, scope)
                case Settle(call=call):
                    self.put(abandoned(effect.seq) if call is None else in_doubt(call), effect)

    def _cut_off(self, settle: Settle) -> bool:
        for effect, scope in self._in_flight.items():
            held = isinstance(effect, CallModel | RunTool) and effect.seq == settle.seq
            if held and getattr(effect, "call", None) == settle.call:
                scope.cancel()
                return True
        return False

    def _let_go(self, effects: Sequence[Effect]) -> None:
        # What calls a model or a tool is never just dropped: it is settled, and reports.
        for effect in [held for held in self._in_flight if held not in effects]:
            if isinstance(effect, WaitUntil):
                self._in_flight.pop(effect).cancel()

    async def _next(self) -> Queued:
        while not self._queue:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._queue.popleft()

    async def _record(self, queued: Queued) -> None:
        """One fact: decide what follows, write both as one, and only then move on and tell."""
        before = self.state
        if queued.effect is None:
            if before.ended:
                return  # somebody asked for something after the end
        elif self._in_flight.pop(queued.effect, None) is None or self._rang_in_vain(queued.effect):
            return
        at = max(before.at, self._world.clock.stamp())
        salt = self._salts(before.seq + 1)
        after, events = advance(before, queued.make(before, at, salt), self._registry)
        await self.journal.append(before, after, events, salt)
        self.state = after
        for place, event in enumerate(events):
            self._tell(Recorded(before.seq + 1 + place, event))

    def _rang_in_vain(self, effect: Effect) -> bool:
        # Two clocks may ring in one moment, and what the first led to may leave nothing for the second.
        return isinstance(effect, WaitUntil) and effect not in next_effects(self.state)

    async def _ask(self, effect: CallModel, scope: anyio.CancelScope) -> None:
        def publish(delta: Delta) -> None:
            self._tell(Streamed(effect.seq, delta))

        cancelled = True
        try:
            make = await self._world.ask(effect, self.state, self.journal.contents, scope, publish)
            cancelled = scope.cancel_called
        finally:
            self._tell(Finished(effect.seq, cancelled))
        self.put(make, effect)

    async def _run(self, effect: RunTool, scope: anyio.CancelScope) -> None:
        answer = self.journal.contents.get(effect.answer)
        said = answer.content if isinstance(answer, ModelResponded) else None
        if said is None:
            raise MissingContent(self.state.setup.run, effect.answer)
        self.put(await self._world.run(effect, said.arguments[effect.position], self.state, scope), effect)

    async def _wait(self, effect: WaitUntil, scope: anyio.CancelScope) -> None:
        with scope:
            await self._world.clock.sleep_until(effect.at)
        if not scope.cancelled_caught:
            self.put(lambda state, at, salt: ClockRead(at=at, due=effect.at), effect)  # noqa: ARG005
