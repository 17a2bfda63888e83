"""The pure core: events, state, machine, policy, guards, history, and the functions that fold and decide.

Nothing here touches the world: no I/O, clock, environment, randomness or event loop.
"""

from typing import TYPE_CHECKING

from refold.reducers.effects import (
    CallModel,
    Effect,
    Reconcile,
    RunTool,
    Settle,
    WaitUntil,
    doubtful,
    next_effects,
)
from refold.reducers.errors import (
    Damaged,
    DamagedLog,
    ExternalFailure,
    IllegalMove,
    Inconclusive,
    NewerLog,
    PolicyError,
    RefoldError,
    UnexpectedEvent,
    UnreleasedLog,
    WrongUse,
)
from refold.reducers.events import Annotation, Decision, Event, Fact, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance, awaited, fold
from refold.reducers.guards import BUILTIN, Guard, Registry
from refold.reducers.machine import LIVE, MOVES, TERMINAL, AgentState, Trigger
from refold.reducers.messages import Message, MessageCall, ReplyCall, ToolSchema, Usage
from refold.reducers.policy import Policy
from refold.reducers.rules.order import RULES, decide
from refold.reducers.state import NEW, RunState
from refold.reducers.views import view
from refold.reducers.vocabulary import Role

if TYPE_CHECKING:
    from refold.reducers.parser import parse
else:
    # Folding does not need it, and it loads a quarter of the package: the redaction of secrets, the keys of
    # policies.
    def __getattr__(name: str) -> object:
        if name == "parse":
            from refold.reducers.parser import parse

            return parse
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BUILTIN",
    "LIVE",
    "MOVES",
    "NEW",
    "RULES",
    "TERMINAL",
    "AgentState",
    "Annotation",
    "CallModel",
    "Damaged",
    "DamagedLog",
    "Decision",
    "Effect",
    "Event",
    "ExternalFailure",
    "Fact",
    "Guard",
    "IllegalMove",
    "Inconclusive",
    "Message",
    "MessageCall",
    "NewerLog",
    "Policy",
    "PolicyError",
    "Reconcile",
    "RefoldError",
    "Registry",
    "ReplyCall",
    "Role",
    "RunState",
    "RunTool",
    "Settle",
    "ToolSchema",
    "Trigger",
    "UnexpectedEvent",
    "UnreleasedLog",
    "Usage",
    "WaitUntil",
    "WrongUse",
    "advance",
    "awaited",
    "decide",
    "doubtful",
    "evolve",
    "fold",
    "kind_of",
    "next_effects",
    "parse",
    "view",
]
