"""What the small languages of questions share: their words with places, and the one error for a question that cannot be asked."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from refold.reducers.errors import WrongUse

MOST_CHARACTERS = 2000
"""Of a question: it is typed by a person."""


class BadQuestion(WrongUse):
    """A filter or an expression that means nothing: `problem` says why, `at` is the place in `text`, from 1."""

    def __init__(self, text: str, at: int, problem: str) -> None:
        super().__init__(text, at, problem)
        self.text, self.at, self.problem = text, at, problem

    def __str__(self) -> str:
        rest = self.text[self.at - 1 :]
        shown = f"{rest[:40]}…" if len(rest) > 40 else rest
        place = f"at character {self.at}, {shown!r}" if shown else "at its end"
        return f"{self.problem} ({place})"


class Word(msgspec.Struct, frozen=True, gc=False):
    """A word of a question: which kind of word, its text as typed, and where it begins, from 1."""

    kind: str
    text: str
    at: int


def words(text: str, pattern: re.Pattern[str]) -> list[Word]:
    """The words of a question, and one of kind `end`; each named group of `pattern` is a kind.

    Raises `BadQuestion` at what is no word, and for more than `MOST_CHARACTERS`.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadQuestion(text, MOST_CHARACTERS + 1, f"more than {MOST_CHARACTERS} characters")
    found, place = list[Word](), 0
    while place < len(text):
        match = pattern.match(text, place)
        if match is None or match.lastgroup is None:
            raise BadQuestion(text, place + 1, "this is no word of the language")
        if match.lastgroup != "space":
            found.append(Word(match.lastgroup, match[0], place + 1))
        place = match.end()
    return [*found, Word("end", "", len(text) + 1)]


def unquoted(text: str) -> str:
    r"""What stands between two quotation marks: `\` before a mark, or before itself, is not part of it."""
    return re.sub(r"\\([\"'\\])", r"\1", text[1:-1])


def quoted(text: str) -> str:
    """The text between quotation marks, as `unquoted` reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """That there is no such name, the nearest one, and all that there are."""
    listed = sorted(names)
    near = get_close_matches(name, listed, 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no {what} {name[:60]!r}{meant}; there are {', '.join(listed)}"


def decimal(text: str) -> tuple[int, int]:
    """A number as it is written, exactly: its digits, and how many of them stand after the point."""
    whole, _, after = text.partition(".")
    return int(whole + after), len(after)
