"""`refold worker` and `refold fork`: driving runs that nobody drives."""

import gc
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec

from refold.console import addresses, locations
from refold.console.agents import choose_tools, follow, leave, model_options, recorded_options
from refold.console.descriptions import standing_of
from refold.console.locations import StorePlace, changing, read_text_argument
from refold.console.options import (
    Address,
    By,
    DriveOptions,
    Labels,
    MeansOrWorker,
    PolicyFile,
    labels_of,
    option,
    split_pairs,
)
from refold.console.run import Models, add_fallbacks, agent_of, restore_tools, stay
from refold.console.screen import OutputClosed, Screen, note
from refold.console.watchers import INTERRUPTED, while_heard
from refold.engine import Agent, Model, Worker
from refold.engine.compatibility import address_of, installed_guards, refuse_other_model
from refold.engine.policy_files import load_policy
from refold.engine.worker import PASSED_BY, Failed, News, PutDown, TakenUp
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.reducers.vocabulary import nano
from refold.replay import figures, state_at
from refold.replay.cuts import Suits, awaits, cut, cut_from, hears, request_of
from refold.store.protocol import LEASE_SECONDS, Store


class NewsLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker did with a run, as a line of JSON. `at` is nanoseconds since the epoch.

    Of one that was taken up, `events` counts its log; of one that was put down, `state`, `code` and `reason`
    say how it ended or what it waits for; of one that failed or was lost, `problem` says why, and `again` is
    the seconds after which a worker tries it again.
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


class WorkerReport:
    """Tells what a worker does, a line each.

    Once they cannot be written, `closed` is set and `stop` is cancelled.
    """

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
    means: DriveOptions,
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

    A line for each that is taken up, put down, failed or lost. With -o json: JSON lines. Exit code 0 after
    SIGTERM.
    """
    follow(os.environ)
    if means.tools:
        choose_tools(means.tools, means.root)  # what cannot work is told now, and not once a run
    async with AsyncExitStack() as stack:
        models = Models(stack)
        store = await stack.enter_async_context(changing(place))
        stop = anyio.CancelScope()
        teller, signals = WorkerReport(screen, stop), Signals(stop)
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


def _agent(state: RunState, models: Models, means: DriveOptions) -> Agent:
    setup = state.setup
    # One worker drives runs of many models: its address, and what it costs there, is for those that had one.
    at = model_options(means, setup.model, setup.price) if setup.address else recorded_options(setup.price)
    return agent_of(state, models, restore_tools(state, means), at)


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


async def fork_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    means: MeansOrWorker,
    *,
    say: Annotated[str, option("--say", "A message to the model, before it goes on.")] = "",
    edit: Annotated[
        list[str], option("--edit", "CALL=TEXT, CALL=@FILE or CALL=- (stdin): the result of a call, made up.")
    ],
    by: By,
    policy: PolicyFile = None,
    model: Annotated[str | None, option("--model", "Another model, provider:model.")] = None,
    label: Labels,
) -> int:
    """Start a new run that goes on from event or turn of RUN, by default from the last place that can be. RUN
    stays as it is.

    What is not given is as it was in RUN: policy, model, tools. Output as `run`.
    """
    edits, labels = edits_of(edit), labels_of(label)
    follow(os.environ)
    async with locations.reading(place) as store:
        parent, at = await _cut_point(
            store, run, awaits(frozenset(edits)) if edits else hears if say else _anywhere
        )
        state, _ = await state_at(store, parent, at, installed_guards())
    async with AsyncExitStack() as stack:
        agent = _agent_of_fork(state, Models(stack), means, model, policy)
        store = await stack.enter_async_context(locations.writing(place))
        fork = agent.fork(parent, at, say=say, results=edits, by=by, labels=labels, store=store)
        note(f"run {fork.id} goes on from event {figures.count(at)} of run {parent}")
        return await (leave if means.detach else stay)(screen, place, fork, means.typed)


def edits_of(pairs: Sequence[str]) -> dict[str, str]:
    """`CALL=TEXT`, `CALL=@FILE` and `CALL=-` as results by call. Raises `WrongUse`."""
    texts = split_pairs(pairs, "--edit", "CALL=TEXT, CALL=@FILE or CALL=-, each call once")
    return {call: read_text_argument(text, "--edit") for call, text in texts}


async def _cut_point(store: Store, typed: str, suits: Suits) -> tuple[str, int]:
    """The run, and the event after which it is cut: what was typed, or the last place at which the fork can
    be.
    """
    address = addresses.parse(typed)
    run = await addresses.resolve_id(store, address.run)
    if address.turn is not None:
        return run, await cut_from(store, run, await request_of(store, run, address.turn))
    return run, await cut(store, run, address.event, suits)


def _anywhere(state: RunState) -> bool:  # noqa: ARG001
    return True


def _agent_of_fork(
    state: RunState, models: Models, means: DriveOptions, name: str | None, file: Path | None
) -> Agent:
    model = _model(state, models, means, name)
    if name is None and means.base_url is None:
        refuse_other_model(state, model)  # what was said goes nowhere else unless that is asked for
    # The environment is for runs that begin: a fork has what its parent had, but for what is typed.
    policy = None if file is None else load_policy(file, installed_guards(), {})[0]
    tools = choose_tools(means.tools, means.root) if means.tools else restore_tools(state, means)
    agent = Agent(model=model, tools=tools, policy=policy, name=state.setup.agent)
    add_fallbacks(agent, policy or state.policy, models)
    return agent


def _model(state: RunState, models: Models, means: DriveOptions, chosen: str | None) -> Model:
    name, setup = chosen or state.setup.model, state.setup
    try:
        model = models.get(name, model_options(means, name, "" if chosen else setup.price))
        # What it costs there says nothing of what it costs elsewhere.
        elsewhere = means.price is None and address_of(model) != setup.address
        return models.get(name, model_options(means, name)) if elsewhere else model
    except WrongUse as error:
        if chosen is not None:
            raise
        raise WrongUse(f"{error}; this is the run's own model: name another by --model") from error
