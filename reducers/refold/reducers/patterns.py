r"""The pattern language of policies and filters: RE2's syntax, searched by RE2.

Python's `re` backtracks, so its search time can grow exponentially with a text that a model wrote. RE2 searches in
time proportional to the text, whatever the pattern, so a text of any length is searched to its end. What RE2 cannot
search that way is not part of the language: look-around and backreferences. `unless` stands for most look-arounds.

`\w`, `\d`, `\s` and `\b` know ASCII only; `\pL` is a letter of any script. `^` and `$` are the ends of the text, or of
each line with `(?m)`. Source: https://github.com/google/re2/wiki/Syntax.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from refold.reducers.refusals import Fault, brief, shown
from refold.reducers.text import clean

if TYPE_CHECKING:
    from re2 import _Regexp as Pattern  # pyright: ignore[reportPrivateUsage]

MOST_INSTRUCTIONS = 4_000
"""Instructions a compiled pattern may have. Search time is at worst their number times the bytes of the text."""

UNLESS = "name what must not match in 'unless', a second pattern"
"""The alternative to look-around where a rule has the key `unless`."""

# What RE2 may read otherwise than Python does, without an error: to it `{,3}`, `{03}` and `{99999999999}` are literal text,
# and `\C` is a single byte. The other alternatives consume what may contain the same characters.
_READ_OTHERWISE = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\C|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\{(?:\d+|\d*,\d*)\}", re.DOTALL
)
_REPETITION = re.compile(r"\{(?:0|[1-9]\d{0,7})(?:,(?:[1-9]\d{0,7}|0)?)?\}", re.ASCII)
_LOOK_AROUND = "look-around is not part of the pattern language"
_QUOTED = 200
_WORK = 2**28
"""Characters that all searches for the matches in one line may cover; then the rest of the line counts as one match."""


def problem_of(pattern: str, instead: str = "") -> str:
    """Return why a pattern is refused; "" if it is fit. `instead` names the alternative to look-around."""
    if "\b" in pattern:
        return (
            r"it holds a backspace; for the edge of a word write '\b' in single quotes, or \\b in double ones"
        )
    problem = _problem(pattern)
    return f"{problem}; {instead}" if instead and problem.startswith(_LOOK_AROUND) else problem


def pattern_faults(path: str, pattern: str, instead: str = "") -> Iterator[Fault]:
    """Yield `problem_of` a pattern that stands at this path, if there is one."""
    problem = problem_of(pattern, instead)
    if problem:
        yield path, f"{problem}; got {shown(pattern)}"


def occurs(pattern: str, texts: Iterable[str], unless: str | None = None) -> bool | None:
    """Return whether one of these texts matches `pattern` and does not itself match `unless`.

    None: unknown, because a pattern is unfit. No policy is accepted with one, but a log may come from anywhere.
    """
    known: bool | None = False
    for text in texts:
        data = _utf8(text)
        held = _matches(pattern, data)
        excused = held is not False and unless is not None and _matches(unless, data)
        if held and excused is False:
            return True
        if held is not False and not excused:
            known = None
    return known


def quote(pattern: str) -> str:
    """Return a pattern as a sentence quotes it, on one line and cut if it is long."""
    line = " ".join(pattern.split())
    return f"`{line if len(line) <= _QUOTED else f'{line[:_QUOTED]}…'}`"


def rule(pattern: str, unless: str | None) -> str:
    """Return a rule as a sentence quotes it: `` `git push`, unless `--dry-run` ``."""
    return quote(pattern) if unless is None else f"{quote(pattern)}, unless {quote(unless)}"


def matches(pattern: str, text: str, *, any_case: bool = False) -> bool:
    """Return whether a pattern is found in a text. The pattern must be fit: see `problem_of`."""
    found = _matches(pattern, _utf8(text), any_case=any_case)
    assert found is not None, f"nobody checked {pattern!r}"
    return found


def matches_empty(pattern: str, text: str) -> bool:
    """Return whether one of the matches of a pattern in a text is empty. The pattern must be fit."""
    found = _by_lines(pattern).finditer(text)
    return any(start == end for start, end in (match.span() for match in found))


def find_in_lines(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where a pattern is found in the lines of a text, first to last. Empty matches are left out.

    `^` and `$` are the ends of a line, and no match goes beyond one. The pattern must be fit. Each match is found in
    linear time, but all of them in a line may take the square of its length: after `_WORK` the rest of it is one match.
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
    """Return where a pattern is first found in the lines of a text, as `find_in_lines` does; the match may be empty."""
    match = _by_lines(pattern).search(clean(text))
    return None if match is None else match.span()


def _by_lines(pattern: str) -> "Pattern":
    found = compiled(pattern, lines=True)
    assert found is not None, f"nobody checked {pattern!r}"
    return found


@lru_cache(maxsize=512)
def compiled(pattern: str, *, any_case: bool = False, lines: bool = False) -> "Pattern | None":
    """Return the compiled pattern; None if it is unfit. `lines`: it is searched line by line."""
    if _problem(pattern):
        return None
    return _compile(f"(?m){pattern}" if lines else pattern, any_case=any_case, lines=lines)


@lru_cache(maxsize=1024)
def _problem(pattern: str) -> str:
    from re2 import error

    try:
        program = _compile(pattern)
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair, which no text has"
    except error as refused:
        (said,) = refused.args
        return _explained(said.decode(errors="replace") if isinstance(said, bytes) else str(said))
    otherwise = {found[0] for found in _READ_OTHERWISE.finditer(pattern)}
    if r"\C" in otherwise:
        return r"\C is not part of the pattern language: it would match a part of a character"
    if bound := next((each for each in otherwise if each[0] == "{" and not _REPETITION.fullmatch(each)), ""):
        return f"{bound} is no repetition here; write {{0,3}}, {{3}} or {{3,}}"
    if program.programsize > MOST_INSTRUCTIONS:
        return (
            f"it is too large to be searched: {program.programsize:,} instructions, at most {MOST_INSTRUCTIONS:,}; "
            "give its repetitions smaller bounds, or none"
        )
    return ""


def _explained(said: str) -> str:
    """Return RE2's complaint in words that name a way out, where there is one."""
    _, _, what = said.rpartition(": ")
    if said.startswith("invalid perl operator") and what in ("(?=", "(?!", "(?<=", "(?<!", "(?<"):
        return f"{_LOOK_AROUND}: {what}…)"
    if said.startswith("invalid escape sequence"):
        if what == r"\Z":
            return r"\Z is not part of the pattern language; the end of a text is \z"
        if what[1:].isdecimal():
            return f"the backreference {what} is not part of the pattern language"
        if what in (r"\u", r"\U", r"\N"):
            return rf"{what} is not part of the pattern language; a character by its number is \x{{20ac}}"
    return f"not a pattern of RE2: {brief(said)}"


def _compile(pattern: str, *, any_case: bool = False, lines: bool = False) -> "Pattern":
    import re2

    options = re2.Options()
    options.log_errors = False  # it would write to stderr
    options.max_mem = (
        2**20
    )  # of its state cache; a search that needs more is slower, and never ends without an answer
    options.never_capture = True  # only the place of the whole match is asked for
    options.case_sensitive = not any_case
    options.never_nl = lines
    return re2.compile(pattern, options)


def _matches(pattern: str, data: bytes, *, any_case: bool = False) -> bool | None:
    found = compiled(pattern, any_case=any_case)
    return None if found is None else found.search(data) is not None


def _utf8(text: str) -> bytes:
    # What JSON of the model's may hold and UTF-8 cannot, half of a surrogate pair, is searched as U+FFFD.
    return clean(text).encode()


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end
