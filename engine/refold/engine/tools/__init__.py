"""Tools: what an agent can do to the world, and the ones that come built in."""

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

__all__ = [
    "BadArguments",
    "CallContext",
    "CannotTell",
    "DidNot",
    "Happened",
    "Reconciled",
    "Tool",
    "files",
    "shell",
    "todos",
    "tool",
]
