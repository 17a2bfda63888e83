"""The step of the whole engine, with a model and a tool that take no time; beside it, others' in the same
rounds.

Each is measured in a process of its own, so that none pays for what another left behind.
"""

import tempfile
from contextlib import ExitStack

from bench.contenders import ENVIRONMENTS, REQUIRED, Contender, Missing, contender
from bench.engine_steps import WINDOWS, Alone, Beginning, Counts, Memory, Together
from bench.instant import POLICIES

STORES = {"memory": "in memory", "process": "SQLite, process", "fsync": "SQLite, fsync"}
RUNS = {1: 200, 64: 32, 200: 20, 1_000: 4}
"""Runs at once, and steps of each."""
TAIL = "tail of 100"
BESIDE = (50, 200)
"""Steps of the runs that others are compared by."""
ALONE = (1_100, 10_000)
"""Steps of a run by itself: in each round, and once."""
BEGUN = 100
"""Runs that are begun one after the other."""
HELD = (16, 50)
"""Runs whose memory is measured, and steps of each."""
_ALONE = (
    ("memory", "unpruned", "short"),
    ("memory", TAIL, "short"),
    ("memory", TAIL, "long"),
    ("process", TAIL, "short"),
)


class Aims:
    """Figures that have an aim, gathered while they are measured, and printed together."""

    def __init__(self) -> None:
        self._lines = list[tuple[str, str, str]]()

    def add(self, what: str, measured: str, aim: str) -> None:
        """A line of its own."""
        self._lines.append((what, measured, aim))

    def print(self) -> None:
        """All of them, in the order in which they came."""
        print(f"\n{'the aims for the engine':46} {'measured':>10} {'aim':>12}")
        for what, measured, aim in self._lines:
            print(f"{what:46} {measured:>10} {aim:>12}")


def print_engine(rounds: int, patience: float) -> None:
    """Everything about the engine's step; `patience` is for how many CPU seconds one run may go on."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    aims = Aims()
    # In the clone, because a temporary folder may be in memory, where nothing is ever flushed.
    with tempfile.TemporaryDirectory(dir=ENVIRONMENTS.parent) as folder, Contender("engine_steps.py") as ours:
        print_beginning(ours, folder, aims)
        print_counts(ours, folder)
        print_memory(ours, folder, aims)
        print_alone(ours, folder, rounds, patience, aims)
        print_together(ours, folder, min(rounds, 2), aims)
        print_beside(ours, folder, rounds, aims)
    aims.print()


def print_beginning(ours: Contender, folder: str, aims: Aims) -> None:
    """A run without a step: the first of a process, and medians of many."""
    print("\nA run without a step, CPU ms: an agent is made; it starts, up to the first request; it ends")
    first = ours.ask(Beginning, "beginning", store="memory", folder=folder, runs=1)
    _print_beginning("first of a process", first)
    for store in ("memory", "process"):
        begun = ours.ask(Beginning, "beginning", store=store, folder=folder, runs=BEGUN)
        _print_beginning(STORES[store], begun)
        if store == "memory":
            aims.add("start of a run, in memory", f"{begun.start:.2f} ms", "0.5 ms")


def _print_beginning(name: str, begun: Beginning) -> None:
    print(f"{name:20} | agent {begun.agent:6.2f} | start {begun.start:6.2f} | end {begun.end:6.2f}")


def print_counts(ours: Contender, folder: str) -> None:
    """What one step is made of."""
    print(f"\nOf a step, {TAIL}, in the event loop's thread")
    for store in ("memory", "process"):
        made = ours.ask(Counts, "counts", store=store, folder=folder, policy=TAIL, skipped=100, steps=50)
        print(
            f"{STORES[store]:20} | Python calls {made.python:6.0f} | C calls {made.c:6.0f} | tasks {made.tasks:5.2f} "
            f"| handles {made.handles:5.2f}"
        )


def print_memory(ours: Contender, folder: str, aims: Aims) -> None:
    """What a live run of 50 steps holds."""
    runs, steps = HELD
    print(
        f"\nA live run after {steps} steps, of {runs} at once: KB by tracemalloc, and over the text of its window"
    )
    for store, policy in (("memory", "unpruned"), ("process", "unpruned"), ("process", TAIL)):
        held = ours.ask(Memory, "memory", store=store, folder=folder, policy=policy, runs=runs, steps=steps)
        ratio = held.traced / held.window
        log = ", its log included" if store == "memory" else ""
        print(
            f"{STORES[store]:20} {policy:12} | {held.traced / 1000:6.1f} KB | window {held.window / 1000:6.1f} K characters "
            f"| {ratio:5.2f}x{log}"
        )
        if (store, policy) == ("process", TAIL):
            aims.add("a live run over its window's text, on SQLite", f"{ratio:.2f}x", "1.5x")


def print_alone(ours: Contender, folder: str, rounds: int, patience: float, aims: Aims) -> None:
    """One run at a time: what a step costs as the run grows."""
    print(f"\nCPU us a step of one run, around a step; best of {rounds} rounds (from 10,000 on, of one)")
    print(f"{'':46}" + "".join(f" {f'step {number:,}':>12}" for number in WINDOWS))
    best: dict[tuple[str, str, str], dict[int, float]] = {row: {} for row in _ALONE}
    stopped = dict[tuple[str, str, str], int]()
    short, long = ALONE
    for steps in [short] * rounds + [long]:
        for row in _ALONE:
            if steps == long and row[2] == "long":
                continue
            alone = _alone(ours, folder, row, steps, patience)
            for number, us in alone.at.items():
                best[row][number] = min(us, best[row].get(number, us))
            if alone.reached < steps:
                stopped[row] = alone.reached
    for row, at in best.items():
        store, policy, texts = row
        cells = "".join(f" {at[number]:12.0f}" if number in at else f" {'-':>12}" for number in WINDOWS)
        halted = f"  stopped after {stopped[row]:,} steps" if row in stopped else ""
        print(f"{STORES[store]:20} {policy:12} {texts + ' texts':12}{cells}{halted}")
    aims.add("step 100, in memory, tail of 100", _us(best[_ALONE[1]].get(100)), "150 us")
    for later in (1_000, 10_000):
        for row, sooner in ((_ALONE[0], 10), (_ALONE[1], 100)):
            ratio = _over(best[row].get(later), best[row].get(sooner))
            aims.add(f"step {later:,} / step {sooner}, in memory, {row[1]}", ratio, "1.1x")


def _alone(ours: Contender, folder: str, row: tuple[str, str, str], steps: int, patience: float) -> Alone:
    store, policy, texts = row
    return ours.ask(
        Alone,
        "alone",
        store=store,
        folder=folder,
        policy=policy,
        steps=steps,
        texts=texts,
        patience=patience,
    )


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.0f} us"


def _over(later: float | None, sooner: float | None) -> str:
    return "-" if later is None or sooner is None else f"{later / sooner:.2f}x"


def print_together(ours: Contender, folder: str, rounds: int, aims: Aims) -> None:
    """Many runs at once in one event loop."""
    print(f"\nRuns at once in one process, {TAIL}; best of {rounds} rounds (1,000 runs: of one)")
    print("lag: how many ms later than it asked a task goes on that sleeps 2 ms again and again")
    print(f"{'':20} {'runs':>6} {'steps':>6} | {'us/step':>8} {'steps/s':>8} | lag p50      p99      max")
    for store, name in STORES.items():
        for runs, steps in RUNS.items():
            told = [
                ours.ask(
                    Together, "together", store=store, folder=folder, policy=TAIL, runs=runs, steps=steps
                )
                for _ in range(rounds if runs < 1_000 else 1)
            ]
            us, rate = min(each.us for each in told), max(each.rate for each in told)
            p50, p99, most = (
                min(getattr(each, field) for each in told) for field in ("lag_p50", "lag_p99", "lag_max")
            )
            print(
                f"{name:20} {runs:6,} {steps:6} | {us:8.0f} {rate:8.0f} | {p50:7.1f} {p99:8.1f} {most:8.1f}"
            )
            if runs == 200 and store != "fsync":
                aims.add(f"200 runs, {name}", f"{rate:.0f}/s", "5,000/s" if store == "memory" else "2,500/s")
                if store == "memory":
                    aims.add(f"200 runs, {name}: lag at p99", f"{p99:.1f} ms", "10 ms")
                    aims.add(f"200 runs, {name}: largest lag", f"{most:.1f} ms", "20 ms")


def print_beside(ours: Contender, folder: str, rounds: int, aims: Aims) -> None:
    """Others in the same rounds: the mean step of whole runs, without their start and end."""
    print(
        "\nBeside others, in memory: CPU us a step, the mean of a run, best of the rounds, and refold's (unpruned) over it"
    )
    with ExitStack() as stack:
        others = dict[str, Contender]()
        for name in REQUIRED:
            try:
                others[name] = stack.enter_context(contender(name))
            except Missing as missing:
                print(f"{name} is not measured: {missing}")
        for other in others.values():
            print(", ".join(f"{package} {number}" for package, number in other.versions.items()))
        _print_beside(ours, folder, rounds, others, aims)


def _print_beside(
    ours: Contender, folder: str, rounds: int, others: dict[str, Contender], aims: Aims
) -> None:
    taken: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for steps in BESIDE:
            for policy in POLICIES:
                us = _alone(ours, folder, ("memory", policy, "short"), steps, 60).mean
                taken.setdefault((f"refold, {policy}", steps), []).append(us)
            for name, other in others.items():
                for case in CASES[name]:
                    us = other.ask(float, case, steps=steps)
                    taken.setdefault((f"{name}, {case}", steps), []).append(us)
    print(f"{'':36}" + "".join(f" | {f'{steps} steps':>10} {'ratio':>6}" for steps in BESIDE))
    for name in dict.fromkeys(name for name, _ in taken):
        line = f"{name:36}"
        for steps in BESIDE:
            theirs, unpruned = taken[name, steps], taken["refold, unpruned", steps]
            ratio = min(unpruned) / min(theirs)
            line += f" | {min(theirs):10.0f} {ratio:5.2f}x"
            if name == "langgraph, StateGraph":
                aims.add(
                    f"a step / LangGraph's StateGraph, {steps} steps",
                    f"{ratio:.2f}x",
                    "0.2x" if steps == 50 else "0.1x",
                )
        print(line)


CASES = {
    "langgraph": ("bare nodes", "StateGraph", "InMemorySaver"),
    "pydantic_ai": ("FunctionModel", "own Model class"),
}
"""What the scripts of `REQUIRED` measure."""
