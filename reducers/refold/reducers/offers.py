"""What stands beside the messages of every request: the model, its settings and the tools that it may call."""

import hashlib
from collections.abc import Sequence

import msgspec

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.events import Manifest

_ENCODER = msgspec.json.Encoder(order="deterministic")


def offer_digest(model: str, settings: dict[str, str], tools: Sequence[Manifest]) -> str:
    """Hex SHA-256 of an offer."""
    return hashlib.sha256(_ENCODER.encode((model, settings, tools))).hexdigest()


def weight(estimator: str, tools: Sequence[Manifest]) -> int:
    """The estimated tokens of what is said of the tools in each request."""
    weigh = ESTIMATORS[estimator].tool
    return sum(weigh(tool.name, tool.description, tool.schema) for tool in tools)
