"""`refold run` and `refold resume`."""

import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec

from refold.console import addresses, figures, places
from refold.console.driving import INTERRUPTED, drive
from refold.console.log_lines import follow
from refold.console.places import Place
from refold.console.policies import chosen_policy
from refold.console.screen import Screen, note
from refold.console.toolbox import chosen_tools, rebuilt_tools
from refold.console.watching import watcher
from refold.engine import Agent, Model, NotWaiting, Run, RunResult, Tool, resolve_model
from refold.engine.guards import installed_guards
from refold.engine.result import result_of
from refold.reducers.errors import WorldFailed, WrongUse
from refold.reducers.events import Event
from refold.reducers.limits import LimitHit
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState, Spent
from refold.replay import state_at
from refold.store.protocol import Store


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person typed after `refold run`."""

    task: str
    model: str
    base_url: str | None = None
    environment: tuple[str, ...] = ()
    policy: Path | None = None
    root: Path | None = None
    tools: str | None = None
    system: str | None = None
    labels: dict[str, str] = {}


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person typed after `refold resume`."""

    run: str
    message: str | None = None
    base_url: str | None = None
    root: Path | None = None
    tools: str | None = None


class ResultLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """The last line of `run` and `resume` as JSON: how the run stands. `cost` and times are nano units."""

    run: str
    state: str
    code: str
    reason: str
    text: str
    limit: LimitHit | None
    spent: Spent
    events: int
    exit_code: int


async def run_command(screen: Screen, place: Place, request: RunRequest) -> int:
    """Start a run and stay with it to its end. The exit code."""
    follow(os.environ)
    registry = installed_guards()
    policy, chosen = chosen_policy(request.policy, registry, os.environ)
    tools = chosen_tools(request.tools, request.root)
    model = resolve_model(request.model, base_url=request.base_url)
    async with AsyncExitStack() as stack:
        _closing(stack, model)
        checking = Agent(
            model=model, tools=tools, policy=policy
        )  # refuses what cannot work before a file is made
        store = await stack.enter_async_context(places.writing(place))
        agent = Agent(model=model, tools=tools, policy=checking.policy, system=request.system, store=store)
        environment = (*request.environment, *chosen)
        run = agent.start(request.task, labels=request.labels, environment=environment)
        return await stay(screen, place, run)


async def resume_command(screen: Screen, place: Place, request: ResumeRequest) -> int:
    """Take a run up where its log ends, or answer one that waits for a person. The exit code."""
    async with AsyncExitStack() as stack:
        state, contents = await look(place, request.run)
        run_id = state.setup.run
        waiting = state.agent_state is AgentState.WAITING_FOR_INPUT and not overdue(state)
        if state.ended or (waiting and request.message is None):
            if request.message is not None:
                raise NotWaiting(run_id, state.agent_state)
            waits = f"waits for {'approval' if state.approval else 'a message'}"
            note(f"run {run_id} {'has ended' if state.ended else waits}")
            return _told(screen, place, result_of(state, contents), state, interrupted=False)
        if request.message is not None and state.agent_state is not AgentState.WAITING_FOR_INPUT:
            raise NotWaiting(run_id, state.agent_state)
        run = await taken_up(stack, place, state, request)
        if request.message is not None:
            await run.result()  # the log is read; nothing happens before somebody answers
            run.send(request.message)
        return await stay(screen, place, run)


async def taken_up(stack: AsyncExitStack, place: Place, state: RunState, request: ResumeRequest) -> Run:
    """The run of this state, to go on with: under its own model, policy and tools. `stack` closes what it needs."""
    names = [tool.name for tool in state.setup.tools]
    tools = rebuilt_tools(state.setup.run, names, request.tools, request.root)
    model = resolve_model(state.setup.model, base_url=places.base_url(request.base_url, state.setup.model))
    _closing(stack, model)
    store = await stack.enter_async_context(places.writing(place))
    return _agent(model, tools, state, store).resume(state.setup.run)


def overdue(state: RunState) -> bool:
    """Whether a person was asked about calls and did not answer in time: going on applies what the policy says."""
    asked = state.approval
    return asked is not None and asked.deadline is not None and time.time_ns() >= asked.deadline


def exit_code(state: AgentState, code: str) -> int:
    """0 for COMPLETED, 4 where the provider failed, 1 for every other way in which a run ends or waits."""
    if state is AgentState.COMPLETED:
        return 0
    return WorldFailed.exit_code if state is AgentState.ERROR and code.startswith("provider:") else 1


def labels_of(pairs: list[str]) -> dict[str, str]:
    """`name=value` texts as labels. Raises `WrongUse`."""
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in labels:
            raise WrongUse(f"--label {pair!r}: expected name=value, each name once")
        labels[name] = value
    return labels


async def look(place: Place, typed: str) -> tuple[RunState, dict[int, Event]]:
    """The state of the run that was typed, and the contents that it needs."""
    async with places.reading(place) as store:
        run = await addresses.run_of(store, typed)
        return await state_at(store, run, registry=installed_guards())


def _agent(model: Model, tools: list[Tool], state: RunState, store: Store) -> Agent:
    # The policy that counts is the run's own, from its log: an agent for resuming needs none.
    return Agent(model=model, tools=tools, store=store, name=state.setup.agent)


def _closing(stack: AsyncExitStack, model: Model) -> None:
    async def close() -> None:
        with anyio.CancelScope(shield=True):
            await model.aclose()

    stack.push_async_callback(close)


async def stay(screen: Screen, place: Place, run: Run) -> int:
    """Watch a run until it ends or waits, and tell how it stands. The exit code."""
    follow(os.environ)
    watching = watcher(screen, run.id)
    try:
        result, interrupted = await drive(run, watching, f"refold resume {run.id}{place.option}")
    finally:
        watching.close()
    return _told(screen, place, result, run.state, interrupted=interrupted)


def _told(screen: Screen, place: Place, result: RunResult, state: RunState, *, interrupted: bool) -> int:
    code = INTERRUPTED if interrupted else exit_code(result.state, result.outcome.code)
    if screen.json:
        screen.document(_line(result, state, code))
        return code
    screen.say()
    screen.heading(f"{result.state}: {result.outcome.reason} ({result.outcome.code})")
    if result.outcome.source == "fallback":
        screen.say(f"says    {result.outcome.text}")
    if result.limit is not None:
        screen.say(f"limit   {figures.hit(result.limit)}")
    screen.say(f"spent   {', '.join(figures.spent(state))}")
    screen.say(f"run     {result.run}, events 1 to {state.seq}, in {place.path}")
    for command in _next(result, state):
        note(f"next    refold {command}{place.option}")
    return code


def _line(result: RunResult, state: RunState, code: int) -> ResultLine:
    return ResultLine(
        run=result.run,
        state=str(result.state),
        code=result.outcome.code,
        reason=result.outcome.reason,
        text=result.outcome.text,
        limit=result.limit,
        spent=result.usage,
        events=state.seq,
        exit_code=code,
    )


def _next(result: RunResult, state: RunState) -> list[str]:
    if state.approval is not None:
        calls = " ".join(state.approval.calls)
        return [f"approvals {result.run}", f"approve {result.run} {calls}", f"reject {result.run} {calls}"]
    if result.state is AgentState.WAITING_FOR_INPUT:
        return [f"resume {result.run} --message TEXT", f"show {result.run}"]
    return [f"show {result.run}", f"audit {result.run}"]
