"""Secrets and their redaction.

The log keeps what the model saw; what must not get into a log at all is the affair of
`refold.reducers.secrets`.

Three things are looked for: values that the caller knows to be secret, the shapes in which well-known
services write their keys, and the policy's own patterns (`redact`). Each is replaced by `[REDACTED]`, for
good: the log never had it. `refold.reducers.secrets` does another thing with the same word: it hides
arguments from people who look, and the log keeps them.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

import msgspec

from refold.reducers import assignments
from refold.reducers.errors import PolicyError, shown
from refold.reducers.key_shapes import SIGNS
from refold.reducers.patterns import find_in_lines, problem_of
from refold.reducers.text import clean

SECRET = frozenset({"api_key", "authorization", "token", "password", "file_text", "content"})
REDACTED = "[REDACTED]"


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


_DECODER = json.JSONDecoder(parse_int=_as_written, parse_float=_as_written, parse_constant=_as_written)


def redacted(arguments: str) -> str:
    """Arguments as compact JSON, the value of every secret key (any case, any depth) as `[REDACTED]`.

    A text inside that is itself a JSON object or list is treated alike. Of what is no JSON nobody knows what
    it holds: nothing of it is shown. Numbers stay as they were written.
    """
    try:
        return msgspec.json.encode(_hidden(_DECODER.decode(arguments or "{}"))).decode()
    except (ValueError, RecursionError):
        return REDACTED


def _hidden(value: object) -> object:
    if isinstance(value, dict):
        return {clean(key): _of(key, inner) for key, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in cast("list[object]", value)]
    if isinstance(value, str):
        return _text(value)
    return value


def _text(value: str) -> str:
    hidden = redacted(value) if value.lstrip()[:1] in ("{", "[") else REDACTED
    return clean(value) if hidden == REDACTED else hidden


def _of(key: str, value: object) -> object:
    return REDACTED if key.casefold() in SECRET else _hidden(value)


Span = tuple[int, int]

# What takes one secret away may give the next its boundary. With the shapes alone two rounds settle it; a
# pattern that looks behind itself could go on for ever, and then loses its whole line.
_ROUNDS = 4
# No shape, and no assignment, is shorter, but for a password in a URL, which has a colon: a name or an id is
# mostly known to be none at once.
_SHORTEST = 12
# A string, with its end if it has one, or a word that is a number in any JSON that is whole.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[^\s\[\]{},:"]+', re.DOTALL)

# How a program writes the end of a line, a quotation mark or a colour: of a string in source code, of a URL,
# of a terminal, of a mail. Its last letter is no part of a key that follows.
_ESCAPES = tuple(
    (sign, re.compile(re.escape(sign) + rest + r"([\w.~+/:|=-]{20,})", re.ASCII))
    for sign, rest in (
        ("\\", r"(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[0-7]{3}|[a-z0])"),
        ("%", r"(?:25){0,2}[0-9A-Fa-f]{2}"),
        ("[", r"[0-9;]{0,16}[mK]"),
        ("=3D", ""),
    )
)


class Redactor(msgspec.Struct, frozen=True):
    """What is looked for in one run: secret `values`, the shapes of `known` keys, the policy's `patterns`.

    A pattern is looked for in each line by itself. Every method is idempotent, costs time in proportion to
    the text (of patterns see `patterns.find_in_lines`), and cleans the text of lone surrogates.
    """

    values: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    known: bool = True

    @property
    def idle(self) -> bool:
        """Whether nothing is looked for."""
        return not (self.known or self.values or self.patterns)

    def __repr__(self) -> str:
        # A value must not come out by the error message that shows who was to hide it.
        return f"Redactor({len(self.values)} values, {len(self.patterns)} patterns, known={self.known})"

    def under(self, patterns: tuple[str, ...]) -> "Redactor":
        """This redactor under a policy with such patterns."""
        return self if patterns == self.patterns else msgspec.structs.replace(self, patterns=patterns)

    def text(self, text: str) -> str:
        """The text, each secret in it replaced by `[REDACTED]`.

        Nothing found: the same object, if it was clean.
        """
        if not text:
            return text
        text = clean(text)
        for _ in range(_ROUNDS):
            spans = self._spans(text)
            shown = _cover(text, spans) if spans else text
            if shown == text:
                return text
            text = shown
        lines = text.split("\n")
        return "\n".join(line if _cover(line, self._spans(line)) == line else REDACTED for line in lines)

    def json(self, text: str) -> str:
        """JSON text without secrets: byte for byte as it was if none is found, and valid if it was.

        They are found behind escapes, in keys, and in strings that hold JSON themselves. A number becomes a
        string. What cannot be taken out of valid JSON without breaking it, because it spans several values,
        takes all with it.
        """
        text = clean(text)
        if self.idle:
            return text
        shown = self.text(text if self._plain(text) else _TOKEN.sub(self._token, text))
        return f'"{REDACTED}"' if shown != text and _is_json(text) and not _is_json(shown) else shown

    def opaque(self, text: str) -> str:
        """JSON text for a program alone, as it is; nothing of it, if there is a secret in it."""
        text = clean(text)
        return text if self.json(text) == text else ""

    def rounds(self, text: str) -> Iterator[tuple[str, list[Span]]]:
        """Yield the text after each round that `text` takes, with the groups that the round covered in the
        text before.

        What one round hides may give the next its boundary, or bring it within reach.
        """
        for _ in range(_ROUNDS):
            groups = _groups(text, spans) if (spans := self._spans(text)) else []
            shown = _mark(text, groups)
            if shown == text:
                return
            yield shown, groups
            text = shown

    def apart(self, text: str, place: int) -> int:
        """The last place, `place` or before it, where dividing the text divides no secret."""
        spans = sorted(self._spans(text, whole=True), reverse=True)
        before = place + 1
        while place < before:
            before = place
            place = min((start for start, end in spans if start < place < end), default=place)
        return place

    def _plain(self, json_text: str) -> bool:
        """Whether what its strings say stands in the text itself, so that looking at that is enough."""
        return "\\" not in json_text and not self.patterns

    def _token(self, found: re.Match[str]) -> str:
        token = found[0]
        if self._plain(token):
            return token
        if token[0] != '"':
            shown = self.text(token)
            return token if shown == token else f'"{shown}"'
        for missing in ("", '"'):  # what was cut off may end in a string
            try:
                said = clean(cast("str", json.loads(token + missing, strict=False)))
            except ValueError:
                continue
            shown = self.json(said) if said.lstrip()[:1] in ("{", "[") and _is_json(said) else self.text(said)
            return token if shown == said else json.dumps(shown, ensure_ascii=False).removesuffix(missing)
        return token

    def _spans(self, text: str, *, whole: bool = False) -> list[Span]:
        """Where secrets stand; `whole`: with that by which they are known, a header or a URL."""
        spans: list[Span] = []
        for value in self.values:
            if value in text:
                spans += [found.span() for found in re.finditer(re.escape(value), text)]
        if self.known and (len(text) >= _SHORTEST or ":" in text):
            spans += [*_known(text, whole=whole), *_known_behind_escapes(text, whole=whole)]
        for pattern in self.patterns:
            spans += find_in_lines(own(pattern), text)
        return spans


def _known_behind_escapes(text: str, *, whole: bool) -> Iterator[Span]:
    for sign, escape in _ESCAPES:
        for behind in escape.finditer(text) if sign in text else ():
            begin = behind.start(1)
            yield from ((begin + start, begin + end) for start, end in _known(behind[1], whole=whole))


PLAIN = Redactor(known=False)
"""Finds nothing: text is cleaned of lone surrogates, no more."""


# The shapes are ASCII: whatever else borders on a key ends it.
@lru_cache(maxsize=256)
def shape(pattern: str) -> re.Pattern[str]:
    """The compiled pattern of a known shape: not before it is needed, for importing must cost little."""
    return re.compile(pattern, re.ASCII)


def own(pattern: str) -> str:
    """Return a policy's pattern if it is fit, else raise `PolicyError`: a log may come from anywhere."""
    if problem := problem_of(pattern):
        raise PolicyError("redact", f"{problem}; got {shown(pattern)}")
    return pattern


def _known(text: str, *, whole: bool) -> list[Span]:
    spans: list[Span] = []
    for character, sign, patterns in SIGNS:
        if character in text and shape(sign).search(text):
            for place in {found.lastindex or 0 for found in shape(sign).finditer(text)}:
                # The group is the secret, where the rest is what it is known by.
                spans += [
                    found.span(0 if whole else found.lastindex or 0)
                    for found in shape(patterns[place - 1]).finditer(text)
                ]
    spans += assignments.find(text)
    return spans


def _cover(text: str, spans: list[Span]) -> str:
    """The text with one mark for each group of spans that overlap; a mark that is there already counts as
    one.
    """
    return _mark(text, _groups(text, spans))


def _groups(text: str, spans: list[Span]) -> list[Span]:
    groups: list[Span] = []
    for start, end in sorted([*spans, *(found.span() for found in re.finditer(re.escape(REDACTED), text))]):
        if not groups or start >= groups[-1][1]:
            groups.append((start, end))
        elif end > groups[-1][1]:
            groups[-1] = (groups[-1][0], end)
    return groups


def _mark(text: str, groups: list[Span]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in groups:
        parts += (text[done:start], REDACTED)
        done = end
    return "".join((*parts, text[done:]))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
