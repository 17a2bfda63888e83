"""Named estimators of tokens, for messages that no provider has counted yet.

An estimator is pure and recorded in the policy by its name. `chars4`: a quarter of the characters of text,
reasoning, call names and argument texts, rounded up; a list is the sum of its messages.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from refold.reducers.messages import Message


def chars4(message: Message) -> int:
    """Tokens of one message: ceil(chars / 4) over text, reasoning, call names and argument texts."""
    chars = len(message.text) + len(message.reasoning)
    for call in message.calls:
        chars += len(call.name) + len(call.arguments)
    return -(-chars // 4)


ESTIMATORS: Mapping[str, Callable[[Message], int]] = MappingProxyType({"chars4": chars4})
