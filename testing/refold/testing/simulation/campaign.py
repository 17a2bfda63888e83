"""`simulate`: play many schedules of a user's agent, and shrink the first failure."""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, TypeVar, cast, overload

from refold.engine import Agent
from refold.engine.arguments import function as expected_function
from refold.engine.arguments import seconds as expected_seconds
from refold.engine.arguments import text as expected_text
from refold.engine.arguments import wrong_value
from refold.engine.tasks import in_event_loop
from refold.reducers.errors import WrongUse
from refold.testing.requests import forbid_requests
from refold.testing.simulation.effects import Ledger
from refold.testing.simulation.faults import STORE, Fault, Point, draw_swarm
from refold.testing.simulation.plan import Plan
from refold.testing.simulation.report import Failure, Report
from refold.testing.simulation.schedule import Outcome, play
from refold.testing.simulation.shrinking import shrink_plan
from refold.testing.simulation.subject import Answer, ModelChoice, Subject

W = TypeVar("W")

_LATE = "refold.late"
_UNDISTURBED = 5  # schedules of a random model that count the uses of each point
_STORE_USES = 6  # uses of each method of the store, besides `append`, that may fail
_LATER = (Point.READ, Point.LEASE)  # points that a resumed run uses more often than an undisturbed one


@overload
def simulate(
    make: Callable[[Ledger], Agent] | Agent,
    *,
    task: str = ...,
    seeds: int | Iterable[int] = ...,
    schedule: str | None = ...,
    check: Callable[[Ledger], Iterable[str] | None] | None = ...,
    snapshot: Callable[[Ledger], object] | None = ...,
    model: ModelChoice = ...,
    answer: Answer = ...,
    patience: float = ...,
    seconds: float | None = ...,
) -> Report: ...
@overload
def simulate(
    make: Callable[[W], Agent],
    *,
    world: Callable[[], W],
    task: str = ...,
    seeds: int | Iterable[int] = ...,
    schedule: str | None = ...,
    check: Callable[[W], Iterable[str] | None] | None = ...,
    snapshot: Callable[[W], object] | None = ...,
    model: ModelChoice = ...,
    answer: Answer = ...,
    patience: float = ...,
    seconds: float | None = ...,
) -> Report: ...
def simulate(
    make: Callable[[Any], Agent] | Agent,
    *,
    world: Callable[[], Any] = Ledger,
    task: str = "Do it.",
    seeds: int | Iterable[int] = 100,
    schedule: str | None = None,
    check: Callable[[Any], Iterable[str] | None] | None = None,
    snapshot: Callable[[Any], object] | None = None,
    model: ModelChoice = "own",
    answer: Answer = "approve",
    patience: float = 5_000.0,
    seconds: float | None = None,
) -> Report:
    """Run an agent under faults in many schedules on a virtual clock, and report broken promises.

    Each seed draws faults: kills, lost and doubled results, hangs, suspended processes, rival engines, set
    clocks. Equal seeds give equal logs, byte by byte. At the first failure, the simulation stops and
    removes all faults that the failure does not need.

    Args:
        make: called once for each engine process, with the outside world; it returns a new agent. An agent
            without handoffs may be given itself.
        world: makes the outside world of a schedule, which all its processes share. The default is a
            `Ledger`.
        task: the first message of the run.
        seeds: the seeds, or their number.
        schedule: plays only this schedule, as a failure prints it, with a trace.
        check: checks the outside world at the end of a schedule. It returns a sentence for each violation, or
            raises `AssertionError`.
        snapshot: selects the part of the outside world that a second execution of an idempotent or read-only
            tool may not change; without it, no attribute may change.
        model: "own" for the agent's `ScriptedModel`, the model of a `Recording`, or a model class of yours;
            "whim" for a model that calls the agent's tools at random with valid arguments.
        answer: the operator's answer to calls that wait for approval.
        patience: virtual seconds after which a run that did not end is a violation.
        seconds: real seconds after which no further schedule starts.

    Raises:
        WrongUse: the agent cannot be simulated, or an argument is wrong; the message names the place.
    """
    if in_event_loop():
        raise WrongUse("simulate runs an event loop of its own: call it from a function that is not async")
    subject = Subject(
        partial(_copy_agent, make) if isinstance(make, Agent) else expected_function(make, "make"),
        expected_text(task, "task"),
        expected_function(world, "world"),
        check=check,
        snapshot=snapshot,
        model=_choose(model, "model", ("own", "whim")),
        answer=_choose(answer, "answer", ("approve", "reject")),
        patience=expected_seconds(patience, "patience"),
    )
    report = Report(_describe_call(make, world, task, model, answer, check))
    begun = time.perf_counter()
    with _warnings_once(), forbid_requests() as refused:
        try:
            if schedule is not None:
                _play_one(report, subject, Plan.parse(expected_text(schedule, "schedule")))
            else:
                until = None if seconds is None else begun + expected_seconds(seconds, "seconds")
                _play_seeds(report, subject, _list_seeds(seeds), until)
        finally:
            subject.memory.restore()
    report.touched = subject.touched
    if refused:
        hosts = ", ".join(sorted(set(refused)))
        raise WrongUse(f"the simulated agent tried to reach {hosts}: give its tools fakes of these services")
    return report


def _copy_agent(agent: Agent, world: object) -> Agent:  # noqa: ARG001
    """Return a copy of an agent whose tools know nothing of the simulated world."""
    return copy(agent)


def _play_one(report: Report, subject: Subject, plan: Plan) -> None:
    begun = time.perf_counter()
    outcome = play(plan, subject, trace=True)
    report.seconds = time.perf_counter() - begun
    report.add(outcome)
    report.trace = outcome.trace
    if outcome.violations:
        _fail(report, outcome, outcome)


def _play_seeds(report: Report, subject: Subject, seeds: Iterable[int], until: float | None) -> None:
    """Play undisturbed schedules, which count the uses of each point, and then the seeds."""
    begun = time.perf_counter()
    undisturbed = [play(Plan(seed), subject) for seed in range(_UNDISTURBED if subject.whim else 1)]
    broken = next((outcome for outcome in undisturbed if outcome.violations), None)
    draw = partial(_draw_faults, _points(undisturbed, subject))
    drawn = (play(Plan.draw(seed, draw), subject) for seed in seeds)
    outcomes = drawn if broken is None else iter((broken,))
    for outcome in outcomes:
        report.add(outcome)
        report.seconds = time.perf_counter() - begun
        if outcome.violations:
            _fail(report, outcome, shrink_plan(outcome, lambda plan: play(plan, subject)))
            return
        if until is not None and time.perf_counter() > until:
            return


def _draw_faults(uses: dict[Point, int], chance: random.Random) -> tuple[Fault, ...]:
    return draw_swarm(chance, uses)


def _points(undisturbed: Iterable[Outcome], subject: Subject) -> dict[Point, int]:
    """Return how often each point may be used: more often than in undisturbed schedules."""
    uses: Counter[Point] = Counter()
    for outcome in undisturbed:
        uses |= Counter(outcome.uses)
    for point in _LATER:
        uses[point] += 2
    if subject.reconciles:
        uses[Point.RECONCILE] = 2
    for point in STORE:
        if point is not Point.APPEND and point in uses:
            uses[point] = min(uses[point], _STORE_USES)
    return dict(uses)


def _fail(report: Report, found: Outcome, shrunk: Outcome) -> None:
    report.violations = shrunk.violations
    report.failure = Failure(found.plan.seed, found.plan.deviations, shrunk.plan)


def _list_seeds(seeds: object) -> Iterable[int]:
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds > 0:
        return range(seeds)
    if isinstance(seeds, int | str) or not isinstance(seeds, Iterable):
        raise wrong_value("seeds", "a number of seeds from 1, or the seeds", seeds)
    listed = tuple(cast("Iterable[int]", seeds))
    if not listed:
        raise wrong_value("seeds", "at least one seed", listed)
    return listed


Choice = TypeVar("Choice", bound=str)


def _choose(given: Choice, place: str, known: tuple[str, ...]) -> Choice:
    if given not in known:
        raise wrong_value(place, " or ".join(map(repr, known)), given)
    return given


def _describe_call(
    make: Callable[..., object] | Agent,
    world: Callable[..., object],
    task: str,
    model: str,
    answer: str,
    check: Callable[..., object] | None,
) -> str:
    """Return the call that plays schedules of this subject, as text."""
    parts = ["agent" if isinstance(make, Agent) else _name(make)]
    parts += [f"world={_name(world)}"] if world is not Ledger else []
    parts.append(f"task={task!r}")
    parts += [f"check={_name(check)}"] if check is not None else []
    parts += [f"model={model!r}"] if model != "own" else []
    parts += [f"answer={answer!r}"] if answer != "approve" else []
    return f"simulate({', '.join(parts)})"


def _name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__name__", "..."))


@contextmanager
def _warnings_once() -> Generator[None]:
    """Log each warning once, not for every process, and no late results, which planned faults lose."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        known = text in seen or record.name == _LATE
        seen.add(text)
        return not known

    loggers = [logging.getLogger(name) for name in ("refold.policy", "refold.tools", _LATE)]
    for logger in loggers:
        logger.addFilter(is_new)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_new)
