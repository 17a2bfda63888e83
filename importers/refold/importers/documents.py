"""JSON documents that stop in the middle, and files of one value or one a line.

A recorder that dies while it writes leaves half a document, and half a document is most of the evidence. The
scanner walks tokens, remembers the last place at which everything that was open could have been closed, and
closes it there. What lies behind the cut, or behind the first byte that is no JSON, is not guessed.

It is only asked where the ordinary decoder refused: whole documents never come here.
"""

import re
from collections.abc import Iterator
from typing import cast

import msgspec

from refold.importers.fields import JSON
from refold.importers.items import Item, Place, Unread
from refold.importers.source import BadTranscript, Source, decoded, too_many

MOST_DEPTH = 250
"""Levels of nesting; what lies deeper counts as a cut. (The decoders give up at about a thousand.)"""

ANY = "*"
"""In a path of elements: any index of a list."""

_BLANK = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity")
_NO_SCALAR_GOES_ON = re.compile(rb"[\s,\]}]")
_IN_STRING = re.compile(rb'["\\\x00-\x1f]')
_ESCAPE = re.compile(rb'["\\/bfnrt]|u[0-9a-fA-F]{4}')


class Document(msgspec.Struct, frozen=True):
    """A value, and how many of the file's bytes it was read from.

    `problem` says why not all, "" where all were.
    """

    value: JSON
    read: int
    size: int
    problem: str = ""

    def cut(self) -> Iterator[Item]:
        """That it breaks off, if it does."""
        if self.problem:
            yield Place(f"byte {self.read}").problem("cut", f"the document {self.problem}")


def document(source: Source, *elements: tuple[str, ...]) -> Document:
    """The JSON document that a source is, up to where it breaks off.

    `elements` are paths of lists whose elements are worth nothing by halves, `ANY` for an index:
    `("messages",)`, `("samples", ANY, "events")`. An element of theirs that was open at the cut is left out.
    Raises `BadTranscript` where not even a beginning can be read.
    """
    data = source.whole()
    try:
        return Document(decoded(data), len(data), len(data))
    except ValueError as error:
        found = leading(data, *elements)
        if found is None:
            raise BadTranscript(source.name, "", f"no JSON document: {error}") from error
        return found


def leading(data: bytes, *elements: tuple[str, ...]) -> Document | None:
    """What the first bytes of a JSON document say; None where they are no beginning of an object or a
    list.
    """
    if too_many(data):
        return None
    scanner = _Scanner(data, elements)
    scanner.run()
    end, depth = scanner.safe
    if not end:
        return None
    # What was closed since then was opened since then: the outer containers are still the same.
    text = data[:end] + bytes(frame.closer for frame in reversed(scanner.frames[:depth]))
    try:
        value = decoded(text)
    except ValueError:
        return None  # what one decoder calls JSON and the other does not: nothing to build on
    return Document(value, end, len(data), scanner.problem)


class _Frame:
    """An open container: how it closes, and where in it the scanner stands."""

    __slots__ = ("closer", "step")

    def __init__(self, closer: int) -> None:
        self.closer, self.step = closer, cast("str | None", None)


class _Broken(Exception):
    """The scanner stands before something that it cannot go on with."""


class _Scanner:
    """A walk over tokens. `safe`: how far the text may be kept, and how many containers are open there."""

    def __init__(self, data: bytes, elements: tuple[tuple[str, ...], ...]) -> None:
        self.data, self.elements, self.place = data, elements, 0
        self.frames: list[_Frame] = []
        self.guard: int | None = None  # so many containers stand around the element that counts only whole
        self.safe: tuple[int, int] = (0, 0)
        self.problem = ""

    def run(self) -> None:
        """Walk to the end of the document, or as far as it goes."""
        try:
            self._value()
            while self.frames:
                self._next()
            self._blank()
            if self.place < len(self.data):
                self._fail("goes on behind its end")
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
            self._fail("breaks off")
        return self.data[self.place]

    def _take(self, wanted: bytes) -> None:
        if self._peek() != wanted[0]:
            self._fail(f"has no {wanted.decode()}")
        self.place += 1

    def _next(self) -> None:
        """The next element or member of the innermost container, or its end."""
        frame, at = self.frames[-1], self._peek()
        if at == frame.closer:
            self.place += 1
            self.frames.pop()
            self._completed()
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
            self._fail("is no object and no list")
        if at == ord('"'):
            self._string()
        else:
            self._scalar()
        self._completed()

    def _open(self, at: int) -> None:
        if len(self.frames) >= MOST_DEPTH:
            self._fail(f"is nested more than {MOST_DEPTH} levels deep")
        if self.guard is None and self.frames and self._counts_whole():
            self.guard = len(self.frames)
        self.place += 1
        self.frames.append(_Frame(ord("}") if at == ord("{") else ord("]")))
        self._keep()

    def _counts_whole(self) -> bool:
        """Whether the innermost container is a list whose elements are taken whole or not at all."""
        path = tuple(frame.step or "" for frame in self.frames[:-1])
        return self.frames[-1].closer == ord("]") and path in self.elements

    def _completed(self) -> None:
        if self.guard == len(self.frames):
            self.guard = None
        self._keep()

    def _keep(self) -> None:
        if self.guard is None:
            self.safe = (self.place, len(self.frames))

    def _scalar(self) -> None:
        found = _SCALAR.match(self.data, self.place)
        if not found or not _NO_SCALAR_GOES_ON.match(self.data, found.end()):
            self._fail("breaks off in a value" if found else "has no value")
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
        self._fail("breaks off in a text")
        return b""


def beginning(source: Source) -> JSON:
    """What a document's first bytes say, halves included: enough to tell a format by.

    None: it is no document.
    """
    if "beginning" not in source.known:  # every format asks for it
        found = leading(source.head())
        source.known["beginning"] = found.value if found else None
    return source.known["beginning"]


class JsonValue(msgspec.Struct, frozen=True, gc=False):
    """A value and where it stands: `$` for a whole document, `$[3]` for an element of its list, `line 3 $`
    for a line.
    """

    position: str
    value: JSON

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.position)


def values(source: Source, *elements: tuple[str, ...]) -> Iterator[JsonValue | Unread]:
    """The values, up to where a document breaks off; `elements` as in `documents`. A list is its elements.

    Raises `BadTranscript` where nothing at all is JSON.
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
    """Whether the first line is a value of its own: then what follows it is no damage."""
    first = next((line for line in source.lines() if line.text.strip()), None)
    try:
        return first is not None and isinstance(decoded(first.text), dict | list)
    except ValueError:
        return False


def _lines(source: Source) -> Iterator[JsonValue | Unread]:
    nothing = True
    for line in source.lines():
        position = f"line {line.number}"
        if not line.text.strip():
            continue
        try:
            value = decoded(line.text)
        except ValueError as error:
            yield Place(position).problem("not_json", str(error))
            continue
        nothing = False
        yield JsonValue(f"{position} $", value)
    if nothing:
        raise BadTranscript(source.name, "", "no JSON document, and no line of it is one")
