"""Deterministic playback of a recorded run through the live engine, without model, tools or real clock.

`Recording.read` loads a log into memory. `model()` and `tools()` return mocks for tests that keep one of them
real. `play()` takes every fact from the log, in order and at its instant, and lets the engine decide again.
The result equals the recorded log byte by byte, or `play()` reports the first event that differs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from refold.engine.arguments import StoreSource
from refold.engine.clock import Maker, Stopwatch, recorded
from refold.engine.conversation import Conversation
from refold.engine.journal import event_of
from refold.engine.models.protocol import ModelRequest
from refold.engine.models.script import Ended, RecordedModel
from refold.engine.run import Run
from refold.engine.runtime import Runtime, anew
from refold.engine.service import serve
from refold.engine.tasks import Background
from refold.engine.tools.protocol import RecordedTools, Tool
from refold.engine.updates import Recorded
from refold.engine.world import Work, World
from refold.reducers import events as ev
from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool
from refold.reducers.errors import MissingFact, RefoldError
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import ToolError
from refold.store.protocol import Store, UnknownRun

Handle = int | str
"""What a fact ends: the number of a request event, or the id of a call."""

_FROM_THE_WORLD = (
    ev.RunStarted,
    ev.ModelResponded,
    ev.ModelFailed,
    ev.SummaryReturned,
    ev.ToolReturned,
    ev.ClockRead,
)


class Diverged(RefoldError):
    """A played run differs from its recording, first at event `seq`.

    `fields` names the fields that differ between two events of one kind.
    """

    def __init__(
        self, run: str, seq: int, recorded: str | None, played: str, fields: tuple[str, ...] = ()
    ) -> None:
        super().__init__(run, seq, recorded, played, fields)
        self.run, self.seq, self.recorded, self.played, self.fields = run, seq, recorded, played, fields

    def __str__(self) -> str:
        other = f"; the fields {', '.join(self.fields)} differ" if self.fields else ""
        return (
            f"run {self.run} event {self.seq} diverges: recorded {self.recorded or 'nothing'}, "
            f"played {self.played}{other}"
        )


class Watcher:
    """Observes a replay. Each method may raise, which ends the replay with that error."""

    def recorded(self, seq: int, event: ev.Event) -> None:
        """The replay recorded an event."""

    def requested(self, request: ModelRequest) -> None:
        """The replay sends a request, which will get the next recorded response."""

    def exceeded(self) -> None:
        """The operator gave an answer after the last recorded fact."""

    def returned(self, recorded: ev.ToolReturned, live: ev.ToolReturned) -> None:
        """A live tool returned; the replay continues with the recorded result."""


class Events(Watcher):
    """Compares each event of a replay with the recorded one."""

    def __init__(self, run: str, events: Sequence[ev.Event]) -> None:
        self._run, self._events = run, events

    def recorded(self, seq: int, event: ev.Event) -> None:
        """Raise `Diverged` if the event differs."""
        known = self._events[seq - 1] if seq <= len(self._events) else None
        if event != known:
            was = None if known is None else ev.kind_of(known)
            raise Diverged(self._run, seq, was, ev.kind_of(event), ev.differing(event, known))


class Recording:
    """A run's facts in order, each with its salt, and its requests."""

    def __init__(
        self, run: str, events: Sequence[tuple[ev.Event, bytes]], registry: Registry = BUILTIN
    ) -> None:
        self.run, self.registry = run, registry
        self.facts = [event for event, _ in events if isinstance(event, ev.Fact)]
        self.salts = [salt for event, salt in events if isinstance(event, ev.Fact)]
        opening = self.facts[0] if self.facts else None
        if not isinstance(opening, ev.RunStarted):
            raise MissingFact(run, "a fork cannot be played: its log does not begin with run_started")
        self.opening = opening
        self.events = [event for event, _ in events]
        self._results = {fact.call: fact for fact in self.facts if isinstance(fact, ev.ToolReturned)}

    @classmethod
    async def read(cls, store: Store, run: str, registry: Registry = BUILTIN) -> "Recording":
        """Read a run from a store. Raises `UnknownRun`, and `Damaged` for an unreadable log."""
        events: list[tuple[ev.Event, bytes]] = []
        async for chunk in store.read(run):
            for stored in chunk:
                events.append((event_of(stored), stored.salt))
        if not events:
            raise UnknownRun(run)
        return cls(run, events, registry)

    def model(self) -> RecordedModel:
        """Return a mock of the run's model that responds from the log: for a test with real tools."""
        return RecordedModel(self.run, self.opening.model, self.requests())

    def tools(self) -> RecordedTools:
        """Return mocks of the run's tools that respond from the log: for a test with a real model."""
        return RecordedTools(self.run, self.opening.tools, self._asked_arguments(), self._results)

    async def play(self, into: StoreSource) -> Run:
        """Play the run through the engine into another store; equal facts give an equal log, byte by byte.

        Raises `Diverged` at the first event that differs, and `MissingFact` if the log ends before the run
        does.
        """
        score = Score(self, {tool.name: tool for tool in self.tools().tools})
        runtime = Runtime(
            world=World(model=score.model, tools=score.tools, clock=score),
            serve=score.serve,
            store=into,
            registry=self.registry,
            salts=score.salt,
            check=lambda _: None,
            resumes=False,
        )
        run = Run(self.run, runtime, anew(recorded(self.opening)))
        await score.perform(run, Events(self.run, self.events))
        return run

    async def replay(
        self,
        run: Run,
        into: StoreSource,
        watcher: Watcher,
        *,
        tools: Mapping[str, Tool],
        live_tools: bool = False,
        operator: Callable[[Run], object] | None = None,
    ) -> Run:
        """Drive a run that has not begun by this recording's facts, at their instants, and return it.

        Args:
            run: Today's run of the same task, from `Agent.start`.
            into: The store for its log.
            watcher: Observes its events and requests.
            tools: Today's tools, by name. Without `live_tools`, only their manifests are used.
            live_tools: Call the tools; the watcher gets both results, and the run the recorded one.
            operator: Called whenever the run waits for an operator, instead of the recorded input.

        Raises:
            MissingFact: The run needs a fact that the recording does not contain.
        """
        results = RecordedTools(
            self.run, [tool.manifest for tool in tools.values()], self._asked_arguments(), self._results
        )
        score = Score(self, tools if live_tools else {tool.name: tool for tool in results.tools})
        score.live_tools, score.operator = live_tools, operator

        def play(runtime: Runtime) -> Runtime:
            world = replace(
                runtime.world, model=score.model, models={}, tools=score.tools, clock=score, repeatable=True
            )
            return replace(
                runtime, world=world, serve=score.serve, store=into, salts=score.salt, resumes=False
            )

        def start(fact: ev.Fact) -> ev.Fact:
            assert isinstance(fact, ev.RunStarted)
            kept = self.opening
            return replace(
                fact,
                worker=kept.worker,
                versions=kept.versions,
                parent=kept.parent,
                context=kept.context,  # the model is not asked, and may be unavailable here
            )

        replayed = run.with_runtime(play, start)
        await score.perform(replayed, watcher)
        return replayed

    def requests(self) -> Iterator[tuple[ModelRequest, Ended]]:
        """Yield each request that got a response or failed, with that fact, in order."""
        state: RunState = NEW
        conversation = Conversation()
        seen: dict[int, ev.Event] = {}
        asked: dict[int, ModelRequest] = {}
        for seq, event in enumerate(self.events, start=1):
            seen[seq] = event
            state = evolve(state, event, self.registry)
            if isinstance(event, ev.ModelRequested | ev.SummaryRequested):
                asked = {seq: conversation.request(event, state, seen)}
            elif isinstance(event, Ended) and event.request in asked:
                yield asked[event.request], event

    def _asked_arguments(self) -> dict[str, str]:
        asked: dict[str, str] = {}
        for fact in self.facts:
            if isinstance(fact, ev.ModelResponded) and fact.content is not None:
                ids = (call.id for call in fact.calls)
                asked.update(zip(ids, fact.content.arguments, strict=True))
            elif isinstance(fact, ev.ApprovalAnswered) and fact.content is not None:
                asked.update(fact.content.arguments)  # an approver's arguments replace the model's
        return asked


class _Prompted(RecordedModel):
    """A model that returns the recorded fact it is given, whatever the request."""

    fact: Ended
    watcher: Watcher

    def answer_to(self, request: ModelRequest) -> Ended:
        """Return the recorded response of this turn."""
        self.watcher.requested(request)
        return self.fact


class Score:
    """The order and clock of a recorded run's facts, and the world that plays them.

    `tools` are the tools of the replay; with `live_tools` they are called, and their results compared.
    `operator` answers when the run waits, in place of the recorded answers.
    """

    live_tools = False
    operator: Callable[[Run], object] | None = None

    def __init__(self, recording: Recording, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self._facts, self._salts = recording.facts, recording.salts
        self._watcher = Watcher()
        self.model = _Prompted(recording.run, recording.opening.model, ())
        # The first fact for each handle: every effect looks its own up, and a run may have many.
        self._ends: dict[Handle, Ended | ev.ToolReturned] = {}
        self._readings: dict[int, ev.ClockRead] = {}
        for fact in self._facts:
            if isinstance(fact, Ended):
                self._ends.setdefault(fact.request, fact)
            elif isinstance(fact, ev.ToolReturned):
                self._ends.setdefault(fact.call, fact)
            elif isinstance(fact, ev.ClockRead):
                self._readings.setdefault(fact.due, fact)
        self._place = 0
        self._moved = anyio.Event()

    async def perform(self, run: Run, watcher: Watcher) -> None:
        """Drive the run until no fact is left, and report each of its events to the watcher."""
        self._watcher = self.model.watcher = watcher
        people = Background(partial(self.people, run))
        try:
            while self.left:
                async with run:
                    async for update in run.updates():
                        if isinstance(update, Recorded):
                            watcher.recorded(update.seq, update.event)
                await anyio.lowlevel.checkpoint()
                if self.operator is not None and not run.state.ended:
                    answered = self.operator(run)
                    if isawaitable(answered):
                        await answered
                    if run.has_input and self._place == len(self._facts):
                        watcher.exceeded()
        finally:
            await people.stop()

    @property
    def left(self) -> bool:
        """Whether facts remain."""
        return self._place < len(self._facts)

    def start(self, last: int) -> None:
        """Do nothing: recorded instants need no start."""

    def now(self) -> int:
        """Return the instant of the next recorded fact."""
        return self._facts[min(self._place, len(self._facts) - 1)].at

    def stamp(self) -> int:
        """Return the instant of the next fact, and move to the fact after it."""
        if not self.left:
            raise MissingFact("", "the engine produced more facts than the log has")
        instant = self.now()
        self._place += 1
        self._moved.set()
        self._moved = anyio.Event()
        return instant

    def salt(self, seq: int) -> bytes:  # noqa: ARG002
        """Return the salt of the fact that was stamped last."""
        return self._salts[self._place - 1]

    def stopwatch(self, effect: Effect) -> Stopwatch:
        """Return the recorded duration of the effect."""
        fact = self.fact_of(effect)
        return lambda: fact.duration if fact is not None else 0

    async def sleep_until(self, instant: int) -> None:
        """Wait for the recorded reading of this clock; forever if there is none."""
        fact = self._readings.get(instant)
        if fact is None:
            await anyio.sleep_forever()
        else:
            await self.turn(fact)

    async def serve(self, work: Work) -> tuple[Maker, ...]:
        """Serve an effect in its recorded turn. Raises `MissingFact` if the log lacks the fact that ends it.

        Results of reconcilers, and of calls that were cut off or in doubt, are taken from the log unchanged.
        """
        fact = self.fact_of(work.effect)
        if fact is None:
            call = getattr(work.effect, "call", None)
            what = f"answer to event {work.effect.seq}" if call is None else f"result of call {call}"
            raise MissingFact(work.state.setup.run, f"no recorded {what}")
        made: tuple[Maker, ...] = (recorded(fact),)
        if isinstance(work.effect, Reconcile):
            with work.scope:  # cancelling the effect keeps the fact
                await self.turn(fact)
            return made
        if not isinstance(fact, ev.ToolReturned):
            self.model.fact = fact  # only one request is in flight at a time
            made = await serve(work)
        elif fact.error not in (ToolError.CANCELLED, ToolError.IN_DOUBT):
            made = await self._return(work, fact, await serve(work))
        await self.turn(fact)
        return made

    async def _return(self, work: Work, fact: ev.ToolReturned, made: tuple[Maker, ...]) -> tuple[Maker, ...]:
        """Report the result of a live tool, and return the recorded one in its place."""
        if not self.live_tools:
            return made
        live = made[-1](work.state, fact.at, b"")
        assert isinstance(live, ev.ToolReturned)
        self._watcher.returned(fact, live)
        return (recorded(fact),)

    def fact_of(self, effect: Effect) -> Ended | ev.ToolReturned | None:
        """Return the recorded fact that ends this effect."""
        if isinstance(effect, CallModel):
            return self._ends.get(effect.seq)
        return self._ends.get(effect.call) if isinstance(effect, RunTool | Reconcile) else None

    async def turn(self, fact: ev.Fact) -> None:
        """Wait until this fact is the next."""
        while self.left and self._facts[self._place] is not fact:
            await self._moved.wait()

    async def people(self, run: Run) -> None:
        """Queue, each in its turn, the facts of no effect: cancellations, messages, resumptions, resolutions.

        Consecutive facts are queued together, before effects start.
        """
        together = False
        for fact in self._facts:
            brought = not isinstance(fact, _FROM_THE_WORLD) and not self._is_answered(fact)
            if brought and not together:
                await self.turn(fact)
            if brought:
                run.put(fact)
            together = brought

    def _is_answered(self, fact: ev.Fact) -> bool:
        """Return whether the operator gives this fact instead of the log."""
        return self.operator is not None and isinstance(
            fact, ev.ApprovalAnswered | ev.InputReceived | ev.DoubtResolved | ev.CancelRequested
        )
