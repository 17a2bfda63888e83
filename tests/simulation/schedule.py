"""One schedule: a run is started, things go wrong, and engines take it up until it ends or waits for
somebody.

A life is what one process does with the run. Faults stop after some lives; from then on the run must come to
its end in a few more.
"""

import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context

import msgspec
import trio

import refold.engine.agent
import refold.engine.run
import refold.engine.tenure
from refold.engine import Run
from refold.engine.journal import Overtaken
from refold.engine.tenure import LeaseLapsed
from refold.reducers.errors import WrongUse
from refold.store.protocol import Held, LeaseLost, StoreUnavailable
from simulation import virtual
from simulation.faults import Fault, Faults, Kind, drawn
from simulation.judging import Judge, settled, waiting_below
from simulation.process import End, Ending, Process, current
from simulation.scenarios import BY_HAND, RUN, TASK, by_chance
from simulation.world import World

ILL = 4
"""Lives in which things may go wrong."""

LIVES = 24
"""Lives within which a run must have come to its end."""

_LATE = {Kind.SLOW, Kind.HANG, Kind.PAUSE}
_UNAVAILABLE = {Kind.FAIL, Kind.LOSE, Kind.TEAR, Kind.ROB}


class Plan(msgspec.Struct, frozen=True):
    """What a schedule is made from: nothing else has any influence on it.

    `scenario` is the name of one by hand; without it the seed makes one.
    """

    seed: int = 0
    scenario: str = ""
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        """The command that plays it again, with its trace."""
        words = ["python tests/simulation/run.py", f"--seed {self.seed}"]
        words += [f"--scenario '{self.scenario}'"] if self.scenario else []
        return " ".join([*words, *(f"--fault {fault}" for fault in self.faults)])

    @classmethod
    def by_chance(cls, seed: int) -> "Plan":
        """The plan of a seed."""
        return cls(seed, "", drawn(random.Random(f"faults {seed}")))


class Outcome(msgspec.Struct):
    """What came of a schedule."""

    plan: Plan
    violations: tuple[str, ...]
    fired: dict[Kind, int]
    kills: int
    lives: int
    doubts: int
    runs: int
    events: int
    end: str


def play(plan: Plan, *, trace: bool = False) -> Outcome:
    """Play a plan. It takes milliseconds, whatever its clocks say."""
    schedule = _Schedule(plan, World(plan.seed, Faults(plan.faults), _owner, trace=trace))
    try:
        with schedule.identified():
            virtual.run(schedule.world.order, schedule.world.wall, schedule.play)
    except trio.TrioInternalError as error:
        schedule.world.wrong(
            f"the engine stands still for ever, or broke its event loop: {error.__cause__!r}"
        )
    except Exception as error:
        schedule.world.wrong(f"out of an engine came {error!r}")
        if trace:
            traceback.print_exception(error)
    return schedule.outcome()


def _owner(task: trio.lowlevel.Task) -> Process | None:
    return task.context.get(current)


class _Schedule:
    def __init__(self, plan: Plan, world: World) -> None:
        self.plan, self.world = plan, world
        self.scenario = BY_HAND[plan.scenario] if plan.scenario else by_chance(plan.seed)
        self.chance = random.Random(f"schedule {plan.seed}")
        self.person = self.scenario.person(self.chance)
        self.judge = Judge(world)
        self.wild = not plan.scenario
        # Killed processes of this machine are known to be gone; another machine's must be waited for.
        self.nearby = self.chance.random() < 0.5 if self.wild else True
        self.latency = self.chance.choice((0.0, 0.0, 0.01, 2.0)) if self.wild else 0.0
        self.lives = self.processes = 0
        self.endings: list[
            Ending
        ] = []  # of the engines of this life, those of whoever answered elsewhere too
        self.end = ""

    async def play(self) -> None:
        """One life after the other, until nothing is left to do and no effect is on its way; then the logs
        are judged.
        """
        async with self.world.going_on():
            while self.lives < LIVES:
                if self.lives >= ILL:
                    self.world.faults.stop()
                target = await self._target()
                if target is None:
                    break
                await self._life(target)
                await trio.sleep(self.chance.choice((0.0, 0.0, 5.0, 40.0, 4000.0)) if self.wild else 0.0)
        await self.judge.judge()
        top = self.world.states.get(RUN)
        self.end = str(top.agent_state) if top else "nothing"

    async def _target(self) -> str | None:
        """The run to take up next: one that waits, if somebody answers; None where all is done."""
        await self.world.learn()
        states = self.world.states
        state = states.get(RUN)
        if state is None or not settled(state, states):
            return RUN
        # One whose own engine died, beside another that waits for a person.
        stray = next((run for run, each in states.items() if not settled(each, states)), None)
        if stray is not None:
            return stray
        while (below := waiting_below(state, states)) and state.asked_at is None:
            state = states[below[0]]
        return None if state.ended or not self.person.times else state.setup.run

    async def _life(self, target: str) -> None:
        """One engine drives the run, and sometimes another at the same time."""
        self.lives += 1
        endings = self.endings = []
        async with trio.open_nursery() as nursery:

            def rival(delay: float, *, force: bool) -> None:
                if self.processes < 3 * LIVES:
                    self.world.rivals += 1
                    # Out of the context of whoever calls for it: that one may stand still.
                    Context().run(nursery.start_soon, one, delay, force)

            async def one(delay: float, force: bool) -> None:
                await trio.sleep(delay)
                process = self._process()
                process.rivalled = rival
                await self._driven(process, target, force=force)

            nursery.start_soon(one, 0, False)
            if self.wild and self.chance.random() < 0.12:
                rival(self.chance.choice((0.0, 0.0, 0.5, 3.0, 35.0)), force=self.chance.random() < 0.5)
        await trio.sleep(
            max((each.error.seconds + 1 for each in endings if isinstance(each.error, Held)), default=0)
        )
        if not self.world.faults.fired and not any(each.end in (End.ENDED, End.WAITS) for each in endings):
            self.world.wrong(f"of {len(endings)} engines on run {target} none went on: {endings}")

    def _process(self) -> Process:
        self.processes += 1
        return Process(self.world, self.processes, self.latency)

    async def _driven(self, process: Process, target: str, *, force: bool = False) -> None:
        current.set(process)
        agents = self.scenario.agents(process)
        state = self.world.states.get(target)
        self.world.say(lambda: f"p{process.number} takes up {target} at event {state.seq if state else 0}")
        if state is not None:
            run, waits = agents[state.setup.agent].resume(target, take_over=force), state.asked_at is not None
        else:
            first = agents[self.scenario.roles[0].name]
            run, waits = first.start(TASK, run_id=target, seed=self.scenario.seed), False
        ending = await process.live(run, self._visitor(target, waits=waits))
        if ending.error is not None and not self._explained(process, ending.error):
            self.world.wrong(f"process {process.number} raised {ending.error!r}, and nothing explains it")
        self.endings.append(ending)

    def _visitor(self, target: str, *, waits: bool) -> Callable[[Run], Awaitable[bool]]:
        """Somebody who answers here and now, or leaves that to the next life; one that began so has its
        answer.

        Sometimes another engine is answered in the meantime, and this one rests with what it knew.
        """

        async def answers(run: Run) -> bool:
            if run.state.asked_at is None or not (waits or self.chance.random() < 0.5):
                return False
            if self.wild and self.chance.random() < 0.2:
                self.world.rivals += 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._driven, self._process(), target)
            return self.person.answer(run, run.state)

        return answers

    def _explained(self, process: Process, error: Exception) -> bool:
        """Whether what was planned explains this error: nothing else may stop an engine."""
        match error:
            case StoreUnavailable():
                return bool(process.struck & _UNAVAILABLE)
            case Held():
                return True
            case LeaseLapsed():
                return bool(process.struck & (_UNAVAILABLE | _LATE))
            case LeaseLost() | Overtaken() | WrongUse():
                return bool(self.world.rivals)  # somebody else took it, or said it first
            case _:
                return False

    @contextmanager
    def identified(self) -> Iterator[None]:
        """Leases are held by simulated processes, and this machine knows which of them are gone."""
        leases = Counter[int]()

        def holder() -> str:
            number = current.get().number
            leases[number] += 1
            return f"p{number}.{leases[number]}"

        def gone(held: str) -> bool:
            return self.nearby and held.split(".", maxsplit=1)[0] in self.world.dead

        def name() -> str:
            return f"p{current.get().number}"

        with (
            virtual.instead(refold.engine.tenure, "new_holder", holder),
            virtual.instead(refold.engine.tenure, "is_gone", gone),
            virtual.instead(refold.engine.agent, "this_process", name),
            virtual.instead(refold.engine.run, "this_process", name),
        ):
            yield

    def outcome(self) -> Outcome:
        """What came of it."""
        world, judge = self.world, self.judge
        return Outcome(
            plan=self.plan,
            violations=tuple(world.violations),
            fired=dict(world.faults.fired),
            kills=world.kills,
            lives=self.processes,
            doubts=judge.doubts,
            runs=len(world.logs),
            events=judge.events,
            end=self.end,
        )
