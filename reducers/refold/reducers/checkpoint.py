"""Digests of a state, so that two logs are compared by bisection and pieces of one side by side."""

import hashlib
from typing import Any

import msgspec

from refold.reducers.events import Manifest, StateDigested
from refold.reducers.state import RunState

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encoded(value: Any) -> bytes:
    """The one JSON text of a state or a part of it: equal values, equal bytes, in every process."""
    return _ENCODER.encode(value)


def state_digest(state: RunState) -> StateDigested:
    """A digest of the state without its guards, and one for each guard: a missing guard spoils only its own.

    The window stands in it by its own digest and totals, so that the cost does not grow with the window.
    """
    window = msgspec.structs.replace(state.window, chunks=())
    bare = msgspec.structs.replace(state, guards=(), window=window)
    return StateDigested(
        state=_sha256(bare),
        guards={watch.name: _sha256(watch.own) for watch in state.guards if not watch.blind},
    )


def offer_digest(model: str, settings: dict[str, str], tools: tuple[Manifest, ...]) -> str:
    """Hex SHA-256 of what stands beside the messages of a request: the model, its settings, the tools."""
    return _sha256((model, settings, tools))


def _sha256(value: Any) -> str:
    return hashlib.sha256(encoded(value)).hexdigest()
