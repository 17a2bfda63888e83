"""What tools return, and functions that are run in threads.

A thread cannot be stopped. When its call is cut off, the run goes on without it, and what it returns later is
told to a listener: the engine keeps it beside the log as `late_result`.
"""

import dataclasses
import logging
import math
import re
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from threading import Lock
from typing import Any, TypeVar, cast, get_args, get_origin

import anyio
import anyio.to_thread
import msgspec

from refold.engine.tasks import Exited, describe_error
from refold.engine.tools import signature
from refold.engine.tools.signature import alternatives, hints_of, parts_of, unwritable_keys
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LOGGER = logging.getLogger("refold.tools")


def refuse_result(function: Callable[..., object], tool: str) -> None:
    """Refuse a function whose annotation says that it returns what JSON cannot carry. Raises `WrongUse`,
    naming the type.

    What is annotated with nothing, or `object`, is known only when it is there.
    """
    for kind in parts_of(hints_of(function, tool).get("return")):
        problem = _problem(kind)
        if problem:
            name = kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)
            raise WrongUse(f"tool {tool}: returns {name}, which JSON cannot carry: {problem}")


def as_text(result: object, tool: str = "") -> str:
    """What a tool returned, as the text that the model reads: text as it is, None as "", anything else as
    JSON.

    Lone surrogates are replaced, sets and keys are in order, numbers that are none are told by name: "nan",
    "inf". What JSON cannot carry (a `Path`, an object of the tool's own) becomes text by `str`, with a
    warning of the log `refold.tools` that names `tool` and the type: its call has had its effect, and must
    not look as if it had failed. An object without words of its own is told by the name of its type.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return clean(str.__str__(result))
    found: list[type] = []
    try:
        text = _json(result, found)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, or a structure that holds itself
        found = [type(result)]
        text = _described(result)
    for kind in found:
        _warn(tool, kind.__name__)
    return text


@cache  # once for each: a tool may be called a thousand times
def _warn(tool: str, kind: str) -> None:
    whose = f"tool {tool}" if tool else "a tool"
    _LOGGER.warning(
        "warning: %s returned a value of type %s, which JSON cannot carry: it is recorded as text",
        whose,
        kind,
    )


def _described(value: object) -> str:
    """An object in its own words; without any, or where they fail, the name of its type: never where it lies
    in memory.
    """
    kind = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"<{kind.__name__}>"
    try:
        return clean(_ADDRESS.sub("", str(value)))
    except Exception:  # a stranger's own method
        return f"<{kind.__name__}>"


def _json(result: object, found: list[type]) -> str:
    """The JSON of a result; `found` gets the types that it has as text."""

    def hook(value: object) -> Any:
        if signature.is_model(type(value)):
            return signature.encode_model(value)
        found.append(type(value))
        return _described(value)

    try:
        text = msgspec.json.encode(result, enc_hook=hook, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError):  # keys that are numbers can be put in order as texts only
        text = "null"
    # JSON has no number that is none: such a one is written as null, as what is not there.
    if "null" not in text:
        return text
    plain = msgspec.to_builtins(result, enc_hook=hook, order="deterministic", str_keys=True)
    return msgspec.json.encode(_cleaned(plain)).decode()


def _problem(kind: Any) -> str:
    """Why JSON cannot carry a type, and what to return in its place; "" where it can."""
    origin = get_origin(kind)
    if origin is dict:
        return "a key is text or a number there; return a list of pairs" if unwritable_keys(kind) else ""
    if origin in (set, frozenset):
        return "" if _has_order(get_args(kind)[0]) else "it has no order of what is in it; return a list"
    if kind is None or kind is object or isinstance(kind, TypeVar):
        return ""
    return _schema_problem(kind)


def _has_order(member: Any) -> bool:
    """Whether values of this type can be sorted, as the members of a set are."""
    kinds = {float if each in (bool, int) else each for each in alternatives(member)}
    return len(kinds) < 2 and not any(dataclasses.is_dataclass(each) for each in kinds)


def _schema_problem(kind: Any) -> str:
    try:
        if signature.is_model(kind):
            signature.schema_of_model(kind, "{model}", "serialization")
        else:
            msgspec.json.schema(
                kind, schema_hook=lambda made: signature.schema_of_model(made, "{model}", "serialization")
            )
    except (TypeError, NotImplementedError) as error:
        said = f"{error}; " if isinstance(error.__cause__, RuntimeError) else ""
        return f"{said}return {signature.JSON_TYPES}"
    return ""


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {_cleaned(key): _cleaned(each) for key, each in entries.items()}
    if isinstance(value, list):
        return [_cleaned(each) for each in cast("list[object]", value)]
    return value


T = TypeVar("T")

Late = Callable[[object, BaseException | None], None]
"""(what was returned, what was raised instead), called in any thread, once, if at all."""

LISTENER: ContextVar[Late | None] = ContextVar("refold_late_listener", default=None)


class _Work:
    """One function in one thread: its end is told to the caller, or else to the listener; never to both.

    Abandoned before it has begun, it never does.
    """

    def __init__(self, function: Callable[[], object], late: Late | None) -> None:
        self._function, self._late = function, late
        self._lock = Lock()
        self._ended = self._abandoned = False
        self._result: object = None
        self._error: BaseException | None = None

    def run(self) -> tuple[object]:
        """In the thread."""
        with self._lock:
            if self._abandoned:
                return (None,)
        try:
            self._result = self._function()
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # In a thread of a tool's own it ends nothing but the tool: what calls a command's main function
            # comes to it. Thrown into the caller's coroutine it would mean that somebody closes that.
            exited = Exited(describe_error(error))
            self._end(exited)
            raise exited from error
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        # In a tuple: an async function may hide behind a plain one, and trio refuses a bare coroutine.
        return (self._result,)

    def abandon(self) -> None:
        """The caller does not wait any more."""
        with self._lock:
            self._abandoned = True
            ended = self._ended
        if ended:
            self._tell()

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._ended, self._error = True, error
            abandoned = self._abandoned
        if abandoned:
            self._tell()

    def _tell(self) -> None:
        if self._late is not None:
            self._late(self._result, self._error)


async def in_thread(function: Callable[[], T]) -> T:
    """Run the function in a thread of its own. Cancelled, it is abandoned, and its end told to `LISTENER`."""
    work = _Work(function, LISTENER.get())
    try:
        # A limiter of its own: on trio an abandoned thread keeps its place in a shared one, and a few tools
        # that hang would then hold up every other for good.
        (result,) = await anyio.to_thread.run_sync(
            work.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
    except anyio.get_cancelled_exc_class():
        work.abandon()
        raise
    return result  # type: ignore[return-value]
