"""Where the decisions behind a fact part.

Both lists hang on one fact, so they are held against each other one by one, from the front. Three questions
look like this one, and are others. Logs of different facts are aligned by what happened in a turn
(`queries.diffs`, `queries.divergence`), and what counts there is `queries.likeness`. Whether two runs ask the
same of the world, whatever their logs say of it, is `whatif.shown`. A recording that is played again must
give the same log to the byte: the engine compares event by event.

That two runs part at all is no matter of their decisions: see `shown`.
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
    """How a recorded decision and the derived one part."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    REORDERED = "reordered"
    UNREPLAYABLE = "unreplayable"


class Parting(NamedTuple):
    """The first place, from 0, at which recorded decisions and derived ones part, how, and the two; None
    where a side lacks it.
    """

    place: int
    difference: DecisionDifference
    recorded: ev.Decision | None
    derived: ev.Decision | None

    @property
    def kind(self) -> str:
        """What kind of decision it is about."""
        said = self.recorded or self.derived
        assert said is not None, "two groups part in something"
        return ev.kind_of(said)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in which the two differ."""
        return ev.differing(self.recorded, self.derived)


def parting(
    state: RunState, recorded: Sequence[ev.Decision], derived: Sequence[ev.Decision]
) -> Parting | None:
    """Where and how decisions on one fact part, in the state after that; None: they agree."""
    place = agreeing(state, recorded, derived)
    left, right = recorded[place:], derived[place:]
    if not left and not right:
        return None
    difference = _difference(left, right)
    return Parting(
        place,
        difference,
        left[0] if left and difference is not DecisionDifference.MISSING else None,
        right[0] if right and difference is not DecisionDifference.EXTRA else None,
    )


def agreeing(state: RunState, recorded: Sequence[ev.Decision], derived: Sequence[ev.Decision]) -> int:
    """How many decisions agree, from the front.

    A guard that is blind has no digest here, and none is asked for.
    """
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


def unjudged(state: RunState, decisions: Iterable[ev.Decision]) -> bool:
    """Whether some of these hang on a guard that cannot be asked in this state."""
    blind = {watch.name for watch in state.guards if watch.blind}
    return bool(blind) and any(blind & _guards_of(decision) for decision in decisions)


def _guards_of(decision: ev.Decision) -> set[str]:
    """The guards without whom a decision would be another, or would not be there."""
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
    """Where the recorded decisions part from those of the other run, counted from 1 after the fact, and the
    two that do.

    What is only written down parts nothing: digests, and warnings. `state` is the other run's.
    """
    one = [(place, decision) for place, decision in enumerate(group, 1) if not _silent(decision)]
    other = [decision for decision in derived if not _silent(decision)]
    same = agreeing(state, [decision for _, decision in one], other)
    recorded = one[same] if same < len(one) else None
    text = encode_value(other[same]).decode() if same < len(other) else None
    return (recorded[0] if recorded else 0), (encode_value(recorded[1]).decode() if recorded else None), text


def _silent(decision: ev.Decision) -> bool:
    return isinstance(decision, ev.StateDigested | ev.LimitNeared) or (
        isinstance(decision, ev.GuardTripped) and decision.verdict is Verdict.WARN
    )
