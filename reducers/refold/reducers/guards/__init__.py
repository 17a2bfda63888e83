"""Guards: rules that watch a run and may stop it, refuse a call, warn, or send a text to the model."""

from refold.reducers.guards.duty import BUILTIN, Registry
from refold.reducers.guards.progress import Repetition
from refold.reducers.guards.protocol import (
    Ask,
    Guard,
    Inject,
    Judgement,
    Place,
    Reading,
    Refuse,
    Remind,
    Shorten,
    Stop,
    Warn,
)

__all__ = [
    "BUILTIN",
    "Ask",
    "Guard",
    "Inject",
    "Judgement",
    "Place",
    "Reading",
    "Refuse",
    "Registry",
    "Remind",
    "Repetition",
    "Shorten",
    "Stop",
    "Warn",
]
