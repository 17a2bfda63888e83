"""Conditions of a query, and its fields.

For numbers that never decrease, a lower bound provably stays true once it is true.
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
"""Maximum length of a query."""


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
"""Names that other programs use for a field, in addition to similar spellings."""


class BadQuestion(WrongUse):
    """An invalid query: `problem` says why, `at` is the position in `text`, from 1."""

    def __init__(self, text: str, at: int, problem: str) -> None:
        super().__init__(text, at, problem)
        self.text, self.at, self.problem = text, at, problem

    def __str__(self) -> str:
        rest = self.text[self.at - 1 :]
        shown = f"{rest[:40]}…" if len(rest) > 40 else rest
        place = f"at character {self.at}, {shown!r}" if shown else "at its end"
        return f"{self.problem} ({place})"


class Field(msgspec.Struct, frozen=True):
    """A field of a query. A number has `digits` after the decimal point.

    `values` are all possible values, if they are known: any other one is a typo that would never match.
    `rises`: it never decreases in a log that can be folded; a flag stays true once it is true.
    """

    kind: FieldKind
    means: str
    digits: int = 0
    values: tuple[str, ...] = ()
    rises: bool = False


def unquote(text: str) -> str:
    r"""Return the text between two quotation marks, with `\` removed before a mark or another `\`."""
    return re.sub(r"\\([\"\\])", r"\1", text[1:-1])


def quote(text: str) -> str:
    """Quote a text so that `unquote` reads it back."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def describe_unknown(what: str, name: str, names: Iterable[str]) -> str:
    """Format an error for an unknown name, with the closest name and all names."""
    listed = sorted(names)
    near = (
        [_ALIKE[name.lower()]] if _ALIKE.get(name.lower()) in listed else get_close_matches(name, listed, 1)
    )
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown {what} {name[:60]!r}{meant}; expected {', '.join(listed)}"


def parse_decimal(text: str) -> tuple[int, int]:
    """Parse a decimal number exactly: its digits as an integer, and the number of decimals."""
    whole, _, after = text.partition(".")
    return int(whole + after), len(after)


Order = Literal["<", "<=", ">", ">=", "=="]
Read = Callable[[str], Any]
"""Reads a field of an event or a state by name."""

_PLAIN = re.compile(r'[^\s"*()]+')


class Is(msgspec.Struct, frozen=True):
    """One of the field's words equals this one."""

    field: str
    value: str


class Like(msgspec.Struct, frozen=True):
    """One of the field's words matches this one, where each `*` matches anything."""

    field: str
    value: str


class Holds(msgspec.Struct, frozen=True):
    """The text contains this."""

    value: str
    field: str = "text"


class Fits(msgspec.Struct, frozen=True):
    """A pattern matches in one of the field's words, or in a line of the text."""

    field: str
    pattern: str


class Between(msgspec.Struct, frozen=True):
    """The number is in the range, ends included; None: unbounded.

    Money is in nano-dollars and time in nanoseconds.
    """

    field: str
    low: int | None
    high: int | None


class Beside(msgspec.Struct, frozen=True):
    """The number compares like this to another field times `factor`.

    `factor` is a decimal number: its digits, and the number of decimals.
    """

    field: str
    order: Order
    factor: tuple[int, int]
    other: str


class Says(msgspec.Struct, frozen=True):
    """The flag has this value."""

    field: str
    value: bool


Test = Is | Like | Holds | Fits | Between | Beside | Says


class Not(msgspec.Struct, frozen=True):
    """Negation."""

    of: "Node"


class Every(msgspec.Struct, frozen=True):
    """All parts match; without parts, everything does."""

    of: tuple["Node", ...]


class Some(msgspec.Struct, frozen=True):
    """At least one part matches."""

    of: tuple["Node", ...]


Node = Test | Not | Every | Some


def evaluate(node: Node, read: Read, fields: Mapping[str, Field]) -> bool | None:
    """Evaluate a query with `read`; None if the result depends on erased text (read as None).

    Any other missing field matches nothing.
    """
    match node:
        case Every(of=parts):
            return _combine(parts, read, fields, decisive=False)
        case Some(of=parts):
            return _combine(parts, read, fields, decisive=True)
        case Not(of=part):
            so = evaluate(part, read, fields)
            return None if so is None else not so
        case _:
            return _evaluate_test(node, read, fields)


def _evaluate_test(test: Test, read: Read, fields: Mapping[str, Field]) -> bool | None:
    match test:
        case Is(field=field, value=value):
            wanted = value.lower()
            return any(word.lower() == wanted for word in _words(read(field)))
        case Like(field=field, value=value):
            return any(matches_glob(word.lower(), value.lower()) for word in _words(read(field)))
        case Holds() | Fits():
            return _is_found(test, read(test.field), is_text=fields[test.field].kind == "text")
        case Between(field=field):
            return _is_in_range(test, read(field))
        case Beside():
            return _compare_fields(test, read, fields)
        case Says(field=field, value=value):
            return read(field) is value


def _is_found(test: Holds | Fits, value: Any, *, is_text: bool) -> bool | None:
    if is_text and value is None:
        return None
    if isinstance(test, Holds):
        return test.value.lower() in value.lower()
    texts = [value] if is_text else _words(value)
    return any(find_first(test.pattern, text) is not None for text in texts)


def _is_in_range(test: Between, number: int | None) -> bool:
    if number is None:
        return False
    return (test.low is None or test.low <= number) and (test.high is None or number <= test.high)


def _combine(
    parts: tuple[Node, ...], read: Read, fields: Mapping[str, Field], *, decisive: bool
) -> bool | None:
    """Return the deciding value if one part has it, None if a part is unknown, else the opposite."""
    unknown = False
    for part in parts:
        so = evaluate(part, read, fields)
        if so is decisive:
            return decisive
        unknown = unknown or so is None
    return None if unknown else not decisive


def conditions(node: Node, *, contrary: bool = False) -> Iterator[tuple[Test, bool]]:
    """Yield every condition, and whether it is negated."""
    match node:
        case Not(of=part):
            yield from conditions(part, contrary=not contrary)
        case Every(of=parts) | Some(of=parts):
            for part in parts:
                yield from conditions(part, contrary=contrary)
        case _:
            yield node, contrary


def is_monotonic(node: Node, fields: Mapping[str, Field], *, contrary: bool = False) -> bool:
    """Return whether it provably stays true once it is, in any log; if `contrary`, that it stays false."""
    match node:
        case Every(of=parts) | Some(of=parts):
            return all(is_monotonic(part, fields, contrary=contrary) for part in parts)
        case Not(of=part):
            return is_monotonic(part, fields, contrary=not contrary)
        case Between(field=field, low=low, high=high):
            return fields[field].rises and (low if contrary else high) is None
        case Says(field=field, value=value):
            return fields[field].rises and value is not contrary
        case _:
            return False


def matches_glob(word: str, pattern: str) -> bool:
    """Return whether a word matches a pattern in which each `*` matches anything."""
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


def format_query(node: Node, fields: Mapping[str, Field]) -> str:
    """Format a query as text that parses to the same query."""
    match node:
        case Some(of=parts):
            return " or ".join(_format_part(part, fields) for part in parts)
        case Every(of=parts):
            return " ".join(_format_part(part, fields) for part in parts)
        case Not(of=(Holds() | Not()) as part):
            return f"not {format_query(part, fields)}"
        case Not(of=part):
            return f"-{_format_part(part, fields)}"
        case _:
            return _format_test(node, fields[node.field])


def _format_test(test: Test, about: Field) -> str:
    field = test.field
    match test:
        case Is(value=value):
            return f"{field}:{_format_word(value, about.values)}"
        case Like(value=value):
            return f"{field}:{value}"
        case Holds(value=value):
            return f"{field}:{quote(value)}"
        case Fits(pattern=pattern):
            return f"{field}~{quote(pattern)}"
        case Between(low=low, high=high):
            return _format_range(field, low, high, about.digits)
        case Beside(order=order, factor=factor, other=other):
            return f"{field}{order}{'' if factor == (1, 0) else f'{_format_number(*factor)}*'}{other}"
        case Says(value=value):
            return f"{field}:{str(value).lower()}"


def _compare_fields(asked: Beside, read: Read, fields: Mapping[str, Field]) -> bool:
    one, other = read(asked.field), read(asked.other)
    if one is None or other is None:
        return False
    times, after = asked.factor
    # In integers with all decimals of both sides, so that money is exact.
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


def _format_part(node: Node, fields: Mapping[str, Field]) -> str:
    return f"({format_query(node, fields)})" if isinstance(node, Every | Some) else format_query(node, fields)


def _format_range(field: str, low: int | None, high: int | None, digits: int) -> str:
    if high is not None and high < 0:
        return f"{field}<0"
    if low is None:
        return f"{field}<={_format_number(high or 0, digits)}"
    if high is None:
        return f"{field}>={_format_number(low, digits)}"
    least, most = _format_number(low, digits), _format_number(high, digits)
    return f"{field}:{least}" if least == most else f"{field}:{least}..{most}"


def _format_word(word: str, values: tuple[str, ...]) -> str:
    return word if _PLAIN.fullmatch(word) and (not values or word in values) else quote(word)


def _format_number(value: int, digits: int) -> str:
    text = f"{value:0{digits + 1}}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
