"""Recording: run an agent for real, so that the log is the same again if nothing changed."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from inspect import isawaitable
from typing import Any

import anyio
from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.clock import Maker
from refold.engine.run import Run
from refold.engine.runtime import Runtime
from refold.engine.service import serve
from refold.engine.world import Work
from refold.reducers import events as ev
from refold.reducers.effects import RunTool
from refold.reducers.errors import WrongUse
from refold.reducers.secrets import Redactor
from refold.store import open_memory
from refold.store.protocol import Store
from refold.store.recordings import RecordedRun, recorded_run
from refold.testing.clocks import frozen

Operator = Callable[[Run], object]
"""Answers a run that waits: `run.answer(...)`, `run.send(...)` or `run.resolve(...)`. May be async."""

Filter = Callable[[str], str]
"""Changes a text before it is recorded."""

_MOST_ANSWERS = 1_000


async def record(
    agent: Agent,
    task: str,
    *,
    run_id: str,
    operator: Operator | None = None,
    before_record: Sequence[Filter] = (),
    options: Mapping[str, Any] | None = None,
    store: Store | None = None,
) -> list[RecordedRun]:
    """Run an agent for real, and return its log and those of its child runs, the run itself first.

    Ids, instants, durations and salts are fixed, process and versions are left out, and parallel calls
    return in the order in which the model requested them.

    Args:
        agent: The agent. Its own store is not used.
        task: The task, as for `Agent.start`.
        run_id: The run's id.
        operator: Called whenever the run waits. Without one, a waiting run is recorded as it waits.
        before_record: Functions that change each text before it is recorded.
        options: Further arguments of `Agent.start`.
        store: An empty store for the log, by default one in memory.
    """
    store = store or open_memory()
    run = prepare(filtered(agent, before_record), task, run_id, options or {}).with_runtime(
        lambda runtime: _steady(runtime, store), _anonymous
    )
    await drive(run, operator)
    runs = [name async for chunk in store.runs() for name, _ in chunk]
    return [await recorded_run(store, name) for name in [run.id, *sorted(set(runs) - {run.id})]]


def prepare(agent: Agent, task: str, run_id: str, options: Mapping[str, Any]) -> Run:
    """Return a run of the agent that has not begun, with a fixed seed."""
    settings: dict[str, Any] = {"seed": 1, **options, "run_id": run_id}
    return agent.start(task, **settings)


async def drive(run: Run, operator: Operator | None) -> None:
    """Drive a run until it ends, or waits without an answer."""
    for _ in range(_MOST_ANSWERS):
        await run.result()
        if run.state.ended or operator is None:
            return
        before = run.state.seq
        answered = operator(run)
        if isawaitable(answered):
            await answered
        if run.state.seq == before and not run.has_input:
            return
    raise WrongUse(f"run {run.id}: it still waits after {_MOST_ANSWERS} answers of the operator")


def filtered(agent: Agent, filters: Sequence[Filter]) -> Agent:
    """Return the agent with filters on every text that its runs record, beside the redaction of secrets."""
    if not filters:
        return agent
    changed = copy(agent)
    known = agent.redactor
    changed.redactor = FilteredRedactor(
        values=known.values, patterns=known.patterns, known=known.known, filters=tuple(filters)
    )
    return changed


class FilteredRedactor(Redactor, frozen=True):
    """A redactor that applies filters first: to texts, and to the JSON text of arguments."""

    filters: tuple[Filter, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do: never, with filters."""
        return False

    def text(self, text: str) -> str:
        """Filter and redact a text."""
        return Redactor.text(self, self._filter(text))

    def json(self, text: str) -> str:
        """Filter and redact JSON text."""
        return Redactor.json(self, self._filter(text))

    def _filter(self, text: str) -> str:
        for each in self.filters:
            text = each(text)
        return text


def _steady(runtime: Runtime, store: Store) -> Runtime:
    world = replace(runtime.world, clock=frozen()(), clocks=frozen(), repeatable=True, anonymous=True)
    return replace(runtime, store=store, world=world, serve=_CallOrder().serve)


def _anonymous(fact: ev.Fact) -> ev.Fact:
    assert isinstance(fact, ev.RunStarted)
    return replace(fact, worker="", versions={}, environment=())


class _CallOrder:
    """Serves the calls of a batch so that they return in the order of the response."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], anyio.Event] = {}

    async def serve(self, work: Work) -> tuple[Maker, ...]:
        if not isinstance(work.effect, RunTool) or work.state.batch is None:
            return await serve(work)
        run, call = work.state.setup.run, work.effect.call
        ids = [each.id for each in work.state.batch.calls]
        self._running[run, call] = done = anyio.Event()
        try:
            made = await serve(work)
            for earlier in ids[: ids.index(call)]:
                if (run, earlier) in self._running:
                    await self._running[run, earlier].wait()
        finally:
            done.set()
        return made
