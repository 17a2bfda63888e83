"""Recorded usage and call outcomes; None if unknown, never 0 or "ok".

A log stores 0 for both. A response with 0 tokens of a kind has no count of that kind, because no response is
that short. A duration of 0 nanoseconds was not measured. An imported result without an error counts as
successful only if its source has an explicit status.
"""

from refold.reducers.events import ModelResponded, ToolReturned
from refold.reducers.messages import Usage
from refold.reducers.state import Spent
from refold.reducers.vocabulary import Unknown

UNMARKED = "unmarked"
"""Outcome of a result whose status was not recorded."""
NOT_RECORDED = "not_recorded"
"""Outcome of a call without a result in the source."""
REFUSED = "refused"
"""Outcome of a call that was refused and did not run."""
UNSAID = "unsaid"
"""Stop reason if the source records none."""


def counted(usage: Usage) -> bool:
    """Return whether these tokens were counted."""
    return bool(usage.input or usage.output)


def tokens(usage: Usage) -> int | None:
    """Return input plus output tokens."""
    return usage.input + usage.output or None


def sent(usage: Usage) -> int | None:
    """Return input tokens; some sources count output only."""
    return usage.input or None


def got(usage: Usage) -> int | None:
    """Return output tokens; some sources count input only."""
    return usage.output or None


def cost(spent: Spent) -> int | None:
    """Return the known cost in nano-dollars, a lower bound if `unpriced` responses have no known price."""
    nothing = spent.unpriced or not counted(spent.usage)
    return spent.cost_nanousd or (None if nothing else 0)


def took(nanoseconds: int) -> int | None:
    """Return a duration in nanoseconds."""
    return nanoseconds or None


def recorded(result: ToolReturned) -> bool:
    """Return whether the source of a run records how a call ended or what it returned."""
    return Unknown.RESULT not in result.unknown


def failed(result: ToolReturned) -> bool | None:
    """Return whether a call failed; None if there is no status or no result. A refused call did not run."""
    if result.error is not None:
        return True
    if result.refused_by is not None:
        return False
    return None if Unknown.ERRORS in result.unknown or not recorded(result) else False


def outcome(result: ToolReturned) -> str:
    """Return a call's outcome: its error class, `ok`, `refused`, `unmarked` or `not_recorded`."""
    if not recorded(result):
        return NOT_RECORDED
    if result.refused_by is not None:
        return REFUSED
    return str(result.error or (UNMARKED if failed(result) is None else "ok"))


def stopped(answer: ModelResponded) -> str:
    """Return why a response ended: a stop reason, or `unsaid`."""
    return UNSAID if Unknown.STOP in answer.unknown and not answer.stop_raw else str(answer.stop)
