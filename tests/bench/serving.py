"""A benchmark in a process of its own: it is asked by lines of JSON, and answers each with one.

Only the standard library is imported here: what is measured beside us has an environment of its own, without
ours.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.prose import prose

TEXTS = {
    "short": ([prose(300, place) for place in range(32)], [prose(600, place) for place in range(32, 64)]),
    "long": ([prose(1_200, place) for place in range(32)], [prose(2_000, place) for place in range(32, 64)]),
}
"""What a model answers and what a tool returns, in turn: by default short."""
ANSWERS, RESULTS = TEXTS["short"]
TASK = "Find out why March does not add up, and mend it."


class Marks:
    """CPU seconds of this process, all its threads, at each request of one run: the first is after no
    step.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.at: list[float] = []

    def request(self) -> int | None:
        """Note a request.

        Which step its answer begins, counted from 0; None for the answer that ends the run.
        """
        self.at.append(time.process_time())
        step = len(self.at) - 1
        return step if step < self.steps else None

    def step(self, first: int = 0, last: int | None = None) -> float:
        """The mean microseconds of the steps from `first` up to and without `last`."""
        last = self.steps if last is None else last
        return (self.at[last] - self.at[first]) / (last - first) * 1e6


def serve(versions: Mapping[str, str], cases: Mapping[str, Callable[..., object]]) -> None:
    """Say what is measured here; then answer `{"case": ..., ...}` by the case called with what else is
    said.
    """
    # Whatever a library prints must not be taken for an answer.
    output, sys.stdout = sys.stdout, sys.stderr
    _say(output, versions)
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        _say(output, cases[asked.pop("case")](**asked))


def _say(output: Any, what: object) -> None:
    output.write(json.dumps(what) + "\n")
    output.flush()
