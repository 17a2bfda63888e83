"""One schedule: a run starts, faults happen, and engines resume it until it ends or waits for an operator.

Each process has one life. Faults stop after some lives; after that, the run must end within a few more.
"""

import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Protocol

import msgspec
import trio

import refold.engine.agent
import refold.engine.run
import refold.engine.tenure
from refold.engine import Agent, Run
from refold.engine.journal import Overtaken
from refold.engine.tenure import LeaseLapsed
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.store.protocol import Held, LeaseLost, StoreUnavailable
from refold.testing.simulation import virtual
from refold.testing.simulation.faults import Fault, Faults, Kind, Point
from refold.testing.simulation.judging import Judge, is_settled, waiting_children
from refold.testing.simulation.plan import Plan
from refold.testing.simulation.process import End, Ending, Process, current, part
from refold.testing.simulation.violations import Violation, ViolationKind
from refold.testing.simulation.world import World

RUN = "r"
"""The id of the run of each schedule."""

FAULTY_LIVES = 4
"""Lives in which faults happen."""

LIVES = 24
"""Lives within which a run must end."""

_LATE = {Kind.SLOW, Kind.HANG, Kind.PAUSE}
_UNAVAILABLE = {Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.ROB}


class Operator(Protocol):
    """Answers runs that wait. `times`: how often it still answers."""

    times: int

    def answer(self, run: Run, state: RunState) -> bool:
        """Answer a run that waits. Return False without an answer."""
        ...


class Scenario(Protocol):
    """The run of a schedule: its task, its agents, and the outside world of their tools."""

    @property
    def task(self) -> str:
        """The first message."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the run."""
        ...

    @property
    def patience(self) -> float:
        """Virtual seconds after which a run that did not end is a violation."""
        ...

    def make_state(self) -> object:
        """Make the outside world of one schedule."""
        ...

    def make_agents(self, process: Process) -> Mapping[str, Agent]:
        """Make the agents of a new process, by name. The first one starts the run."""
        ...

    def make_operator(self, world: World, chance: random.Random) -> Operator:
        """Make the operator of one schedule."""
        ...

    def check(self, world: World) -> None:
        """Check the outside world after the last engine has ended."""

    async def finish(self) -> None:
        """End the tools of dead processes."""
        ...

    async def run_in_thread(self, function: Callable[[], object]) -> object:
        """Run a function that the engine would run in a thread."""
        ...


class Outcome(msgspec.Struct):
    """The result of a schedule. `heads` has the log heads in hex, by run, `end` the last state of its run."""

    plan: Plan
    world: World
    violations: tuple[Violation, ...]
    fired: dict[Kind, int]
    effective: frozenset[Fault]
    uses: dict[Point, int]
    kills: int
    lives: int
    doubts: int
    runs: int
    events: int
    heads: dict[str, str]
    end: str
    trace: list[str]


def play(plan: Plan, scenario: Scenario, *, trace: bool = False) -> Outcome:
    """Play a plan, in milliseconds of real time.

    Raises `WrongUse` if the agents cannot be simulated.
    """
    world = World(plan.seed, Faults(plan.faults), _owners, state=scenario.make_state(), trace=trace)
    schedule = _Schedule(plan, scenario, world)
    try:
        with schedule.identified():
            virtual.run(plan.seed, world.order, world.wall, schedule.play, scenario.run_in_thread)
    except trio.TrioInternalError as error:
        if world.refusal is None and not schedule.judged:
            schedule.blame(error.__cause__ or error)
    except Exception as error:
        if world.refusal is None:
            world.violate(ViolationKind.ENGINE_ERROR, f"an engine raised {error!r}")
        if trace:
            world.trace += traceback.format_exception(error)
    if world.refusal is not None:
        raise world.refusal
    return schedule.outcome()


def _owners(task: trio.lowlevel.Task) -> tuple[object, object]:
    return task.context.get(current), task.context.get(part)


class _Schedule:
    def __init__(self, plan: Plan, scenario: Scenario, world: World) -> None:
        self.plan, self.scenario, self.world = plan, scenario, world
        self.chance = random.Random(f"schedule {plan.seed}")
        self.operator = scenario.make_operator(world, self.chance)
        self.judge = Judge(world)
        self.judged = False
        self.lives = self.processes = 0
        self.endings: list[Ending] = []  # of all engines of this life
        self.end = ""

    async def play(self) -> None:
        """Play one life after the other until nothing is left to do, then judge the logs."""
        async with self.world.receiving():
            while self.lives < LIVES and not self.world.endless and self.world.refusal is None:
                if self.lives >= FAULTY_LIVES:
                    self.world.faults.stop()
                target = await self._target()
                if target is None:
                    break
                await self._live(target)
                pause = self.chance.choice((0.0, 0.0, 5.0, 40.0, 4000.0))
                await trio.sleep(pause if self.plan.idle else 0.0)
        await self.judge.judge()
        self.scenario.check(self.world)
        top = self.world.states.get(RUN)
        self.end = str(top.agent_state) if top else "nothing"
        self.judged = self.world.closed = True
        await self.scenario.finish()

    def blame(self, error: BaseException) -> None:
        """Record that the event loop broke: tasks made no progress, or an engine raised in the background."""
        if isinstance(error, virtual.Stuck):
            self.world.violate(ViolationKind.ENDLESS_RUN, str(error))
        else:
            self.world.violate(ViolationKind.ENGINE_ERROR, f"the event loop broke: {error!r}")

    async def _target(self) -> str | None:
        """Return the run to drive next; one that waits only if the operator still answers."""
        await self.world.read_logs()
        states = self.world.states
        state = states.get(RUN)
        if state is None or not is_settled(state, states):
            return RUN
        # The engine of a child run may have died while another child waits for the operator.
        stray = next((run for run, each in states.items() if not is_settled(each, states)), None)
        if stray is not None:
            return stray
        while (below := waiting_children(state, states)) and state.asked_at is None:
            state = states[below[0]]
        return None if state.ended or not self.operator.times else state.setup.run

    async def _live(self, target: str) -> None:
        """Let one engine drive the run, and sometimes another one at the same time."""
        self.lives += 1
        endings = self.endings = []
        async with trio.open_nursery() as nursery:

            def start_rival(delay: float, *, force: bool) -> None:
                if self.processes < 3 * LIVES:
                    self.world.rivals += 1
                    # Not in the context of the process that causes it, which may be suspended.
                    Context().run(nursery.start_soon, partial(start, delay, force=force))

            async def start(delay: float, *, force: bool) -> None:
                await trio.sleep(delay)
                process = self._make_process()
                process.start_rival = start_rival
                await self._drive(process, target, force=force)

            nursery.start_soon(partial(start, 0, force=False))
            if self.plan.rivals and self.chance.random() < 0.24:
                start_rival(self.chance.choice((0.0, 0.0, 0.5, 3.0, 35.0)), force=self.chance.random() < 0.5)
        await trio.sleep(
            max((each.error.seconds + 1 for each in endings if isinstance(each.error, Held)), default=0)
        )
        undisturbed = not self.world.faults.fired and not self.world.violations
        if undisturbed and not any(each.end in (End.ENDED, End.WAITS) for each in endings):
            self.world.violate(
                ViolationKind.ENGINE_ERROR,
                f"run {target}: no fault happened, but its engines ended as {endings}",
            )

    def _make_process(self) -> Process:
        self.processes += 1
        return Process(self.world, self.processes, self.plan.latency, self.scenario.patience)

    async def _drive(self, process: Process, target: str, *, force: bool = False) -> None:
        current.set(process)
        state = self.world.states.get(target)
        self.world.note(lambda: f"p{process.number} drives {target} from event {state.seq if state else 0}")
        try:
            agents = self.scenario.make_agents(process)
            if state is not None:
                run = agents[state.setup.agent].resume(target, take_over=force)
            else:
                first = next(iter(agents.values()))
                run = first.start(self.scenario.task, run_id=target, seed=self.scenario.seed)
        except Exception as error:  # a mistake in the user's function, raised as it is
            self.world.refuse(error)
            return
        waits = state is not None and state.asked_at is not None
        ending = await process.live(run, self._visitor(target, waits=waits))
        if ending.error is not None and not self._is_explained(process, ending.error):
            self.world.violate(
                ViolationKind.ENGINE_ERROR,
                f"process {process.number} raised {ending.error!r}, which no planned fault explains",
            )
        self.endings.append(ending)

    def _visitor(self, target: str, *, waits: bool) -> Callable[[Run], Awaitable[bool]]:
        """Return the operator's visit to a process: it answers now, or leaves that to the next life.

        A process that began with a waiting run gets an answer. Sometimes another process gets it meanwhile,
        and this one keeps an old state.
        """

        async def answers(run: Run) -> bool:
            later = self.plan.idle and self.chance.random() < 0.5
            if run.state.asked_at is None or (later and not waits):
                return False
            if self.plan.rivals and self.chance.random() < 0.4:
                self.world.rivals += 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._drive, self._make_process(), target)
            return self.operator.answer(run, run.state)

        return answers

    def _is_explained(self, process: Process, error: Exception) -> bool:
        """Return whether a planned fault explains the error: nothing else may stop an engine."""
        match error:
            case StoreUnavailable():
                return bool(process.struck & _UNAVAILABLE)
            case Held():
                return True
            case LeaseLapsed():
                return bool(process.struck & (_UNAVAILABLE | _LATE))
            case LeaseLost() | Overtaken() | WrongUse():
                return bool(self.world.rivals)  # another engine has the run, or was answered first
            case _:
                return False

    @contextmanager
    def identified(self) -> Generator[None]:
        """Let simulated processes hold leases; a machine knows which of its own processes are dead."""
        leases = Counter[int]()

        def holder() -> str:
            number = current.get().number
            leases[number] += 1
            return f"p{number}.{leases[number]}"

        def is_gone(held: str) -> bool:
            return not self.plan.remote and held.split(".", maxsplit=1)[0] in self.world.dead

        def name() -> str:
            return f"p{current.get().number}"

        with (
            virtual.replaced(refold.engine.tenure, "new_holder", holder),
            virtual.replaced(refold.engine.tenure, "is_gone", is_gone),
            virtual.replaced(refold.engine.agent, "this_process", name),
            virtual.replaced(refold.engine.run, "this_process", name),
        ):
            yield

    def outcome(self) -> Outcome:
        """Return the result."""
        world, judge = self.world, self.judge
        heads = {run: log[-1].hash.hex() for run, log in judge.logs.items() if log}
        lines = [f"log {run}: {len(judge.logs[run])} events, head {head}" for run, head in heads.items()]
        return Outcome(
            plan=self.plan,
            world=world,
            violations=tuple(world.violations),
            fired=dict(world.faults.fired),
            effective=frozenset(world.faults.effective),
            uses=dict(world.faults.uses),
            kills=world.kills,
            lives=self.processes,
            doubts=judge.doubts,
            runs=len(world.logs),
            events=judge.events,
            heads=heads,
            end=self.end,
            trace=[*world.trace, *lines] if world.trace else [],
        )
