"""The report of a simulation: what the tools did, which faults fired, and the first failure."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from refold.reducers.events import DoubtResolved, ModelResponded, ToolReturned, ToolsDispatched
from refold.reducers.vocabulary import Doubt, ToolError
from refold.testing.simulation.faults import Fault
from refold.testing.simulation.plan import Plan
from refold.testing.simulation.schedule import Outcome
from refold.testing.simulation.violations import Violation
from refold.testing.simulation.world import World

_HEADINGS = ("calls", "executions", "repeated", "lost", "in doubt")
_LISTED = 8


class ToolFigures(msgspec.Struct):
    """What became of the calls of one tool, over all schedules.

    `calls`: calls that were dispatched. `executions`: how often the tool started to work. `repeated`:
    executions after the first one of a call. `lost`: executions whose result no log has, because their
    process died or lost its lease. `in_doubt`: calls that ended with an unknown outcome.
    """

    calls: int = 0
    executions: int = 0
    repeated: int = 0
    lost: int = 0
    in_doubt: int = 0


class Failure(msgspec.Struct, frozen=True):
    """The first failure: the seed that found it, the number of its deviations, and the shrunk plan."""

    seed: int
    deviations: int
    plan: Plan


class SimulationFailed(AssertionError):
    """A simulation found a violation. `report` is the report, `schedule` plays the failure again."""

    def __init__(self, report: "Report") -> None:
        super().__init__(report)
        self.report = report
        self.schedule = report.schedule

    def __str__(self) -> str:
        return str(self.report)


class Report(msgspec.Struct):
    """The result of `simulate`.

    Args:
        call: the call of `simulate` without seeds, as text.
        schedules: how many schedules were played, without those that shrink a failure.
        events: the events of all their logs.
        tools: what became of the calls, by tool.
        fired: how often each kind of fault fired.
        planned: the planned faults, as `kind:point`, with the number of those that fired.
        quiet: seeds of schedules that planned a fault, and none fired.
        violations: the violations of the shrunk schedule.
        failure: the first failure.
        trace: the steps of the schedule, if one schedule was requested.
        seconds: real seconds that all schedules took.
        touched: whether a schedule changed its outside world.
    """

    call: str
    schedules: int = 0
    events: int = 0
    tools: dict[str, ToolFigures] = {}
    fired: dict[str, int] = {}
    planned: dict[str, int] = {}
    quiet: list[int] = []
    violations: tuple[Violation, ...] = ()
    failure: Failure | None = None
    trace: list[str] = []
    seconds: float = 0.0
    touched: bool = True

    @property
    def ok(self) -> bool:
        """Return whether no violation was found."""
        return not self.violations

    @property
    def schedule(self) -> str:
        """Return the text of the shrunk schedule; "" without a failure."""
        return "" if self.failure is None else str(self.failure.plan)

    @property
    def never_fired(self) -> list[str]:
        """Return the planned faults that never fired, as `kind:point`."""
        return sorted(name for name, times in self.planned.items() if not times)

    def check(self) -> "Report":
        """Raise `SimulationFailed` if there is a violation; else return this report."""
        __tracebackhide__ = True
        if self.violations:
            raise SimulationFailed(self)
        return self

    def add(self, outcome: Outcome) -> None:
        """Add the figures of one schedule."""
        self.schedules += 1
        self.events += outcome.events
        for kind, times in outcome.fired.items():
            self.fired[kind] = self.fired.get(kind, 0) + times
        for fault in outcome.plan.faults:
            name = _name(fault)
            self.planned[name] = self.planned.get(name, 0) + (fault in outcome.effective)
        if outcome.plan.faults and not outcome.fired:
            self.quiet.append(outcome.plan.seed)
        _add_tools(self.tools, outcome.world)

    def __str__(self) -> str:
        rate = f"{self.schedules / self.seconds:.0f} schedules/s" if self.seconds else "no time"
        counted = "1 schedule" if self.schedules == 1 else f"{self.schedules:,} schedules"
        result = "no violation" if self.ok else str(self.violations[0])
        lines = [f"simulated {counted}, {self.events:,} events ({rate}): {result}"]
        lines += [f"also: {each}" for each in self.violations[1:4]]
        if self.failure is not None:
            lines += [*self._found(), f"play again: {self.call[:-1]}, schedule={self.schedule!r})"]
        lines += ["", *_table(self.tools), ""]
        if not self.touched:
            lines.append("the outside world never changed: effects of the tools were not checked")
        lines.append(f"fired: {_list_counts(self.fired)}")
        if self.never_fired:
            lines.append(f"never fired: {', '.join(self.never_fired)}")
        if self.quiet:
            lines.append(f"schedules in which no planned fault fired: {_count_seeds(self.quiet)}")
        if self.trace:
            lines += ["", *self.trace]
        return "\n".join(lines)

    def _found(self) -> list[str]:
        assert self.failure is not None
        left = self.failure.plan.deviations
        if self.trace or left == self.failure.deviations:
            return []
        return [
            f"found by seed {self.failure.seed}, and shrunk from {self.failure.deviations} deviations to {left}"
        ]


def _name(fault: Fault) -> str:
    return f"{fault.kind}:{fault.point}"


def _list_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counts.items())) or "none"


def _count_seeds(seeds: list[int]) -> str:
    shown = ", ".join(map(str, seeds[:_LISTED]))
    return f"{len(seeds)} (seed{'s' * (len(seeds) > 1)} {shown}{', ...' * (len(seeds) > _LISTED)})"


def _table(tools: dict[str, ToolFigures]) -> Iterable[str]:
    width = max(len(name) for name in (*tools, "tool"))
    yield f"{'tool':{width}}  {'  '.join(_HEADINGS)}"
    for name, figures in sorted(tools.items()):
        cells = (
            f"{number:>{len(head)}}"
            for number, head in zip(msgspec.structs.astuple(figures), _HEADINGS, strict=True)
        )
        yield f"{name:{width}}  {'  '.join(cells)}"


def _add_tools(tools: dict[str, ToolFigures], world: World) -> None:
    """Count calls by the logs, and executions by the world."""
    for run, log in world.logs.items():
        names: dict[str, str] = {}
        settled: Counter[str] = Counter()  # by call: results that executions of its tool returned
        for event in log:
            match event:
                case ModelResponded():
                    names.update((call.id, call.name) for call in event.calls)
                case ToolsDispatched():
                    for call in event.calls:
                        tools.setdefault(names[call], ToolFigures()).calls += 1
                case ToolReturned():
                    tools.setdefault(names[event.call], ToolFigures()).in_doubt += (
                        event.error is ToolError.IN_DOUBT
                    )
                    settled[event.call] += event.error not in (ToolError.IN_DOUBT, ToolError.CANCELLED)
                case DoubtResolved(doubt=Doubt.HAPPENED):
                    settled[event.call] -= 1  # its result is not that of an execution
                case _:
                    pass
        for (where, call), executions in world.executions.items():
            if where == run and call in names:
                figures = tools.setdefault(names[call], ToolFigures())
                own = sum(not each.again for each in executions)
                figures.executions += len(executions)
                figures.repeated += len(executions) - 1
                figures.lost += max(0, own - max(0, settled[call]))
