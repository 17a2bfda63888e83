"""A run as a caller holds it: await its result, watch it, stop it, answer it."""

from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Self
from weakref import WeakSet

import msgspec
from transitions import Machine

from refold.engine.answers import Answers, words_of
from refold.engine.background import Background
from refold.engine.journal import Journal
from refold.engine.live import LiveAgent
from refold.engine.loop import Loop, Salts
from refold.engine.result import RunResult, result_of
from refold.engine.stores import StoreSource, opened
from refold.engine.updates import Recorded, Subscription, Update
from refold.engine.world import Maker, World
from refold.reducers import composing
from refold.reducers.composing_approvals import approved
from refold.reducers.effects import doubtful
from refold.reducers.errors import WrongUse
from refold.reducers.events import CancelRequested, Fact, InputReceived, RunResumed, StateChanged
from refold.reducers.guards import Registry
from refold.reducers.machine import AgentState
from refold.reducers.state import NEW, RunState
from refold.store.protocol import Store


class NotWaiting(WrongUse):
    """Something for a run that does not wait for it: a message, or an answer about calls."""

    def __init__(self, run: str, state: AgentState, what: str = "a message") -> None:
        super().__init__(run, state, what)
        self.run, self.state, self.what = run, state, what

    def __str__(self) -> str:
        asked = "" if self.what == "a message" else ", and when it is asked for"
        return f"run {self.run} is {self.state}: it takes {self.what} only in WAITING_FOR_INPUT{asked}"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run takes place: its world, its log, its guards, its chance, and who drives it.

    `check` is called with the state of a log that was taken up, and raises if this agent cannot go on with it.
    """

    world: World
    store: StoreSource
    registry: Registry
    salts: Salts
    worker: str
    versions: dict[str, str]
    check: Callable[[RunState], None]


class Run:
    """A run, live: it starts with the first `result()`, `updates()` or `async with`, and then goes on by itself.

    `state` is what is on disk. `machine` is a `transitions` machine that follows it, to hang callbacks on. When
    `result()` is cancelled, or an `async with` is left early, the engine stops as in a crash: the log is whole, and
    `Agent.resume` goes on from there.
    """

    def __init__(self, run: str, setting: Setting, opening: Maker | None) -> None:
        self.id = run
        self._setting, self._opening = setting, opening
        self._live = LiveAgent()
        self._inbox: list[Maker] = []
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._background: Background | None = None
        self._loop: Loop | None = None
        self._state = NEW
        self._answered: tuple[str, int] | None = None  # the question to which an answer is on its way
        self._result: RunResult | None = None

    @property
    def state(self) -> RunState:
        """The state that is on disk."""
        return self._loop.state if self._loop else self._state

    @property
    def machine(self) -> Machine:
        """The live machine: `run.machine.on_enter_COMPLETED(callback)`."""
        return self._live.machine

    @property
    def children(self) -> Mapping[str, "Run"]:
        """The child runs that go on now, by their ids: to watch one, to answer it, to stop it."""
        return dict(self._loop.children) if self._loop else {}

    async def result(self) -> RunResult:
        """Wait until the run has ended or waits for a person, and say how it stands.

        Raises what stops an engine: `StoreUnavailable`, `Conflict`, `Damaged`, `WrongUse`. What was recorded until
        then is on disk.
        """
        await self._started().join()
        if self._result is None:
            raise WrongUse(f"the engine of run {self.id} was stopped: agent.resume({self.id!r}) goes on")
        return self._result

    def updates(self) -> AsyncIterator[Update]:
        """Deltas as they stream and events once they are on disk, until the run stops.

        Starts the run if nobody has; raises what `result()` would. Leaving the loop early does not stop it.
        """
        subscription = Subscription()
        self._subscriptions.add(subscription)
        return Updates(subscription, self._started)

    def cancel(self, reason: str = "", *, by: str = "user") -> None:
        """Ask the run to stop: what is in flight settles, then it is CANCELLED. After the end, nothing happens."""
        self._put(lambda _, at, salt: composing.cancelled(CancelRequested(at=at, by=by), reason, salt))

    def send(self, message: str, *, by: str = "user") -> None:
        """Answer a run that waits for a person; await `result()` again to go on.

        Raises `NotWaiting`, or `WrongUse` for a second answer to the same question.
        """
        if self.state.agent_state is not AgentState.WAITING_FOR_INPUT:
            raise NotWaiting(self.id, self.state.agent_state)
        if self.state.approval is not None:
            calls = ", ".join(self.state.approval.calls)
            raise WrongUse(
                f"run {self.id} asks whether calls {calls} may run: answer() says so, not a message"
            )
        self._answers("message", self.state.messages)
        self._put(
            lambda state, at, salt: composing.received(state, InputReceived(at=at, by=by), message, salt)
        )

    def answer(self, answers: Answers, *, by: str = "user", note: str = "") -> None:
        """Answer a run that asks a person about calls: what is to become of each, by its id, and why.

        `approve`, `reject`, `escalate` (to the next in the chain), `terminate` (the whole run), or `("edit",
        arguments)` with a mapping or JSON text: the call runs with these. What is left out is asked again. An answer
        after the question's deadline counts as none. A run that was resumed may be answered before it is awaited:
        `result()` then raises what is wrong with the answer.

        Raises `NotWaiting`, or `WrongUse` for a second answer to one question, a call that nobody is asked about,
        and new arguments that are no JSON object.
        """
        words, arguments = words_of(answers)

        def make(state: RunState, at: int, salt: bytes) -> Fact:
            return approved(state, InputReceived(at=at, by=by), words, arguments, note, salt)

        if self._loop is not None or self._opening is not None:
            asked = self.state.approval
            if asked is None:
                raise NotWaiting(self.id, self.state.agent_state, "an answer about calls")
            make(self.state, self.state.at, b"")  # refuses what cannot be answered, now rather than later
            self._answers("approval", asked.seq)
        self._put(make)

    def put(self, fact: Fact) -> None:
        """Bring in a fact as it is, at its turn in the queue: for replays and importers."""
        self._put(lambda state, at, salt: fact)  # noqa: ARG005

    async def __aenter__(self) -> Self:
        self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background is not None:
            await self._background.stop()

    def _answers(self, kind: str, number: int) -> None:
        if self._answered == (kind, number):
            raise WrongUse(f"run {self.id} has its answer already; await result() before the next")
        self._answered = (kind, number)

    def _put(self, make: Maker) -> None:
        if self._loop is not None:
            self._loop.put(make)
        else:
            self._inbox.append(make)

    def _started(self) -> Background:
        waiting = bool(self._inbox) or (self._loop is not None and self._loop.waiting)
        if self._background is None or (self._background.over and waiting):
            self._background = Background(self._drive)
        return self._background

    async def _drive(self) -> None:
        try:
            async with opened(self._setting.store) as store:
                loop = await self._taken_up(store)
                for make in self._inbox:
                    loop.put(make)
                self._inbox.clear()
                await loop.drive()
                self._result = result_of(loop.state, loop.journal.contents)
        except BaseException:
            # What is on disk may be more, or less, than what was believed: whoever goes on reads it again.
            self._state, self._loop, self._answered, self._result = self.state, None, None, None
            raise
        finally:
            for subscription in tuple(self._subscriptions):
                subscription.close()

    async def _taken_up(self, store: Store) -> Loop:
        """The loop where the log ends: a new run's first fact, or an old one's next, is queued."""
        if self._loop is not None:
            self._loop.journal.store = store
            return self._loop
        world, setting = self._setting.world, self._setting
        journal = Journal(store, self.id)
        state = NEW if self._opening is not None else await journal.load(setting.registry)
        if self._opening is None:
            setting.check(state)
            self._live.machine.set_state(str(state.agent_state))
        world.clock.start(state.at)
        loop = self._loop = Loop(state, journal, world, setting.registry, setting.salts, self._told)
        if self._opening is not None:
            loop.put(self._opening)
            self._opening = None
        elif not state.ended and (state.asked_at is None or self._inbox):
            loop.put(self._resumed)
        return loop

    def _resumed(self, state: RunState, at: int, salt: bytes) -> Fact:  # noqa: ARG002
        tools = self._setting.world.tools
        return RunResumed(
            at=at,
            worker=self._setting.worker,
            in_doubt=doubtful(state),
            changed=tuple(tool.name for tool in state.setup.tools if tools[tool.name].digest != tool.digest),
            downtime=at - state.at,
            versions=self._setting.versions,
        )

    def _told(self, update: Update) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.put(update)
        if isinstance(update, Recorded) and isinstance(update.event, StateChanged):
            # A person's answer leads back to where the agent asked: the table's two targets need to know.
            self._live.follow(update.event.trigger, update.event.target)


class Updates:
    """An iteration over a run's updates. No generator: one that is left early would be closed who knows where."""

    def __init__(self, subscription: Subscription, start: Callable[[], Background]) -> None:
        self._subscription, self._start = subscription, start
        self._background: Background | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        if self._background is None:
            self._background = self._start()
            if self._background.over:
                self._subscription.close()
        update = await self._subscription.take()
        if update is None:
            await self._background.join()
            raise StopAsyncIteration
        return update
