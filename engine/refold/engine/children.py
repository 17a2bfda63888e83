"""Child runs: a call starts a run of another agent, or resumes it from its log, and returns its outcome.

A child's id is derived from its parent and the call. An engine that repeats the call after a crash finds the
same child and continues it, so a call never has two. Two facts record the end in the parent's log:
`child_ended` with the child's usage and the hash of its last event, then the call's result.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, TypeVar

import anyio
from msgspec import Meta

from refold.engine.clock import Maker, maker
from refold.engine.journal import Overtaken, event_of, opening_of
from refold.engine.outcomes import tool_failed, tool_succeeded
from refold.engine.result import RunResult
from refold.engine.run import Run
from refold.engine.tenure import LOOK
from refold.engine.tools.protocol import BadArguments, CallContext, Tool
from refold.engine.tools.signature import Accepts, accepts
from refold.engine.updates import Delegated
from refold.engine.world import LongTool, Work
from refold.reducers.errors import Complaint, WrongUse
from refold.reducers.events import ChildEnded, Parent
from refold.reducers.limits import CostLimit, TimeLimit, TokenLimit
from refold.reducers.meters import child_run_id
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import UNMETERED, Cause, ToolError
from refold.store.protocol import Held, LeaseLost, Store

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every provider accepts
_TASK = "what is to be done, with everything that must be known for it: nothing of this conversation is seen there"

GENERATIONS = 8
"""Maximum length of a chain of runs in which each is started by a call of the previous one."""


class AgentTool(LongTool, frozen=True, kw_only=True):
    """A tool whose calls start runs of another agent; made by `Agent.as_tool`.

    `child(work, task, take_over)` makes the run of `owner` that serves a call. Without a task, it resumes the
    run from its log; with `take_over`, another engine that drives it loses its lease.
    """

    owner: Any  # an `Agent`, whose module imports this one
    takes: Accepts
    child: Callable[[Work, str | None, bool], Run]

    async def see_through(self, work: Work) -> tuple[Maker, ...]:
        """Return `child_ended`, if a child ran, and the call's result."""
        return await Delegation(self, work).outcome()


def run_of(work: Work) -> str:
    """Return the id of the child run that serves a call."""
    return child_run_id(work.state.setup.run, work.call.call)


def origin_of(work: Work) -> Parent:
    """Return the parent that the log of a child run records."""
    return Parent(run=work.state.setup.run, call=work.call.call)


def takes_task(tool: str) -> Accepts:
    """Return the parameters of a tool that starts a run: one task.

    Raises `WrongUse` for a name that no provider accepts.
    """
    if _NAME.fullmatch(tool) is None:
        raise WrongUse(
            f"tool {tool!r}: a name has 1 to 64 letters, digits, '_' and '-'; rename the agent or the tool"
        )

    def accepted(task: Annotated[str, Meta(min_length=1)]) -> None:
        """Declare the signature that the schema is made from."""

    return accepts(accepted, tool, {"task": _TASK})


async def never_alone(arguments: str, context: CallContext) -> str:  # noqa: ARG001
    """Fail: a call that starts a run needs an engine, and is never run as a function."""
    raise AssertionError(f"call {context.call} starts a child run and cannot run as a function")


class Delegation:
    """One call that starts a child run, from start to result."""

    def __init__(self, tool: AgentTool, work: Work) -> None:
        self._tool, self._work, self._run = tool, work, run_of(work)
        self._tenure = work.journal.tenure  # the lease on the parent; the child is leased on the same terms
        self._cut = anyio.Event()

    async def outcome(self) -> tuple[Maker, ...]:
        """Return the facts that end the call: `child_ended`, if a child ran, then the call's result."""
        work, store = self._work, self._work.journal.store
        try:
            takes = self._tool.takes
            task = str(takes.bind(work.arguments or "{}", work.context)["task"])
        except BadArguments as error:
            return (tool_failed(work, ToolError.BAD_ARGUMENTS, problem=str(error)),)
        known = (await store.head(self._run)).seq > 0
        if not known and work.scope.cancel_called:
            return (tool_failed(work, ToolError.CANCELLED),)
        if not known and await _generation(store, work.state) >= GENERATIONS:
            return (tool_failed(work, ToolError.RAISED, problem=_too_deep(work.state)),)
        result = await self._drive_to_end(None if known else task)
        ended = () if known and await self._is_reported() else (await self._end(result),)
        return (*ended, self._result(result))

    async def _drive_to_end(self, task: str | None) -> RunResult:
        """Drive the child to its end. A child that waits for an operator is set aside until the call ends."""
        result: RunResult | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            result = await self._drive_or_wait(task)
            if not result.state.terminal:
                if not self._work.scope.cancel_called:
                    self._work.aside()
                await self._cut.wait()
                # An operator's engine may have written to it in the meantime: load it from its log again.
                result = await self._drive(None, take_over=True)
            tasks.cancel_scope.cancel()
        assert result is not None  # else the group has raised
        return result

    async def _drive_or_wait(self, task: str | None) -> RunResult:
        """Drive the child, and wait while another engine has it.

        The engine of the parent is entitled to the children, but takes them over by force only if it took
        over the parent that way.
        """
        # Otherwise the child of a run that was cancelled elsewhere would have no parent.
        await self._tenure.confirm()
        while True:
            try:
                return await self._drive(task)
            except Held as error:
                if self._tenure.take_over or self._cut.is_set():  # a cancelled child is stopped even if held
                    return await self._drive(None, take_over=True)
                if self._work.pausing():
                    self._work.aside()
                wait = min(error.seconds, LOOK)
            except (LeaseLost, Overtaken):  # it was taken over, or ended
                wait = 0.0
            with anyio.move_on_after(wait):
                await self._cut.wait()
            await anyio.sleep(0.05)
            task = None

    async def _drive(self, task: str | None, *, take_over: bool = False) -> RunResult:
        live = self._work.children
        child = live[self._run] = self._tool.child(self._work, task, take_over)
        self._work.audience.tell(Delegated(self._work.call.call, self._run))
        if self._cut.is_set():
            self._cancel()
        if self._work.pausing():
            child.pause()
        try:
            return await child.result()
        finally:
            del live[self._run]

    async def _watch(self) -> None:
        with self._work.scope:
            await anyio.sleep_forever()
        self._cut.set()
        self._cancel()

    def _cancel(self) -> None:
        if self._run in self._work.children:
            self._work.children[self._run].cancel(by=f"parent {self._work.state.setup.run}")

    def _result(self, result: RunResult) -> Maker:
        outcome, work = result.outcome, self._work
        if result.state.succeeded:
            return tool_succeeded(work, work.redactor.text(outcome.text))
        if result.state.cancelled and self._cut.is_set():
            return tool_failed(work, ToolError.CANCELLED)
        ended = f"the agent {self._tool.manifest.agent} did not complete the task: its run {result.run} ended {result.state}"
        last = f". The last it said: {outcome.text}" if outcome.text else ""
        problem = f"{ended} ({outcome.code}): {outcome.reason}{last}"
        return tool_failed(work, ToolError.RAISED, problem=work.redactor.text(problem))

    async def _end(self, result: RunResult) -> Maker:
        head, spent = await self._work.journal.store.head(self._run), result.spent
        fact = ChildEnded(
            at=0,
            call=self._work.call.call,
            run=self._run,
            agent_state=result.state,
            head_seq=head.seq,
            head_hash=head.hash.hex(),
            usage=spent.usage,
            unknown=tuple(what for what in sorted(UNMETERED) if spent.count(Cause.UNKNOWN, what)),
            # A partly known cost counts as what is known; None if no response had a price.
            cost_nanousd=None if spent.unpriced and not spent.cost_nanousd else spent.cost_nanousd,
        )
        return maker(fact, lambda _state, fact, _salt: fact)

    async def _is_reported(self) -> bool:
        """Return whether an earlier engine recorded the child's end but not yet the call's result."""
        state = self._work.state
        assert state.batch is not None
        ended = await self._work.journal.store.read_kinds(state.setup.run, ["child_ended"])
        events = [event_of(stored) for stored in ended if stored.seq > state.batch.seq]
        return any(isinstance(event, ChildEnded) and event.run == self._run for event in events)


async def _generation(store: Store, state: RunState) -> int:
    """Return the run's place in its chain: 1 for a run that no call started, 2 for its child."""
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


class Owner(Protocol):
    """What handoffs need of an agent."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools of its runs, by name."""
        ...

    @property
    def policy(self) -> Policy:
        """Policy of its runs."""
        ...


OwnerT = TypeVar("OwnerT", bound=Owner)


def reachable(agent: OwnerT) -> list[OwnerT]:
    """Return the agent and all agents it can hand tasks to, directly or not."""
    found: list[OwnerT] = []
    waiting = [agent]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.append(each)
            waiting += (tool.owner for tool in each.tools.values() if isinstance(tool, AgentTool))
    return found


def circles(agent: Owner) -> tuple[Complaint, ...]:
    """Return a warning if agents can hand tasks on in a cycle without a limit that children inherit."""
    costly = (TimeLimit, TokenLimit, CostLimit)
    if any(isinstance(limit, costly) and limit.value is not None for limit in agent.policy.limits):
        return ()
    for each in reachable(agent):
        owners = [tool.owner for tool in each.tools.values() if isinstance(tool, AgentTool)]
        if any(each in reachable(owner) for owner in owners):
            problem = "agents can hand on a task in a cycle, and no limit of time, tokens or cost ends it"
            return (Complaint("handoffs", problem),)
    return ()
