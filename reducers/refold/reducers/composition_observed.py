"""`context_observed` made of messages as a transcript has them."""

from collections.abc import Sequence

from refold.reducers.composition import earlier, told
from refold.reducers.events import ContextObserved, Opening
from refold.reducers.messages import Message
from refold.reducers.state import RunState


def observed(
    state: RunState, fact: ContextObserved, messages: Sequence[Message], salt: bytes
) -> ContextObserved:
    """`context_observed` with the messages that join, in order; `fact` says where, and what stayed.

    Calls in them get ids of their own (`o17.1`, … for event 17), which no other call of the run has. Raises
    `WrongUse` where a result follows no call of these messages, or a call has no result.
    """
    said = earlier(messages, f"o{state.seq + 1}.")
    return told(fact, Opening(messages=said), salt, state.policy)
