"""A transcript as bytes: read in bounded pieces, whatever somebody named it. Nothing that it names is opened."""

import hashlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, cast

import msgspec

from refold.importers.compression import inflated, recoded
from refold.importers.fields import JSON
from refold.reducers.errors import Damaged
from refold.reducers.text import clean

_NO_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

MOST_LINE = 64 << 20
"""Bytes of one line or row; what is longer is not read."""

MOST_LINES = 5_000_000
"""Lines of one file: some ten thousand are read in a second, whatever they say."""

MOST_SAID = 64 << 20
"""Characters that one event may hold. A reader holds several times as much of the largest event of a log."""

MOST_DOCUMENT = 128 << 20
"""Bytes of one JSON document. As Python objects they take up to 21 times as much: `[]` is 3 bytes of text, and 64 of memory."""


MOST_PARTS = 1 << 25
"""Lists, objects and commas of one JSON value. Each is two bytes at least, and takes up to a hundred times that once it is read."""


class BadTranscript(Damaged):
    """A file that cannot be imported: where, and why."""

    def __init__(self, name: str, position: str, problem: str) -> None:
        super().__init__(name, position, problem)
        self.name, self.position, self.problem = name, position, problem

    def __str__(self) -> str:
        place = f" {self.position}" if self.position else ""
        return f"{self.name}{place}: {self.problem}"


def fits(name: str, position: str, size: int) -> None:
    """Raises `BadTranscript` where so many characters would become one event."""
    if size > MOST_SAID:
        raise BadTranscript(name, position, f"{size} characters in one piece: at most {MOST_SAID} are read")


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line: its number from 1, its bytes without the newline, and how many were left out of it."""

    number: int
    text: bytes
    left_out: int = 0


class Source:
    """A transcript: its name, and its bytes, which may be asked for more than once.

    `problem` says, once they were read, why there are no more of them: cut off, damaged, too many. `known` keeps what
    was found out of its first bytes, by a name, for whoever asks again.
    """

    def __init__(self, name: str, file: BinaryIO, content: BinaryIO | None = None) -> None:
        self.name, self.file, self.problem = name, file, ""
        self.known: dict[str, JSON] = {}
        self._content = content or file
        self._head, self._asked = b"", 0

    @classmethod
    def of(cls, name: str, data: bytes) -> "Source":
        """A source of these bytes."""
        return cls(name, BytesIO(data))

    @classmethod
    def opened(cls, name: str, file: BinaryIO) -> "Source":
        """A source of what a file holds: unpacked, and in UTF-8. Raises `WrongUse` where that needs an extra."""
        source = cls(name, file)
        source._content = inflated(file, source._cut)
        source.file = recoded(source._content)
        return source

    def sha256(self) -> tuple[str, int]:
        """The digest (hex) and the number of its bytes, unpacked: it is the same transcript, however it is packed."""
        self._content.seek(0)
        digest, size = hashlib.sha256(), 0
        while piece := self._content.read(1 << 20):
            digest.update(piece)
            size += len(piece)
        return digest.hexdigest(), size

    def _cut(self, problem: str) -> None:
        self.problem = problem

    def head(self, size: int = 1 << 16) -> bytes:
        """The first bytes. They are kept: every format asks for them, and a packed file begins anew each time."""
        if size > self._asked:
            self.file.seek(0)
            self._head, self._asked = self.file.read(size), size
        return self._head[:size]

    def lines(self) -> Iterator[Line]:
        """Every line, empty ones too, one at a time. Raises `BadTranscript` for more than `MOST_LINES`."""
        self.file.seek(0)
        number = 0
        while line := self.file.readline(MOST_LINE):
            number, left_out = number + 1, 0
            if number > MOST_LINES:
                raise BadTranscript(self.name, f"line {number}", f"more than {MOST_LINES} lines in one file")
            while not line.endswith(b"\n") and (more := self.file.readline(MOST_LINE)):
                left_out += len(more)
                if more.endswith(b"\n"):
                    break
            yield Line(number, line.rstrip(b"\r\n"), left_out)

    def whole(self) -> bytes:
        """All of it. Raises `BadTranscript` for more than `MOST_DOCUMENT` bytes."""
        self.file.seek(0)
        data = self.file.read(MOST_DOCUMENT + 1)
        if len(data) > MOST_DOCUMENT:
            raise BadTranscript(self.name, "", f"more than {MOST_DOCUMENT} bytes in one JSON document")
        return data

    def document(self) -> JSON:
        """The one JSON value that it is. Raises `BadTranscript` where it is none."""
        try:
            return decoded(self.whole())
        except ValueError as error:
            raise BadTranscript(self.name, "", f"no JSON document: {error}") from error


def decoded(data: bytes) -> JSON:
    """A JSON value. Raises `ValueError`.

    What recorders write and JSON has not is read all the same: `NaN`, lone surrogates as U+FFFD, a backslash before what it
    escapes nothing of as itself.
    """
    data = data.removeprefix(BOM_UTF8)
    if too_many(data):
        raise ValueError(f"more than {MOST_PARTS} lists, objects and commas in it")
    try:
        return cast("JSON", msgspec.json.decode(data))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    said = data.decode(errors="replace")
    try:
        return _loaded(said)
    except json.JSONDecodeError as error:
        if "escape" not in error.msg:
            raise
    return _loaded(_NO_ESCAPE.sub(_as_itself, said))


def _loaded(said: str) -> JSON:
    try:
        if not _SURROGATE.search(said):
            return cast("JSON", json.loads(said))
        # Nothing is bound to a name here, so that two copies of a document at most are held at a time.
        return cast("JSON", json.loads(clean(json.dumps(json.loads(said), ensure_ascii=False))))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _as_itself(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] else rf"\{escape[0]}"


def too_many(data: bytes) -> bool:
    """Whether JSON has more values than may be made of it."""
    return len(data) > MOST_PARTS and sum(map(data.count, (b"[", b"{", b","))) > MOST_PARTS
