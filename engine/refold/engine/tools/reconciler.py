"""Reconcilers: functions that say what became of a call whose end is unknown."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from refold.engine.tools.protocol import BadArguments, CallContext, CannotTell, DidNot, Happened, Reconciled
from refold.engine.tools.results import as_text
from refold.engine.tools.signature import Accepts, hints_of
from refold.reducers.errors import WrongUse

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Called = Callable[[dict[str, Any]], Awaitable[object]]
"""A function as it is called, async or in a thread, with keywords."""


def reconciler(
    function: Callable[..., object], takes: Accepts, called: Called
) -> Callable[[str, CallContext], Awaitable[Reconciled]]:
    """A tool's `reconcile` from a typed function that takes some of the tool's arguments, by name.

    Arguments that the tool refuses never got as far as its function: that did not happen. Raises `WrongUse`, naming
    the parameter, for one that the tool does not take.
    """
    names, context = _parameters(function, takes)

    async def reconcile(arguments: str, call: CallContext) -> Reconciled:
        try:
            values = takes.bind(arguments, call)
        except BadArguments as error:
            return DidNot(note=f"its arguments are refused: {error}", final=True)
        found = await called({name: call if name == context else values[name] for name in names})
        if isinstance(found, Happened) and found.output is not None:
            return replace(found, output=as_text(found.output))
        if not isinstance(found, Happened | DidNot | CannotTell):
            raise TypeError(f"expected Happened, DidNot or CannotTell, got {type(found).__name__}")
        return found

    return reconcile


def _parameters(function: Callable[..., object], takes: Accepts) -> tuple[tuple[str, ...], str | None]:
    """The names that the function is called with, and which of them is the call's context."""
    hints = hints_of(function, takes.tool)
    names: list[str] = []
    context = None
    for parameter in inspect.signature(function).parameters.values():
        if hints.get(parameter.name) is CallContext:
            context = parameter.name
        elif parameter.kind not in _NAMED or parameter.name not in takes.names:
            raise WrongUse(
                f"tool {takes.tool}: reconcile: parameter {parameter}: expected arguments of the tool by their names "
                f"({', '.join(takes.names) or 'it has none'}), and a CallContext"
            )
        names.append(parameter.name)
    return tuple(names), context
