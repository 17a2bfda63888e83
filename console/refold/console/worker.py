"""`refold worker` and `refold fork`."""

import gc
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio

from refold.console import addresses, locations
from refold.console.agents import choose_tools, follow, leave, model_options, recorded_options
from refold.console.locations import StorePlace, changing, read_text_argument, writing
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
from refold.console.screen import Screen, note
from refold.console.watchers import INTERRUPTED, run_with_signals
from refold.console.worker_news import WorkerReport
from refold.engine import Agent, Model, Worker
from refold.engine.compatibility import address_of, installed_guards, refuse_other_model
from refold.engine.policy_files import load_policy
from refold.engine.worker import DRAIN_SECONDS, News
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.replay import figures, state_at
from refold.replay.cuts import Suits, accepts_message, cut, cut_from, have_calls, request_of
from refold.store.protocol import LEASE_SECONDS, Store

if TYPE_CHECKING:
    from refold.console.worker_service import WorkerService


class Signals:
    """Handles signals: the first one drains the worker, a second one ends the process."""

    def __init__(self, worker: Worker, seconds: float) -> None:
        self._worker, self._seconds = worker, seconds
        self.first: signal.Signals | None = None

    def __call__(self, heard: signal.Signals) -> None:
        """Handle one signal."""
        if self.first is not None:
            os._exit(128 + heard)
        self.first = heard
        left = (
            f"calls in progress have {self._seconds:g} s to end" if self._seconds else "calls are cancelled"
        )
        note(f"stopping: takes no new run; {left}; a second signal ends at once")
        self._worker.drain(self._seconds)


async def worker_command(
    screen: Screen,
    place: StorePlace,
    means: DriveOptions,
    *,
    concurrency: Annotated[
        int, option("--concurrency", "Drive at most this many runs at a time.", min=1)
    ] = 8,
    drain: Annotated[
        float,
        option("--drain", "Seconds in which calls in progress may end after a signal to stop.", min=0),
    ] = DRAIN_SECONDS,
    lease: Annotated[
        float,
        option("--lease", "Seconds until other workers take over the runs of a dead worker.", min=0.5),
    ] = LEASE_SECONDS,
    listen: Annotated[
        str | None,
        option(
            "--listen",
            "Serve /healthz, /readyz and /metrics there, without authentication.",
            metavar="[HOST:]PORT",
            shows="off; without HOST, for this machine only",
        ),
    ] = None,
    until_idle: Annotated[
        bool, option("--until-idle", "End when no run is runnable; exit code 1 if some could not be driven.")
    ] = False,
) -> int:
    """Drive the runnable runs of the store (queued, abandoned or answered), until it is stopped.

    Prints a line for each run that is taken, put down or left. After SIGTERM or Ctrl-C it starts nothing
    new, and leaves its runs to other workers when the calls in progress have ended.

    Example: refold worker --root . --concurrency 4

    With -o json: JSON lines. Exit code 0 after SIGTERM, 130 after Ctrl-C; after a second signal 143 or 130.
    """
    follow(os.environ)
    if means.tools:
        choose_tools(means.tools, means.root)  # report invalid options now, instead of once per run
    service = None if listen is None else _service(listen)
    async with AsyncExitStack() as stack:
        models = Models(stack)
        # Workers may be deployed before the first run: an empty database gets its tables. A file must exist,
        # because a mistyped path would be another store.
        opening = writing if place.file is None else changing
        store = await stack.enter_async_context(opening(place))
        stop = anyio.CancelScope()
        report = WorkerReport(screen, stop)
        worker = Worker(
            store if service is None else service.metrics.observed(store),
            lambda state: _agent(state, models, means),
            concurrency=concurrency,
            lease=lease,
            tell=report if service is None else _both(service.metrics.take, report),
        )
        signals = Signals(worker, drain)
        if service is not None:
            await stack.enter_async_context(service.running(worker, store))
            note(f"health checks and metrics: {service.url}/healthz, /readyz and /metrics")
        gc.freeze()  # modules stay in memory: collecting them again would pause every run
        stack.callback(gc.unfreeze)

        async def work() -> None:
            note(
                f"process {os.getpid()} takes runs from {place.shown}, up to {concurrency} at a time; Ctrl-C stops it"
            )
            with stop:
                await worker.run(until_idle=until_idle)

        await run_with_signals(work, signals, signal.SIGINT, signal.SIGTERM)
    if report.closed is not None:
        raise report.closed
    return _code(signals.first) if signals.first is not None else int(until_idle and report.failures > 0)


def _service(listen: str) -> "WorkerService":
    # Imported here: a worker without it needs neither an HTTP server nor the library for metrics.
    from refold.console.worker_service import WorkerService

    return WorkerService(listen)


def _both(first: Callable[[News], None], second: Callable[[News], None]) -> Callable[[News], None]:
    def tell(news: News) -> None:
        first(news)
        second(news)

    return tell


def _agent(state: RunState, models: Models, means: DriveOptions) -> Agent:
    setup = state.setup
    # One worker drives runs of many models: address and price are for runs that were started with one.
    at = model_options(means, setup.model, setup.price) if setup.address else recorded_options(setup.price)
    return agent_of(state, models, restore_tools(state, means), at)


def _code(heard: signal.Signals) -> int:
    return INTERRUPTED if heard is signal.SIGINT else 0


async def fork_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    means: MeansOrWorker,
    *,
    say: Annotated[str, option("--say", "A message to the model before it continues.")] = "",
    edit: Annotated[
        list[str], option("--edit", "CALL=TEXT, CALL=@FILE or CALL=- (stdin): replace the result of a call.")
    ],
    by: By,
    policy: PolicyFile = None,
    model: Annotated[str | None, option("--model", "Another model, provider:model.")] = None,
    label: Labels,
) -> int:
    """Start a new run that continues RUN from an event or turn, by default from the last possible place.

    RUN is not changed. Model, policy and tools are those of RUN unless given. Output as `run`.

    Example: refold fork RUN@t7 --say "Try the other file."
    """
    edits, labels = edits_of(edit), labels_of(label)
    follow(os.environ)
    async with locations.reading(place) as store:
        parent, at = await _cut_point(
            store, run, have_calls(frozenset(edits)) if edits else accepts_message if say else _anywhere
        )
        state, _ = await state_at(store, parent, at, installed_guards())
    async with AsyncExitStack() as stack:
        agent = _agent_of_fork(state, Models(stack), means, model, policy)
        store = await stack.enter_async_context(locations.writing(place))
        fork = agent.fork(parent, at, say=say, results=edits, by=by, labels=labels, store=store)
        note(f"run {fork.id} continues run {parent} from event {figures.count(at)}")
        return await (leave if means.detach else stay)(screen, place, fork, means.typed)


def edits_of(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `CALL=TEXT`, `CALL=@FILE` and `CALL=-` into results by call. Raises `WrongUse`."""
    texts = split_pairs(pairs, "--edit", "CALL=TEXT, CALL=@FILE or CALL=-, each call once")
    return {call: read_text_argument(text, "--edit") for call, text in texts}


async def _cut_point(store: Store, typed: str, suits: Suits) -> tuple[str, int]:
    """Return the run, and the event after which it is cut: as typed, or the last place possible for this
    fork.
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
        refuse_other_model(state, model)  # send the conversation to another address only on request
    # A fork ignores environment variables: it has its parent's settings, and those that are typed.
    policy = None if file is None else load_policy(file, installed_guards(), {})[0]
    tools = choose_tools(means.tools, means.root) if means.tools else restore_tools(state, means)
    agent = Agent(model=model, tools=tools, policy=policy, name=state.setup.agent)
    add_fallbacks(agent, policy or state.policy, models)
    return agent


def _model(state: RunState, models: Models, means: DriveOptions, chosen: str | None) -> Model:
    name, setup = chosen or state.setup.model, state.setup
    try:
        model = models.get(name, model_options(means, name, "" if chosen else setup.price))
        # The recorded price applies only to the recorded address.
        elsewhere = means.price is None and address_of(model) != setup.address
        return models.get(name, model_options(means, name)) if elsewhere else model
    except WrongUse as error:
        if chosen is not None:
            raise
        raise WrongUse(f"{error}; this is the run's own model: name another with --model") from error
