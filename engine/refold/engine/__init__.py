"""The engine: agents and their runs, models, tools, and the loop that does what the log says is pending."""

from refold.engine.agent import Agent
from refold.engine.models.protocol import Model, ModelFailed, ModelRequest, Reply
from refold.engine.models.resolve import resolve_model
from refold.engine.models.scripted import ScriptedModel, ScriptError, call, calls, fail, say
from refold.engine.recording import Recording
from refold.engine.result import LimitReached, RunOutcome, RunResult
from refold.engine.run import NotWaiting, Run
from refold.engine.tools import BadArguments, CallContext, Tool, files, shell, todos, tool
from refold.engine.updates import Delegated, Finished, Missed, Recorded, Streamed, Update

__all__ = [
    "Agent",
    "BadArguments",
    "CallContext",
    "Delegated",
    "Finished",
    "LimitReached",
    "Missed",
    "Model",
    "ModelFailed",
    "ModelRequest",
    "NotWaiting",
    "Recorded",
    "Recording",
    "Reply",
    "Run",
    "RunOutcome",
    "RunResult",
    "ScriptError",
    "ScriptedModel",
    "Streamed",
    "Tool",
    "Update",
    "call",
    "calls",
    "fail",
    "files",
    "resolve_model",
    "say",
    "shell",
    "todos",
    "tool",
]
