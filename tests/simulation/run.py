"""Play simulated schedules: one again, with its trace, or as many as fit in some seconds (`make soak`).

    python tests/simulation/run.py --seed 123                                 one schedule, step by step
    python tests/simulation/run.py --scenario tools --fault kill:append:7     one fault in a scenario by hand
    python tests/simulation/run.py --soak 60 [--from 1000]                    new seeds for 60 seconds
    python tests/simulation/run.py --everything                               every fault at every place

Exits with 0 if every promise was kept, 1 if not. Each broken one is printed with the command that plays it
again.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a script's own folder is on the path, not the one above it

from simulation.exhausting import outcomes  # noqa: E402
from simulation.faults import Fault  # noqa: E402
from simulation.figures import Figures  # noqa: E402
from simulation.scenarios import BY_HAND  # noqa: E402
from simulation.schedule import Outcome, Plan, play  # noqa: E402


def main() -> int:
    """Play, and say what came of it."""
    logging.getLogger("refold").setLevel(logging.ERROR)
    options = _options()
    if options.everything:
        return _judged(outcome for name in BY_HAND for outcome in outcomes(name, everything=True))
    if options.soak:
        return _judged(_seeds(options.soak, options.start))
    return _one(options)


def _one(options: argparse.Namespace) -> int:
    if options.scenario or options.fault:
        plan = Plan(options.seed, options.scenario, tuple(map(Fault.parse, options.fault)))
    else:
        plan = Plan.by_chance(options.seed)
    print(f"faults: {', '.join(map(str, plan.faults)) or 'none'}")
    outcome = play(plan, trace=True)
    figures = Figures()
    figures.add(outcome)
    print(f"end: {outcome.end}; {figures}")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    return bool(outcome.violations)


def _seeds(seconds: float, start: int) -> Iterator[Outcome]:
    until = time.monotonic() + seconds
    for seed in count(start):
        yield play(Plan.by_chance(seed))
        if time.monotonic() > until:
            return


def _judged(played: Iterable[Outcome]) -> int:
    """Print what went wrong as it comes, and the figures last."""
    figures = Figures()
    for outcome in played:
        figures.add(outcome)
        if outcome.violations:
            print(f"{outcome.plan}\n    {outcome.violations[0]}", flush=True)
    print(figures)
    return bool(figures.violations)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play simulated schedules.")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--scenario", default="", metavar="NAME", help="one by hand, instead of the seed's")
    parser.add_argument("--fault", action="append", default=[], metavar="KIND:POINT:N[+]")
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    fresh = int(time.time()) * 1000
    parser.add_argument("--from", type=int, default=fresh, dest="start", metavar="SEED", help="the first one")
    parser.add_argument("--everything", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
