"""`@tool`: a typed function becomes a tool."""

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from refold.engine.expected import function as expected_function
from refold.engine.expected import seconds, wrong
from refold.engine.tools.digest import source_digest
from refold.engine.tools.docstring import parse
from refold.engine.tools.protocol import CallContext, Tool
from refold.engine.tools.reconciler import Called, reconciler
from refold.engine.tools.results import as_text, refuse_result
from refold.engine.tools.signature import Accepts, accepts
from refold.engine.tools.threads import in_thread
from refold.reducers.errors import WrongUse
from refold.reducers.events import Manifest
from refold.reducers.vocabulary import Replay, nano

P = ParamSpec("P")
R = TypeVar("R")
ReplayClass = Replay | Literal["read_only", "idempotent", "reconcilable", "at_most_once"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every provider accepts


class FunctionTool(Tool, Generic[P, R], frozen=True, kw_only=True):
    """A tool made from a function. `function` is that function as it was, for unit tests and other callers."""

    function: Callable[P, R]


class Options(TypedDict, total=False):
    """What may be said of a tool beside its function: see `tool`."""

    name: str | None
    replay: ReplayClass
    timeout: float | None
    redact: Callable[[str], str] | None
    reconcile: Callable[..., object] | None


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[Options]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a typed function, async or not; bare or with options.

    The docstring describes the tool and, under `Args:` or by `:param x:`, its arguments; the annotations give the
    JSON Schema and the validation. A parameter annotated `CallContext` is not offered to the model: it gets the
    call's context. A result that is text is passed on as it is, None is empty text, anything else becomes JSON.

    `replay` says what may be done with a call whose end is unknown; `timeout` is in seconds. `redact` is applied
    to what the tool returns or raises before anything is recorded. `reconcile`, for `replay="reconcilable"`, is a
    function that says what became of such a call: `Happened`, `DidNot` or `CannotTell`. It takes those of the tool's
    arguments that it needs, by their names, and a `CallContext`. Only `DidNot(final=True)` runs the call again: it promises
    that nothing of an earlier attempt can still act.

    A function that is not async runs in a thread. On cancellation the thread is abandoned, not waited for, and
    may still act: what it does then is in no log. Raises `WrongUse`, naming the place, for a function that cannot
    be a tool.
    """
    if unknown := sorted(options.keys() - Options.__annotations__):
        raise WrongUse(
            f"tool: there is no option {unknown[0]!r}; known are {', '.join(Options.__annotations__)}"
        )
    if function is None:
        return lambda made: _made(made, **options)
    return _made(function, **options)


def _made(
    function: Callable[P, R],
    *,
    name: str | None = None,
    replay: ReplayClass = "at_most_once",
    timeout: float | None = None,
    redact: Callable[[str], str] | None = None,
    reconcile: Callable[..., object] | None = None,
) -> FunctionTool[P, R]:
    called = _name(function, name)
    if timeout is not None:
        seconds(timeout, f"tool {called}: timeout", ", or None for the run's own")
    for key, given in (("redact", redact), ("reconcile", reconcile)):
        if given is not None:
            expected_function(given, f"tool {called}: {key}")
    documentation = parse(inspect.getdoc(function))
    takes = accepts(function, called, documentation.arguments)
    refuse_result(function, called)
    return FunctionTool(
        manifest=Manifest(
            name=called,
            description=documentation.description,
            schema=takes.schema,
            replay=_replay(called, replay),
            timeout=None if timeout is None else nano(timeout),
            digest=hashlib.sha256(f"{_sources(function, reconcile)}\n{takes.schema}".encode()).hexdigest(),
        ),
        run=_runner(function, takes),
        redact=redact,
        reconcile=None if reconcile is None else reconciler(reconcile, takes, _called(reconcile)),
        function=function,
    )


def _name(function: Callable[..., object], name: object) -> str:
    if not inspect.isroutine(function):
        raise wrong("tool", "a function or a bound method", function, _way_out(function))
    called = function.__name__ if name is None else name
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise WrongUse(
            f"tool {called}: is a generator, and a tool returns its whole output once: collect what it yields, and return that"
        )
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        way_out = (
            "a lambda has none: write a function with def" if called == "<lambda>" else "give one by name="
        )
        raise WrongUse(f"tool {called!r}: a name has 1 to 64 letters, digits, - and _; {way_out}")
    return called


def _way_out(given: object) -> str:
    """What to write in place of something that is no function."""
    if isinstance(given, str):
        return f"a name is given as @tool(name={given!r})"
    if isinstance(given, Tool):
        return "it is a tool already"
    if inspect.isclass(given):
        return (
            f"give a function that makes and uses one, or a method of one: tool({given.__name__}(...).method)"
        )
    if isinstance(given, partial):
        return "write a function with def that calls it"
    return ""


def _replay(name: str, replay: str) -> Replay:
    if replay not in tuple(Replay):
        raise WrongUse(f"tool {name}: replay: expected one of {', '.join(Replay)}, got {replay!r}")
    return Replay(replay)


def _sources(function: Callable[..., object], reconcile: Callable[..., object] | None) -> str:
    return "\n".join(source_digest(each) for each in (function, reconcile) if each is not None)


def _runner(function: Callable[..., Any], takes: Accepts) -> Callable[[str, CallContext], Awaitable[str]]:
    called = _called(function)

    async def run(arguments: str, context: CallContext) -> str:
        return as_text(await called(takes.bind(arguments, context)), takes.tool)

    return run


def _called(function: Callable[..., Any]) -> Called:
    coroutine = inspect.iscoroutinefunction(function)

    async def called(keywords: dict[str, Any]) -> object:
        if coroutine:
            return await function(**keywords)
        result = await in_thread(partial(function, **keywords))
        # An async function may hide behind a plain wrapper.
        return await result if inspect.isawaitable(result) else result

    return called
