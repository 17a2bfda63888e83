"""What is known of what was used up: None where nobody counted, and never 0.

In a log 0 stands for both. An answer without a token is one that nobody counted, for no request is as short as that; a
duration of 0 nanoseconds is one that nobody took.
"""

from refold.reducers.messages import Usage
from refold.reducers.state import Spent


def counted(usage: Usage) -> bool:
    """Whether somebody counted these tokens."""
    return bool(usage.input or usage.output)


def tokens(usage: Usage) -> int | None:
    """Input and output."""
    return usage.input + usage.output or None


def cost(spent: Spent) -> int | None:
    """What is known of the cost, nano-dollars. Where `unpriced` answers had no known price it is the least that it was."""
    nothing = spent.unpriced or not counted(spent.usage)
    return spent.cost_nanousd or (None if nothing else 0)


def took(nanoseconds: int) -> int | None:
    """How long something took, nanoseconds."""
    return nanoseconds or None
