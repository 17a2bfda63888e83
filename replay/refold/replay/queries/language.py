r"""The query language: `type:tool name:bash error:true tokens>2000 or text:"rm -rf"`, `spent_usd > 1.0`.

    question  = all { "or" all }
    all       = part { [ "and" ] part }
    part      = "not" part | [ "-" ] "(" question ")" | [ "-" ] condition | value
    condition = field sign value | flag
    sign      = ":" | "~" | "==" | "!=" | "<" | "<=" | ">" | ">="
    value     = a word without white space and quotation marks, or "text" in which \" and \\ stand for " and \

Adjacent parts must all hold, with or without `and`; `or` binds less tightly; `-` and `not` negate. `:` and
`==` compare words without case, and an unquoted `*` matches anything. For numbers, `:` takes a value or a
range: `10..20`, `10..`, `..20`. For the text, `:` searches for a substring without case. `~` searches for a
pattern (`refold.reducers.patterns`), line by line. A number is compared with a number or with another field:
`window_tokens > 0.8*context`.

In queries over events, a value without a field is searched for in the text and cannot take `-`, so that `rm
-rf` does not exclude `rf`. In queries over states, which have no text, a single word is a flag. A missing
field matches nothing; a condition on erased text is unknown.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from refold.reducers.patterns import problem_of
from refold.replay.queries.conditions import (
    MOST_CHARACTERS,
    BadQuestion,
    Beside,
    Between,
    Every,
    Field,
    Fits,
    Holds,
    Is,
    Like,
    Node,
    Not,
    Order,
    Says,
    Some,
    Test,
    conditions,
    describe_unknown,
    evaluate,
    format_query,
    is_monotonic,
    matches_glob,
    parse_decimal,
    unquote,
)

_SPACE = re.compile(r"\s*")
_SIGN = re.compile(r"([A-Za-z_]+)(?:([:~])|\s*(==|!=|<=|>=|<|>)\s*)")
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]*', re.DOTALL)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_TEXT_END = re.compile(r"(?:^|[^\\])(?:\\\\)*(\\[Az])")
_OTHER = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)\s*\*\s*)?([A-Za-z_]+)(?=[\s)]|$)")
_ORDER = frozenset({"<", "<=", ">", ">="})
_DEEPEST = 40  # deeper queries are not typed by users, and could exhaust the stack

T = TypeVar("T")


class Vocabulary(msgspec.Struct, Generic[T], frozen=True):
    """Fields of a query by name, and a function that reads one from an event or a state."""

    fields: Mapping[str, Field]
    read: Callable[[T, str], Any]


class Question(Generic[T]):
    """A parsed query with a yes-or-no answer; `text` is the source. Made by `parse`."""

    def __init__(self, text: str, tree: Node, about: Vocabulary[T]) -> None:
        self.text, self.tree, self._about = text, tree, about
        self.names = tuple(dict.fromkeys(_field_names(tree)))
        """Names of the fields that it reads, without duplicates."""
        self.lasts = is_monotonic(tree, about.fields)
        """Whether it provably stays true once it is true, in any log."""

    def answer(self, of: T) -> bool | None:
        """Return whether it matches; None if that depends on erased text."""
        read = self._about.read
        return evaluate(self.tree, lambda name: read(of, name), self._about.fields)

    def matches(self, of: T) -> bool:
        """Return whether it certainly matches."""
        return self.answer(of) is True

    @property
    def sought(self) -> Iterator[Test]:
        """Conditions that are not negated."""
        return (test for test, contrary in conditions(self.tree) if not contrary)

    def __str__(self) -> str:
        return format_query(self.tree, self._about.fields)


def parse(text: str, about: Vocabulary[T]) -> Question[T]:
    """Parse a query; "" matches everything.

    Raises `BadQuestion` with the position of the error.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadQuestion(text, MOST_CHARACTERS + 1, f"more than {MOST_CHARACTERS} characters")
    return Question(text.strip(), _Parser(text, about.fields).whole(), about)


def _field_names(tree: Node) -> Iterator[str]:
    for test, _ in conditions(tree):
        yield test.field
        if isinstance(test, Beside):
            yield test.other


class _Parser:
    """Recursive-descent parser: one function per rule of the grammar."""

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        self._text, self._fields = text, fields
        self._place = self._depth = self._groups = 0
        self._last = ""  # last operator word

    def whole(self) -> Node:
        """Parse the whole text."""
        self._pass_space()
        if self._place == len(self._text):
            return Every(())
        found = self._question()
        if self._place < len(self._text):
            raise self._error("unmatched ); to search for it, quote it")
        return found

    def _question(self) -> Node:
        parts = [self._all()]
        while self._accept("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _all(self) -> Node:
        parts = [self._part()]
        while self._place < len(self._text) and self._text[self._place] != ")" and not self._sees_word("or"):
            self._accept("and")
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _part(self) -> Node:
        ends = self._place == len(self._text)
        joint = next(filter(self._sees_word, ("and", "or")), self._last if ends else "")
        if joint:
            where = "before a condition" if joint == "not" else "between two conditions"
            raise self._error(f"{joint} must be {where}")
        if ends or self._text[self._place] == ")":
            raise self._error("expected a condition")
        self._descend()
        if self._accept("not"):
            found: Node = Not(self._part())
        elif self._text.startswith("-(", self._place):
            self._place += 1
            found = Not(self._group())
        elif self._text.startswith("(", self._place):
            found = self._group()
        else:
            found = self._condition()
        self._depth -= 1
        return found

    def _group(self) -> Node:
        begin = self._place
        self._place += 1
        self._groups += 1
        self._pass_space()
        self._last = ""
        found = self._question()
        if not self._text.startswith(")", self._place):
            raise BadQuestion(self._text, begin + 1, "unmatched (")
        self._place += 1
        self._groups -= 1
        self._skip_space()
        return found

    def _condition(self) -> Node:
        begin = self._place
        minus = self._text.startswith("-", begin)
        match = _SIGN.match(self._text, begin + minus)
        if match is None:
            return self._bare(begin, minus=minus)
        name, sign = match[1], match[2] or match[3]
        field = self._fields.get(name)
        self._place = match.end()
        at, raw = match.end(), self._value()
        if raw in ("", '""'):
            raise self._missing_value(at, raw)
        if field is None:
            hint = "; to search for text with such a sign, quote it"
            raise BadQuestion(
                self._text, match.start() + 1, describe_unknown("field", name, self._fields) + hint
            )
        try:
            found = self._make_test(name, field, sign, raw, at)
        except ValueError as error:
            raise BadQuestion(self._text, at + 1, str(error)) from None
        self._skip_space()
        return Not(found) if minus is not (sign == "!=") else found

    def _bare(self, begin: int, *, minus: bool) -> Node:
        self._place += minus
        at, raw = self._place, self._value()
        if minus and (not raw or "text" in self._fields):
            raise self._missing_field(begin, raw)
        if raw in ("", '""'):
            raise self._missing_value(at, raw)
        self._skip_space()
        if "text" in self._fields:
            return Holds(unquote(raw) if raw.startswith('"') else raw)
        field = self._fields.get(raw)
        if field is None:
            raise BadQuestion(self._text, at + 1, describe_unknown("field", raw, self._fields))
        if field.kind != "flag":
            raise BadQuestion(
                self._text, at + 1, f"{raw} is not a condition: compare it with a value, for example with =="
            )
        return Not(Says(raw, value=True)) if minus else Says(raw, value=True)

    def _make_test(self, name: str, field: Field, sign: str, raw: str, at: int) -> Test:
        is_quoted = raw.startswith('"')
        value = unquote(raw) if is_quoted else raw
        if field.kind == "number" and sign != "~":
            return self._compare_fields(name, sign, at) or _parse_comparison(name, field.digits, sign, value)
        if sign in _ORDER:
            raise ValueError(f"{name} is not a number, so it has no order")
        if sign == "~":
            return _parse_pattern(name, field, value)
        if field.kind == "flag":
            return _parse_flag(name, value)
        if field.kind == "text":
            return Holds(value, name)
        return Is(name, value) if is_quoted else _is_or_like(name, field, value)

    def _compare_fields(self, name: str, sign: str, at: int) -> Beside | None:
        match = _OTHER.match(self._text, at)
        other = self._fields.get(match[2]) if match and sign != ":" else None
        if match is None or other is None or other.kind != "number":
            return None
        self._place = match.end()
        factor = parse_decimal(match[1] or "1")
        return Beside(name, "==" if sign == "!=" else cast("Order", sign), factor, match[2])

    def _value(self) -> str:
        """Read the value that begins here.

        In parentheses, a `)` without a `(` in the value is not part of it.
        """
        match = _VALUE.match(self._text, self._place)
        raw = match[0] if match else ""
        if self._text.startswith('"', self._place):
            self._place += len(raw)
            return raw
        end, opened = len(raw), 0
        for place, sign in enumerate(raw if self._groups else ""):
            opened += (sign == "(") - (sign == ")")
            if opened < 0:
                end = place
                break
        self._place += end
        return raw[:end]

    def _skip_space(self) -> None:
        """Skip the white space after a value, which is required before the next word."""
        end = self._place
        self._pass_space()
        if end == self._place < len(self._text) and self._text[end] != ")":
            # Without a space after the value, the rest would be parsed as another word.
            quoting = 'quotation mark within a word: quote the whole value, with \\" for one in it'
            raise BadQuestion(self._text, end + 1, quoting)

    def _pass_space(self) -> None:
        match = _SPACE.match(self._text, self._place)
        self._place = match.end() if match else self._place

    def _sees_word(self, word: str) -> bool:
        return re.compile(rf"{word}(?=[\s()]|$)").match(self._text, self._place) is not None

    def _accept(self, word: str) -> bool:
        if not self._sees_word(word):
            return False
        self._place += len(word)
        self._last = word
        self._pass_space()
        return True

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"nested more than {_DEEPEST} deep")

    def _missing_field(self, begin: int, raw: str) -> BadQuestion:
        way = f': write "-{raw}" to search for this text, or -text:{raw} to exclude it' if raw else ""
        return BadQuestion(self._text, begin + 1, f"- must be before a field{way}")

    def _missing_value(self, at: int, raw: str) -> BadQuestion:
        unclosed = self._text.startswith('"', at) and not raw
        problem = "unmatched quotation mark" if unclosed else "expected a value"
        return BadQuestion(self._text, at + 1, problem)

    def _error(self, problem: str) -> BadQuestion:
        return BadQuestion(self._text, self._place + 1, problem)


def _parse_flag(name: str, value: str) -> Says:
    if value not in ("true", "false"):
        raise ValueError(f"{name} must be true or false")
    return Says(name, value == "true")


def _is_or_like(name: str, field: Field, value: str) -> Is | Like:
    fits = matches_glob if "*" in value else str.__eq__
    if field.values and not any(fits(word.lower(), value.lower()) for word in field.values):
        quoting = "; in quotation marks, any value is accepted"
        raise ValueError(describe_unknown(name, value, field.values) + quoting)
    return Like(name, value) if "*" in value else Is(name, value)


def _parse_pattern(name: str, field: Field, pattern: str) -> Fits:
    if field.kind not in ("words", "text"):
        raise ValueError(f"{name} is a {field.kind}: regular expressions are for words and the text")
    problem = problem_of(pattern, f"exclude matches with a separate condition, -{name}~PATTERN")
    if not problem and (end := _TEXT_END.search(pattern)):
        problem = (
            f"{end[1]} matches an end of the whole text, but each line is searched separately: write ^ or $"
        )
    if problem:
        raise ValueError(problem)
    return Fits(name, pattern)


def _parse_comparison(name: str, digits: int, sign: str, value: str) -> Between:
    match sign:
        case ">":
            return Between(name, _round_down(value, digits) + 1, None)
        case ">=":
            return Between(name, _round_up(value, digits), None)
        case "<":
            return Between(name, None, _round_up(value, digits) - 1)
        case "<=":
            return Between(name, None, _round_down(value, digits))
        case _:
            return _parse_range(name, digits, value)


def _parse_range(name: str, digits: int, value: str) -> Between:
    first, dots, last = value.partition("..")
    if not dots:
        last = first
    elif not first and not last:
        raise ValueError("expected a number before or after ..")
    low, high = _round_up(first, digits) if first else None, _round_down(last, digits) if last else None
    if low is not None and high is not None and low > high:
        # It could never match, and an empty result would look like a statement about the log.
        raise ValueError(
            f"{name} can never be {'in ' if dots else ''}{value}: a range starts with its smaller number, "
            f"and {name} has {digits or 'no'} decimals"
        )
    return Between(name, low, high)


def _round_up(number: str, digits: int) -> int:
    """Return the smallest integer in the field's units that is not less than this number."""
    return -_floor(number, digits, -1)


def _round_down(number: str, digits: int) -> int:
    """Return the largest integer in the field's units that is not greater than this number."""
    return _floor(number, digits, 1)


def _floor(number: str, digits: int, sign: int) -> int:
    if not _NUMBER.fullmatch(number):
        raise ValueError("expected a number (20 or 0.5), a range (10..20) or another number field")
    value, after = parse_decimal(number)
    units: int = sign * value * 10**digits // 10**after
    return units
