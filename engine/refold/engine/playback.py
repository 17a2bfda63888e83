"""Deterministic playback of a recorded run through the live engine, without model, tools or real clock.

`Recording.read` loads a log into memory. `model()` and `tools()` return mocks for tests that keep one of them
real. `play()` takes every fact from the log, in order and at its instant, and lets the engine decide again.
The result equals the recorded log byte by byte, or `play()` reports the first event that differs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from refold.engine.arguments import StoreSource
from refold.engine.clock import recorded
from refold.engine.conversation import Conversation
from refold.engine.journal import event_of
from refold.engine.models.protocol import ModelRequest
from refold.engine.models.script import Ended, RecordedModel
from refold.engine.run import Run
from refold.engine.runtime import Runtime, anew
from refold.engine.score import Score, Watcher
from refold.engine.tools.protocol import RecordedTools, Tool
from refold.engine.world import World
from refold.reducers import events as ev
from refold.reducers.errors import MissingFact, RefoldError
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.store.protocol import Store, UnknownRun


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


def _without_annotations(events: Sequence[tuple[ev.Event, bytes]]) -> list[tuple[ev.Event, bytes]]:
    """Return the events that a replay records again, numbered anew.

    Annotations, such as results that came too late, land in a log by chance and have no effect.
    """
    numbers: dict[int, int] = {}
    kept: list[tuple[ev.Event, bytes]] = []
    for seq, (event, salt) in enumerate(events, start=1):
        if isinstance(event, ev.Annotation):
            continue
        numbers[seq] = len(kept) + 1
        if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned):
            event = replace(event, request=numbers.get(event.request, event.request))  # noqa: PLW2901
        kept.append((event, salt))
    return kept


class Recording:
    """A run's facts in order, each with its salt, and its requests."""

    def __init__(
        self, run: str, events: Sequence[tuple[ev.Event, bytes]], registry: Registry = BUILTIN
    ) -> None:
        self.run, self.registry = run, registry
        events = _without_annotations(events)
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
        score = self._score({tool.name: tool for tool in self.tools().tools})
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
        # A live child agent would ask its model; its run is compared with its own recording.
        score = self._score(
            {
                each.name: tools[each.name] if live_tools and not each.manifest.agent else each
                for each in results.tools
            }
        )
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

    def _score(self, tools: Mapping[str, Tool]) -> Score:
        return Score(self.opening, self.facts, self.salts, tools)

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
