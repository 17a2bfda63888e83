"""Play simulated schedules: one again, with its trace, or as many as fit in some seconds (`make soak`).

    python tests/simulation/run.py --seed 123                                  the schedule of a seed
    python tests/simulation/run.py --schedule 'seed=3 kill:append:7'           one schedule, as failures
    print it python tests/simulation/run.py --scenario tools --schedule kill:append:7   the same in a
    scenario by hand python tests/simulation/run.py --soak 60 [--from 1000]                     new seeds
    for 60 seconds python tests/simulation/run.py --everything                                every fault at
    every place

Exits with 0 without violations, else with 1. Each violation is printed with the command that plays it again.
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

from refold.testing.simulation.plan import Plan  # noqa: E402
from refold.testing.simulation.schedule import Outcome  # noqa: E402
from simulation.exhausting import plays  # noqa: E402
from simulation.figures import Figures  # noqa: E402
from simulation.plays import Play, of_seed  # noqa: E402
from simulation.scenarios import BY_HAND  # noqa: E402


def main() -> int:
    """Play, print the result, and return the exit code."""
    logging.getLogger("refold").setLevel(logging.ERROR)
    options = _options()
    if options.everything:
        return _play_many(each for name in BY_HAND for each in plays(name, everything=True))
    if options.soak:
        return _play_many(_play_seeds(options.soak, options.start))
    return _play_one(options)


def _play_one(options: argparse.Namespace) -> int:
    if options.scenario or options.schedule:
        made = Play(Plan.parse(options.schedule), options.scenario)
    else:
        made = of_seed(options.seed)
    print(f"schedule: {made.plan}")
    outcome = made.play(trace=True)
    figures = Figures()
    figures.add(outcome)
    print("\n".join(outcome.trace))
    print(f"end: {outcome.end}; {figures}")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    return bool(outcome.violations)


def _play_seeds(seconds: float, start: int) -> Iterator[tuple[Play, Outcome]]:
    until = time.monotonic() + seconds
    for seed in count(start):
        made = of_seed(seed)
        yield made, made.play()
        if time.monotonic() > until:
            return


def _play_many(played: Iterable[tuple[Play, Outcome]]) -> int:
    """Print violations at once, and the totals last."""
    figures = Figures()
    for made, outcome in played:
        figures.add(outcome)
        if outcome.violations:
            print(f"{made}\n    {outcome.violations[0]}", flush=True)
    print(figures)
    return bool(figures.violations)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play simulated schedules.")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--scenario", default="", metavar="NAME", help="by hand, instead of the seed's")
    parser.add_argument("--schedule", default="", metavar="TEXT", help="as in 'seed=3 kill:append:7'")
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    fresh = int(time.time()) * 1000
    parser.add_argument("--from", type=int, default=fresh, dest="start", metavar="SEED", help="the first one")
    parser.add_argument("--everything", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
