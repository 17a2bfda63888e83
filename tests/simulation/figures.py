"""The totals of many schedules, in one line."""

import time
from collections import Counter

from refold.testing.simulation.faults import Kind
from refold.testing.simulation.schedule import Outcome


class Figures:
    """Sums over outcomes."""

    def __init__(self) -> None:
        self.schedules = self.kills = self.lives = self.doubts = self.runs = self.events = self.violations = 0
        self.fired: Counter[Kind] = Counter()
        self.ends: Counter[str] = Counter()
        self._began = time.perf_counter()

    def add(self, outcome: Outcome) -> None:
        """Add one outcome."""
        self.schedules += 1
        self.kills += outcome.kills
        self.lives += outcome.lives
        self.doubts += outcome.doubts
        self.runs += outcome.runs
        self.events += outcome.events
        self.violations += bool(outcome.violations)
        self.fired.update(outcome.fired)
        self.ends[outcome.end] += 1

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {times}" for kind, times in sorted(self.fired.items()))
        ends = ", ".join(f"{end} {times}" for end, times in sorted(self.ends.items()))
        took = time.perf_counter() - self._began
        return (
            f"schedules {self.schedules} | runs {self.runs}, events {self.events} | ends: {ends} | faults: {faults or 'none'} | "
            f"kills {self.kills} | resumptions {self.lives - self.schedules} | doubts {self.doubts} | "
            f"violations {self.violations} | {self.schedules / took:.0f} schedules/s"
        )
