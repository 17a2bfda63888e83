"""At which decision two groups part, for a reader who looks for the place in the recorded log.

That two runs part at all is no matter of their decisions: see `shown`.
"""

from collections.abc import Sequence

from refold.reducers.events import Decision, GuardTripped, LimitNeared, StateDigested
from refold.reducers.evolution import encoded
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Verdict
from refold.replay.parting import agreeing


def place_of(
    state: RunState, group: Sequence[Decision], derived: Sequence[Decision]
) -> tuple[int, str | None, str | None]:
    """Where the recorded decisions part from those of the other run, counted from 1 after the fact, and the two that do.

    What is only written down parts nothing: digests, and warnings. `state` is the other run's.
    """
    one = [(place, decision) for place, decision in enumerate(group, 1) if not _silent(decision)]
    other = [decision for decision in derived if not _silent(decision)]
    same = agreeing(state, [decision for _, decision in one], other)
    recorded = one[same] if same < len(one) else None
    text = encoded(other[same]).decode() if same < len(other) else None
    return (recorded[0] if recorded else 0), (encoded(recorded[1]).decode() if recorded else None), text


def _silent(decision: Decision) -> bool:
    return isinstance(decision, StateDigested | LimitNeared) or (
        isinstance(decision, GuardTripped) and decision.verdict is Verdict.WARN
    )
