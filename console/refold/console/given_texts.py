"""Texts as they are typed: themselves, those of a file, or what stands on stdin."""

import sys
from pathlib import Path

from refold.console.places import expanded
from refold.reducers.errors import WrongUse

LARGEST = 1 << 24
"""Bytes of a text that comes from a file or stdin."""


def given_text(typed: str, what: str) -> str:
    """The text that was typed for `what`: of a file for `@FILE`, of stdin for `-`, else the words themselves.

    Raises `WrongUse` for what cannot be read, is no UTF-8, or is too large.
    """
    if typed == "-":
        if sys.stdin is None:
            raise WrongUse(f"{what}: stdin is closed; - reads what stands there")
        return _decoded(sys.stdin.buffer.read(LARGEST + 1), what, "stdin")
    if typed.startswith("@"):
        return _decoded(_of_file(expanded(Path(typed[1:])), what), what, typed[1:])
    return typed


def _of_file(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise WrongUse(f"{what}: {path} cannot be read: {error}; @ names a file") from error


def _decoded(data: bytes, what: str, where: str) -> str:
    if len(data) > LARGEST:
        raise WrongUse(f"{what}: {where} is larger than {LARGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WrongUse(f"{what}: {where} is not UTF-8 at byte {error.start}") from error
