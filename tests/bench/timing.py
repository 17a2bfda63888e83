"""How everything here is timed: interleaved rounds, medians, and an anchor in the same process.

The machine's speed wanders by tens of percent within a minute. What is measured side by side, round after
round, wanders together, so a ratio is taken within each round, and the median of those ratios holds where
microseconds do not.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

Case = Callable[[], object]
Timer = Callable[[Case], float]


class Times:
    """Seconds of each case, by name, one a round."""

    def __init__(self, taken: Mapping[str, Sequence[float]]) -> None:
        self._taken = taken

    def median(self, *names: str) -> float:
        """Seconds of these cases together, in the median round."""
        return median(self._together(names))

    def ratio(self, anchor: str, *names: str) -> float:
        """These cases together over the anchor, in the median round."""
        return median(
            ours / anchors for ours, anchors in zip(self._together(names), self._taken[anchor], strict=True)
        )

    def _together(self, names: Sequence[str]) -> list[float]:
        return [sum(each) for each in zip(*(self._taken[name] for name in names), strict=True)]


def cpu_seconds(case: Case) -> float:
    """CPU seconds of one call: a neighbour on the same core does not count.

    What it made is kept till the end.
    """
    gc.collect()  # so that nobody pays for what the case before left behind
    begun = time.process_time()
    kept = case()
    taken = time.process_time() - begun
    del kept
    return taken


def told_seconds(case: Case) -> float:
    """What the case itself says: for those that time a part of what they do."""
    told = case()
    assert isinstance(told, float)
    return told


def interleaved(cases: Mapping[str, Case], *, rounds: int = 5, timer: Timer = cpu_seconds) -> Times:
    """Time the cases in rounds, in each of which every case has one turn."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            taken[name].append(timer(case))
    return Times(taken)
