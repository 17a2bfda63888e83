"""The size of a message: its characters, counted, and its tokens, estimated."""

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.messages import Message, Size


def measured(estimator: str, message: Message, digest: str = "") -> Size:
    """The size of a message, its tokens by the named estimator."""
    return Size(
        chars=len(message.text),
        reasoning=len(message.reasoning),
        arguments=sum([len(call.arguments) for call in message.calls]),
        tokens=ESTIMATORS[estimator].weigh(message),
        digest=digest,
    )
