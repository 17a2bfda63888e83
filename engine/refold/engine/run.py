"""A run as a caller holds it: await its result, watch it, stop it, answer it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, cast

import anyio

from refold.engine.arguments import Answers, NotWaiting, opened, refuse_message, words_of
from refold.engine.clock import LateMaker, Maker, recorded
from refold.engine.fork import keep_late
from refold.engine.journal import Journal, refuse_imported
from refold.engine.loop import Driver
from refold.engine.result import RunResult, result_of
from refold.engine.runtime import Runtime, versions, wake_parent
from refold.engine.tasks import Background, aside, pace
from refold.engine.tenure import BRIEF, Tenure, this_process
from refold.engine.updates import Audience, StreamedText, Update, Updates
from refold.reducers import composition
from refold.reducers import events as ev
from refold.reducers.composition import approved
from refold.reducers.effects import doubtful
from refold.reducers.errors import WrongUse
from refold.reducers.secrets import Redactor
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Doubt
from refold.store.protocol import Store, UnknownRun

if TYPE_CHECKING:
    from transitions import Machine

    from refold.engine.updates import LiveAgent

Opening = Callable[[Journal], Awaitable[tuple[RunState, list[Maker]]]]
"""How a run begins: the state before its first own event, and the facts to begin with."""


def anew(make: Maker) -> Opening:
    """The beginning of a run with a log of its own."""

    async def begin(_: Journal) -> tuple[RunState, list[Maker]]:
        return NEW, [make]

    return begin


class Run:
    """A run, live: it starts with the first `result()`, `updates()` or `async with`, and then goes on by
    itself.

    `state` is what is on disk. `machine` is a `transitions` machine that follows it, to hang callbacks on.
    When `result()` is cancelled, or an `async with` is left early, the engine stops as in a crash: the log is
    whole, and `Agent.resume` goes on from there.
    """

    def __init__(
        self, run: str, runtime: Runtime, opening: Opening | None, *, take_over: bool = False
    ) -> None:
        self.id = run
        self._take_over = take_over
        self._runtime, self._opening = runtime, opening
        self._live: LiveAgent | None = None  # as long as nothing hangs on it there is none
        self._inbox: list[Maker] = []
        self._audience = Audience()
        self._background: Background | None = None
        self._loop: Driver | None = None
        self._state = NEW
        self._answered: tuple[str, int] | None = None  # the question to which an answer is on its way
        self._result: RunResult | None = None

    @property
    def state(self) -> RunState:
        """The state that is on disk."""
        return self._loop.state if self._loop else self._state

    @property
    def machine(self) -> "Machine":
        """The live machine: `run.machine.on_enter_COMPLETED(callback)`."""
        if self._live is None:
            # Late: few runs have hooks, and `transitions` takes milliseconds to load.
            from refold.engine.updates import LiveAgent

            self._live = LiveAgent()
            self._live.machine.set_state(str(self.state.agent_state))
            self._audience.add(self._live)
        return self._live.machine

    @property
    def children(self) -> Mapping[str, "Run"]:
        """The child runs that go on now, by their ids: to watch one, to answer it, to stop it."""
        return cast("dict[str, Run]", dict(self._loop.children)) if self._loop else {}

    async def result(self) -> RunResult:
        """Wait until the run has ended or waits for a person, and say how it stands.

        Raises what stops an engine: `StoreUnavailable`, `Held` and `LeaseLost` (another engine has the run),
        `Damaged`, `WrongUse`. What was recorded until then is on disk.
        """
        await self._started().join()
        if self._result is None:
            raise WrongUse(f"the engine of run {self.id} was stopped: agent.resume({self.id!r}) goes on")
        return self._result

    async def detach(self) -> str:
        """Record how the run begins, or what was said of it, and leave the rest to a worker. Its id.

        Nothing is started here: no model and no tool is needed. Raises as `result`, and `WrongUse` if nothing
        is to be said.
        """
        if self._background is not None or (self._opening is None and not self._inbox):
            raise WrongUse(f"run {self.id}: there is nothing to record, or it is driven here already")
        self._background = Background(self._leave)
        await self._background.join()
        return self.id

    def updates(self) -> AsyncIterator[Update]:
        """Deltas as they stream and events once they are on disk, until the run stops.

        Starts the run if it was not started; raises what `result()` would. Leaving the loop early does not
        stop it.
        """
        updates = Updates(self._started)
        self._audience.add(updates)
        return updates

    def text(self) -> AsyncIterator[str]:
        """What the model says, piece by piece as it streams, with an empty line between two answers; see
        `updates`.
        """
        text = StreamedText(self._started)
        self._audience.add(text.updates)
        return text

    def cancel(self, reason: str = "", *, by: str = "user") -> None:
        """Ask the run to stop: what is in flight settles, then it is CANCELLED.

        After the end, nothing happens.
        """

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:  # noqa: ARG001
            return composition.cancelled(ev.CancelRequested(at=at, by=by), reason, self._redactor(state))

        self._put(make)

    def send(self, message: str, *, by: str = "user") -> None:
        """Answer a run that waits for a person; await `result()` again to go on.

        Raises `NotWaiting`, or `WrongUse` for a second answer to the same question.
        """
        if self._loop is not None or self._opening is not None:
            refuse_message(self.id, self.state)
            self._answers("message", self.state.messages)

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:
            refuse_message(self.id, state)  # another answer may have been faster
            said = ev.InputReceived(at=at, by=by)
            return composition.received(state, said, message, salt, self._redactor(state))

        self._put(make)

    def resolve(
        self,
        call: str,
        doubt: Doubt | Literal["happened", "did_not", "unknown"],
        *,
        by: str = "user",
        note: str = "",
    ) -> None:
        """Say how a call in doubt ended. `did_not`: it runs once more, under the same idempotency key.

        `happened`: the model is told that the call had its effect, and that its output is lost; `unknown`:
        that its end is unknown. A run that was resumed may be told before it is awaited: `result()` then
        raises what is wrong with it. Raises `WrongUse` for another word, and for a call that is not in doubt,
        naming those that are.
        """
        if doubt not in tuple(Doubt):
            raise WrongUse(f"call {call}: expected one of {', '.join(Doubt)}, got {doubt!r}")
        known = Doubt(doubt)

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:  # noqa: ARG001
            said = ev.DoubtResolved(at=at, call=call, doubt=known, by=by)
            return composition.resolved(state, said, note, self._redactor(state))

        if self._loop is not None:
            make(self.state, self.state.at, b"")  # refuses what cannot be resolved, now rather than later
            self._answers(f"doubt:{call}", self.state.seq)
        self._put(make)

    def answer(self, answers: Answers, *, by: str = "user", note: str = "") -> None:
        """Answer a run that asks a person about calls: what is to become of each, by its id, and why.

        `approve`, `reject`, `escalate` (to the next in the chain), `terminate` (the whole run), or `("edit",
        arguments)` with a mapping or JSON text: the call runs with these. What is left out is asked again. An
        answer after the question's deadline counts as none. A run that was resumed may be answered before it
        is awaited: `result()` then raises what is wrong with the answer.

        Raises `NotWaiting`, or `WrongUse` for a second answer to one question, a call that is not asked
        about, and new arguments that are no JSON object.
        """
        words, arguments = words_of(answers)

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:
            said = ev.ApprovalAnswered(at=at, by=by)
            return approved(state, said, words, arguments, note, salt, self._redactor(state))

        if self._loop is not None or self._opening is not None:
            asked = self.state.approval
            if asked is None:
                raise NotWaiting(self.id, self.state.agent_state, "an answer about calls")
            make(self.state, self.state.at, b"")  # refuses what cannot be answered, now rather than later
            self._answers("approval", asked.seq)
        self._put(make)

    def put(self, fact: ev.Fact) -> None:
        """Bring in a fact as it is, at its turn in the queue: for replays and importers."""
        self._put(recorded(fact))

    async def __aenter__(self) -> Self:
        self._started()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._background is not None:
            await self._background.stop()

    def _answers(self, kind: str, number: int) -> None:
        if self._answered == (kind, number):
            raise WrongUse(f"run {self.id} has its answer already; await result() before the next")
        self._answered = (kind, number)

    def _redactor(self, state: RunState) -> Redactor:
        return self._runtime.world.redactor_of(state)

    def _put(self, make: Maker) -> None:
        if self._loop is not None and self._loop.driving:
            self._loop.put(make)
        else:
            self._inbox.append(make)

    def _started(self) -> Background:
        if not self._runtime.driven:
            raise WrongUse(
                f"run {self.id}: there is no model and no tool to drive it with here; detach() leaves it"
            )
        if self._background is None or (self._background.over and self._inbox):
            self._background = Background(self._drive)
        return self._background

    async def _drive(self) -> None:
        goes_on = True
        try:
            async with pace().joined():
                while goes_on:
                    async with self._engaged(self._resumed, self._runtime.lease) as loop:
                        await loop.drive()
                        journal = loop.journal
                        self._result = result_of(loop.state, journal.contents, journal.conversation.messages)
                    goes_on = bool(self._inbox)  # it was brought while the run was given back
        except BaseException:
            self._forget()
            raise
        finally:
            self._audience.close()

    async def _leave(self) -> None:
        goes_on = True
        try:
            while goes_on:
                async with self._engaged(partial(self._resumed, unattended=True), BRIEF) as loop:
                    await loop.leave()
                    # Who goes on attends to the run, and not with a loop that only writes down.
                    self._state, self._loop = self.state, None
                goes_on = bool(self._inbox)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """What is on disk may be more, or less, than what was believed: who goes on reads it again."""
        self._state, self._loop, self._answered, self._result = self.state, None, None, None

    @asynccontextmanager
    async def _engaged(self, resumed: Maker, lease: float) -> AsyncGenerator[Driver]:
        """The loop, under a lease that is renewed meanwhile.

        An engine that stops half-way leaves its run to others.
        """
        async with opened(self._runtime.store) as store:
            # By force but once: who took the run on since then has it rightly.
            force, self._take_over = self._take_over, False
            async with (
                Tenure(store, self.id, lease, take_over=force) as tenure,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(tenure.keep)
                loop = await self._taken_up(store, tenure, resumed)
                yield loop
                await wake_parent(store, loop.state)
                if loop.state.ended and any(tool.agent for tool in loop.state.setup.tools):
                    await tenure.up_to_date()  # its children woke it when they ended
                tenure.due = loop.due
                tasks.cancel_scope.cancel()

    async def _taken_up(self, store: Store, tenure: Tenure, resumed: Maker) -> Driver:
        """The loop where the log ends: a new run's first fact, or an old one's next, is queued."""
        runtime = self._runtime
        if self._loop is not None:
            return await self._gone_on(self._loop, store, tenure)
        journal, first = Journal(store, self.id, tenure), list[Maker]()
        if self._opening is not None:
            state, first = await self._opening(journal)
        else:
            state = await self._read(journal)
            runtime.check(state)
        self._set_machine(state)
        runtime.world.clock.start(state.at)
        resumes = resumed if runtime.resumes else None
        loop = self._loop = Driver(state, journal, runtime, self._audience, self._late, resumes)
        loop.introduced = self._opening is not None  # by the fact with which it begins
        goes_on = not state.ended and (state.asked_at is None or self._inbox)
        if self._opening is None and goes_on:
            loop.resume()
        self._opening = None
        for make in first:
            loop.put(make)
        self._hand_over(loop)
        return loop

    def _hand_over(self, loop: Driver) -> None:
        """Queue what was brought while no loop went on."""
        for make in self._inbox:
            loop.put(make)
        self._inbox.clear()

    async def _read(self, journal: Journal) -> RunState:
        # A lease would make a run of any id, so an unknown one must not get that far.
        if not (await journal.store.head(self.id)).seq:
            raise UnknownRun(self.id)
        await refuse_imported(journal.store, self.id)
        await journal.tenure.hold()
        return await journal.load(self._runtime.registry)

    async def _gone_on(self, loop: Driver, store: Store, tenure: Tenure) -> Driver:
        """The loop of before; while it waited for a person, another engine may have had the run."""
        loop.journal.store, loop.journal.tenure = store, tenure
        await tenure.hold()
        if (await store.head(self.id)).seq != loop.state.seq:
            loop.state = await loop.journal.load(self._runtime.registry)
            self._set_machine(loop.state)
            loop.resume()  # what was begun there, no handle is held here
        self._hand_over(loop)
        return loop

    def _resumed(self, state: RunState, at: int, salt: bytes, *, unattended: bool = False) -> ev.Fact:  # noqa: ARG002
        tools = self._runtime.world.tools
        return ev.RunResumed(
            at=at,
            worker=this_process(),
            in_doubt=doubtful(state),
            changed=tuple(
                tool.name
                for tool in state.setup.tools
                if tool.name in tools and tools[tool.name].manifest.digest != tool.digest
            ),
            downtime=at - state.at,
            versions=versions(),
            unattended=unattended,
        )

    def _late(self, make: LateMaker) -> None:
        aside(partial(keep_late, self._runtime, self.id, make))

    def _set_machine(self, state: RunState) -> None:
        if self._live is not None:
            self._live.machine.set_state(str(state.agent_state))
