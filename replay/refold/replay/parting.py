"""Divergence between recorded and derived decisions on one fact.

Both lists follow the same fact, so they are compared element by element from the front. Three similar
comparisons live elsewhere: `queries.diffs` and `queries.divergence` align logs of different facts by turn
(using `queries.likeness`), `whatif` compares what two runs request, and the engine compares a replayed
recording event by event.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, unique
from typing import NamedTuple

from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.evolution import encode_value
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Verdict


@unique
class DecisionDifference(StrEnum):
    """How a recorded decision differs from the derived one."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    REORDERED = "reordered"
    UNREPLAYABLE = "unreplayable"


class DecisionDivergence(NamedTuple):
    """First index, from 0, at which recorded and derived decisions differ; None if one side has ended."""

    place: int
    difference: DecisionDifference
    recorded: ev.Decision | None
    derived: ev.Decision | None

    @property
    def kind(self) -> str:
        """Kind of the decision."""
        said = self.recorded or self.derived
        assert said is not None, "equal groups of decisions"
        return ev.kind_of(said)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that differ."""
        return ev.differing(self.recorded, self.derived)


def find_divergence(
    state: RunState, recorded: Sequence[ev.Decision], derived: Sequence[ev.Decision]
) -> DecisionDivergence | None:
    """Return the first divergence of decisions on one fact, in the state after it; None if they agree."""
    place = count_agreeing(state, recorded, derived)
    left, right = recorded[place:], derived[place:]
    if not left and not right:
        return None
    difference = _difference(left, right)
    return DecisionDivergence(
        place,
        difference,
        left[0] if left and difference is not DecisionDifference.MISSING else None,
        right[0] if right and difference is not DecisionDifference.EXTRA else None,
    )


def count_agreeing(state: RunState, recorded: Sequence[ev.Decision], derived: Sequence[ev.Decision]) -> int:
    """Return the number of leading decisions that agree. Digests of unavailable guards are ignored."""
    pairs = zip(recorded, derived, strict=False)
    return next(
        (place for place, pair in enumerate(pairs) if not _agree(state, *pair)),
        min(len(recorded), len(derived)),
    )


def _difference(recorded: Sequence[ev.Decision], derived: Sequence[ev.Decision]) -> DecisionDifference:
    if not recorded:
        return DecisionDifference.MISSING
    if not derived:
        return DecisionDifference.EXTRA
    left, right = list(map(encode_value, recorded)), list(map(encode_value, derived))
    if sorted(left) == sorted(right):
        return DecisionDifference.REORDERED
    if left[0] in right[1:] and right[0] not in left:
        return DecisionDifference.MISSING
    if right[0] in left[1:] and left[0] not in right:
        return DecisionDifference.EXTRA
    return DecisionDifference.CHANGED


def _agree(state: RunState, recorded: ev.Decision, derived: ev.Decision) -> bool:
    if recorded == derived:
        return True
    if isinstance(recorded, ev.StateDigested) and isinstance(derived, ev.StateDigested):
        return recorded.state == derived.state and _without_blind(state, recorded.guards) == derived.guards
    # The harness's own words, erased: the body, which has their sizes, must still agree.
    erased = getattr(recorded, "content", 0) is None and getattr(derived, "content", None) is not None
    return erased and type(recorded) is type(derived) and recorded == replace(derived, content=None)


def _without_blind(state: RunState, guards: Mapping[str, str]) -> Mapping[str, str]:
    blind = {watch.name for watch in state.guards if watch.blind}
    return {name: digest for name, digest in guards.items() if name not in blind}


def depends_on_unavailable(state: RunState, decisions: Iterable[ev.Decision]) -> bool:
    """Return whether a decision depends on a guard that is unavailable in this state."""
    blind = {watch.name for watch in state.guards if watch.blind}
    return bool(blind) and any(blind & _guards_of(decision) for decision in decisions)


def _guards_of(decision: ev.Decision) -> set[str]:
    """Return the guards on which a decision depends."""
    match decision:
        case ev.GuardTripped(guard=guard) | ev.ApprovalRequested(guard=guard):
            return {guard}
        case ev.CallRefused() | ev.MessageInjected() | ev.MessageTrimmed():
            return {decision.name} if decision.cause is Cause.GUARD else set()
        case ev.ModelRequested(request_only=texts):
            return {text.name for text in texts if text.cause is Cause.GUARD}
        case _:
            return set()


def place_of(
    state: RunState, group: Sequence[ev.Decision], derived: Sequence[ev.Decision]
) -> tuple[int, str | None, str | None]:
    """Return where recorded and derived decisions differ, from 1 after the fact, and the two decisions.

    Digests and warnings are only records and are ignored. `state` is the other run's.
    """
    one = [(place, decision) for place, decision in enumerate(group, 1) if not _is_record_only(decision)]
    other = [decision for decision in derived if not _is_record_only(decision)]
    same = count_agreeing(state, [decision for _, decision in one], other)
    recorded = one[same] if same < len(one) else None
    text = encode_value(other[same]).decode() if same < len(other) else None
    return (recorded[0] if recorded else 0), (encode_value(recorded[1]).decode() if recorded else None), text


def _is_record_only(decision: ev.Decision) -> bool:
    return isinstance(decision, ev.StateDigested | ev.LimitNeared) or (
        isinstance(decision, ev.GuardTripped) and decision.verdict is Verdict.WARN
    )
