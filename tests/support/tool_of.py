"""Tools of one argument, what a model is told of a tool, and a call of it."""

import json
from typing import Any

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import CallContext, Tool

CALL = CallContext(run="r", call="c1", key="k1")


def schema(made: Tool) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(made.manifest.schema)
    return decoded


def of(annotation: Any, default: Any = ...) -> Tool:
    """A tool of one argument `x` that shows what it got."""

    def show(x: Any = default) -> str:
        return repr(x)

    show.__annotations__["x"] = annotation
    if default is ...:
        show.__defaults__ = None
    return tool(show)
