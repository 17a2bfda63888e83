"""The size of a message: characters of its text, and estimated tokens of all of it."""

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.messages import Message


def measured(estimator: str, message: Message) -> tuple[int, int]:
    """(chars, tokens): characters of the text, and what the named estimator counts."""
    return len(message.text), ESTIMATORS[estimator].weigh(message)
