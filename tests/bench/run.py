"""`make bench`: every figure of docs/reference/performance.md, in one run. Never part of the tests.

    python tests/bench/run.py [PART ...] [--rounds N] [--steps 100,1000] [--patience SECONDS] [--calls N]

Microseconds are this machine's, at this moment; the ratios are what to compare.
"""

import argparse
import os
import platform
import sqlite3
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a script's own folder is on the path, not the one above it

from bench.appends import RUNS, SYNCHRONOUS, append_cases, batches, shared_cases, steps  # noqa: E402
from bench.bulk import bulk_cases, made, two  # noqa: E402
from bench.commands import print_commands  # noqa: E402
from bench.core import STEPS_TIMED, core_cases, step_cases  # noqa: E402
from bench.engine import print_engine  # noqa: E402
from bench.imports import imported  # noqa: E402
from bench.postgres import print_postgres  # noqa: E402
from bench.resume import resume_cases  # noqa: E402
from bench.rules import print_rules  # noqa: E402
from bench.timing import Case, Times, interleaved, told_seconds  # noqa: E402
from bench.verbs import import_cases, texts, verb_cases  # noqa: E402
from bench.workload import GUARDS, POLICIES, STRATEGIES, Group, opening, recorded, step  # noqa: E402
from refold.reducers import RunState  # noqa: E402

MICRO = 1e6
LONG = 12_000
"""Steps until an unpruned window holds 30,000 messages."""
APPENDED = 200
SHARED = 40
RESUMED = (1_000, 10_000, 100_000)
"""Events of a run that is opened again."""
IMPORTED = 400_000
"""Bytes of a format's transcripts that are imported in a round, at least."""
READ = 12
"""Runs of a store over which verbs go."""
_STEP = ("decide", "compose and decide")


def main() -> None:
    """Measure and print."""
    options = _options()
    _print_machine(options.rounds)
    for name in options.parts or PARTS:
        PARTS[name](options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure refold against its anchors, in one run.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; without one, all of them"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="interleaved rounds, 5 or more")
    parser.add_argument(
        "--steps",
        type=lambda text: tuple(sorted({int(word) for word in text.split(",")})),
        default=(100, 1_000, 10_000),
        metavar="N,N",
        help="lengths of the logs",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=15,
        metavar="SECONDS",
        help="CPU seconds that one run of the engine may go on",
    )
    parser.add_argument(
        "--calls", type=int, default=100_000, metavar="N", help="calls that rules are asked about"
    )
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"{name}: expected some of {', '.join(PARTS)}")
    return options


def _print_machine(rounds: int) -> None:
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.platform()},")
    print(f"Python {_optimisation()},")
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {rounds} interleaved rounds, CPU time"
    )


def _optimisation() -> str:
    """How the interpreter was built: its times are not those of one built otherwise."""
    told = str(sysconfig.get_config_var("CONFIG_ARGS"))
    used = [flag for flag in ("--enable-optimizations", "--with-lto", "--with-pydebug") if flag in told]
    return f"built with {' '.join(used)}" if used else "built without profile-guided optimisation and LTO"


def _print_core(lengths: tuple[int, ...], rounds: int) -> None:
    print("\nMicroseconds an event, and as multiples of the bare msgspec decode of the same bytes.")
    print(
        "An audit reads bytes: it decodes the facts. Aims: bodies+fold 1.5x; audit 2.9x by default, 5x guarded"
    )
    print(
        f"{'policy':8} {'steps':>6} {'events':>6} | {'bare':>5} {'bodies':>6} | {'decode':>6} {'bodies':>6} "
        f"{'fold':>6} {'audit':>6} | {'bodies+fold':>11} {'decode+fold':>11} {'audit':>12} | {'to bodies':>9}"
    )
    for policy in POLICIES:
        _, groups = recorded(policy, max(lengths))
        for length in lengths:
            _print_log(policy, length, groups[: 1 + _facts(length)], rounds)


def _facts(steps: int) -> int:
    """Facts of so many steps: an answer each, and one or two results in turn."""
    return 2 * steps + steps // 2


def _print_log(policy: str, steps: int, groups: list[Group], rounds: int) -> None:
    times = interleaved(core_cases(groups), rounds=max(rounds, 2_000 // steps))
    events = sum(map(len, groups))

    def us(name: str) -> float:
        return times.median(name) * MICRO / events

    print(
        f"{policy:8} {steps:6} {events:6} | {us('bare'):5.2f} {us('bare bodies'):6.2f} | {us('decode'):6.2f} "
        f"{us('decode bodies'):6.2f} {us('fold'):6.2f} {us('audit'):6.2f} "
        f"| {times.ratio('bare', 'decode bodies', 'fold'):10.2f}x {times.ratio('bare', 'decode', 'fold'):10.2f}x "
        f"{times.ratio('bare', 'audit'):11.2f}x "
        f"| {times.ratio('bare bodies', 'decode bodies', 'fold'):8.2f}x"
    )


def _print_steps(policies: Iterable[str], lengths: tuple[int, ...], rounds: int) -> None:
    print(
        "\nMicroseconds a step: advance and next_effects, and with composing the facts; against the shortest log"
    )
    print(
        f"{'policy':21} {'steps':>6} {'window':>6} | {'decide':>8} {'ratio':>6} | {'composed':>8} {'ratio':>6}"
    )
    for policy in policies:
        states = _states(policy, lengths)
        cases = {
            f"{name} {length}": case
            for length, state in states.items()
            for name, case in step_cases(state, length).items()
        }
        times = interleaved(cases, rounds=3 * rounds)
        for length, state in states.items():
            print(
                f"{policy:21} {length:6} {state.window.count:6}" + _step_columns(times, length, min(lengths))
            )


def _step_columns(times: Times, length: int, first: int) -> str:
    columns = ""
    for name in _STEP:
        us = times.median(f"{name} {length}") * MICRO / STEPS_TIMED
        columns += f" | {us:8.1f} {times.ratio(f'{name} {first}', f'{name} {length}'):5.2f}x"
    return columns


def _print_guards(steps: int, rounds: int) -> None:
    cases: dict[str, Case] = {}
    for policy in GUARDS:
        state = _states(policy, (steps,))[steps]
        cases |= {f"{policy}: {name}": case for name, case in step_cases(state, steps).items()}
    times = interleaved(cases, rounds=3 * rounds)
    ratio = {name: times.ratio(f"no guard: {name}", f"all guards: {name}") for name in _STEP}
    print("\nA step with all guards against one with none, side by side")
    print(" | ".join(f"{name} {ratio[name]:5.2f}x" for name in _STEP))


def _states(policy: str, lengths: tuple[int, ...]) -> dict[int, RunState]:
    """The state after each of these numbers of steps."""
    states: dict[int, RunState] = {}
    state, _ = opening(policy)
    for number in range(max(lengths)):
        if number in lengths:
            states[number] = state
        state, _ = step(state, number)
    return {**states, max(lengths): state}


def _print_appends(rounds: int) -> None:
    print("\nAppends a second, one run, each awaited; wall time, against plain sqlite3 in-line")
    _, groups = recorded("default", APPENDED)
    log = batches(groups)
    # In the clone, because a temporary folder may be in memory, where nothing is ever flushed.
    parent = ROOT / ".benchmarks"
    parent.mkdir(exist_ok=True)
    for durability in SYNCHRONOUS:
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            times = interleaved(
                append_cases(Path(folder), log, durability), rounds=rounds, timer=told_seconds
            )
        us = {name: times.median(name) * MICRO / len(log) for name in ("plain", "hop", "store")}
        print(
            f"{durability:8} | plain {MICRO / us['plain']:6.0f}/s ({us['plain']:5.0f} us) | a hop {us['hop']:5.0f} us "
            f"| store {MICRO / us['store']:6.0f}/s ({us['store']:5.0f} us) | {times.ratio('plain', 'store'):5.2f}x"
        )


def _print_resumes(rounds: int) -> None:
    print(
        "\nOpening a run to its next effect; milliseconds by the clock, against plain sqlite3 reading its rows"
    )
    with tempfile.TemporaryDirectory() as folder:
        for events in RESUMED:
            times = interleaved(resume_cases(Path(folder), events), rounds=rounds, timer=told_seconds)
            ms = {name: times.median(name) * 1000 for name in ("scan", "folded", "snapshot")}
            print(
                f"{events:6} events | scan {ms['scan']:6.1f} | folded {ms['folded']:7.1f} {times.ratio('scan', 'folded'):5.2f}x "
                f"| from a snapshot {ms['snapshot']:6.1f} {times.ratio('scan', 'snapshot'):5.2f}x"
            )


def _print_bulk(rounds: int) -> None:
    print(
        "\nAuditing a whole store from its file, against the bare decode of the same bytes in memory: CPU time;"
        " two cores by the clock. Aims: 95,000/s by default, 60,000/s limited; 1.8 times"
    )
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as folder, two() as executor:
            bulk = made(Path(folder), policy)
            times = interleaved(bulk_cases(bulk, executor), rounds=rounds, timer=told_seconds)
        rates = {name: bulk.events / times.median(name) for name in ("bare", "one", "two")}
        print(
            f"{policy:8} {bulk.events:6} events | decode {rates['bare']:7.0f}/s | one core {rates['one']:6.0f}/s "
            f"{times.ratio('bare', 'one'):5.2f}x | two {rates['two']:6.0f}/s, {times.ratio('two', 'alone'):4.2f} times as fast"
        )


def _print_verbs(rounds: int) -> None:
    print(
        "\nImporting transcripts, MB a second of CPU time: the bare decode of the same bytes, what the importer says,"
    )
    print("and whole logs derived. Aims: 25 MB/s for claude_code, at most 15 times the bare decode")
    for of in texts():
        times = interleaved(import_cases(of, max(1, IMPORTED // of.size)), rounds=rounds)
        size = max(1, IMPORTED // of.size) * of.size / 1e6
        bare, items, whole = (size / times.median(name) for name in ("bare", "items", "import"))
        print(
            f"{of.format:15} {of.size / 1000:6.0f} KB | decode {bare:6.1f} | items {items:6.2f} {times.ratio('bare', 'items'):6.1f}x "
            f"| import {whole:6.2f} {times.ratio('bare', 'import'):6.1f}x"
        )
    print("\nVerbs over a store, events a second of CPU time on one process")
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as folder:
            bulk = made(Path(folder), policy)
            cases = verb_cases(bulk, READ)
            times = interleaved(cases, rounds=rounds)
        events = sum(size for _, size in bulk.sizes[:READ])
        print(f"{policy:8} | " + " | ".join(f"{name} {events / times.median(name):7.0f}/s" for name in cases))


def _print_shared_appends(rounds: int) -> None:
    _, groups = recorded("default", SHARED)
    log = steps(groups)
    size = sum(len(each.body) + len(each.content or b"") for records in log for each in records) / len(log)
    events = sum(map(len, log)) / len(log)
    print(f"\nAppends of {RUNS} runs at once, {events:.1f} events and {size / 1000:.1f} KB each; wall time,")
    print("against plain sqlite3 in-line, committing the same groups with the rows ready")
    for durability in SYNCHRONOUS:
        waited = list[float]()
        with tempfile.TemporaryDirectory(dir=ROOT / ".benchmarks") as folder:
            cases = shared_cases(Path(folder), log, durability, waited)
            times = interleaved(cases, rounds=2 * rounds, timer=told_seconds)
        us = {name: times.median(name) * MICRO / len(log) / RUNS for name in cases}
        waited.sort()
        p50, p99 = (waited[len(waited) * each // 100] * 1000 for each in (50, 99))
        print(
            f"{durability:8} | plain {us['plain']:5.0f} us | store {us['store']:5.0f} us | {times.ratio('plain', 'store'):5.2f}x "
            f"| an append waits {p50:.1f} ms, at p99 {p99:.1f} ms"
        )


def _print_imports() -> None:
    print(
        "\nA fresh interpreter, all compiled, medians of 7: CPU time of the import, peak memory. Aim: 70 ms"
    )
    for name, (seconds, peak) in imported().items():
        print(f"{name:16} {seconds * 1000:6.1f} ms {peak / 2**20:6.1f} MB")


def _measure_guards(options: argparse.Namespace) -> None:
    _print_steps(GUARDS, options.steps, options.rounds)
    _print_guards(min(options.steps), options.rounds)


def _measure_appends(options: argparse.Namespace) -> None:
    _print_appends(options.rounds)
    _print_shared_appends(options.rounds)


PARTS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "core": lambda options: _print_core(options.steps, options.rounds),
    "steps": lambda options: _print_steps(POLICIES, (*options.steps, LONG), options.rounds),
    "guards": _measure_guards,
    "history": lambda options: _print_steps(STRATEGIES, options.steps, options.rounds),
    "engine": lambda options: print_engine(options.rounds, options.patience),
    "appends": _measure_appends,
    "postgres": lambda options: print_postgres(options.rounds),
    "resumes": lambda options: _print_resumes(options.rounds),
    "bulk": lambda options: _print_bulk(options.rounds),
    "imports": lambda _: _print_imports(),
    "verbs": lambda options: _print_verbs(options.rounds),
    "commands": lambda options: print_commands(options.rounds),
    "rules": lambda options: print_rules(options.rounds, options.calls),
}
"""What can be measured, in the order of the whole."""


if __name__ == "__main__":
    main()
