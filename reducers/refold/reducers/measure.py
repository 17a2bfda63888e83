"""The size of a message: its characters, counted, and its tokens, estimated."""

from refold.reducers.estimate import ESTIMATORS, Calls
from refold.reducers.messages import Message, Size


def measured(estimator: str, text: str, reasoning: str = "", calls: Calls = (), digest: str = "") -> Size:
    """The size of a message that says this, its tokens by the named estimator; of calls the names and arguments."""
    return Size(
        chars=len(text),
        reasoning=len(reasoning),
        arguments=sum([len(arguments) for _, arguments in calls]) if calls else 0,
        tokens=ESTIMATORS[estimator].weigh(text, reasoning, calls),
        digest=digest,
    )


def measured_message(estimator: str, message: Message, digest: str = "") -> Size:
    """The size of a message."""
    calls = [(call.name, call.arguments) for call in message.calls]
    return measured(estimator, message.text, message.reasoning, calls, digest)
