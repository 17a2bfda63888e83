"""Guards: rules that watch a run and may stop it, refuse a call, warn, or say something to the model."""

from refold.reducers.guards.protocol import Guard, Inject, Judgement, Place, Refuse, Stop, Warn
from refold.reducers.guards.registry import BUILTIN, Registry
from refold.reducers.guards.repetition import Repetition

__all__ = [
    "BUILTIN",
    "Guard",
    "Inject",
    "Judgement",
    "Place",
    "Refuse",
    "Registry",
    "Repetition",
    "Stop",
    "Warn",
]
