"""Time under another policy: which clocks would have rung before a recorded fact, and what would have been cut off.

A recorded run shows when each thing happened, and nothing of a policy changes how long a model or a tool takes. So a
deadline of the other policy that falls between two facts is exact; one that falls after the fact it was for is none.
"""

from refold.reducers.effects import WaitUntil, next_effects
from refold.reducers.events import ClockRead, Fact, ModelFailed, RunForked, RunResumed, ToolReturned
from refold.reducers.state import RunState
from refold.reducers.vocabulary import FailureClass, ToolError
from refold.replay.whatif.shown import Parted


def rings(recorded: RunState, derived: RunState, at: int) -> int | None:
    """The first instant before `at` for which only the other run waits; None: there is none.

    For an instant that both wait for the record says what came first. At one and the same instant the fact is first.
    """
    known = _waits(recorded)
    return min(
        (instant for instant in _waits(derived) if instant < at and instant not in known), default=None
    )


def reached(fact: Fact) -> int:
    """Until when time passed before the fact: between a place in its parent and a fork there is none."""
    return fact.at - fact.downtime if isinstance(fact, RunForked) else fact.at


def attended(state: RunState, fact: Fact, instant: int) -> bool:
    """Whether an engine was surely there at an instant before the fact, or it makes no difference that none was.

    Where a run waits for a person, whoever takes it up again applies a deadline that has passed all the same.
    """
    if not isinstance(fact, RunResumed) or state.asked_at is not None:
        return True
    return instant < fact.at - fact.downtime


def cut_off(recorded: RunState, derived: RunState, at: int, fact: Fact | None = None) -> Parted | None:
    """Whether what is under way would not have lasted until the instant `at`, or longer than it did; None: as recorded.

    `fact` is what came then.
    """
    was, would = _deadline(recorded), _deadline(derived)
    stopped = recorded.stopping is not None and derived.stopping is not None
    if was == would or stopped:  # what is under way is being brought to an end already
        return None
    if would is not None and at > would:
        return Parted("cut_off", f"what was under way would have been cut off {seconds(at - would)} earlier")
    if was is not None and at >= was and _timed_out(fact):
        return Parted("cut_off", "what the recorded policy cut off here would have had more time")
    return None


def expected(recorded: RunState, derived: RunState, clock: ClockRead) -> bool:
    """Whether a clock that was read is something to the other run: it waits for that, or nobody did."""
    due = [any(instant <= clock.at for instant in _waits(state)) for state in (derived, recorded)]
    return due[0] or not due[1]


def seconds(nanoseconds: int) -> str:
    """A time in seconds, to the millisecond; of what is shorter only that."""
    if 0 < nanoseconds < 10**6:
        return "less than 1 ms"
    return f"{nanoseconds // 10**9}.{nanoseconds // 10**6 % 1000:03} s"


def _timed_out(fact: Fact | None) -> bool:
    match fact:
        case ToolReturned(error=ToolError.TIMEOUT):
            return True
        case ModelFailed(failure=FailureClass.TIMEOUT | FailureClass.CONTEXT_OVERFLOW):
            return True  # a policy's pattern takes what it finds for an overflow, a timeout too
        case _:
            return False


def _deadline(state: RunState) -> int | None:
    under_way = state.request or state.summary or (state.batch if state.asked_at is None else None)
    return under_way.until if under_way else None


def _waits(state: RunState) -> set[int]:
    return {effect.at for effect in next_effects(state) if isinstance(effect, WaitUntil)}
