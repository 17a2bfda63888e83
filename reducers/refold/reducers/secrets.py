"""Secrets and their redaction.

`redacted` hides values of secret keys from displayed arguments; the log keeps them. `Redactor` removes
secrets before they reach the log: values known to the caller, shapes of well-known services' keys, and
matches of the policy's patterns (`redact`). Each is replaced by `[REDACTED]` permanently.
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


def _keep_number(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


_DECODER = json.JSONDecoder(parse_int=_keep_number, parse_float=_keep_number, parse_constant=_keep_number)


def redacted(arguments: str) -> str:
    """Return arguments as compact JSON, the value of every secret key (any case, any depth) as `[REDACTED]`.

    A text that is itself a JSON object or list is treated alike. Text that is not JSON is hidden entirely.
    Numbers stay as written.
    """
    try:
        return msgspec.json.encode(_hide(_DECODER.decode(arguments or "{}"))).decode()
    except (ValueError, RecursionError):
        return REDACTED


def _hide(value: object) -> object:
    if isinstance(value, dict):
        return {
            clean(key): _hide_value(key, inner) for key, inner in cast("dict[str, object]", value).items()
        }
    if isinstance(value, list):
        return [_hide(inner) for inner in cast("list[object]", value)]
    if isinstance(value, str):
        return _text(value)
    return value


def _text(value: str) -> str:
    hidden = redacted(value) if value.lstrip()[:1] in ("{", "[") else REDACTED
    return clean(value) if hidden == REDACTED else hidden


def _hide_value(key: str, value: object) -> object:
    return REDACTED if key.casefold() in SECRET else _hide(value)


Span = tuple[int, int]

# Hiding one secret may give another its boundary. With the shapes alone two rounds are enough; a policy's
# pattern could need any number, and then its whole line is hidden.
_ROUNDS = 4
# No shape or assignment is shorter, except a password in a URL, which has a colon. So most names and ids
# need no search.
_MIN_CHARS = 12
# A string, with its end if it has one, or a word, which is a number in complete JSON.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[^\s\[\]{},:"]+', re.DOTALL)

# Escapes of a line end, a quotation mark or a color: in source code, URLs, terminals, mail. Their last letter
# is not part of a key that follows.
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
    """What to search for in one run: secret `values`, shapes of `known` keys, the policy's `patterns`.

    Patterns match within a line. Every method is idempotent, takes time linear in the text (for patterns see
    `patterns.find_in_lines`), and replaces lone surrogates.
    """

    values: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    known: bool = True

    @property
    def idle(self) -> bool:
        """Whether there is nothing to search for."""
        return not (self.known or self.values or self.patterns)

    def __repr__(self) -> str:
        # A value must not leak through an error message that shows the redactor.
        return f"Redactor({len(self.values)} values, {len(self.patterns)} patterns, known={self.known})"

    def under(self, patterns: tuple[str, ...]) -> "Redactor":
        """Return this redactor with the patterns of a policy."""
        return self if patterns == self.patterns else msgspec.structs.replace(self, patterns=patterns)

    def text(self, text: str) -> str:
        """Replace each secret in a text by `[REDACTED]`.

        Returns the same object if nothing is found and the text is clean.
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
        """Redact JSON text: unchanged if nothing is found, and valid if it was.

        Finds secrets behind escapes, in keys, and in strings that hold JSON. A number becomes a string. A
        secret that spans several values, so that removing it would break valid JSON, hides the whole text.
        """
        text = clean(text)
        if self.idle:
            return text
        shown = self.text(text if self._plain(text) else _TOKEN.sub(self._token, text))
        return f'"{REDACTED}"' if shown != text and _is_json(text) and not _is_json(shown) else shown

    def opaque(self, text: str) -> str:
        """Return JSON text for programs unchanged, or "" if it contains a secret."""
        text = clean(text)
        return text if self.json(text) == text else ""

    def rounds(self, text: str) -> Iterator[tuple[str, list[Span]]]:
        """Yield the text after each redaction round, with the groups covered in the text before it.

        One round may give the next secret its boundary, or bring it within reach.
        """
        for _ in range(_ROUNDS):
            groups = _groups(text, spans) if (spans := self._spans(text)) else []
            shown = _mark(text, groups)
            if shown == text:
                return
            yield shown, groups
            text = shown

    def apart(self, text: str, place: int) -> int:
        """Return the last position, at most `place`, where splitting the text splits no secret."""
        spans = sorted(self._spans(text, whole=True), reverse=True)
        before = place + 1
        while place < before:
            before = place
            place = min((start for start, end in spans if start < place < end), default=place)
        return place

    def _plain(self, json_text: str) -> bool:
        """Return whether strings in the JSON need no decoding before the search."""
        return "\\" not in json_text and not self.patterns

    def _token(self, found: re.Match[str]) -> str:
        token = found[0]
        if self._plain(token):
            return token
        if token[0] != '"':
            shown = self.text(token)
            return token if shown == token else f'"{shown}"'
        for missing in ("", '"'):  # truncated JSON may end in a string
            try:
                decoded = clean(cast("str", json.loads(token + missing, strict=False)))
            except ValueError:
                continue
            is_json = decoded.lstrip()[:1] in ("{", "[") and _is_json(decoded)
            shown = self.json(decoded) if is_json else self.text(decoded)
            return token if shown == decoded else json.dumps(shown, ensure_ascii=False).removesuffix(missing)
        return token

    def _spans(self, text: str, *, whole: bool = False) -> list[Span]:
        """Find the secrets; `whole`: with the context that identifies them, such as a header or URL."""
        spans: list[Span] = []
        for value in self.values:
            if value in text:
                spans += [found.span() for found in re.finditer(re.escape(value), text)]
        if self.known and (len(text) >= _MIN_CHARS or ":" in text):
            spans += [*_find_known(text, whole=whole), *_find_escaped(text, whole=whole)]
        for pattern in self.patterns:
            spans += find_in_lines(own(pattern), text)
        return spans


def _find_escaped(text: str, *, whole: bool) -> Iterator[Span]:
    for sign, escape in _ESCAPES:
        for behind in escape.finditer(text) if sign in text else ():
            begin = behind.start(1)
            yield from ((begin + start, begin + end) for start, end in _find_known(behind[1], whole=whole))


PLAIN = Redactor(known=False)
"""Finds nothing; only replaces lone surrogates."""


# Shapes are ASCII: any other character ends a key.
@lru_cache(maxsize=256)
def shape(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a known shape; compiled on first use, to keep imports cheap."""
    return re.compile(pattern, re.ASCII)


def own(pattern: str) -> str:
    """Return a policy's pattern if it is valid, else raise `PolicyError`: a log may come from anywhere."""
    if problem := problem_of(pattern):
        raise PolicyError("redact", f"{problem}; got {shown(pattern)}")
    return pattern


def _find_known(text: str, *, whole: bool) -> list[Span]:
    spans: list[Span] = []
    for character, sign, patterns in SIGNS:
        if character in text and shape(sign).search(text):
            for place in {found.lastindex or 0 for found in shape(sign).finditer(text)}:
                # The group is the secret; the rest identifies it.
                spans += [
                    found.span(0 if whole else found.lastindex or 0)
                    for found in shape(patterns[place - 1]).finditer(text)
                ]
    spans += assignments.find(text)
    return spans


def _cover(text: str, spans: list[Span]) -> str:
    """Replace each group of overlapping spans by one mark; an existing mark counts as a span."""
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
