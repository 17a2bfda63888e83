"""`refold run` and `refold resume`."""

import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Annotated

import anyio
import msgspec

from refold.console import addresses, descriptions, locations
from refold.console.agents import (
    ModelOptions,
    choose_tools,
    follow,
    leave,
    model_options,
    rebuild_tools,
    say_and_leave,
    wake,
)
from refold.console.descriptions import doubtful_calls, next_words, standing_of, waits_for
from refold.console.locations import StorePlace, read_text_argument
from refold.console.options import (
    DriveOptions,
    Labels,
    MeansOrWorker,
    PolicyFile,
    WholeRun,
    argument,
    labels_of,
    option,
)
from refold.console.screen import Screen, note
from refold.console.watchers import INTERRUPTED, drive, watcher
from refold.engine import Agent, Model, NotWaiting, Run, RunResult, Tool
from refold.engine.compatibility import installed_guards
from refold.engine.journal import refuse_imported
from refold.engine.policy_files import load_policy
from refold.engine.result import result_of
from refold.reducers.errors import ExternalFailure, WrongUse
from refold.reducers.events import Event
from refold.reducers.limits import LimitHit
from refold.reducers.machine import AgentState
from refold.reducers.overlay import find_ignored_variables
from refold.reducers.policy import Policy
from refold.reducers.state import RunState, Spent
from refold.replay import figures, state_at
from refold.replay.doubts import DoubtfulCall, doubts, is_unresolved


class ResultLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """The last line of `run` and `resume` as JSON: the run's state and totals.

    Costs and durations are in nano units; `doubts` are calls with an unknown outcome.
    """

    run: str
    state: str
    code: str
    reason: str
    provider_error: str
    text: str
    limit: LimitHit | None
    spent: Spent
    events: int
    doubts: tuple[str, ...]
    exit_code: int


async def run_command(
    screen: Screen,
    place: StorePlace,
    task: Annotated[str, argument("The task; @FILE reads a file, - reads stdin.")],
    means: MeansOrWorker,
    *,
    model: Annotated[
        str | None, option("--model", "provider:model; also REFOLD_MODEL.", shows=locations.DEFAULT_MODEL)
    ] = None,
    policy: PolicyFile = None,
    system: Annotated[str | None, option("--system", "System prompt.")] = None,
    label: Labels,
) -> int:
    """Start an agent on TASK and drive it to its end.

    Ctrl-C cancels the run; a second Ctrl-C ends the process, and `refold resume` continues the run.

    Example: refold run "Summarise the notes" --root . --model openai:gpt-5-mini

    With -o json: a line {"type": "recorded", "seq", "event"} per event, and a last line {"type": "result",
    ...}.
    """
    labels, name = labels_of(label), locations.model_name(model)
    task = _task(task)
    environment = locations.environment(model, means.base_url)
    at = model_options(means, name)
    follow(os.environ)
    said, chosen = load_policy(policy, installed_guards(), os.environ)
    for each in find_ignored_variables(os.environ):
        note(f"note: {each}")
    tools = choose_tools(means.tools, means.root)
    asked = at.model(name)
    async with AsyncExitStack() as stack:
        _close_later(stack, asked)
        # Refuse invalid agents before a file is created.
        agent = Agent(model=asked, tools=tools, policy=said, system=system)
        agent.store = await stack.enter_async_context(locations.writing(place))
        run = agent.start(task, labels=labels, environment=(*environment, *chosen))
        return await (leave if means.detach else stay)(screen, place, run, means.typed)


async def resume_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    means: MeansOrWorker,
    *,
    message: Annotated[
        str | None,
        option("--message", "Message to a run that waits for one; @FILE reads a file, - reads stdin."),
    ] = None,
) -> int:
    """Continue a run where its log ends, under its own model and policy. Output as `run`.

    Tools are code and not in the log: give --root and --tools as for `run`.

    Example: refold resume @last --root .
    """
    state, contents = await look(place, run, decides=True)
    if message is not None:
        message = read_text_argument(message, "--message")
        _refuse_message(state)
    elif state.ended or _is_waiting(state):
        note(f"run {state.setup.run} {'has ended' if state.ended else f'waits for {waits_for(state)}'}")
        return await _report_result(
            screen, place, result_of(state, contents), state, means.typed, interrupted=False
        )
    if means.detach:
        if message is None:
            return await wake(screen, place, state, means.typed)
        return await say_and_leave(screen, place, state.setup.run, lambda run: run.send(message), means.typed)
    async with AsyncExitStack() as stack:
        going_on = await take_up(stack, place, state, means)
        if message is not None:
            with descriptions.translate_conflicts(place):
                await going_on.result()  # reads the log; the run still waits for the message
            going_on.send(message)
        return await stay(screen, place, going_on, means.typed)


def _task(typed: str) -> str:
    task = read_text_argument(typed, "TASK")
    if not task.strip():
        raise WrongUse(f"TASK {typed!r} is empty: expected a text, @FILE, or - for stdin")
    return task


def _is_waiting(state: RunState) -> bool:
    return state.agent_state.awaits_operator and not is_overdue(state)


def _refuse_message(state: RunState) -> None:
    run = state.setup.run
    if not state.agent_state.awaits_operator:
        raise NotWaiting(run, state.agent_state)
    calls = state.approval.event.calls if state.approval is not None else doubtful_calls(state)
    if calls:
        what = "approval" if state.approval is not None else "the outcome"
        raise WrongUse(
            f"run {run} waits for {what} of {', '.join(calls)}, not for a message: "
            f"use `refold {next_words(state)[0]}`"
        )


_ANYWHERE = ModelOptions()


class Models:
    """Models by name and address, each created once and closed with `stack`, so that local weights are
    loaded once.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._made: dict[tuple[str, ModelOptions], Model] = {}

    def get(self, name: str, at: ModelOptions = _ANYWHERE) -> Model:
        """Return the model. Raises `WrongUse`, for example for a missing key."""
        if (name, at) not in self._made:
            model = self._made[name, at] = at.model(name)
            _close_later(self._stack, model)
        return self._made[name, at]


async def take_up(stack: AsyncExitStack, place: StorePlace, state: RunState, means: DriveOptions) -> Run:
    """Return the run of this state, to continue it under its own model, policy and tools.

    `stack` closes its resources.
    """
    tools = restore_tools(state, means)
    agent = agent_of(state, Models(stack), tools, model_options(means, state.setup.model, state.setup.price))
    store = await stack.enter_async_context(locations.writing(place))
    return agent.resume(state.setup.run, store=store)


def restore_tools(state: RunState, means: DriveOptions) -> list[Tool]:
    """Return the tools that a run was started with. Raises `WrongUse` with the options to add."""
    return rebuild_tools(state.setup.run, [tool.name for tool in state.setup.tools], means.tools, means.root)


def agent_of(state: RunState, models: Models, tools: list[Tool], at: ModelOptions) -> Agent:
    """Return an agent to continue a run, with its own models.

    Raises `WrongUse` if a model is not available.
    """
    agent = Agent(model=_model(state, models, at), tools=tools, name=state.setup.agent)
    # The run's own policy, from its log, applies: the agent needs only the models that it names.
    add_fallbacks(agent, state.policy, models)
    return agent


def _model(state: RunState, models: Models, at: ModelOptions) -> Model:
    try:
        return models.get(state.setup.model, at)
    except WrongUse as error:
        if at.base_url is not None or not state.setup.address:
            raise
        used = f"run {state.setup.run} used it at {state.setup.address}"
        raise WrongUse(f"{error}; {used}: if that is your own server, add --base-url") from error


def add_fallbacks(agent: Agent, policy: Policy, models: Models) -> None:
    """Add the models that this policy falls back to."""
    fallback = policy.retry.fallback
    agent.models.update({name: models.get(name) for name in (fallback.models if fallback else ())})


def is_overdue(state: RunState) -> bool:
    """Return whether an approval timed out: continuing the run then applies the policy's `on_timeout`."""
    asked = state.approval
    return asked is not None and asked.until is not None and time.time_ns() >= asked.until


def exit_code(state: AgentState, code: str) -> int:
    """Return 0 for COMPLETED, 4 if the provider failed, 1 for every other end and for a run that waits."""
    if state.succeeded:
        return 0
    return ExternalFailure.exit_code if state.failed and code.startswith("provider:") else 1


async def look(place: StorePlace, typed: str, *, decides: bool = False) -> tuple[RunState, dict[int, Event]]:
    """Return the state of the run as typed, and the payloads that it needs.

    `decides`: the caller records a decision, so an imported run is refused. Raises `RunImported`.
    """
    async with locations.reading(place) as store:
        run = await addresses.run_of(store, typed)
        if decides:
            await refuse_imported(store, run)
        return await state_at(store, run, registry=installed_guards())


def _close_later(stack: AsyncExitStack, model: Model) -> None:
    async def close() -> None:
        with anyio.CancelScope(shield=True):
            await model.aclose()

    stack.push_async_callback(close)


async def stay(screen: Screen, place: StorePlace, run: Run, means: str = "") -> int:
    """Watch a run until it ends or waits, print the result, and return the exit code.

    `means`: see `next_words`.
    """
    follow(os.environ)
    watching = watcher(screen, run.id)
    try:
        with screen.redirect_prints():
            result, interrupted = await drive(run, watching, place, means)
    finally:
        watching.close()
    return await _report_result(screen, place, result, run.state, means, interrupted=interrupted)


async def _report_result(
    screen: Screen, place: StorePlace, result: RunResult, state: RunState, means: str, *, interrupted: bool
) -> int:
    code = INTERRUPTED if interrupted else exit_code(result.state, result.outcome.code)
    async with locations.reading(place) as store:
        calls = [call for call in await doubts(store, result.run) if is_unresolved(call)]
    line = ResultLine(
        **standing_of(result),
        provider_error=result.outcome.provider_error,
        text=result.outcome.text,
        limit=result.limit,
        spent=result.spent,
        events=state.seq,
        doubts=tuple(call.call for call in calls),
        exit_code=code,
    )
    screen.result(line, lambda: _tell(screen, place, result, state, means, calls))
    return code


def _tell(
    screen: Screen,
    place: StorePlace,
    result: RunResult,
    state: RunState,
    means: str,
    calls: Sequence[DoubtfulCall],
) -> None:
    screen.say()
    error = f": {result.outcome.provider_error}" if result.outcome.provider_error else ""
    screen.heading(f"{result.state}: {result.outcome.reason} ({result.outcome.code}){error}")
    if result.outcome.source == "fallback":
        screen.say(f"text    {result.outcome.text}")
    if result.limit is not None:
        screen.say(f"limit   {figures.hit(result.limit)}")
    screen.say(f"spent   {', '.join(figures.spent(state))}")
    screen.say(f"run     {result.run}, events 1 to {state.seq}, in {place.shown}")
    if calls and state.ended:
        named = ", ".join(f"{call.call} ({call.tool})" for call in calls)
        screen.say(f"doubts  {named}: outcome unknown")
        note(f"next    refold doubts {result.run}{place.option}")
    for command in next_words(state, means):
        note(f"next    refold {command}{place.option}")
