"""Marks of tools: globs of whole names, and `tool:command` for one command of a tool.

Names are compared without case, or to the letter where a mark begins with `=`.
"""

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
    if _is_among(marks, name):
        return True
    commands = [mark.partition(":")[2] for mark in marks if ":" in mark and is_of(mark, name)]
    return bool(commands) and _command(arguments) in commands


def is_of(mark: str, name: str) -> bool:
    """Whether a mark is of a tool of this name, whatever its command."""
    head, _, _ = mark.partition(":")
    return any(_is_among((each,), name) for each in {mark, head})


def _is_among(marks: tuple[str, ...], name: str) -> bool:
    in_any_case, to_the_letter = _patterns(marks)
    return bool(in_any_case.match(name.casefold()) or to_the_letter.match(name))


@lru_cache(maxsize=512)
def _patterns(marks: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    in_any_case = (translate(mark.casefold()) for mark in marks if not mark.startswith("="))
    to_the_letter = (translate(mark[1:]) for mark in marks if mark.startswith("="))
    return re.compile("|".join(in_any_case) or r"(?!)"), re.compile("|".join(to_the_letter) or r"(?!)")


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
