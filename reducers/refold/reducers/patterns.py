"""Patterns of policies and filters, and the arguments that they search.

Python's `re` backtracks, so its search time can grow exponentially with a text that a model wrote. RE2
searches in time proportional to the text, whatever the pattern, so texts of any length are searched
completely. Look-around and backreferences, which RE2 cannot search, are not part of the language. `unless`
replaces most look-arounds.

`\\w`, `\\d`, `\\s` and `\\b` match ASCII only; `\\pL` is a letter of any script. `^` and `$` are the ends of
the text, or of each line with `(?m)`. Source: https://github.com/google/re2/wiki/Syntax.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from refold.reducers.errors import Fault, brief, shown
from refold.reducers.text import clean

if TYPE_CHECKING:
    from re2 import _Regexp as Pattern  # pyright: ignore[reportPrivateUsage]


MOST_INSTRUCTIONS = 4_000
"""Limit on instructions in a compiled pattern: search time is at most this times the text's bytes."""

UNLESS = "name what must not match in 'unless', a second pattern"
"""The alternative to look-around where a rule has the key `unless`."""

# What RE2 accepts but interprets differently from Python: `{,3}`, `{03}` and `{99999999999}` are literal
# text, and `\C` is a single byte. The other alternatives consume text that may contain the same characters.
_DIFFERENT = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\C|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\{(?:\d+|\d*,\d*)\}", re.DOTALL
)
_REPETITION = re.compile(r"\{(?:0|[1-9]\d{0,7})(?:,(?:[1-9]\d{0,7}|0)?)?\}", re.ASCII)
_LOOK_AROUND = "look-around is not part of the pattern language"
_QUOTED = 200
_WORK = 2**28
"""Characters searched for matches in one line; beyond that, the rest of the line is one match."""


def problem_of(pattern: str, instead: str = "") -> str:
    """Return why a pattern is invalid; "" if it is valid. `instead` names the alternative to look-around."""
    if "\b" in pattern:
        return r"it contains a backspace; for a word boundary write '\b' in single quotes, or \\b in double quotes"
    problem = _problem(pattern)
    return f"{problem}; {instead}" if instead and problem.startswith(_LOOK_AROUND) else problem


def pattern_faults(path: str, pattern: str, instead: str = "") -> Iterator[Fault]:
    """Yield `problem_of` a pattern with its path, if there is one."""
    problem = problem_of(pattern, instead)
    if problem:
        yield path, f"{problem}; got {shown(pattern)}"


def occurs(pattern: str, texts: Iterable[str], unless: str | None = None) -> bool | None:
    """Return whether one of these texts matches `pattern` and does not itself match `unless`.

    None: unknown, as a pattern is invalid. No policy is accepted with one, but an edited log may have it.
    """
    known: bool | None = False
    for text in texts:
        data = _utf8(text)
        found = _matches(pattern, data)
        excused = found is not False and unless is not None and _matches(unless, data)
        if found and excused is False:
            return True
        if found is not False and not excused:
            known = None
    return known


def quote(pattern: str) -> str:
    """Return a pattern as messages quote it, on one line and cut if long."""
    line = " ".join(pattern.split())
    return f"`{line if len(line) <= _QUOTED else f'{line[:_QUOTED]}…'}`"


def rule(pattern: str, unless: str | None) -> str:
    """Return a rule as messages quote it: `` `git push`, unless `--dry-run` ``."""
    return quote(pattern) if unless is None else f"{quote(pattern)}, unless {quote(unless)}"


def matches(pattern: str, text: str, *, any_case: bool = False) -> bool:
    """Return whether a pattern is found in a text. The pattern must be valid: see `problem_of`."""
    found = _matches(pattern, _utf8(text), any_case=any_case)
    assert found is not None, f"not validated: {pattern!r}"
    return found


def matches_empty(pattern: str, text: str) -> bool:
    """Return whether one of the matches of a pattern in a text is empty. The pattern must be valid."""
    found = _by_lines(pattern).finditer(text)
    return any(start == end for start, end in (match.span() for match in found))


def find_in_lines(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the matches of a pattern in the lines of a text, in order, without empty ones.

    `^` and `$` are the ends of a line, and no match crosses one. The pattern must be valid. Each match is
    found in linear time, but all matches in a line may take quadratic time: after `_WORK`, the rest of the
    line is one match.
    """
    found, text, place = _by_lines(pattern), clean(text), 0
    while place < len(text):
        line_end, work = 0, 0
        for match in found.finditer(text, place):
            start, end = match.span()
            if start >= line_end:
                line_end, work = _line_end(text, start), 0
            work += line_end - start
            if work > _WORK:
                yield start, line_end
                place = line_end
                break
            if start < end:
                yield start, end
        else:
            return


def find_first(pattern: str, text: str) -> tuple[int, int] | None:
    """Return where a pattern first matches in the lines of a text; the match may be empty."""
    match = _by_lines(pattern).search(clean(text))
    return None if match is None else match.span()


def _by_lines(pattern: str) -> "Pattern":
    found = compiled(pattern, lines=True)
    assert found is not None, f"not validated: {pattern!r}"
    return found


@lru_cache(maxsize=512)
def compiled(pattern: str, *, any_case: bool = False, lines: bool = False) -> "Pattern | None":
    """Return the compiled pattern; None if it is invalid. `lines`: for a search line by line."""
    if _problem(pattern):
        return None
    return _compile(f"(?m){pattern}" if lines else pattern, any_case=any_case, lines=lines)


@lru_cache(maxsize=1024)
def _problem(pattern: str) -> str:
    from re2 import error

    try:
        program = _compile(pattern)
    except UnicodeEncodeError:
        return "it contains an unpaired surrogate, which no text has"
    except error as refused:
        (message,) = refused.args
        return _explain(message.decode(errors="replace") if isinstance(message, bytes) else str(message))
    otherwise = {found[0] for found in _DIFFERENT.finditer(pattern)}
    if r"\C" in otherwise:
        return r"\C is not part of the pattern language: it would match part of a character"
    if bound := next((each for each in otherwise if each[0] == "{" and not _REPETITION.fullmatch(each)), ""):
        return f"{bound} is not a repetition here; write {{0,3}}, {{3}} or {{3,}}"
    if program.programsize > MOST_INSTRUCTIONS:
        return (
            f"too large to search: {program.programsize:,} instructions, at most {MOST_INSTRUCTIONS:,}; "
            "lower the bounds of its repetitions, or remove them"
        )
    return ""


def _explain(message: str) -> str:
    """Return RE2's error message, with what to write instead where possible."""
    _, _, what = message.rpartition(": ")
    if message.startswith("invalid perl operator") and what in ("(?=", "(?!", "(?<=", "(?<!", "(?<"):
        return f"{_LOOK_AROUND}: {what}…)"
    if message.startswith("invalid escape sequence"):
        if what == r"\Z":
            return r"\Z is not part of the pattern language; the end of a text is \z"
        if what[1:].isdecimal():
            return f"the backreference {what} is not part of the pattern language"
        if what in (r"\u", r"\U", r"\N"):
            return rf"{what} is not part of the pattern language; a character by its number is \x{{20ac}}"
    return f"not a valid RE2 pattern: {brief(message)}"


def _compile(pattern: str, *, any_case: bool = False, lines: bool = False) -> "Pattern":
    import re2

    options = re2.Options()
    options.log_errors = False  # it would write to stderr
    # Of its state cache; a search that needs more is slower, but always completes.
    options.max_mem = 2**20
    options.never_capture = True  # only the span of the whole match is needed
    options.case_sensitive = not any_case
    options.never_nl = lines
    return re2.compile(pattern, options)


def _matches(pattern: str, data: bytes, *, any_case: bool = False) -> bool | None:
    found = compiled(pattern, any_case=any_case)
    return None if found is None else found.search(data) is not None


def _utf8(text: str) -> bytes:
    # JSON may contain unpaired surrogates, which UTF-8 cannot: they are searched as U+FFFD.
    return clean(text).encode()


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


class _Written(str):
    """A number in the digits that the model wrote: 1.0 is not 1, and 1e400 is not infinity."""

    __slots__ = ()


class _Repeated(list[Any]):
    """All values of a key that occurs twice in its object: agents differ in which they take."""


def _keep_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        values: dict[str, list[Any]] = {}
        for key, value in pairs:
            values.setdefault(key, []).append(value)
        found = {key: each[0] if len(each) == 1 else _Repeated(each) for key, each in values.items()}
    return found


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODER = json.JSONDecoder(parse_float=_Written, parse_int=_Written)
_ALL_VALUES = json.JSONDecoder(parse_float=_Written, parse_int=_Written, object_pairs_hook=_keep_repeated)
_ENCODER = json.JSONEncoder(ensure_ascii=False)
# An unclosed string is matched to its end; else each of its quotes would be tried again.
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_MAX_DEPTH = 100
_MAX_JSON_LEVELS = 8
"""How many levels of JSON inside a JSON string are searched by their parts."""


def is_object(arguments: str) -> bool:
    """Return whether arguments are a JSON object with at most 100 levels; empty text counts as `{}`."""
    # 0.3 us instead of 1.1. msgspec refuses some valid JSON: huge numbers, lone surrogates.
    try:
        _OBJECT.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return object_of(arguments) is not None
    return _depth(arguments) <= _MAX_DEPTH


def object_of(arguments: str) -> Mapping[str, Any] | None:
    """Return the JSON object in arguments, numbers as written; None for any other text."""
    parsed = _parse(arguments)
    return cast("Mapping[str, Any]", parsed) if isinstance(parsed, dict) else None


def call_signature(name: str, arguments: str, clip: int) -> str:
    """Return `name(k=v,…)`: keys sorted, strings unchanged, other values as compact JSON with sorted keys.

    Numbers stay as written; a value counts up to its first `clip` characters. Arguments that are not a JSON
    object count as raw text; empty text is `{}`.
    """
    parsed = object_of(arguments)
    if parsed is None:
        return f"{name}({arguments[:clip]})"
    pairs = sorted(parsed.items())
    return f"{name}({','.join(f'{key}={_value(value)[:clip]}' for key, value in pairs)})"


def canonical(arguments: str) -> str:
    """Return arguments as compact JSON with sorted keys and numbers as written; other text as is."""
    parsed = object_of(arguments)
    return arguments if parsed is None else _object(parsed)


def list_search_texts(arguments: str, field: str | None = None) -> list[str]:
    """Return the texts that a pattern searches: every text in the arguments, or those in `field`
    (`params.command`) only.

    Numbers as written, true and false as words; the texts of a list one by one, and joined by spaces, as for
    a command line. Keys of objects count as texts, except names of parameters. A text that is a JSON object
    or list is searched as a whole and by its parts. If a key occurs twice, both values are searched, because
    agents differ in which one they take. Arguments that are not a JSON object are searched as one text,
    whatever the field.
    """
    values = values_at(arguments, field.split(".") if field else ())
    if values is None:
        return [arguments]
    texts: list[str] = []
    for value in values if field else [one for each in values for one in each.values()]:
        _collect(value, texts)
    return texts


def values_at(arguments: str, keys: Iterable[str]) -> list[Any] | None:
    """Return the values at a path of keys, one for each repetition of a key; None: not a JSON object."""
    found: Any = _all_values(arguments)
    if not isinstance(found, dict):
        return None
    values: list[Any] = [found]
    for key in keys:
        inner = [cast("dict[str, Any]", each).get(key) for each in values if isinstance(each, dict)]
        values = [one for each in inner for one in (each if isinstance(each, _Repeated) else [each])]
    return values


def _collect(value: Any, texts: list[str], within: int = 0) -> None:
    """Append the texts in a value; `within`: the number of JSON strings around it."""
    if isinstance(value, str):
        texts.append(value)
        if within < _MAX_JSON_LEVELS and value.lstrip()[:1] in ("{", "["):
            _collect(_all_values.__wrapped__(value), texts, within + 1)
    elif isinstance(value, bool):
        texts.append("true" if value else "false")
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            texts.append(key)
            _collect(inner, texts, within)
    elif isinstance(value, list):
        inner = cast("Sequence[Any]", value)
        for each in inner:
            _collect(each, texts, within)
        if (
            len(inner) > 1
            and not isinstance(value, _Repeated)
            and all(isinstance(each, str) for each in inner)
        ):
            texts.append(" ".join(inner))


@lru_cache(maxsize=8)  # each guard asks about the same few calls
def _parse(arguments: str) -> Any:
    """Return the arguments with the last value of a repeated key, as most agents take them."""
    return _decode(arguments, _DECODER)


@lru_cache(maxsize=8)
def _all_values(arguments: str) -> Any:
    """Return the arguments with all values of each repeated key."""
    return _decode(arguments, _ALL_VALUES)


def _decode(arguments: str, decoder: json.JSONDecoder) -> Any:
    # The interpreter's limits on nesting and digits vary; the meaning of a log must not.
    if _depth(arguments) > _MAX_DEPTH:
        return None
    try:
        # Does not skip whitespace around it, which is rare and costs as much as decoding.
        found, end = decoder.raw_decode(arguments)
    except ValueError:
        found, end = None, -1
    if end == len(arguments):
        return found
    try:
        return decoder.decode(arguments or "{}")
    except ValueError:
        return None


def _depth(text: str) -> int:
    if text.count("{") + text.count("[") <= _MAX_DEPTH:
        return 0  # not too deep, which is all that callers need
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _compact(value)


def _compact(value: object) -> str:
    write = _WRITERS.get(type(value))
    return write(value) if write else _ENCODER.encode(value)


def _object(values: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{_compact(key)}:{_compact(inner)}" for key, inner in sorted(values.items())) + "}"


def _row(values: list[Any]) -> str:
    return "[" + ",".join(map(_compact, values)) + "]"


_WRITERS: dict[type, Callable[[Any], str]] = {_Written: str, dict: _object, list: _row}


def batch_signature(calls: list[tuple[str, str]], clip: int) -> str:
    """Return the signatures of a response's calls, sorted and joined by `;`, without their ids."""
    return ";".join(sorted(call_signature(name, arguments, clip) for name, arguments in calls))
