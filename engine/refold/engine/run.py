"""Runs: await the result, read updates, cancel, answer."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, cast

import anyio

from refold.engine.arguments import Answers, NotWaiting, opened, refuse_message, split_answers
from refold.engine.clock import LateMaker, Maker, recorded
from refold.engine.fork import keep_late
from refold.engine.journal import Journal, refuse_imported
from refold.engine.loop import Driver
from refold.engine.result import RunResult, WaitingCall, result_of
from refold.engine.runtime import Opening, Runtime, altered, versions, wake_parent
from refold.engine.tasks import Background, aside, pace
from refold.engine.tenure import BRIEF, Grant, Tenure, this_process
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


class Run:
    """A live run. It begins with the first `result()`, `updates()` or `async with`.

    `state` is the state on disk. `machine` is a `transitions` machine that follows it, for callbacks. If
    `result()` is cancelled, or an `async with` block exits early, the engine stops as in a crash: the log
    stays intact, and `Agent.resume` continues it.
    """

    def __init__(
        self, run: str, runtime: Runtime, opening: Opening | None, *, take_over: bool = False
    ) -> None:
        self.id = run
        self._take_over, self._pausing = take_over, False
        self._grant: Grant | None = None
        self._runtime, self._opening = runtime, opening
        self._live: LiveAgent | None = None  # created on first use of `machine`
        self._inbox: list[Maker] = []
        self._audience = Audience()
        self._background: Background | None = None
        self._loop: Driver | None = None
        self._state = NEW
        self._answered: tuple[str, int] | None = None  # the question whose answer is queued
        self._result: RunResult | None = None

    @property
    def state(self) -> RunState:
        """The state on disk."""
        return self._loop.state if self._loop else self._state

    @property
    def pending(self) -> tuple[WaitingCall, ...]:
        """The calls that wait for an operator, once `result()` returned."""
        return self._result.pending if self._result else ()

    @property
    def has_input(self) -> bool:
        """Whether answers or messages are queued that are not recorded yet."""
        return bool(self._inbox)

    @property
    def machine(self) -> "Machine":
        """The live state machine: `run.machine.on_enter_COMPLETED(callback)`."""
        if self._live is None:
            # Imported here: few runs have callbacks, and `transitions` takes milliseconds to load.
            from refold.engine.updates import LiveAgent

            self._live = LiveAgent()
            self._live.machine.set_state(str(self.state.agent_state))
            self._audience.add(self._live)
        return self._live.machine

    @property
    def children(self) -> Mapping[str, "Run"]:
        """Active child runs by id, to watch, answer or cancel."""
        return cast("dict[str, Run]", dict(self._loop.children)) if self._loop else {}

    def adopt(self, grant: Grant) -> None:
        """Use a lease that was granted already, once. Call it before anything is awaited."""
        self._grant = grant

    async def result(self) -> RunResult:
        """Wait until the run ends or waits for an operator, and return its result.

        Raises what stops an engine: `StoreUnavailable`, `Held` and `LeaseLost` (another engine has the run),
        `Damaged`, `WrongUse`. Events recorded before the error are on disk.
        """
        await self._ensure_loop().join()
        if self._result is None:
            raise WrongUse(f"the engine of run {self.id} was stopped; continue: agent.resume({self.id!r})")
        return self._result

    async def detach(self) -> str:
        """Record the run's beginning or queued input, leave the rest to a worker, and return the run's id.

        Needs no model and no tools. Raises as `result`, and `WrongUse` if there is nothing to record.
        """
        if self._background is not None or (self._opening is None and not self._inbox):
            raise WrongUse(f"run {self.id}: nothing to record, or this engine drives it already")
        self._background = Background(self._leave)
        await self._background.join()
        return self.id

    def updates(self) -> AsyncIterator[Update]:
        """Return an iterator over streamed deltas and recorded events until the run stops.

        Begins the run if needed, and raises what `result()` would. Leaving the loop early does not stop the
        run.
        """
        updates = Updates(self._ensure_loop)
        self._audience.add(updates)
        return updates

    def text(self) -> AsyncIterator[str]:
        """Return an iterator over the streamed text, with an empty line between responses; see `updates`."""
        text = StreamedText(self._ensure_loop)
        self._audience.add(text.updates)
        return text

    def cancel(self, reason: str = "", *, by: str = "user") -> None:
        """Request that the run stop: calls in flight settle, then it is CANCELLED.

        Has no effect on a run that has ended.
        """

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:  # noqa: ARG001
            return composition.cancelled(ev.CancelRequested(at=at, by=by), reason, self._redactor(state))

        self._put(make)

    def pause(self) -> None:
        """Stop between two steps, for another engine to continue, and make `result()` return.

        Calls in flight end, but neither requests nor the calls of a response that arrives meanwhile start.
        """
        self._pausing = True
        if self._loop is not None:
            self._loop.pause()

    def send(self, message: str, *, by: str = "user") -> None:
        """Answer a run that waits for a message; await `result()` again to continue.

        Raises `NotWaiting`, and `WrongUse` for a second answer to the same question.
        """
        if self._loop is not None or self._opening is not None:
            refuse_message(self.id, self.state)
            self._answers("message", self.state.messages)

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:
            refuse_message(self.id, state)  # another answer may have arrived first
            fact = ev.InputReceived(at=at, by=by)
            return composition.received(state, fact, message, salt, self._redactor(state))

        self._put(make)

    def resolve(
        self,
        call: str,
        doubt: Doubt | Literal["happened", "did_not", "unknown"],
        *,
        by: str = "user",
        note: str = "",
    ) -> None:
        """Record how a call with an unknown outcome (in doubt) ended.

        `did_not`: it runs again under the same idempotency key. `happened`: the model receives that the call
        had its effect and its output is lost. `unknown`: the model receives that the outcome is unknown. A
        resumed run may be resolved before it is awaited; `result()` then raises the errors. Raises
        `WrongUse` for an unknown value, and for a call that is not in doubt (the error lists those that are).
        """
        if doubt not in tuple(Doubt):
            raise WrongUse(f"call {call}: expected one of {', '.join(Doubt)}, got {doubt!r}")
        known = Doubt(doubt)

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:  # noqa: ARG001
            fact = ev.DoubtResolved(at=at, call=call, doubt=known, by=by)
            return composition.resolved(state, fact, note, self._redactor(state))

        if self._loop is not None:
            make(self.state, self.state.at, b"")  # raises for a wrong call now rather than later
            self._answers(f"doubt:{call}", self.state.seq)
        self._put(make)

    def answer(self, answers: Answers, *, by: str = "user", note: str = "") -> None:
        """Answer a run that waits for approval of calls: one answer by call id, and a note.

        Answers are `approve`, `reject`, `escalate` (to the next approver), `terminate` (the whole run), or
        `("edit", arguments)` with a mapping or JSON text to run the call with these arguments. Calls without
        an answer are requested again. An answer after the deadline has no effect. A resumed run may be
        answered before it is awaited; `result()` then raises the errors.

        Raises `NotWaiting`, and `WrongUse` for a second answer to one question, for a call that does not wait
        for approval, and for new arguments that are not a JSON object.
        """
        words, arguments = split_answers(answers)

        def make(state: RunState, at: int, salt: bytes) -> ev.Fact:
            fact = ev.ApprovalAnswered(at=at, by=by)
            return approved(state, fact, words, arguments, note, salt, self._redactor(state))

        if self._loop is not None or self._opening is not None:
            asked = self.state.approval
            if asked is None:
                raise NotWaiting(self.id, self.state.agent_state, "an answer about calls")
            make(self.state, self.state.at, b"")  # raises for wrong answers now rather than later
            self._answers("approval", asked.seq)
        self._put(make)

    def put(self, fact: ev.Fact) -> None:
        """Queue a fact unchanged: for replays and importers."""
        self._put(recorded(fact))

    def with_runtime(
        self, change: Callable[[Runtime], Runtime], start: Callable[[ev.Fact], ev.Fact] | None = None
    ) -> "Run":
        """Return this run, which has not begun, in another environment: for replays and tests.

        `start` changes the fact that begins it.
        """
        opening = self._opening
        if start is not None and opening is not None:
            opening = altered(opening, start)
        return Run(self.id, change(self._runtime), opening, take_over=self._take_over)

    async def __aenter__(self) -> Self:
        self._ensure_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._background is not None:
            await self._background.stop()

    def _answers(self, kind: str, number: int) -> None:
        if self._answered == (kind, number):
            raise WrongUse(f"run {self.id} has an answer already; await result() before the next answer")
        self._answered = (kind, number)

    def _redactor(self, state: RunState) -> Redactor:
        return self._runtime.world.redactor_of(state)

    def _put(self, make: Maker) -> None:
        if self._loop is not None and self._loop.driving:
            self._loop.put(make)
        else:
            self._inbox.append(make)

    def _ensure_loop(self) -> Background:
        if not self._runtime.driven:
            raise WrongUse(
                f"run {self.id} was opened without model and tools and cannot be driven here; use detach()"
            )
        if self._background is None or (self._background.over and self._inbox):
            self._background = Background(self._drive)
        return self._background

    async def _drive(self) -> None:
        continues = True
        try:
            async with pace().joined():
                while continues:
                    async with self._engage(self._make_resumption, self._runtime.lease) as loop:
                        await loop.drive()
                        journal = loop.journal
                        self._result = result_of(loop.state, journal.contents, journal.conversation.messages)
                    continues = bool(self._inbox)  # input that arrived while the lease was released
        except BaseException:
            self._forget()
            raise
        finally:
            self._audience.close()

    async def _leave(self) -> None:
        continues = True
        try:
            while continues:
                async with self._engage(partial(self._make_resumption, unattended=True), BRIEF) as loop:
                    await loop.leave()
                    # This loop only records; a later `result()` needs one that drives.
                    self._state, self._loop = self.state, None
                continues = bool(self._inbox)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Forget the loop after an error: the log may differ from its state, so the next loop loads it."""
        self._state, self._loop, self._answered, self._result = self.state, None, None, None

    @asynccontextmanager
    async def _engage(self, resumed: Maker, lease: float) -> AsyncGenerator[Driver]:
        """Yield the loop, under a lease that is renewed until the block exits.

        If the engine stops before the end, other engines can take over the run.
        """
        async with opened(self._runtime.store) as store:
            # Force only once: an engine that took the run over since then holds it rightly.
            force, self._take_over = self._take_over, False
            grant, self._grant = self._grant, None
            patience = lease if lease == BRIEF else 0.0  # a worker may hold the run only to look at it
            async with (
                Tenure(store, self.id, lease, take_over=force, patience=patience, grant=grant) as tenure,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(tenure.keep)
                loop = await self._take_up(store, tenure, resumed)
                yield loop
                await wake_parent(store, loop.state)
                if loop.state.ended and any(tool.agent for tool in loop.state.setup.tools):
                    await tenure.up_to_date()  # children that ended have woken it
                tenure.due = loop.due
                tasks.cancel_scope.cancel()

    async def _take_up(self, store: Store, tenure: Tenure, resumed: Maker) -> Driver:
        """Load or continue the loop, and queue a new run's first fact or an old one's resumption."""
        runtime = self._runtime
        if self._loop is not None:
            return await self._continue(self._loop, store, tenure)
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
        continues = not state.ended and (state.asked_at is None or self._inbox)
        if self._opening is None and continues:
            loop.resume()
        self._opening = None
        for make in first:
            loop.put(make)
        self._hand_over(loop)
        if self._pausing:
            loop.pause()
        return loop

    def _hand_over(self, loop: Driver) -> None:
        """Queue the input that arrived while no loop ran."""
        for make in self._inbox:
            loop.put(make)
        self._inbox.clear()

    async def _read(self, journal: Journal) -> RunState:
        # A lease would create a run under any id, so check that it exists first.
        if not (await journal.store.head(self.id)).seq:
            raise UnknownRun(self.id)
        await refuse_imported(journal.store, self.id)
        await journal.tenure.hold()
        return await journal.load(self._runtime.registry)

    async def _continue(self, loop: Driver, store: Store, tenure: Tenure) -> Driver:
        """Continue the previous loop; another engine may have had the run while it waited."""
        loop.journal.store, loop.journal.tenure = store, tenure
        await tenure.hold()
        if await store.head(self.id) != loop.journal.head:
            loop.state = await loop.journal.load(self._runtime.registry)
            self._set_machine(loop.state)
            loop.resume()  # calls started by the other engine have no task here
        self._hand_over(loop)
        return loop

    def _make_resumption(self, state: RunState, at: int, salt: bytes, *, unattended: bool = False) -> ev.Fact:  # noqa: ARG002
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
