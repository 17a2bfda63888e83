"""The scenario of a user: agents from the user's function, over an outside world of any type."""

import random
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from typing import Any, Literal, cast

import trio

from refold.engine import Agent, Run, ScriptedModel, Tool, say
from refold.engine.arguments import wrong_value
from refold.engine.children import reachable
from refold.engine.models.protocol import Model
from refold.engine.models.script import RecordedModel
from refold.engine.tools.results import LISTENER
from refold.engine.world import LongTool
from refold.reducers import pending
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Replay
from refold.testing.simulation.attempts import Attempt, wrap_tool
from refold.testing.simulation.effects import Ledger
from refold.testing.simulation.memory import ProcessMemory
from refold.testing.simulation.models import Computed, FaultyModel, Line, Mind, Script, SimulatedModel
from refold.testing.simulation.process import Process, current
from refold.testing.simulation.snapshots import describe_state
from refold.testing.simulation.violations import ViolationKind
from refold.testing.simulation.whim import Whim
from refold.testing.simulation.world import World

Answer = Literal["approve", "reject"]
ModelChoice = Literal["own", "whim"]

_THINKS = 0.5  # virtual seconds of a scripted response
_THREAD_SECONDS = (0.0, 0.1, 5.0)
_VISITS = 6
_ENGINE = "refold.engine.models."


class Subject:
    """What is simulated.

    Args:
        make: returns the agent of a new process over the outside world.
        task: the first message.
        make_world: makes the outside world of a schedule.
        check: checks the outside world at the end; see `simulate`.
        snapshot: selects the part of the outside world that repeated executions may not change.
        model: "own" for the agent's model, "whim" for one that calls tools at random.
        answer: the operator's answer to calls that wait for approval.
        patience: virtual seconds after which a run that did not end is a violation.
    """

    seed = 1

    def __init__(
        self,
        make: Callable[[Any], Agent],
        task: str,
        make_world: Callable[[], Any],
        *,
        check: Callable[[Any], Iterable[str] | None] | None = None,
        snapshot: Callable[[Any], object] | None = None,
        model: ModelChoice = "own",
        answer: Answer = "approve",
        patience: float = 5_000.0,
    ) -> None:
        self.task, self.patience = task, patience
        self.reconciles, self.whim = False, model == "whim"
        self._make, self._make_world, self._check, self._snapshot = make, make_world, check, snapshot
        self._model: ModelChoice = model
        self._answer: Answer = answer
        self.memory = ProcessMemory()
        self._processes: list[Process] = []
        self._first = ""
        self.touched = False  # whether any schedule changed its outside world

    def make_state(self) -> object:
        """Make the outside world of a new schedule."""
        self.memory.restore()
        self._processes = []
        state = self._make_world()
        self._first = describe_state(state)
        return state

    def make_agents(self, process: Process) -> Mapping[str, Agent]:
        """Make the agents of a new process by the user's function, with simulated models, tools and store."""
        if not process.world.living:
            self.memory.restore()
        self._processes.append(process)
        agents = reachable(_check_agent(self._make(process.world.state)))
        self.memory.watch(self._make, agents)
        for agent in agents:
            self._prepare(agent, process)
        return {agent.name: agent for agent in agents}

    def _prepare(self, agent: Agent, process: Process) -> None:
        world = process.world
        if isinstance(agent.model, SimulatedModel | FaultyModel):
            raise WrongUse(
                "make: returned an agent that another process has: expected a new one for each process; build the "
                "agent and its handoffs inside the function"
            )
        agent.model = self._simulate_model(agent.model, agent.name)
        agent.models = {name: self._simulate_model(each, name) for name, each in agent.models.items()}
        agent.store = process.store
        agent.tools = {name: self._wrap(tool, world) for name, tool in agent.tools.items()}
        world.registry = {**world.registry, **agent.registry}

    def _wrap(self, tool: Tool, world: World) -> Tool:
        if isinstance(tool, LongTool):
            return tool
        self.reconciles = self.reconciles or tool.manifest.replay is Replay.RECONCILABLE
        return wrap_tool(tool, lambda: self._describe(world))

    def _describe(self, world: World) -> str:
        """Describe what repeated executions may not change."""
        if self._snapshot is None:
            return describe_state(world.state)
        try:
            return describe_state(self._snapshot(world.state))
        except Exception as error:  # the user's mistake, not a failure of the tool
            world.refuse(error)
            return ""

    def _simulate_model(self, model: Model, name: str) -> Model:
        if self._model == "whim":
            mind: Mind = Whim(name)
            return SimulatedModel(mind, model)
        if isinstance(model, ScriptedModel | RecordedModel):
            return SimulatedModel(Script(_endless(model.lines), name, _THINKS), model)
        if type(model).__module__.startswith(_ENGINE):
            raise WrongUse(
                f"make: the model {model.name!r} is not deterministic: expected a ScriptedModel or the model of a "
                "Recording; or pass model='whim' to simulate"
            )
        return FaultyModel(model)

    def make_operator(self, world: World, chance: random.Random) -> "Approver":
        """Make the operator."""
        del chance
        return Approver(world, self._answer)

    def check(self, world: World) -> None:
        """Check the outside world: repeated effects of a `Ledger`, and the user's own check."""
        if isinstance(world.state, Ledger):
            for text in world.state.violations():
                world.violate(ViolationKind.REPEATED_EFFECT, text)
        self.touched = self.touched or describe_state(world.state) != self._first
        if self._check is None:
            return
        try:
            found = self._check(world.state)
            if type(cast("object", found)) is bool:
                raise wrong_value("check", "None, or a sentence for each violation; or use `assert`", found)
            texts = [found] if isinstance(found, str) else list(found or ())
        except AssertionError as error:
            texts = [str(error).partition("\n")[0] or "an assertion of the check failed"]
        except Exception as error:  # the user's mistake, not a violation
            world.refuse(error)
            return
        for text in texts:
            world.violate(ViolationKind.FAILED_CHECK, text)

    async def finish(self) -> None:
        """End the tools of dead processes: now they may run their cleanup."""
        for process in self._processes:
            for each in process.dependents:
                if isinstance(each, Attempt):
                    await each.clean_up()

    async def run_in_thread(self, function: Callable[[], object]) -> object:
        """Run a function as a thread would: after a delay, and even if its caller is cancelled meanwhile."""
        process = current.get(None)
        if process is None:
            await trio.lowlevel.checkpoint()
            return function()
        context = copy_context()
        seconds = process.world.chance.choice(_THREAD_SECONDS)
        thread = process.world.launch(lambda: context.run(function), seconds, within=process)
        try:
            await thread.over.wait()
        except trio.Cancelled:
            thread.listener = LISTENER.get()
            raise
        return thread.result()


class Approver:
    """An operator who answers approvals, and who knows of a call that returned that it happened."""

    def __init__(self, world: World, word: Answer) -> None:
        self._world = world
        self._word: Answer = word
        self.times = _VISITS

    def answer(self, run: Run, state: RunState) -> bool:
        """Answer a run that waits for approval or for the outcome of calls."""
        self.times -= 1
        unknown = pending.unknown_calls(state) if state.batch is not None else ()
        try:
            if state.approval is not None:
                run.answer(dict.fromkeys(state.approval.event.calls, self._word), by="ann")
            elif unknown:
                for call in unknown:
                    run.resolve(call, self._outcome(run.id, call), by="ann")
            else:
                self.times = 0  # it waits for a message, and the operator has none
                return False
        except WrongUse:  # another engine was answered first
            return False
        return True

    def _outcome(self, run: str, call: str) -> Doubt:
        executions = self._world.executions.get((run, call), ())
        return Doubt.HAPPENED if any(each.returned for each in executions) else Doubt.UNKNOWN


def _check_agent(made: object) -> Agent:
    if not isinstance(made, Agent):
        raise wrong_value("make", "a function that returns an Agent", made)
    return made


def _endless(lines: Iterable[Line | Computed]) -> tuple[Line | Computed, ...]:
    """Let a script end with a response without calls, for turns that faults add."""
    script = tuple(lines)
    last = script[-1] if script else None
    ends = last is not None and not callable(last) and not getattr(last, "calls", True)
    return script if ends else (*script, say("Done."))
