"""Truncated JSON documents, and files with one value or one value per line.

A recorder that crashes while writing leaves an incomplete document, which may hold most of the evidence. The
scanner walks over tokens, remembers the last place at which all open containers could be closed, and closes
them there. Nothing after the cut, or after the first byte that is not JSON, is guessed.

The scanner is used only if the ordinary decoder fails, so never for intact documents.
"""

import re
from collections.abc import Iterator
from typing import cast

import msgspec

from refold.importers.fields import JSON
from refold.importers.items import Item, Place, Unread
from refold.importers.source import BadTranscript, Source, decode_json, too_many

MOST_DEPTH = 250
"""Maximum nesting depth; anything deeper counts as a cut. (The decoders fail at about a thousand.)"""

ANY = "*"
"""Any index of a list, in a path of `elements`."""

_BLANK = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity")
_SCALAR_END = re.compile(rb"[\s,\]}]")
_IN_STRING = re.compile(rb'["\\\x00-\x1f]')
_ESCAPE = re.compile(rb'["\\/bfnrt]|u[0-9a-fA-F]{4}')


class Document(msgspec.Struct, frozen=True):
    """A value, and the number of bytes it was read from.

    `problem` is why not all bytes were read, "" if all were.
    """

    value: JSON
    read: int
    size: int
    problem: str = ""

    def cut(self) -> Iterator[Item]:
        """Yield the problem that the document breaks off, if it does."""
        if self.problem:
            yield Place(f"byte {self.read}").problem("cut", f"the document {self.problem}")


def document(source: Source, *elements: tuple[str, ...]) -> Document:
    """Return the JSON document of a source, up to where it breaks off.

    `elements` are paths of lists whose elements are only useful if complete, with `ANY` for an index:
    `("messages",)`, `("samples", ANY, "events")`. An incomplete element of these lists is left out. Raises
    `BadTranscript` if not even a beginning can be read.
    """
    data = source.whole()
    try:
        return Document(decode_json(data), len(data), len(data))
    except ValueError as error:
        found = decode_truncated(data, *elements)
        if found is None:
            raise BadTranscript(source.name, "", f"not a JSON document: {error}") from error
        return found


def decode_truncated(data: bytes, *elements: tuple[str, ...]) -> Document | None:
    """Return the value of a possibly truncated JSON document, or None if it is not an object or a list."""
    if too_many(data):
        return None
    scanner = _Scanner(data, elements)
    scanner.run()
    end, depth = scanner.safe
    if not end:
        return None
    # Containers closed since then were also opened since then: the outer ones are still the same.
    text = data[:end] + bytes(frame.closer for frame in reversed(scanner.frames[:depth]))
    try:
        value = decode_json(text)
    except ValueError:
        return None  # the decoders disagree about what is JSON, so nothing can be built on it
    return Document(value, end, len(data), scanner.problem)


class _Frame:
    """An open container: its closing byte, and the scanner's place in it."""

    __slots__ = ("closer", "step")

    def __init__(self, closer: int) -> None:
        self.closer, self.step = closer, cast("str | None", None)


class _Broken(Exception):
    """The scanner cannot continue."""


class _Scanner:
    """A walk over tokens. `safe`: the end of the text that can be kept, and the number of open containers."""

    def __init__(self, data: bytes, elements: tuple[tuple[str, ...], ...]) -> None:
        self.data, self.elements, self.place = data, elements, 0
        self.frames: list[_Frame] = []
        self.guard: int | None = None  # depth of the outermost element that must be complete
        self.safe: tuple[int, int] = (0, 0)
        self.problem = ""

    def run(self) -> None:
        """Walk to the end of the document, or to the first error."""
        try:
            self._value()
            while self.frames:
                self._next()
            self._blank()
            if self.place < len(self.data):
                self._fail("continues after its end")
        except _Broken as error:
            self.problem = str(error)

    def _fail(self, problem: str) -> None:
        kept = self.safe[0]
        raise _Broken(f"{problem} at byte {self.place}: read up to byte {kept} of {len(self.data)}")

    def _blank(self) -> None:
        found = _BLANK.match(self.data, self.place)
        self.place = found.end() if found else self.place

    def _peek(self) -> int:
        self._blank()
        if self.place >= len(self.data):
            self._fail("is truncated")
        return self.data[self.place]

    def _take(self, wanted: bytes) -> None:
        if self._peek() != wanted[0]:
            self._fail(f"has no {wanted.decode()}")
        self.place += 1

    def _next(self) -> None:
        """Read the next element or member of the innermost container, or its end."""
        frame, at = self.frames[-1], self._peek()
        if at == frame.closer:
            self.place += 1
            self.frames.pop()
            self._complete()
            return
        if frame.step is not None:
            self._take(b",")
        if frame.closer == ord("}"):
            frame.step = self._string().decode(errors="replace")
            self._take(b":")
        else:
            frame.step = ANY
        self._value()

    def _value(self) -> None:
        at = self._peek()
        if at in b"{[":
            self._open(at)
            return
        if not self.frames:
            self._fail("is neither an object nor a list")
        if at == ord('"'):
            self._string()
        else:
            self._scalar()
        self._complete()

    def _open(self, at: int) -> None:
        if len(self.frames) >= MOST_DEPTH:
            self._fail(f"is nested more than {MOST_DEPTH} levels deep")
        if self.guard is None and self.frames and self._must_be_complete():
            self.guard = len(self.frames)
        self.place += 1
        self.frames.append(_Frame(ord("}") if at == ord("{") else ord("]")))
        self._mark_safe()

    def _must_be_complete(self) -> bool:
        """Return whether the innermost container is a list whose elements must be complete."""
        path = tuple(frame.step or "" for frame in self.frames[:-1])
        return self.frames[-1].closer == ord("]") and path in self.elements

    def _complete(self) -> None:
        if self.guard == len(self.frames):
            self.guard = None
        self._mark_safe()

    def _mark_safe(self) -> None:
        if self.guard is None:
            self.safe = (self.place, len(self.frames))

    def _scalar(self) -> None:
        found = _SCALAR.match(self.data, self.place)
        if not found or not _SCALAR_END.match(self.data, found.end()):
            self._fail("is truncated in a value" if found else "has no value")
            return
        self.place = found.end()

    def _string(self) -> bytes:
        self._take(b'"')
        begin = self.place
        while found := _IN_STRING.search(self.data, self.place):
            self.place = found.end()
            match found[0]:
                case b'"':
                    return self.data[begin : self.place - 1]
                case b"\\":
                    escape = _ESCAPE.match(self.data, self.place)
                    if not escape:
                        break
                    self.place = escape.end()
                case _:
                    break
        self._fail("is truncated in a string")
        return b""


def decode_beginning(source: Source) -> JSON:
    """Return the value of a document's first bytes, including incomplete parts, to detect its format.

    None: it is not a document.
    """
    if "beginning" not in source.known:  # cached, because every format reads it
        found = decode_truncated(source.head())
        source.known["beginning"] = found.value if found else None
    return source.known["beginning"]


class JsonValue(msgspec.Struct, frozen=True, gc=False):
    """A value and its position: `$` (a document), `$[3]` (an element of its list) or `line 3 $`."""

    position: str
    value: JSON

    @property
    def place(self) -> Place:
        """Return its position as a place."""
        return Place(self.position)


def values(source: Source, *elements: tuple[str, ...]) -> Iterator[JsonValue | Unread]:
    """Yield the values up to where a document breaks off; a list is split into its elements.

    `elements` is as in `document`. Raises `BadTranscript` if nothing in the file is JSON.
    """
    try:
        whole = document(source, *elements)
    except BadTranscript:
        whole = None
    if whole is None or (whole.problem and _lines_follow(source)):
        yield from _lines(source)
        return
    if isinstance(whole.value, list):
        for index, value in enumerate(whole.value):
            yield JsonValue(f"$[{index}]", value)
    else:
        yield JsonValue("$", whole.value)
    if whole.problem:
        yield Place(f"bytes {whole.read}-{whole.size}").problem("cut", f"the document {whole.problem}")


def _lines_follow(source: Source) -> bool:
    """Return whether the first line is a complete value, so that more data after it is valid."""
    first = next((line for line in source.lines() if line.text.strip()), None)
    try:
        return first is not None and isinstance(decode_json(first.text), dict | list)
    except ValueError:
        return False


def _lines(source: Source) -> Iterator[JsonValue | Unread]:
    nothing = True
    for line in source.lines():
        position = f"line {line.number}"
        if not line.text.strip():
            continue
        try:
            value = decode_json(line.text)
        except ValueError as error:
            yield Place(position).problem("not_json", str(error))
            continue
        nothing = False
        yield JsonValue(f"{position} $", value)
    if nothing:
        raise BadTranscript(source.name, "", "neither a JSON document nor JSON lines")
