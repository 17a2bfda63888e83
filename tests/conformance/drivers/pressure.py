"""How near the end a run is: the tier that a request shows, and the steps that remain."""

from typing import Any

from conformance.replayer import TOOL, Replayer, Reply
from refold.reducers.limits import StepLimit
from refold.reducers.meters import used


def pressure(preset: str, made: int, most: int, **limit: Any) -> Replayer:
    """A run that has made so many requests of so many allowed, each with a call, and makes one more."""
    policy = {"preset": preset, "limits": [{"type": "step", "value": most, **limit}]}
    run = Replayer.begin(policy, [["user", "x", []]])
    for step in range(1, made + 1):
        run.reply(Reply(calls=[(f"c{step}", TOOL, "{}")]))
        run.returned()
    return run


def tier(run: Replayer) -> str:
    """The tier that the last request shows."""
    shown = [text.tier for text in run.requests[-1].event.request_only if text.tier]
    return shown[-1] if shown else "none"


def left(run: Replayer) -> int:
    """How many steps are left before the request under way is counted."""
    limit = next(limit for limit in run.policy.limits if isinstance(limit, StepLimit))
    assert limit.value is not None
    return limit.value - (used(limit, run.state) - 1)
