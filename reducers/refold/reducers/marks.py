"""Marks of tools: globs of whole names, compared without case, and `tool:command` for one command of a tool."""

import json
import re
from fnmatch import translate
from functools import lru_cache
from typing import cast

from refold.reducers.arguments import is_object

_NUMBERS_AS_TEXT = json.JSONDecoder(parse_int=str, parse_float=str)


def fits(marks: tuple[str, ...], name: str, arguments: str) -> bool:
    """Whether a mark matches the name, or is of this tool and the command in its arguments.

    The command is `command`, else `root.command`, of `params` (an object, or its JSON text), or where that is
    neither, of the arguments. What cannot be read is no command. Commands are compared to the letter.
    """
    if _of_names(marks).match(name.casefold()):
        return True
    commands = [mark.partition(":")[2] for mark in marks if ":" in mark and is_of(mark, name)]
    return bool(commands) and _command(arguments) in commands


def is_of(mark: str, name: str) -> bool:
    """Whether a mark is of a tool of this name, whatever its command."""
    head, _, _ = mark.partition(":")
    return any(_of_names((each,)).match(name.casefold()) for each in {mark, head})


@lru_cache(maxsize=512)
def _of_names(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob.casefold()) for glob in globs) or r"(?!)")


def _command(arguments: str) -> str | None:
    given = _read(arguments)
    params = given.get("params")
    if isinstance(params, str) and is_object(params or "-"):
        params = _read(params)
    holder = _mapping(params)
    holder = given if holder is None else holder
    command = holder.get("command")
    if command is None:
        command = (_mapping(holder.get("root")) or {}).get("command")
    return command if isinstance(command, str) else None


def _read(text: str) -> dict[str, object]:
    return (_mapping(_NUMBERS_AS_TEXT.decode(text or "{}")) or {}) if is_object(text) else {}


def _mapping(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None
