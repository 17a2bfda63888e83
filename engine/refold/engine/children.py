"""Runs that calls start: a child run is begun, or taken up where its log ends, and its call gets its outcome.

A child's id follows from its parent and the call. So an engine that runs the call again, after a crash, finds the
child and goes on with it: there is never a second. Two facts tell the parent of its end: `child_ended` with what
it spent and the hash of its last event, then the call's result.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio
import msgspec
from msgspec import Meta

from refold.engine.clock import Stopwatch
from refold.engine.imported_runs import opening_of
from refold.engine.journal import Overtaken, event_of
from refold.engine.outcomes import Maker, maker, tool_failed, tool_succeeded
from refold.engine.result import RunResult
from refold.engine.tenure import LOOK, Tenure
from refold.engine.tools.protocol import BadArguments, CallContext, Tool, ToolAnswer
from refold.engine.tools.signature import Accepts, accepts
from refold.engine.updates import Delegated, Update
from refold.engine.world import World, context_of
from refold.reducers.checks import Complaint
from refold.reducers.children import child_run_id
from refold.reducers.effects import RunTool
from refold.reducers.errors import WrongUse
from refold.reducers.events import ChildEnded, Parent
from refold.reducers.limits import CostLimit, TimeLimit, TokenLimit
from refold.reducers.machine import TERMINAL, AgentState
from refold.reducers.secrets import Redactor
from refold.reducers.state import RunState, Spent
from refold.reducers.vocabulary import ToolError
from refold.store.protocol import Held, LeaseLost, Store

if TYPE_CHECKING:
    from refold.engine.agent import Agent  # who is run, and what drives a run: both import this
    from refold.engine.run import Run

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every provider accepts
_TASK = "what is to be done, with everything that must be known for it: nothing of this conversation is seen there"

GENERATIONS = 8
"""How long a chain of runs may become, each started by a call of the one before it."""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What a child run is for, and where it takes place: in the store of its parent, by the same clocks.

    `parent` is the state of the run that made the call, `world` that run's. `lease` is in seconds, as that of the parent.
    """

    task: str
    call: str
    parent: RunState
    store: Store
    world: World
    lease: float

    @property
    def run(self) -> str:
        """The child's id."""
        return child_run_id(self.parent.setup.run, self.call)

    @property
    def origin(self) -> Parent:
        """What the child's log says of where it comes from."""
        return Parent(run=self.parent.setup.run, call=self.call)


class AgentTool(Tool, frozen=True, kw_only=True):
    """A tool whose calls start runs of another agent: made by `Agent.as_tool`.

    `begin` makes a new run of `owner`, `take_up` one from the log that an earlier engine began.
    """

    owner: "Agent"
    takes: Accepts
    begin: Callable[[Errand], "Run"]
    take_up: Callable[..., "Run"]


def takes_task(tool: str) -> Accepts:
    """What a tool of this name takes that starts a run: a task. Raises `WrongUse` for a name no provider accepts."""
    if _NAME.fullmatch(tool) is None:
        raise WrongUse(
            f"tool {tool!r}: a name has 1 to 64 letters, digits, '_' and '-'; name the agent so, or the tool"
        )

    def accepted(task: Annotated[str, Meta(min_length=1)]) -> None:
        """A signature, for its schema."""

    return accepts(accepted, tool, {"task": _TASK})


async def never_alone(arguments: str, context: CallContext) -> ToolAnswer:  # noqa: ARG001
    """The `run` of a tool whose calls are runs: only an engine can see those through."""
    raise AssertionError(f"call {context.call} starts a run, and was run as a function")


class Delegation:
    """One call that starts a child run, from its beginning to its end.

    `scope` is cancelled to settle the call; `aside` is called when the child waits for a person, and
    nothing more can be done for now; `live` has the child's run under its id while it goes on; `tell` tells who watches;
    `tenure` is the engine's hold on the parent: the child's is alike.
    """

    def __init__(
        self,
        tool: AgentTool,
        effect: RunTool,
        world: World,
        scope: anyio.CancelScope,
        aside: Callable[[], None],
        live: "dict[str, Run]",
        tell: Callable[[Update], None],
        tenure: Tenure,
    ) -> None:
        self._tool, self._effect, self._world = tool, effect, world
        self._tenure = tenure
        self._scope, self._aside, self._live, self._tell = scope, aside, live, tell
        self._cut = anyio.Event()

    async def outcome(self, arguments: str, state: RunState, store: Store) -> tuple[Maker, ...]:
        """The facts that end the call: `child_ended`, if a child was there, and the call's result, last."""
        stopwatch = self._world.clock.stopwatch(self._effect)
        try:
            task = self._task(arguments, state)
        except BadArguments as error:
            return (tool_failed(self._effect, ToolError.BAD_ARGUMENTS, stopwatch, problem=str(error)),)
        errand = Errand(
            task=task,
            call=self._effect.call,
            parent=state,
            store=store,
            world=self._world,
            lease=self._tenure.seconds,
        )
        known = (await store.head(errand.run)).seq > 0
        if not known and self._scope.cancel_called:
            return (tool_failed(self._effect, ToolError.CANCELLED, stopwatch),)
        if not known and await _generation(store, state) >= GENERATIONS:
            return (tool_failed(self._effect, ToolError.RAISED, stopwatch, problem=_too_deep(state)),)
        result = await self._seen_through(errand, known=known)
        ended = await _child_ended(errand, result)
        reported = known and await _reported(errand)
        redactor = self._world.redactor_of(state)
        return (*(() if reported else (ended,)), self._result(result, stopwatch, redactor))

    def _task(self, arguments: str, state: RunState) -> str:
        return str(self._tool.takes.bind(arguments or "{}", context_of(self._effect, state))["task"])

    async def _seen_through(self, errand: Errand, *, known: bool) -> RunResult:
        """Drive the child to its end. One that waits for a person is put aside until the call is to be settled."""
        result: RunResult | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, errand)
            result = await self._had(errand, self._tool.take_up if known else self._tool.begin)
            if result.state not in TERMINAL:
                if not self._scope.cancel_called:
                    self._aside()
                await self._cut.wait()
                # A person's engine may have had it in the meantime: so once more from its log.
                result = await self._driven(errand, partial(self._tool.take_up, take_over=True))
            tasks.cancel_scope.cancel()
        assert result is not None  # else the group has raised
        return result

    async def _had(self, errand: Errand, had: "Callable[..., Run]") -> RunResult:
        """Drive the child. While another engine has it, wait: who has a run has the right to its children, not at once.

        Only one that took its run over by force takes them over too.
        """
        await (
            self._tenure.confirm()
        )  # or the child of a run that was cancelled elsewhere would have no parent
        while True:
            try:
                return await self._driven(errand, had)
            except Held as error:
                if self._tenure.take_over or self._cut.is_set():  # to be stopped, even if it is held
                    return await self._driven(errand, partial(self._tool.take_up, take_over=True))
                wait = min(error.seconds, LOOK)
            except (LeaseLost, Overtaken):  # it was taken over, or ended
                wait = 0.0
            with anyio.move_on_after(wait):
                await self._cut.wait()
            await anyio.sleep(0.05)
            had = self._tool.take_up

    async def _driven(self, errand: Errand, had: "Callable[[Errand], Run]") -> RunResult:
        child = self._live[errand.run] = had(errand)
        self._tell(Delegated(errand.call, errand.run))
        if self._cut.is_set():
            self._cancel(errand)
        try:
            return await child.result()
        finally:
            del self._live[errand.run]

    async def _watch(self, errand: Errand) -> None:
        with self._scope:
            await anyio.sleep_forever()
        self._cut.set()
        self._cancel(errand)

    def _cancel(self, errand: Errand) -> None:
        if errand.run in self._live:
            self._live[errand.run].cancel(by=f"parent {errand.parent.setup.run}")

    def _result(self, result: RunResult, stopwatch: Stopwatch, redactor: Redactor) -> Maker:
        outcome = result.outcome
        if result.state is AgentState.COMPLETED:
            return tool_succeeded(self._effect, redactor.text(outcome.text), stopwatch)
        if result.state is AgentState.CANCELLED and self._cut.is_set():
            return tool_failed(self._effect, ToolError.CANCELLED, stopwatch)
        ended = f"the agent {self._tool.manifest.agent} did not complete the task: its run {result.run} ended {result.state}"
        last = f". The last it said: {outcome.text}" if outcome.text else ""
        problem = f"{ended} ({outcome.code}): {outcome.reason}{last}"
        return tool_failed(self._effect, ToolError.RAISED, stopwatch, problem=redactor.text(problem))


async def _child_ended(errand: Errand, result: RunResult) -> Maker:
    head, spent = await errand.store.head(errand.run), result.usage
    fact = ChildEnded(
        at=0,
        call=errand.call,
        run=errand.run,
        agent_state=result.state,
        head_seq=head.seq,
        head_hash=head.hash.hex(),
        usage=spent.usage,
        cost_nanousd=_cost(spent),
    )
    return maker(fact, lambda _state, fact, _salt: fact)


def _cost(spent: Spent) -> int | None:
    # What is known of the cost counts; a child of whose answers none had a price has none.
    return None if spent.unpriced and not spent.cost_nanousd else spent.cost_nanousd


async def _reported(errand: Errand) -> bool:
    """Whether an earlier engine recorded that the child had ended, and stopped before the call's result."""
    parent, batch = errand.parent, errand.parent.batch
    assert batch is not None
    ended = await errand.store.read_kinds(parent.setup.run, ["child_ended"])
    events = [event_of(stored) for stored in ended if stored.seq > batch.seq]
    return any(isinstance(event, ChildEnded) and event.run == errand.run for event in events)


async def _generation(store: Store, state: RunState) -> int:
    """The run's place in its chain: 1 for a run that no call started, 2 for its child."""
    place, parent = 1, state.setup.parent
    while parent is not None and place < GENERATIONS:
        place += 1
        opened = await opening_of(store, parent.run)
        parent = opened.parent if opened else None
    return place


def _too_deep(state: RunState) -> str:
    return (
        f"run {state.setup.run} is the {GENERATIONS}th in a chain of agents that handed their tasks on, and the "
        "chain may not be longer; do the task with what is here, or say what is missing"
    )


def reachable(agent: "Agent") -> list["Agent"]:
    """The agent, and all that its runs may hand a task on to, directly or not."""
    found: list[Agent] = []
    waiting = [agent]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.append(each)
            waiting += (tool.owner for tool in each.tools.values() if isinstance(tool, AgentTool))
    return found


def circles(agent: "Agent") -> tuple[Complaint, ...]:
    """The warning that agents hand on in a circle, and nothing that flows down from one to the next bounds them."""
    costly = (TimeLimit, TokenLimit, CostLimit)
    if any(isinstance(limit, costly) and limit.value is not None for limit in agent.policy.limits):
        return ()
    for each in reachable(agent):
        owners = [tool.owner for tool in each.tools.values() if isinstance(tool, AgentTool)]
        if any(each in reachable(owner) for owner in owners):
            said = "agents hand on in a circle, and no limit of time, tokens or cost, which flow down, bounds them"
            return (Complaint("handoffs", said),)
    return ()
