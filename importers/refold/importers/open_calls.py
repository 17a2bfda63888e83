"""Results, and the calls before them that wait for one."""

from collections.abc import Iterable

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role


def answering(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without the results for which no call is open."""
    kept: list[Message] = []
    waiting = 0
    for message in messages:
        result = message.role is Role.TOOL
        if waiting or not result:
            kept.append(message)
            waiting += len(message.calls) - result
    return tuple(kept)
