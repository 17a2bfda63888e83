"""Secrets from the environment, and redaction of streams.

`refold.reducers.secrets` defines how secrets are found in a text and hidden.
"""

import html
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from refold.engine.models.protocol import CallDelta, Delta, ReasoningDelta, Reply, TextDelta
from refold.reducers import assignments
from refold.reducers.errors import WrongUse
from refold.reducers.key_shapes import LEADS, LONGEST_KEY
from refold.reducers.messages import ReplyCall
from refold.reducers.secrets import REDACTED, Redactor, Span, shape

SHORTEST = 8
"""Characters of the shortest value treated as a secret: shorter values occur in too many texts."""

_LONGEST_WORD = 12
_LINE = 16  # minimum length of a secret line in a value of several lines; shorter lines are too common
_KEYS = "|".join(word for word in assignments.KEYS if word.endswith("key"))
_NAME = re.compile(
    rf"SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|{_KEYS}|TOKENS?(?![A-Z])|(?:^|_)(?:KEYS?|AUTH|PASS|PWD)(?:_|$)",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET", re.IGNORECASE
)  # their values may be ordinary words
# Variables with such names describe a secret but do not contain one.
_ABOUT = re.compile(
    r"(?:^|_)(?:PUBLIC|PUBLISHABLE)_|_(?:NAME|FILE|PATH|DIR|SOCK|SOCKET|HOST|PORT|TYPE|MODE|METHOD|USER|USERNAME|EMAIL"
    r"|REGION|LENGTH|SIZE|LIMIT|BUDGET|TTL|TIMEOUT|EXPIRY|HEADER|VERSION|ALGORITHM|PROVIDER)$",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w./ :@-]*|[A-Za-z]:[\\/].*")
_NUMBER = re.compile(r"[\d.,:_+-]+")
_WORDS = frozenset(
    {
        "administrator", "anonymous", "changeme", "credential", "credentials", "default", "development", "disabled",
        "enabled", "keycloak", "localhost", "optional", "passphrase", "password", "postgres", "postgresql",
        "preferred", "production", "required", "staging", "supported", "testing", "undefined", "unsupported",
        "username",
    }
)  # fmt: skip
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_GO = re.compile(r"[&<>]")
_IN_URL = re.compile(r"[A-Za-z][\w+.-]*://[^\s/:@]*:([^\s/]+)@")

_TEXTS = tuple(
    field.name
    for field in msgspec.structs.fields(Reply)
    if field.type is str and field.name != "provider_data"
)
_WORD = "".join(map(chr, range(0x21, 0x7F)))  # characters of a secret without white space
_SHARE = 64
_LONG_LINE = 4096
_NEAR = max(LEADS.values())
_KEY_LINES = (
    ("-----BEGIN", re.compile(r"-----END [A-Z0-9 ]{0,32}(?=-----)")),
    ("Private-Lines:", re.compile("Private-MAC")),
)
_LONGEST_OPEN = LONGEST_KEY + 4096  # includes the first and last line, and header lines


def redactor_of(environment: Mapping[str, str] = os.environ) -> Redactor:
    """Return the redactor of a process: known shapes, and the secret values of its environment."""
    return Redactor(values=secret_values(environment))


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with secret names, and the passwords in URLs of any variable.

    Each value is returned as it is and in its JSON, URL and other spellings; a value of several lines, such
    as a private key, by line. Values shorter than `SHORTEST`, numbers, paths, URLs (except their passwords)
    and common words are not secret, nor are fewer than 12 letters unless the name is that of a password.
    """
    found = {value for name, text in environment.items() for value in _secrets(name, text.strip())}
    spellings = {spelling for value in found for spelling in _spellings(value)}
    return tuple(sorted(spellings, key=lambda value: (-len(value), value)))


def refuse_secret(redactor: Redactor, place: str, json_text: str, way_out: str) -> None:
    """Raise `WrongUse` for a JSON text that would be recorded and seems to contain a secret."""
    if redactor.json(json_text) != json_text:
        raise WrongUse(
            f"{place}: contains what looks like a secret and would be recorded in clear; {way_out}"
        )


def redacted_reply(reply: Reply, redactor: Redactor) -> Reply:
    """Return a response without secrets. Opaque provider data that contains one is removed as a whole."""
    changed: dict[str, Any] = {}
    for name in _TEXTS:
        text = getattr(reply, name)
        if text and (redacted := redactor.text(text)) is not text:
            changed[name] = redacted
    calls = tuple([_redacted_call(call, redactor) for call in reply.calls])
    if calls != reply.calls:
        changed["calls"] = calls
    if opaque := reply.provider_data:
        changed["provider_data"] = redactor.opaque(opaque)
    return msgspec.structs.replace(reply, **changed) if changed else reply


def _redacted_call(call: ReplyCall, redactor: Redactor) -> ReplyCall:
    return ReplyCall(
        provider_id=redactor.text(call.provider_id),
        name=redactor.text(call.name),
        arguments=redactor.json(call.arguments),
    )


def _secrets(name: str, text: str) -> Iterator[str]:
    for found in _IN_URL.finditer(text):
        yield from (word for word in (found[1], unquote(found[1])) if _worth(name, word))
    if _NAME.search(name) and not _ABOUT.search(name) and "://" not in text:
        if "\n" in text:
            lines = (line.strip() for line in text.splitlines())
            yield from (line for line in lines if len(line) >= _LINE and not line.startswith("-----"))
        elif _worth(name, text):
            yield text


def _worth(name: str, value: str) -> bool:
    if (
        len(value) < SHORTEST
        or value.casefold() in _WORDS
        or _NUMBER.fullmatch(value)
        or _PATH.fullmatch(value)
    ):
        return False
    words = [word for word in re.split("[_-]", value.strip("[]<>*")) if word]
    ordinary = all(word.isalpha() and len(word) < _LONGEST_WORD for word in words)
    return not ordinary or _CHOSEN.search(name) is not None


def _spellings(value: str) -> tuple[str, ...]:
    """Return the spellings of a value in texts made by programs: JSON, nested JSON, URLs, Python, HTML."""
    in_json = json.dumps(value)[1:-1]
    urls = [quote(value, safe=""), quote(value)]
    return (
        value,
        in_json,
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(in_json)[1:-1],
        in_json.replace("/", "\\/"),
        _GO.sub(lambda found: f"\\u{ord(found[0]):04x}", in_json),
        repr(value)[1:-1],
        html.escape(value),
        *urls,
        *(_PERCENT.sub(lambda found: found[0].lower(), url) for url in urls),
    )


class RedactedStream:
    """Publishes a stream's deltas without its secrets, which may be split between deltas.

    It holds back the last word of a text or reasoning until the word is complete; the last line if a secret
    may contain white space; a private key until its last line, or until it is too long for one. Joined, the
    published deltas equal the redacted whole. Arguments of calls are published whole at the end, because
    JSON escapes may hide a secret. A change between text, reasoning and calls ends a word.
    """

    def __init__(self, redactor: Redactor, publish: Callable[[Delta], None]) -> None:
        self._redactor, self._publish = redactor, publish
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._text = RedactedText(redactor)
        self._calls: dict[int, StreamedCall] = {}
        self._arrived: Sequence[Delta] = ()
        self._followed = 0

    def follow(self, arrived: Sequence[Delta]) -> None:
        """Take the last of the deltas that arrived so far, a growing list, while there are subscribers.

        Earlier deltas that arrived without subscribers are read but not published, because a secret may
        begin in them. The same holds for deltas after the last call of `follow`.
        """
        self._arrived = arrived
        self._read(len(arrived) - 1)
        self._followed = len(arrived)
        self.put(arrived[-1])

    def _read(self, upto: int) -> None:
        publish, self._publish = self._publish, _discard
        for delta in self._arrived[self._followed : upto]:
            self.put(delta)
        self._publish, self._followed = publish, upto

    def put(self, delta: Delta) -> None:
        """Take the next delta, and publish what is safe now."""
        if self._redactor.idle:
            self._publish(delta)
        elif isinstance(delta, CallDelta):
            self._show(self._text.close())
            call = self._calls.setdefault(delta.index, StreamedCall())
            call.name += delta.name
            call.arguments.append(delta.arguments)
            if delta.arguments:
                self._show_name(delta.index)
        else:
            if type(delta) is not self._kind:
                self._show(self._text.close())
                self._kind = type(delta)
            self._show(self._text.put(delta.text))

    def close(self) -> None:
        """End the stream: publish the rest."""
        self._read(len(self._arrived))  # else the first half of a split secret would be published
        self._show(self._text.close())
        for index, call in self._calls.items():
            self._show_name(index)
            arguments = self._redactor.json("".join(call.arguments))
            if arguments:
                self._publish(CallDelta(index, arguments=arguments))
        self._calls.clear()

    def _show(self, text: str) -> None:
        if text:
            self._publish(self._kind(text))

    def _show_name(self, index: int) -> None:
        call = self._calls[index]
        if call.name:
            self._publish(CallDelta(index, name=self._redactor.text(call.name)))
            call.name = ""


def _discard(_: Delta) -> None:
    """Publish nothing: there were no subscribers."""


class StreamedCall(msgspec.Struct):
    """A call in the making: the unpublished part of its name, and its arguments in pieces."""

    name: str = ""
    arguments: list[str] = []


class RedactedText:
    """A streamed text; it holds back the end that could become part of a secret."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held: list[str] = []
        self._waits = 0  # characters

    def put(self, piece: str) -> str:
        """Take a piece, and return what is safe to publish."""
        end = self._before_word(piece)
        self._waits -= len(piece)
        if end == 0 or self._waits > 0:
            self._held.append(piece)
            return ""
        whole = "".join((*self._held, piece))
        end += len(whole) - len(piece)
        start = self._open(whole[:end])
        self._held = [whole[start:]]
        # Searching a long beginning again for every word would take quadratic time.
        self._waits = (end - start) // _SHARE
        return self._redactor.text(whole[:start])

    def close(self) -> str:
        """Return the rest."""
        rest = "".join(self._held)
        self._held, self._waits = [], 0
        return self._redactor.text(rest)

    @cached_property
    def _by_words(self) -> bool:
        """Whether secrets contain no white space, except for known shapes."""
        values = self._redactor.values
        words = all(value.isascii() and value.isprintable() and " " not in value for value in values)
        return words and not self._redactor.patterns

    def _before_word(self, text: str) -> int:
        """Return the start of the word or line with which the text ends."""
        return len(text.rstrip(_WORD)) if self._by_words else text.rfind("\n") + 1

    def _open(self, text: str) -> int:
        """Return where an unfinished secret begins in a text that ends between words or lines."""
        start = self._begin(text) if self._redactor.known else None
        if start is None:
            return len(text)
        line = text.rfind("\n", 0, start) + 1
        # Hiding one secret may create the boundary of another in the same line: a short line is kept whole.
        return self._redactor.apart(
            text, line if start - line < _LONG_LINE else self._before_word(text[:start])
        )

    def _begin(self, text: str) -> int | None:
        """Return where the first secret begins that may continue, also one that redaction exposes."""
        starts = [*self._headers(text), *_private_keys(text)]
        covered: list[list[Span]] = []
        for shown, groups in self._redactor.rounds(text):
            covered.insert(0, groups)
            for start in (*self._headers(shown), *_private_keys(shown)):
                starts.append(reduce(_place_before, covered, start))
        return min(starts, default=None)

    def _headers(self, text: str) -> Iterator[int]:
        if self._by_words:
            near = max(text.rfind("\n") + 1, len(text) - _NEAR)
            tail = text[near:].lower()
            for lead, reach in LEADS.items():
                if found := shape(lead).search(tail, max(0, len(tail) - reach)):
                    yield near + found.start()
        if (begun := assignments.find_open(text)) is not None:  # also one that continues on the next line
            yield begun


def _place_before(place: int, groups: Sequence[Span]) -> int:
    """Map a place to the text before these groups were covered; a place inside a mark maps to the group."""
    longer = 0
    for start, end in groups:
        mark = start - longer
        if place <= mark:
            break
        if place < mark + len(REDACTED):
            return start
        longer += end - start - len(REDACTED)
    return place + longer


def _private_keys(text: str) -> Iterator[int]:
    """Yield where a private key begins that has not ended and may still end."""
    for first, last in _KEY_LINES:
        if first in text:
            ended = max((found.end() for found in last.finditer(text)), default=0)
            begun = text.find(first, max(ended, len(text) - _LONGEST_OPEN))
            if begun >= 0:
                yield begun
