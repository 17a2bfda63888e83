"""Which code a tool ran: a fingerprint for the log."""

import hashlib
import inspect
from collections.abc import Callable
from types import CodeType
from typing import cast


def source_digest(function: Callable[..., object]) -> str:
    """SHA-256, hex, over the source of a function and of each decorator's wrapper around it.

    Where there is no source (a prompt, `exec`, a frozen program) the bytecode stands in; it differs between
    versions of Python. What the function calls or closes over is not part of it: a digest tells that a tool was
    edited, it cannot tell that it does the same.
    """
    layers: list[str] = []
    layer: object = function
    while layer is not None and len(layers) < 100:  # a wrapper may, absurdly, wrap itself
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
    """Bytecode, names and constants; without file names and line numbers, which say where, not what."""
    constants = ", ".join(_constant(value) for value in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} [{constants}]"


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):
        members = cast("frozenset[object]", value)
        return str(sorted(repr(each) for each in members))  # its own order changes with the hash seed
    return repr(value)
