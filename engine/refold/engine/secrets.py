"""Secrets at the edge: which values of the environment are secret, and what of a stream may be shown yet.

What is found in a text, and how it is hidden, says `refold.reducers.secrets`.
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
"""Characters of the shortest value that is taken for a secret: a shorter one stands in too many words."""

_LONGEST_WORD = 12
_LINE = 16  # of a value of several lines: what a shorter line says is too common
_KEYS = "|".join(word for word in assignments.KEYS if word.endswith("key"))
_NAME = re.compile(
    rf"SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|{_KEYS}|TOKENS?(?![A-Z])|(?:^|_)(?:KEYS?|AUTH|PASS|PWD)(?:_|$)",
    re.IGNORECASE,
)
_CHOSEN = re.compile(r"PASSWORD|PASSWD|PASSPHRASE|SECRET", re.IGNORECASE)  # may be words, all the same
# What a variable of such a name says about a secret without being one.
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
_WORD = "".join(map(chr, range(0x21, 0x7F)))  # what a secret without white space consists of
_SHARE = 64
_LONG_LINE = 4096
_NEAR = max(LEADS.values())
_KEY_LINES = (
    ("-----BEGIN", re.compile(r"-----END [A-Z0-9 ]{0,32}(?=-----)")),
    ("Private-Lines:", re.compile("Private-MAC")),
)
_LONGEST_OPEN = LONGEST_KEY + 4096  # with its first and last line, and lines of headers


def redactor_of(environment: Mapping[str, str] = os.environ) -> Redactor:
    """What is looked for in every run of a process: known shapes, and the secret values of its
    environment.
    """
    return Redactor(values=secret_values(environment))


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose name says that they are secret, and the passwords in URLs of any
    variable.

    Each as it is, as JSON writes it and as a URL does; one of several lines, a private key for instance, by
    its lines. No secret is what is shorter than `SHORTEST`, a number, a path, a URL (but for its password), a
    common word, or letters alone, fewer than 12, unless the name says that it is a password.
    """
    found = {value for name, text in environment.items() for value in _secrets(name, text.strip())}
    spelt = {spelling for value in found for spelling in _spellings(value)}
    return tuple(sorted(spelt, key=lambda value: (-len(value), value)))


def refuse_secret(redactor: Redactor, place: str, json_text: str, way_out: str) -> None:
    """Raise `WrongUse` for a JSON text that would be recorded, and holds what looks like a secret."""
    if redactor.json(json_text) != json_text:
        raise WrongUse(f"{place}: holds what looks like a secret, and would be recorded as it is; {way_out}")


def redacted_reply(reply: Reply, redactor: Redactor) -> Reply:
    """A model's answer without secrets. What only its adapter can read goes as a whole, if it holds one."""
    changed: dict[str, Any] = {}
    for name in _TEXTS:
        said = getattr(reply, name)
        if said and (shown := redactor.text(said)) is not said:
            changed[name] = shown
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
    """The value as texts hold it that were made by programs: JSON of several makes, JSON in JSON, URLs,
    Python, HTML.
    """
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
    """Shows a stream's deltas without its secrets, which may be divided between deltas.

    Of a text, and of the reasoning, the last word is held back until it is whole; the line, where a secret
    may have white space in it; a private key until its last line, or until it is too long to be one. So what
    is shown, joined, is the redacted whole. The arguments of calls come whole, at the end: in JSON a secret
    may stand behind escapes. Whoever changes from text to reasoning, or to a call, has finished a word.
    """

    def __init__(self, redactor: Redactor, publish: Callable[[Delta], None]) -> None:
        self._redactor, self._publish = redactor, publish
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._text = RedactedText(redactor)
        self._calls: dict[int, StreamedCall] = {}
        self._arrived: Sequence[Delta] = ()
        self._followed = 0

    def follow(self, arrived: Sequence[Delta]) -> None:
        """Take the last delta of those that arrived so far, in a list that grows, now that somebody watches.

        Those before it that came while nobody did are read, for a secret may begin in them, and not shown. So
        are those that come after the last that is followed.
        """
        self._arrived = arrived
        self._read(len(arrived) - 1)
        self._followed = len(arrived)
        self.put(arrived[-1])

    def _read(self, upto: int) -> None:
        publish, self._publish = self._publish, _unheard
        for delta in self._arrived[self._followed : upto]:
            self.put(delta)
        self._publish, self._followed = publish, upto

    def put(self, delta: Delta) -> None:
        """Take the next delta, and show what may be shown now."""
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
        """The stream is over: show the rest."""
        self._read(len(self._arrived))  # or of a secret its first half would be shown
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


def _unheard(_: Delta) -> None:
    """Nobody watched when it came."""


class StreamedCall(msgspec.Struct):
    """A call in the making: of its name what was not shown yet, and the pieces of its arguments."""

    name: str = ""
    arguments: list[str] = []


class RedactedText:
    """A text that comes in pieces, and the end of it that could still become part of a secret."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held: list[str] = []
        self._waits = 0  # characters

    def put(self, piece: str) -> str:
        """What may be shown now."""
        end = self._before_word(piece)
        self._waits -= len(piece)
        if end == 0 or self._waits > 0:
            self._held.append(piece)
            return ""
        whole = "".join((*self._held, piece))
        end += len(whole) - len(piece)
        start = self._open(whole[:end])
        self._held = [whole[start:]]
        # To look at a long beginning again for every word would cost its square.
        self._waits = (end - start) // _SHARE
        return self._redactor.text(whole[:start])

    def close(self) -> str:
        """The rest."""
        rest = "".join(self._held)
        self._held, self._waits = [], 0
        return self._redactor.text(rest)

    @cached_property
    def _by_words(self) -> bool:
        """Whether no secret has white space in it, but for the known ones."""
        values = self._redactor.values
        words = all(value.isascii() and value.isprintable() and " " not in value for value in values)
        return words and not self._redactor.patterns

    def _before_word(self, text: str) -> int:
        """Where the word, or the line, begins with which the text ends."""
        return len(text.rstrip(_WORD)) if self._by_words else text.rfind("\n") + 1

    def _open(self, text: str) -> int:
        """Where, in a text that ends between two words or lines, something begins that may go on behind
        it.
        """
        start = self._begin(text) if self._redactor.known else None
        if start is None:
            return len(text)
        line = text.rfind("\n", 0, start) + 1
        # What one secret hides may give another its boundary, in the same line: so that is not divided, if it
        # is short.
        return self._redactor.apart(
            text, line if start - line < _LONG_LINE else self._before_word(text[:start])
        )

    def _begin(self, text: str) -> int | None:
        """Where the first thing begins that may go on, also if only what is hidden before it makes it one."""
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
        if (begun := assignments.find_open(text)) is not None:  # also one that goes on in the next line
            yield begun


def _place_before(place: int, groups: Sequence[Span]) -> int:
    """Where a place of a text stood before these groups were covered; of one within a mark, where its group
    began.
    """
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
    """Where a key begins whose end has not come, and may still come."""
    for first, last in _KEY_LINES:
        if first in text:
            ended = max((found.end() for found in last.finditer(text)), default=0)
            begun = text.find(first, max(ended, len(text) - _LONGEST_OPEN))
            if begun >= 0:
                yield begun
