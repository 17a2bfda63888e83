"""`refold worker`: drives the runs of a store that want an engine, each as `refold resume` would."""

import gc
import os
import signal
import time
from contextlib import AsyncExitStack
from typing import Annotated, Literal

import anyio
import msgspec

from refold.console.interrupts import INTERRUPTED, while_heard
from refold.console.log_lines import follow
from refold.console.next_steps import standing_of
from refold.console.options import Means, option
from refold.console.places import StorePlace, changing
from refold.console.run import Models, agent_of, offered_tools
from refold.console.screen import OutputClosed, Screen, note
from refold.console.served import recorded, served
from refold.console.toolbox import chosen_tools
from refold.engine import Agent, Worker
from refold.engine.worker import PASSED_BY, Failed, News, PutDown, TakenUp
from refold.reducers.state import RunState
from refold.reducers.vocabulary import nano
from refold.replay import figures
from refold.store.protocol import LEASE_SECONDS


class NewsLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker did with a run, as a line of JSON. `at` is nanoseconds since the epoch.

    Of one that was taken up, `events` counts its log; of one that was put down, `state`, `code` and `reason` say how
    it ended or what it waits for; of one that failed or was lost, `problem` says why, and `again` is the seconds
    after which a worker tries it again.
    """

    type: Literal["taken_up", "put_down", "failed", "lost"]
    at: int
    run: str
    events: int = 0
    state: str = ""
    code: str = ""
    reason: str = ""
    problem: str = ""
    again: float = 0.0


class Teller:
    """Tells what a worker does, a line each. Once they cannot be written, `closed` is set and `stop` is cancelled."""

    def __init__(self, screen: Screen, stop: anyio.CancelScope) -> None:
        self._screen, self._stop = screen, stop
        self._driving: set[str] = set()
        self.closed: OutputClosed | None = None
        self.failures = 0

    def __call__(self, news: News) -> None:
        """One more."""
        line = _line(news, time.time_ns())
        if line.type == "lost" and line.run not in self._driving:
            return  # it was never ours
        (self._driving.add if line.type == "taken_up" else self._driving.discard)(line.run)
        self.failures += line.type == "failed"
        try:
            if self._screen.json:
                self._screen.document(line)
            else:
                self._screen.say(f"{figures.clock(line.at)}  run {line.run}  {_words(line)}")
        except OutputClosed as error:
            self.closed = error
            self._stop.cancel()


class Signals:
    """Hears that a worker is to stop: the first signal stops it cleanly, a second one ends the process."""

    def __init__(self, stop: anyio.CancelScope) -> None:
        self._stop = stop
        self.first: signal.Signals | None = None

    def __call__(self, heard: signal.Signals) -> None:
        """One more."""
        if self.first is not None:
            os._exit(_code(heard))
        self.first = heard
        note("stopping: every run is left as it stands, for others; once more ends at once")
        self._stop.cancel()


async def worker_command(
    screen: Screen,
    place: StorePlace,
    means: Means,
    *,
    at_once: Annotated[int, option("--at-once", "How many runs side by side.", min=1)] = 8,
    lease: Annotated[
        float,
        option("--lease", "Seconds without a sign of life after which others take a run over.", min=0.5),
    ] = LEASE_SECONDS,
    until_idle: Annotated[
        bool, option("--until-idle", "End when no run is left to drive; 1 if some could not be.")
    ] = False,
) -> int:
    """Drive the runs of the store that want an engine: queued, abandoned or answered ones.

    A line for each that is taken up, put down, failed or lost. With -o json: JSON lines. Exit code 0 after SIGTERM.
    """
    follow(os.environ)
    if means.tools:
        chosen_tools(means.tools, means.root)  # what cannot work is told now, and not once a run
    async with AsyncExitStack() as stack:
        models = Models(stack)
        store = await stack.enter_async_context(changing(place))
        stop = anyio.CancelScope()
        teller, signals = Teller(screen, stop), Signals(stop)
        worker = Worker(
            store, lambda state: _agent(state, models, means), at_once=at_once, lease=lease, tell=teller
        )
        gc.freeze()  # what was imported stays: looking through it again and again would hold up every run
        stack.callback(gc.unfreeze)
        note(f"process {os.getpid()} takes runs from {place.path}, up to {at_once} at once; Ctrl-C stops it")

        async def work() -> None:
            with stop:
                await worker.run(until_idle=until_idle)

        await while_heard(work, signals, signal.SIGINT, signal.SIGTERM)
    if teller.closed is not None:
        raise teller.closed
    return _code(signals.first) if signals.first is not None else int(until_idle and teller.failures > 0)


def _agent(state: RunState, models: Models, means: Means) -> Agent:
    setup = state.setup
    # One worker drives runs of many models: its address, and what it costs there, is for those that had one.
    at = served(means, setup.model, setup.price) if setup.address else recorded(setup.price)
    return agent_of(state, models, offered_tools(state, means), at)


def _code(heard: signal.Signals) -> int:
    return INTERRUPTED if heard is signal.SIGINT else 0


def _line(news: News, at: int) -> NewsLine:
    match news:
        case TakenUp(run=run, events=events):
            return NewsLine(type="taken_up", at=at, run=run, events=events)
        case PutDown(result=result):
            return NewsLine(type="put_down", at=at, **standing_of(result))
        case Failed(run=run, problem=problem, lost=True):
            return NewsLine(type="lost", at=at, run=run, problem=problem)
        case Failed(run=run, problem=problem):
            return NewsLine(type="failed", at=at, run=run, problem=problem, again=PASSED_BY)


def _words(line: NewsLine) -> str:
    match line.type:
        case "taken_up":
            return f"taken up after event {line.events}"
        case "put_down":
            return f"put down, {line.state}: {line.reason} ({line.code})"
        case "failed":
            return f"failed, tried again in {figures.seconds(nano(line.again))}: {line.problem}"
        case "lost":
            return f"lost to another engine: {line.problem}"
