"""What can be asked about, how it is quoted, and the one error for a question that cannot be asked."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

import msgspec

from refold.reducers.errors import WrongUse

FieldKind = Literal["words", "number", "flag", "text"]

MOST_CHARACTERS = 2000
"""Of a question: it is typed by a person."""


_ALIKE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("user", "human", "input", "message"), "person"),
        **dict.fromkeys(("assistant", "llm", "answer", "response"), "model"),
        **dict.fromkeys(("call", "result", "function"), "tool"),
        **dict.fromkeys(("content", "words", "said"), "text"),
        **dict.fromkeys(("tool", "tools", "guard"), "name"),
        **dict.fromkeys(("step", "steps", "round"), "turn"),
        **dict.fromkeys(("role", "about"), "type"),
        **dict.fromkeys(("event", "id", "number"), "seq"),
        **dict.fromkeys(("author", "who"), "by"),
        **dict.fromkeys(("failed", "failure", "is_error"), "error"),
        **dict.fromkeys(("price", "usd", "money"), "cost"),
        **dict.fromkeys(("time", "at"), "elapsed"),
        **dict.fromkeys(("status",), "state"),
    }
)
"""What other programs call it: no near name, and the same thing."""


class BadQuestion(WrongUse):
    """A question that means nothing: `problem` says why, `at` is the place in `text`, from 1."""

    def __init__(self, text: str, at: int, problem: str) -> None:
        super().__init__(text, at, problem)
        self.text, self.at, self.problem = text, at, problem

    def __str__(self) -> str:
        rest = self.text[self.at - 1 :]
        shown = f"{rest[:40]}…" if len(rest) > 40 else rest
        place = f"at character {self.at}, {shown!r}" if shown else "at its end"
        return f"{self.problem} ({place})"


class Field(msgspec.Struct, frozen=True):
    """What can be asked about by a name: `digits` of a number's value stand after the point.

    `values` are all that there are, where they are known: another one is a slip of the pen, and finds nothing for ever.
    `rises`: in a log that can be folded it never falls; once true, it stays true.
    """

    kind: FieldKind
    means: str
    digits: int = 0
    values: tuple[str, ...] = ()
    rises: bool = False


def unquoted(text: str) -> str:
    r"""What stands between two quotation marks: `\` before a mark, or before itself, is not part of it."""
    return re.sub(r"\\([\"\\])", r"\1", text[1:-1])


def quoted(text: str) -> str:
    """The text between quotation marks, as `unquoted` reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """That there is no such name, the nearest one, and all that there are."""
    listed = sorted(names)
    near = (
        [_ALIKE[name.lower()]] if _ALIKE.get(name.lower()) in listed else get_close_matches(name, listed, 1)
    )
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no {what} {name[:60]!r}{meant}; there are {', '.join(listed)}"


def decimal(text: str) -> tuple[int, int]:
    """A number as it is written, exactly: its digits, and how many of them stand after the point."""
    whole, _, after = text.partition(".")
    return int(whole + after), len(after)
