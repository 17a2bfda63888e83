"""Conditions of a question, and what can be asked about.

Of a number that never falls it is proved, not guessed, that being more than something stays so.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from refold.reducers.errors import WrongUse
from refold.reducers.patterns import find_first

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

    `values` are all that there are, where they are known: another one is a slip of the pen, and finds nothing
    for ever. `rises`: in a log that can be folded it never falls; once true, it stays true.
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


Order = Literal["<", "<=", ">", ">=", "=="]
Read = Callable[[str], Any]
"""What the fields of an event or a state are, by their names."""

_PLAIN = re.compile(r'[^\s"*()]+')


class Is(msgspec.Struct, frozen=True):
    """One of the field's words is this one."""

    field: str
    value: str


class Like(msgspec.Struct, frozen=True):
    """One of the field's words is this one, in which each `*` stands for anything."""

    field: str
    value: str


class Holds(msgspec.Struct, frozen=True):
    """This stands somewhere in the text."""

    value: str
    field: str = "text"


class Fits(msgspec.Struct, frozen=True):
    """A pattern is found in one of the field's words, or in a line of the text."""

    field: str
    pattern: str


class Between(msgspec.Struct, frozen=True):
    """The number is in the range, ends included, None: without an end; in nano-dollars and nanoseconds where
    it is such.
    """

    field: str
    low: int | None
    high: int | None


class Beside(msgspec.Struct, frozen=True):
    """The number stands so to another field, times `factor`: a decimal number, its digits and how many stand
    after the point.
    """

    field: str
    order: Order
    factor: tuple[int, int]
    other: str


class Says(msgspec.Struct, frozen=True):
    """The flag is this."""

    field: str
    value: bool


Test = Is | Like | Holds | Fits | Between | Beside | Says


class Not(msgspec.Struct, frozen=True):
    """The contrary."""

    of: "Node"


class Every(msgspec.Struct, frozen=True):
    """All of them; of none: whatever there is."""

    of: tuple["Node", ...]


class Some(msgspec.Struct, frozen=True):
    """One of them at least."""

    of: tuple["Node", ...]


Node = Test | Not | Every | Some


def is_so(node: Node, read: Read, fields: Mapping[str, Field]) -> bool | None:
    """Whether it is so of what `read` reads; None: nobody knows, for it hangs on a text that is hidden (read
    as None).

    Any other field that is not there fits nothing.
    """
    match node:
        case Every(of=parts):
            return _first(parts, read, fields, decisive=False)
        case Some(of=parts):
            return _first(parts, read, fields, decisive=True)
        case Not(of=part):
            so = is_so(part, read, fields)
            return None if so is None else not so
        case _:
            return _passes(node, read, fields)


def _passes(test: Test, read: Read, fields: Mapping[str, Field]) -> bool | None:
    match test:
        case Is(field=field, value=value):
            wanted = value.lower()
            return any(word.lower() == wanted for word in _words(read(field)))
        case Like(field=field, value=value):
            return any(like(word.lower(), value.lower()) for word in _words(read(field)))
        case Holds() | Fits():
            return _is_found(test, read(test.field), is_text=fields[test.field].kind == "text")
        case Between(field=field):
            return _lies(test, read(field))
        case Beside():
            return _stands(test, read, fields)
        case Says(field=field, value=value):
            return read(field) is value


def _is_found(test: Holds | Fits, value: Any, *, is_text: bool) -> bool | None:
    if is_text and value is None:
        return None
    if isinstance(test, Holds):
        return test.value.lower() in value.lower()
    texts = [value] if is_text else _words(value)
    return any(find_first(test.pattern, text) is not None for text in texts)


def _lies(test: Between, number: int | None) -> bool:
    if number is None:
        return False
    return (test.low is None or test.low <= number) and (test.high is None or number <= test.high)


def _first(
    parts: tuple[Node, ...], read: Read, fields: Mapping[str, Field], *, decisive: bool
) -> bool | None:
    """The answer that decides, if one part gives it; else what none knows stays unknown."""
    unknown = False
    for part in parts:
        so = is_so(part, read, fields)
        if so is decisive:
            return decisive
        unknown = unknown or so is None
    return None if unknown else not decisive


def conditions(node: Node, *, contrary: bool = False) -> Iterator[tuple[Test, bool]]:
    """Every condition in it, and whether its contrary is asked for."""
    match node:
        case Not(of=part):
            yield from conditions(part, contrary=not contrary)
        case Every(of=parts) | Some(of=parts):
            for part in parts:
                yield from conditions(part, contrary=contrary)
        case _:
            yield node, contrary


def lasts(node: Node, fields: Mapping[str, Field], *, contrary: bool = False) -> bool:
    """Whether it is proved that it stays so once it is, in whatever log; `contrary`: that it stays not so."""
    match node:
        case Every(of=parts) | Some(of=parts):
            return all(lasts(part, fields, contrary=contrary) for part in parts)
        case Not(of=part):
            return lasts(part, fields, contrary=not contrary)
        case Between(field=field, low=low, high=high):
            return fields[field].rises and (low if contrary else high) is None
        case Says(field=field, value=value):
            return fields[field].rises and value is not contrary
        case _:
            return False


def like(word: str, pattern: str) -> bool:
    """Whether a word is a pattern in which each `*` stands for anything."""
    first, *middle, last = pattern.split("*")
    if len(word) < len(first) + len(last) or not word.startswith(first) or not word.endswith(last):
        return False
    place, end = len(first), len(word) - len(last)
    for piece in middle:
        place = word.find(piece, place, end)
        if place < 0:
            return False
        place += len(piece)
    return True


def written(node: Node, fields: Mapping[str, Field]) -> str:
    """The question as text that parses to it again."""
    match node:
        case Some(of=parts):
            return " or ".join(_part(part, fields) for part in parts)
        case Every(of=parts):
            return " ".join(_part(part, fields) for part in parts)
        case Not(of=(Holds() | Not()) as part):
            return f"not {written(part, fields)}"
        case Not(of=part):
            return f"-{_part(part, fields)}"
        case _:
            return _written_test(node, fields[node.field])


def _written_test(test: Test, about: Field) -> str:
    field = test.field
    match test:
        case Is(value=value):
            return f"{field}:{_written_word(value, about.values)}"
        case Like(value=value):
            return f"{field}:{value}"
        case Holds(value=value):
            return f"{field}:{quoted(value)}"
        case Fits(pattern=pattern):
            return f"{field}~{quoted(pattern)}"
        case Between(low=low, high=high):
            return _range(field, low, high, about.digits)
        case Beside(order=order, factor=factor, other=other):
            return f"{field}{order}{'' if factor == (1, 0) else f'{_number(*factor)}*'}{other}"
        case Says(value=value):
            return f"{field}:{str(value).lower()}"


def _stands(asked: Beside, read: Read, fields: Mapping[str, Field]) -> bool:
    one, other = read(asked.field), read(asked.other)
    if one is None or other is None:
        return False
    times, after = asked.factor
    # In whole numbers, with as many digits after the point as either side has: money is exact.
    left = one * 10 ** (fields[asked.other].digits + after)
    right = other * times * 10 ** fields[asked.field].digits
    return _ORDERS[asked.order](left, right)


_ORDERS: Mapping[Order, Callable[[int, int], bool]] = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
    "==": int.__eq__,
}


def _words(value: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return value


def _part(node: Node, fields: Mapping[str, Field]) -> str:
    return f"({written(node, fields)})" if isinstance(node, Every | Some) else written(node, fields)


def _range(field: str, low: int | None, high: int | None, digits: int) -> str:
    if high is not None and high < 0:
        return f"{field}<0"
    if low is None:
        return f"{field}<={_number(high or 0, digits)}"
    if high is None:
        return f"{field}>={_number(low, digits)}"
    least, most = _number(low, digits), _number(high, digits)
    return f"{field}:{least}" if least == most else f"{field}:{least}..{most}"


def _written_word(word: str, values: tuple[str, ...]) -> str:
    return word if _PLAIN.fullmatch(word) and (not values or word in values) else quoted(word)


def _number(value: int, digits: int) -> str:
    text = f"{value:0{digits + 1}}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
