"""What is known of what was used up, and of how a call went: None where nobody says, and never 0 or "ok".

In a log 0 stands for both. An answer without tokens of a kind is one of which nobody counted that kind:
nothing is as short as that. A duration of 0 nanoseconds is one that nobody took. A result without an error
went well only where its source says so by more than words.
"""

from refold.reducers.events import ModelResponded, ToolReturned
from refold.reducers.messages import Usage
from refold.reducers.state import Spent
from refold.reducers.vocabulary import Unknown

UNMARKED = "unmarked"
"""The word for a result of which nobody knows whether its call failed."""
NOT_RECORDED = "not_recorded"
"""The word for a call of which the source has no result at all."""
REFUSED = "refused"
"""The word for a call that did not run, because somebody or something refused it."""
UNSAID = "unsaid"
"""The word for why an answer ended of which the source says nothing."""


def counted(usage: Usage) -> bool:
    """Whether somebody counted these tokens."""
    return bool(usage.input or usage.output)


def tokens(usage: Usage) -> int | None:
    """Input and output."""
    return usage.input + usage.output or None


def sent(usage: Usage) -> int | None:
    """Input tokens; a source may count those of the output alone."""
    return usage.input or None


def got(usage: Usage) -> int | None:
    """Output tokens; a source may count those of the input alone."""
    return usage.output or None


def cost(spent: Spent) -> int | None:
    """What is known of the cost, nano-dollars.

    Where `unpriced` answers had no known price it is the least that it was.
    """
    nothing = spent.unpriced or not counted(spent.usage)
    return spent.cost_nanousd or (None if nothing else 0)


def took(nanoseconds: int) -> int | None:
    """How long something took, nanoseconds."""
    return nanoseconds or None


def recorded(result: ToolReturned) -> bool:
    """Whether the source of a run says how a call ended, or what it gave."""
    return Unknown.RESULT not in result.unknown


def failed(result: ToolReturned) -> bool | None:
    """Whether a call failed; None where its source does not say so, or has no result.

    One that was refused did not run.
    """
    if result.error is not None:
        return True
    if result.refused_by is not None:
        return False
    return None if Unknown.ERRORS in result.unknown or not recorded(result) else False


def outcome(result: ToolReturned) -> str:
    """How a call ended, in a word: the class of its error, `ok`, `refused`, `unmarked` or `not_recorded`."""
    if not recorded(result):
        return NOT_RECORDED
    if result.refused_by is not None:
        return REFUSED
    return str(result.error or (UNMARKED if failed(result) is None else "ok"))


def stopped(answer: ModelResponded) -> str:
    """Why an answer ended, in a word: a stop reason, or `unsaid`."""
    return UNSAID if Unknown.STOP in answer.unknown and not answer.stop_raw else str(answer.stop)
