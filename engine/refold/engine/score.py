"""The score of a replay: the recorded facts in order, their instants, and the world that plays them.

See `refold.engine.playback`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable

import anyio
import anyio.lowlevel

from refold.engine.clock import Maker, Stopwatch, recorded
from refold.engine.models.protocol import ModelRequest
from refold.engine.models.script import Ended, RecordedModel
from refold.engine.run import Run
from refold.engine.service import serve
from refold.engine.tasks import Background
from refold.engine.tools.protocol import Tool
from refold.engine.updates import Recorded
from refold.engine.world import Work
from refold.reducers import events as ev
from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool
from refold.reducers.errors import MissingFact
from refold.reducers.vocabulary import ToolError

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

_IDLE = 100  # looks at a run that stopped, until one that never continues is given up


class Watcher:
    """Observes a replay. Each method may raise, which ends the replay with that error."""

    def recorded(self, seq: int, event: ev.Event) -> None:
        """The replay recorded an event."""

    def requested(self, request: ModelRequest) -> None:
        """The replay sends a request, which will get the next recorded response."""

    def answered(self, *, given: bool) -> None:
        """The operator answered after the last recorded fact (`given`), or did not answer before it."""

    def returned(self, recorded: ev.ToolReturned, live: ev.ToolReturned) -> None:
        """A live tool returned; the replay continues with the recorded result."""


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

    def __init__(
        self,
        opening: ev.RunStarted,
        facts: Sequence[ev.Fact],
        salts: Sequence[bytes],
        tools: Mapping[str, Tool],
    ) -> None:
        self.tools = tools
        self._facts, self._salts = facts, salts
        self._watcher = Watcher()
        self.model = _Prompted(opening.run, opening.model, ())
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
            idle = 0
            while self.left:
                place = self._place
                async with run:
                    async for update in run.updates():
                        if isinstance(update, Recorded):
                            watcher.recorded(update.seq, update.event)
                await anyio.lowlevel.checkpoint()
                if self.operator is not None and not run.state.ended:
                    answered = self.operator(run)
                    if isawaitable(answered):
                        await answered
                    if run.has_input is (self._place == len(self._facts)):
                        watcher.answered(given=run.has_input)
                idle = 0 if self._place > place else idle + 1
                if idle > _IDLE:
                    raise MissingFact(run.id, f"the run stops before recorded fact {self._place + 1}")
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
