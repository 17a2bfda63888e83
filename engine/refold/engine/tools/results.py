"""Conversion of tool results to text, and functions that run in threads.

A thread cannot be stopped. When its call is cancelled, the run continues without it, and its later result is
passed to a listener. The engine stores it beside the log as `late_result`.
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
    """Raise `WrongUse`, naming the type, if the return annotation is a type that JSON cannot carry.

    Without an annotation, or with `object`, only the returned value can be checked.
    """
    for kind in parts_of(hints_of(function, tool).get("return")):
        problem = _problem(kind)
        if problem:
            name = kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)
            raise WrongUse(f"tool {tool}: returns {name}, which cannot be serialized as JSON: {problem}")


def as_text(result: object, tool: str = "") -> str:
    """Convert a tool's result to the text for the prompt: text unchanged, None to "", other values to JSON.

    Lone surrogates are replaced, sets and keys are sorted, non-finite numbers become "nan" and "inf".
    Values that JSON cannot carry (a `Path`, a custom object) are converted with `str`, and the logger
    `refold.tools` warns, naming `tool` and the type. This is not an error: the call has had its effect and
    must not look failed. An object without its own `__str__` or `__repr__` becomes the name of its type.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return clean(str.__str__(result))
    found: list[type] = []
    try:
        text = _json(result, found)
    except (TypeError, ValueError, RecursionError):  # a key that is not text, or a circular structure
        found = [type(result)]
        text = _describe(result)
    for kind in found:
        _warn(tool, kind.__name__)
    return text


@cache  # warn once per tool and type: a tool may be called often
def _warn(tool: str, kind: str) -> None:
    whose = f"tool {tool}" if tool else "a tool"
    _LOGGER.warning(
        "warning: %s returned a value of type %s, which cannot be serialized as JSON: it is recorded as text",
        whose,
        kind,
    )


def _describe(value: object) -> str:
    """Return the object's `str` without memory addresses, or the name of its type."""
    kind = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"<{kind.__name__}>"
    try:
        return clean(_ADDRESS.sub("", str(value)))
    except Exception:  # third-party method
        return f"<{kind.__name__}>"


def _json(result: object, found: list[type]) -> str:
    """Encode a result as JSON; add to `found` the types that were converted with `str`."""

    def hook(value: object) -> Any:
        if signature.is_model(type(value)):
            return signature.encode_model(value)
        found.append(type(value))
        return _describe(value)

    try:
        text = msgspec.json.encode(result, enc_hook=hook, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError):  # numeric keys can be sorted only as text
        text = "null"
    # msgspec encodes non-finite numbers as null, like None.
    if "null" not in text:
        return text
    plain = msgspec.to_builtins(result, enc_hook=hook, order="deterministic", str_keys=True)
    return msgspec.json.encode(_clean_values(plain)).decode()


def _problem(kind: Any) -> str:
    """Explain why JSON cannot carry a type and what to return instead; "" if it can."""
    origin = get_origin(kind)
    if origin is dict:
        return "a key must be text or a number; return a list of pairs" if unwritable_keys(kind) else ""
    if origin in (set, frozenset):
        return "" if _has_order(get_args(kind)[0]) else "its members have no order; return a list"
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


def _clean_values(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {_clean_values(key): _clean_values(each) for key, each in entries.items()}
    if isinstance(value, list):
        return [_clean_values(each) for each in cast("list[object]", value)]
    return value


T = TypeVar("T")

Late = Callable[[object, BaseException | None], None]
"""Callback (result, exception or None), called at most once, in any thread."""

LISTENER: ContextVar[Late | None] = ContextVar("refold_late_listener", default=None)


class _Work:
    """One function in one thread. Its outcome goes either to the caller or to the listener, never to both.

    If it is abandoned before it starts, it does not run.
    """

    def __init__(self, function: Callable[[], object], late: Late | None) -> None:
        self._function, self._late = function, late
        self._lock = Lock()
        self._ended = self._abandoned = False
        self._result: object = None
        self._error: BaseException | None = None

    def run(self) -> tuple[object]:
        """Run the function. Called in the thread."""
        with self._lock:
            if self._abandoned:
                return (None,)
        try:
            self._result = self._function()
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # A tool that calls a command's main function may raise these. They must end only the tool:
            # raised in the caller's coroutine, they would close it.
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
        """Send the outcome to the listener, because the caller stopped waiting."""
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
    """Run the function in a separate thread. On cancellation, its outcome goes to `LISTENER`."""
    work = _Work(function, LISTENER.get())
    try:
        # A separate limiter: on trio an abandoned thread keeps its slot in a shared one, and a few tools
        # that hang would block all others.
        (result,) = await anyio.to_thread.run_sync(
            work.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
    except anyio.get_cancelled_exc_class():
        work.abandon()
        raise
    return result  # type: ignore[return-value]
