"""The loop: while anything is pending, start it, take the next fact, decide, append, and only then tell anyone.

What is to happen is read off the state, what happened comes through one queue, and what follows is decided by
`advance`. All that is remembered beside the state are handles on what is in flight.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import msgspec

from refold.engine.children import AgentTool, Delegation
from refold.engine.journal import Journal
from refold.engine.models.protocol import Delta
from refold.engine.updates import Finished, Recorded, Streamed, Update
from refold.engine.world import Maker, World, abandoned, in_doubt
from refold.reducers.effects import CallModel, Effect, RunTool, Settle, WaitUntil, next_effects
from refold.reducers.events import Answer, ClockRead, Input, InputReceived, ModelResponded
from refold.reducers.folding import advance
from refold.reducers.guards import Registry
from refold.reducers.state import RunState
from refold.reducers.views import MissingContent

if TYPE_CHECKING:
    from refold.engine.run import Run  # it drives a loop; its children are runs themselves

Salts = Callable[[int], bytes]
"""The salt of the fact that becomes event number so-and-so."""


_PATIENCE = 60 * 1_000_000_000
"""Nanoseconds for which an engine stays for a person."""


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
        self._aside: set[Effect] = set()  # of what is in flight: calls whose child runs wait for a person
        self.children: dict[str, Run] = {}

    def put(self, make: Maker, effect: Effect | None = None) -> None:
        """Queue a fact: results, clocks, cancellations and people all come this way."""
        self._queue.append(Queued(make, effect))
        self._arrived.set()

    @property
    def waiting(self) -> bool:
        """Whether facts are queued that nobody has taken yet."""
        return bool(self._queue)

    async def drive(self) -> None:
        """Go on until nothing is pending: the run has ended, or a person must act, in it or in a child of it."""
        async with anyio.create_task_group() as tasks:
            resuming = bool(self._queue)
            while True:
                # A resumption comes first: it may say that an open call must not be started again.
                if not resuming:
                    effects = next_effects(self.state)
                    self._let_go(effects)
                    self._start(effects, tasks)
                    if not (self._queue or self._busy()):
                        self._put_aside(tasks)
                        return
                queued = await self._next()
                if queued is not None:
                    await self._record(queued)
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
                case Settle():
                    self._settle(effect, tasks)

    def _settle(self, effect: Settle, tasks: anyio.abc.TaskGroup) -> None:
        """Settle what nobody holds. If it is a call that started a child run, that is there, and is to end first."""
        if effect.call is None:
            self.put(abandoned(effect.seq), effect)
            return
        going_on = next_effects(msgspec.structs.replace(self.state, stopping=None))
        runs = (each for each in going_on if isinstance(each, RunTool) and each.call == effect.call)
        call = next(runs, None)
        tool = self._hands_on(call) if call is not None else None
        if call is None or tool is None:
            self.put(in_doubt(effect.call), effect)
            return
        scope = self._in_flight[effect]
        scope.cancel()
        tasks.start_soon(self._hand_on, effect, call, tool, scope)

    def _cut_off(self, settle: Settle) -> bool:
        for effect, scope in self._in_flight.items():
            held = isinstance(effect, CallModel | RunTool) and effect.seq == settle.seq
            if held and getattr(effect, "call", None) == settle.call:
                self._aside.discard(effect)
                scope.cancel()
                return True
        return False

    def _let_go(self, effects: Sequence[Effect]) -> None:
        # What calls a model or a tool is never just dropped: it is settled, and reports.
        for effect in [held for held in self._in_flight if held not in effects]:
            if isinstance(effect, WaitUntil):
                self._in_flight.pop(effect).cancel()

    def _busy(self) -> bool:
        return any(not self._keeps_nobody(effect) for effect in self._in_flight if effect not in self._aside)

    def _keeps_nobody(self, effect: Effect) -> bool:
        # A person may take days: a clock beside them keeps nobody here, but for the last minute. Whoever takes the run
        # up after the deadline applies what the policy says of silence.
        waits = bool(self._aside) or self.state.asked_at is not None
        return (
            waits
            and isinstance(effect, WaitUntil)
            and (bool(self._aside) or effect.at - self._world.clock.now() > _PATIENCE)
        )

    def _put_aside(self, tasks: anyio.abc.TaskGroup) -> None:
        """Let go of what waits for a person: for the log it is still pending, as after a crash."""
        if self._in_flight:
            tasks.cancel_scope.cancel()
            self._in_flight.clear()
            self._aside.clear()

    async def _next(self) -> Queued | None:
        """The next fact; None where nothing came, but a call was put aside."""
        if not self._queue:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._queue.popleft() if self._queue else None

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
        tool = self._hands_on(effect)
        if tool is not None:
            await self._hand_on(effect, effect, tool, scope)
        else:
            self.put(await self._world.run(effect, self._arguments(effect), self.state, scope), effect)

    def _hands_on(self, call: RunTool) -> AgentTool | None:
        """The tool of a call that starts a child run."""
        offered = any(tool.name == call.name and tool.agent for tool in self.state.setup.tools)
        tool = self._world.tools.get(call.name)
        return tool if offered and isinstance(tool, AgentTool) else None

    async def _hand_on(
        self, effect: RunTool | Settle, call: RunTool, tool: AgentTool, scope: anyio.CancelScope
    ) -> None:
        def aside() -> None:
            self._aside.add(effect)
            self._arrived.set()

        delegation = Delegation(tool, call, self._world, scope, aside, self.children, self._tell)
        facts = await delegation.outcome(self._arguments(call), self.state, self.journal.store)
        for make in facts[:-1]:
            self.put(make)
        self.put(facts[-1], effect)

    def _arguments(self, effect: RunTool) -> str:
        """The model's arguments, or those that a person put in their place."""
        match self.journal.contents.get(effect.edited or effect.answer):
            case ModelResponded(content=Answer(arguments=arguments)):
                return arguments[effect.position]
            case InputReceived(content=Input(arguments=edits)) if effect.call in edits:
                return edits[effect.call]
            case _:
                raise MissingContent(self.state.setup.run, effect.edited or effect.answer)

    async def _wait(self, effect: WaitUntil, scope: anyio.CancelScope) -> None:
        with scope:
            await self._world.clock.sleep_until(effect.at)
        if not scope.cancelled_caught:
            self.put(lambda state, at, salt: ClockRead(at=at, due=effect.at), effect)  # noqa: ARG005
