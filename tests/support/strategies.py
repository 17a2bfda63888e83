"""How many examples a property gets, and logs as bytes."""

from hypothesis import settings

from refold.reducers import codec
from refold.reducers.events import Event


def scaled(examples: int) -> int:
    """So many examples of a test by default, fewer or more as the profile has fewer or more than its 25."""
    return max(1, examples * settings().max_examples // 25)


def stored(log: list[Event]) -> list[codec.Encoded]:
    """The log as it would lie on disk."""
    return [codec.encode(event) for event in log]
