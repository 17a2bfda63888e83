r"""The one language of filters over events: `type:tool name:bash error:true tokens>2000 turn:10..20 text:"rm -rf"`.

    filter = [ all { "or" all } ]
    all    = term { term }
    term   = [ "-" ] field sign value | value
    sign   = ":" | "~" | "<" | "<=" | ">" | ">="
    value  = a word without white space and quotation marks, or "text" in which \" and \\ stand for " and \

Terms side by side must all fit; `or` binds less than that; `-` says the contrary. `:` compares words, ignoring case, and
an unquoted `*` stands for anything; of numbers it compares a value or a range, `10..20`, `10..`, `..20`; of the text it
looks for what stands there, ignoring case. `~` searches by a regular expression, line by line. A value without a field
is looked for in the text, and has no `-`: to type `rm -rf` is not to mean the contrary of `rf`. A field that an
event does not have fits nothing.
"""

import re
from collections.abc import Iterator

import msgspec

from refold.reducers.patterns import problem_of
from refold.replay.queries.questions import MOST_CHARACTERS, BadQuestion, decimal, quoted, unknown, unquoted
from refold.replay.queries.rows import FIELDS, FlatEvent, RowField

_TERM = re.compile(
    r"""(?P<minus>-)?(?:(?P<field>[A-Za-z_]+)(?P<sign><=|>=|[:~<>]))?(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)""",
    re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PLAIN = re.compile(r'[^\s"*]+')

# Trying again from every place is what a pattern costs: within a line as long as this it is not felt.
_REACH, _OVERLAP = 4096, 512
# What an expression calls an end, and the pieces of it in which the same characters mean something else.
_END = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)


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


class Fits(msgspec.Struct, frozen=True):
    """A regular expression finds something in one of the field's words, or in a line of the text."""

    field: str
    pattern: str

    @property
    def compiled(self) -> re.Pattern[str]:
        """The expression, ready to search."""
        return re.compile(self.pattern)


class Between(msgspec.Struct, frozen=True):
    """The number is in the range, ends included, None: without an end; in nano-dollars and nanoseconds where it is such."""

    field: str
    low: int | None
    high: int | None


class Says(msgspec.Struct, frozen=True):
    """The flag is this."""

    field: str
    value: bool


Test = Is | Like | Holds | Fits | Between | Says


class Term(msgspec.Struct, frozen=True):
    """One condition; `contrary`: that it is not so."""

    test: Test
    contrary: bool = False


class Filter(msgspec.Struct, frozen=True):
    """Which events are meant: those that fit all terms of one alternative. `parse` makes it."""

    alternatives: tuple[tuple[Term, ...], ...]

    @property
    def terms(self) -> Iterator[Term]:
        """All terms."""
        return (term for terms in self.alternatives for term in terms)

    @property
    def reads_text(self) -> bool:
        """Whether it asks for what was said: else contents need not be read."""
        return any(
            isinstance(term.test, Holds) or getattr(term.test, "field", "") == "text" for term in self.terms
        )

    def matches(self, row: FlatEvent) -> bool:
        """Whether an event is meant."""
        return any(
            all(_is_so(term.test, row) is not term.contrary for term in terms) for terms in self.alternatives
        )

    def __str__(self) -> str:
        return " or ".join(" ".join(map(_written, terms)) for terms in self.alternatives)


def parse(text: str) -> Filter:
    """The filter that a person typed; "" means every event. Raises `BadQuestion` with the place of what is wrong."""
    if len(text) > MOST_CHARACTERS:
        raise BadQuestion(text, MOST_CHARACTERS + 1, f"more than {MOST_CHARACTERS} characters")
    alternatives, terms = list[tuple[Term, ...]](), list[Term]()
    place = _after_space(text, 0)
    while place < len(text):
        match = _TERM.match(text, place)
        assert match is not None  # everything in it may be missing
        if match[0] == "or":
            if not terms:
                raise BadQuestion(text, place + 1, "or stands between two conditions")
            alternatives.append(tuple(terms))
            terms.clear()
        else:
            terms.append(_term(text, match))
        place = _after_space(text, match.end())
    if alternatives and not terms:
        raise BadQuestion(text, len(text) + 1, "or stands between two conditions")
    return Filter((*alternatives, tuple(terms)))


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    end = match.end() if match else place
    # What follows a value without a space would be another word than was meant.
    if 0 < place == end < len(text):
        raise BadQuestion(
            text, place + 1, 'a quotation mark inside of a word: quote the whole value, \\" for one in it'
        )
    return end


def _term(text: str, match: re.Match[str]) -> Term:
    name, sign, raw = match["field"] or "text", match["sign"] or ":", match["value"]
    if match["minus"] and not match["field"]:
        problem = f'- stands before a field: write "-{raw}" for this text, or -text:{raw} for its contrary'
        raise BadQuestion(text, match.start() + 1, problem if raw else "- stands before a field")
    at = match.start("value") + 1
    if raw in ("", '""'):
        problem = (
            "this quotation mark has no second one"
            if text[at - 1 : at] == '"' and not raw
            else "expected a value"
        )
        raise BadQuestion(text, at, problem)
    field = FIELDS.get(name)
    if field is None:
        quoting = "; to look for a text with such a sign, quote it"
        raise BadQuestion(text, match.start("field") + 1, unknown("field", name, FIELDS) + quoting)
    try:
        test = _test(name, field, sign, raw)
    except ValueError as error:
        raise BadQuestion(text, at, str(error)) from None
    return Term(test, contrary=match["minus"] is not None)


def _test(name: str, field: RowField, sign: str, raw: str) -> Test:
    is_quoted = raw.startswith('"')
    value = unquoted(raw) if is_quoted else raw
    if field.kind == "number" and sign != "~":
        return _between(name, field.digits, sign, value)
    if sign in ("<", "<=", ">", ">="):
        raise ValueError(f"{name} is no number: it has no order")
    if sign == "~":
        return _fits(name, field, value)
    if field.kind == "flag":
        if value not in ("true", "false"):
            raise ValueError(f"{name} is true or false")
        return Says(name, value == "true")
    if field.kind == "text":
        return Holds(value)
    if is_quoted:
        return Is(name, value)
    fits = _like if "*" in value else str.__eq__
    if field.values and not any(fits(word.lower(), value.lower()) for word in field.values):
        raise ValueError(
            unknown(name, value, field.values) + "; in quotation marks it is looked for all the same"
        )
    return Like(name, value) if "*" in value else Is(name, value)


def _fits(name: str, field: RowField, pattern: str) -> Fits:
    if field.kind not in ("words", "text"):
        raise ValueError(f"{name} is a {field.kind}: regular expressions are for words and the text")
    problem = problem_of(pattern)
    if problem:
        raise ValueError(problem)
    return Fits(name, pattern)


def _between(name: str, digits: int, sign: str, value: str) -> Between:
    if sign == ":":
        return _in_range(name, digits, value)
    match sign:
        case ">":
            return Between(name, _most(value, digits) + 1, None)
        case ">=":
            return Between(name, _least(value, digits), None)
        case "<":
            return Between(name, None, _least(value, digits) - 1)
        case _:
            return Between(name, None, _most(value, digits))


def _in_range(name: str, digits: int, value: str) -> Between:
    first, dots, last = value.partition("..")
    if not dots:
        last = first
    elif not first and not last:
        raise ValueError("expected a number before or after ..")
    low, high = _least(first, digits) if first else None, _most(last, digits) if last else None
    if low is not None and high is not None and low > high:
        # Nothing could ever be found, and an empty answer would look like one about the log.
        raise ValueError(
            f"{name} is never {'in ' if dots else ''}{value}: a range begins with its smaller number, "
            f"and {name} has {digits or 'no'} digits after the point"
        )
    return Between(name, low, high)


def _least(number: str, digits: int) -> int:
    """The smallest whole number of the field's units that is not less than this one."""
    return -_floor(number, digits, -1)


def _most(number: str, digits: int) -> int:
    """The greatest that is not more."""
    return _floor(number, digits, 1)


def _floor(number: str, digits: int, sign: int) -> int:
    if not _NUMBER.fullmatch(number):
        raise ValueError("expected a number, as 20 or 0.5, or a range, as 10..20")
    value, after = decimal(number)
    units: int = sign * value * 10**digits // 10**after
    return units


def _is_so(test: Test, row: FlatEvent) -> bool:
    match test:
        case Is(field=field, value=value):
            wanted = value.lower()
            return any(word.lower() == wanted for word in _words(row, field))
        case Like(field=field, value=value):
            return any(_like(word.lower(), value.lower()) for word in _words(row, field))
        case Holds(value=value):
            return value.lower() in row.text.lower()
        case Fits(field=field):
            texts, pattern = row.text.split("\n") if field == "text" else _words(row, field), test.compiled
            return any(found(pattern, text) for text in texts)
        case Between(field=field, low=low, high=high):
            number: int | None = getattr(row, field)
            return number is not None and (low is None or low <= number) and (high is None or number <= high)
        case Says(field=field, value=value):
            return getattr(row, field) is value


def found(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """What a pattern finds first in a line, in one as long as you like: not more than 4,096 characters at once.

    A piece decides what begins in it, but for its last 512 characters: they are the next one's, which has what follows
    them. A line begins once, and ends once.
    """
    start, endless = 0, _endless(pattern) if len(line) > _REACH else pattern
    while start + _REACH < len(line):
        match = endless.search(line, start, start + _REACH)
        start += _REACH - _OVERLAP
        if match is not None and match.start() < start:
            return match
    return pattern.search(line, start)


def _endless(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """The pattern for a piece behind which the line goes on: nothing in it is an end."""
    inner = _END.sub(lambda each: "(?!)" if each[0] in ("$", r"\Z") else each[0], pattern.pattern)
    return re.compile(inner, pattern.flags)


def _words(row: FlatEvent, field: str) -> tuple[str, ...]:
    value: str | tuple[str, ...] = getattr(row, field)
    if isinstance(value, str):
        return (value,) if value else ()
    return value


def _like(word: str, pattern: str) -> bool:
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


def _written(term: Term) -> str:
    return f"{'-' if term.contrary else ''}{_test_written(term.test)}"


def _test_written(test: Test) -> str:
    match test:
        case Is(field=field, value=value):
            bare = _PLAIN.fullmatch(value) and not FIELDS[field].values
            return f"{field}:{value if bare or value in FIELDS[field].values else quoted(value)}"
        case Like(field=field, value=value):
            return f"{field}:{value}"
        case Holds(value=value):
            return f"text:{quoted(value)}"
        case Fits(field=field, pattern=pattern):
            return f"{field}~{quoted(pattern)}"
        case Between(field=field, low=low, high=high):
            digits = FIELDS[field].digits
            if high is not None and high < 0:
                return f"{field}<0"
            least, most = _number(low, digits), _number(high, digits)
            return f"{field}:{least}" if least == most else f"{field}:{least}..{most}"
        case Says(field=field, value=value):
            return f"{field}:{'true' if value else 'false'}"


def _number(value: int | None, digits: int) -> str:
    if value is None:
        return ""
    text = f"{value:0{digits + 1}}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
