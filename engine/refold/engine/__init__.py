"""The engine: agents and their runs, models, tools, and the loop that does what the log says is pending."""

from refold.engine.agent import Agent
from refold.engine.answers import NotWaiting
from refold.engine.control import halt, unattended
from refold.engine.imported_runs import RunImported
from refold.engine.models.lookup import resolve_model
from refold.engine.models.protocol import Model, ModelError, ModelRequest, Reply
from refold.engine.models.script import ScriptedModel, ScriptError, call, calls, fail, say
from refold.engine.playback import Recording
from refold.engine.result import LimitError, RunOutcome, RunResult, WaitingCall
from refold.engine.run import Run
from refold.engine.tools.decorator import tool
from refold.engine.tools.files import files
from refold.engine.tools.protocol import (
    BadArguments,
    CallContext,
    CannotTell,
    DidNot,
    Happened,
    Reconciled,
    Tool,
)
from refold.engine.tools.shell import shell
from refold.engine.tools.todos import todos
from refold.engine.updates import Delegated, Finished, Missed, Recorded, Streamed, Update
from refold.engine.worker import Worker

__all__ = [
    "Agent",
    "BadArguments",
    "CallContext",
    "CannotTell",
    "Delegated",
    "DidNot",
    "Finished",
    "Happened",
    "LimitError",
    "Missed",
    "Model",
    "ModelError",
    "ModelRequest",
    "NotWaiting",
    "Reconciled",
    "Recorded",
    "Recording",
    "Reply",
    "Run",
    "RunImported",
    "RunOutcome",
    "RunResult",
    "ScriptError",
    "ScriptedModel",
    "Streamed",
    "Tool",
    "Update",
    "WaitingCall",
    "Worker",
    "call",
    "calls",
    "fail",
    "files",
    "halt",
    "resolve_model",
    "say",
    "shell",
    "todos",
    "tool",
    "unattended",
]
