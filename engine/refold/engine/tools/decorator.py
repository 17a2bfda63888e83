"""`@tool`: make a tool from a typed function.

Docstrings may use Google's `Args:` or Sphinx's `:param x:`. The parser is our own instead of a dependency: a
docstring is sent to a model, not rendered, so only paragraphs and names of arguments matter.
"""

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from refold.engine.arguments import function as expected_function
from refold.engine.arguments import seconds, wrong_value
from refold.engine.tools.protocol import (
    BadArguments,
    CallContext,
    CannotTell,
    DidNot,
    Happened,
    Reconciled,
    Tool,
)
from refold.engine.tools.results import as_text, in_thread, refuse_result
from refold.engine.tools.signature import Accepts, accepts, hints_of
from refold.reducers.errors import WrongUse
from refold.reducers.events import Manifest
from refold.reducers.vocabulary import Replay, nano

_ARGUMENTS = re.compile(r"(args|arguments|parameters|params):\s*$", re.IGNORECASE)
# Sections on results and exceptions are for callers of the function, not for the model.
_SILENT = re.compile(r"(returns?|raises|yields?):\s*$", re.IGNORECASE)
_SPHINX = re.compile(r":param(?:eter)?\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
_SPHINX_SILENT = re.compile(r":(type|returns?|rtype|raises?|yields?)\b[^:]*:")
_ENTRY = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class Documentation(NamedTuple):
    """The text before and after the sections, and one line of text for each argument."""

    description: str
    arguments: dict[str, str]


def parse(docstring: str | None) -> Documentation:
    """Split a docstring into the descriptions of the tool and its arguments. Never raises."""
    prose: list[str] = []
    arguments: dict[str, list[str]] = {}
    for name, line in _attribute_lines(inspect.cleandoc(docstring or "").splitlines()):
        if name is None:
            prose.append(line)
        elif name:
            arguments.setdefault(name, []).append(line.strip())
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip()
    return Documentation(description, {name: " ".join(lines).strip() for name, lines in arguments.items()})


def _attribute_lines(lines: list[str]) -> Iterator[tuple[str | None, str]]:
    """Yield each line with its subject: None is the tool, a name is an argument, "" is ignored."""
    about: str | None = None
    entries = False  # within a Google section of arguments
    margin: int | None = None  # how far the entries of that section are indented
    for line in lines:
        text = line
        indent = len(line) - len(line.lstrip())
        if line and not indent:
            entries, margin = bool(_ARGUMENTS.match(line)), None
            about, text = _section(line)
        elif entries and line.strip():
            margin = indent if margin is None else margin
            if indent <= margin and (entry := _ENTRY.match(line.strip())):
                about, text = entry[1], entry[2]
        yield about, text


def _section(line: str) -> tuple[str | None, str]:
    """Return the subject of an unindented line and the lines below it, and the line's text."""
    if parameter := _SPHINX.match(line):
        return parameter[1], parameter[2]
    if _ARGUMENTS.match(line) or _SILENT.match(line) or _SPHINX_SILENT.match(line):
        return "", ""
    return None, line


def source_digest(function: Callable[..., object]) -> str:
    """Return the SHA-256, in hex, of the source of a function and its decorators' wrappers.

    Without source (a prompt, `exec`, a frozen program), the bytecode is used, which differs between versions
    of Python. Functions that it calls and values that it closes over are not included. So a changed digest
    shows an edit, but an equal one does not prove equal behaviour.
    """
    layers: list[str] = []
    layer: object = function
    while layer is not None and len(layers) < 100:  # a wrapper may wrap itself
        layers.append(_text(layer))
        layer = getattr(layer, "__wrapped__", None)
    return hashlib.sha256("\0".join(layers).encode(errors="surrogatepass")).hexdigest()


def _text(function: object) -> str:
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):  # built in, or compiled
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return _bytecode(code)


def _bytecode(code: CodeType) -> str:
    """Return bytecode, names and constants, without file names and line numbers."""
    constants = ", ".join(_constant(value) for value in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} [{constants}]"


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):
        members = cast("frozenset[object]", value)
        return str(sorted(repr(each) for each in members))  # the set's order depends on the hash seed
    return repr(value)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Called = Callable[[dict[str, Any]], Awaitable[object]]
"""An async function of keywords that calls a tool's function, in a thread if it is not async."""


def reconciler(
    function: Callable[..., object], takes: Accepts, called: Called
) -> Callable[[str, CallContext], Awaitable[Reconciled]]:
    """Make a tool's `reconcile` from a typed function that takes some of the tool's arguments, by name.

    If the tool refuses the call's arguments, its function was never called: the result is `DidNot`. Raises
    `WrongUse`, naming the parameter, for one that is not an argument of the tool.
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
    """Return the function's parameter names, and the one that takes the call's context."""
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


P = ParamSpec("P")
R = TypeVar("R")
ReplayClass = Replay | Literal["read_only", "idempotent", "reconcilable", "at_most_once"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every provider accepts


class FunctionTool(Tool, Generic[P, R], frozen=True, kw_only=True):
    """A tool made from a function. `function` is the original, for unit tests and other callers."""

    function: Callable[P, R]


class Options(TypedDict, total=False):
    """The options of a tool: see `tool`."""

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
    """Make a tool from a typed function, async or not. Use it bare or with options.

    The docstring describes the tool and, under `Args:` or by `:param x:`, its arguments. The annotations give
    the JSON Schema and the validation. A parameter annotated `CallContext` is not offered to the model: it
    gets the call's context. Results: text is passed on unchanged, None is empty text, other values become
    JSON.

    A function that is not async runs in a thread. On cancellation the thread is abandoned and may still have
    effects, which are not recorded.

    Args:
        function: the function, if the decorator is used bare.
        options: `name`, by default the function's.
            `replay`: what may be done with a call whose outcome is unknown.
            `timeout`: in seconds.
            `redact`: applied to the result or the error before anything is recorded.
            `reconcile`: for `replay="reconcilable"`, a function that returns the outcome of such a call:
            `Happened`, `DidNot` or `CannotTell`. It takes the tool's arguments that it needs, by name, and a
            `CallContext`. Only `DidNot(final=True)` runs the call again: it promises that an earlier attempt
            can no longer have effects.

    Raises:
        WrongUse: the function cannot be a tool; the message names the place.
    """
    if unknown := sorted(options.keys() - Options.__annotations__):
        raise WrongUse(f"tool: unknown option {unknown[0]!r}; known are {', '.join(Options.__annotations__)}")
    if function is None:
        return lambda made: _make_tool(made, **options)
    return _make_tool(function, **options)


def _make_tool(
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
        reconcile=None if reconcile is None else reconciler(reconcile, takes, _make_caller(reconcile)),
        function=function,
    )


def _name(function: Callable[..., object], name: object) -> str:
    if not inspect.isroutine(function):
        raise wrong_value("tool", "a function or a bound method", function, _way_out(function))
    called = function.__name__ if name is None else name
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise WrongUse(
            f"tool {called}: is a generator, but a tool returns its output once: collect the values and return them"
        )
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        way_out = "a lambda has no name: write a function with def" if called == "<lambda>" else "pass name="
        raise WrongUse(f"tool {called!r}: a name has 1 to 64 letters, digits, - and _; {way_out}")
    return called


def _way_out(given: object) -> str:
    """Return what to write instead of something that is not a function."""
    if isinstance(given, str):
        return f"for a name, use @tool(name={given!r})"
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
    called = _make_caller(function)

    async def run(arguments: str, context: CallContext) -> str:
        return as_text(await called(takes.bind(arguments, context)), takes.tool)

    return run


def _make_caller(function: Callable[..., Any]) -> Called:
    coroutine = inspect.iscoroutinefunction(function)

    async def called(keywords: dict[str, Any]) -> object:
        if coroutine:
            return await function(**keywords)
        result = await in_thread(partial(function, **keywords))
        # A plain wrapper may return the coroutine of an async function.
        return await result if inspect.isawaitable(result) else result

    return called
