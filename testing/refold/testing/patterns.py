"""Texts that match a regular expression, drawn from a source of chance.

The texts are drawn from the parsed expression. Lookarounds and anchors are ignored while drawing, and each
text is then checked by a search, so a text that is returned always matches.
"""

import random
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, cast

TRIES = 200
"""The number of texts drawn before an expression is given up."""
_LONGEST = 6  # repetitions beyond the least number
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 _-ABCXYZ.:/"
_CLASSES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "abcxyzABC019_",
    "CATEGORY_NOT_DIGIT": "abc -",
    "CATEGORY_NOT_SPACE": "abc019-",
    "CATEGORY_NOT_WORD": " -.:",
}


def matching_text(pattern: str, chance: random.Random, fits: Callable[[str], bool]) -> str | None:
    """Return a text in which `pattern` is found and that `fits`, or None if none was found.

    None also for an expression that Python's `re` cannot parse.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError):
        return None
    # The parser of `re` has no public name; its classes are lists of (operation, argument).
    parsed: Any = import_module("re._parser").parse(pattern)
    for _ in range(TRIES):
        text = _Drawing(chance).sequence(parsed)
        if compiled.search(text) and fits(text):
            return text
    return None


class _Drawing:
    """One text in progress; `groups` has the texts of the groups so far."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._groups: dict[int, str] = {}

    def sequence(self, parsed: Iterable[tuple[object, Any]]) -> str:
        return "".join([self._part(str(operation), argument) for operation, argument in parsed])

    def _part(self, operation: str, argument: Any) -> str:
        match operation:
            case "LITERAL":
                return chr(argument)
            case "NOT_LITERAL":
                return self._other([chr(argument)])
            case "ANY":
                return self._chance.choice(_LETTERS)
            case "IN":
                return self._member(argument)
            case "BRANCH":
                return self.sequence(self._chance.choice(argument[1]))
            case "SUBPATTERN":
                drawn = self.sequence(argument[3])
                if argument[0] is not None:
                    self._groups[argument[0]] = drawn
                return drawn
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, repeated = argument
                count = self._chance.randint(least, max(least, min(int(most), least + _LONGEST)))
                return "".join([self.sequence(repeated) for _ in range(count)])
            case "ATOMIC_GROUP":
                return self.sequence(argument)
            case "GROUPREF":
                return self._groups.get(argument, "")
            case "GROUPREF_EXISTS":
                group, then, otherwise = argument
                return self.sequence(then if group in self._groups else otherwise or [])
            case _:  # anchors and lookarounds match no characters
                return ""

    def _member(self, members: list[tuple[object, Any]]) -> str:
        if str(members[0][0]) == "NEGATE":
            return self._other([each for member in members[1:] for each in _characters(*member)])
        return self._chance.choice(_characters(*self._chance.choice(members)))

    def _other(self, refused: list[str]) -> str:
        allowed = [each for each in _LETTERS if each not in refused]
        return self._chance.choice(allowed or ["é"])


def _characters(operation: object, argument: Any) -> list[str]:
    """Return characters of one member of a set such as `[a-z\\d_]`."""
    match str(operation):
        case "LITERAL":
            return [chr(argument)]
        case "RANGE":
            first, last = cast("tuple[int, int]", argument)
            return [chr(code) for code in range(first, min(last, first + 255) + 1)]
        case _:
            return list(_CLASSES[str(argument)])
