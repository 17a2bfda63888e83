"""At which decision two groups part, for a reader who looks for the place in the recorded log."""

from collections.abc import Sequence

from refold.reducers.checkpoint import encoded
from refold.reducers.events import Decision, GuardTripped, LimitNeared, StateDigested
from refold.reducers.vocabulary import Verdict


def place_of(group: Sequence[Decision], derived: Sequence[Decision]) -> tuple[int, str | None, str | None]:
    """Where the recorded decisions part from the derived ones, counted from 1 after the fact, and the two that do.

    What is only written down parts nothing: digests, and warnings.
    """
    one = [(place, decision) for place, decision in enumerate(group, 1) if not _silent(decision)]
    other = [decision for decision in derived if not _silent(decision)]
    same = 0
    while same < min(len(one), len(other)) and one[same][1] == other[same]:
        same += 1
    recorded = one[same] if same < len(one) else None
    text = encoded(other[same]).decode() if same < len(other) else None
    return (recorded[0] if recorded else 0), (encoded(recorded[1]).decode() if recorded else None), text


def _silent(decision: Decision) -> bool:
    return isinstance(decision, StateDigested | LimitNeared) or (
        isinstance(decision, GuardTripped) and decision.verdict is Verdict.WARN
    )
