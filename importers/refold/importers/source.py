"""A transcript as bytes, and zip archives of them: read in bounded pieces. Nothing that they name is opened.

Names of members are only compared and shown, never opened as paths. Stored, deflated and Zstandard members
(method 93, which Python reads from 3.14 on, and `backports.zstd` before) are read here directly, because an
archive that was cut off has no directory: then its members are found one behind the other, each by its own
header.
"""

import hashlib
import json
import re
import struct
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from typing import BinaryIO, cast

import msgspec

from refold.importers.compression import inflated, recoded, zstandard
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
"""Bytes of one JSON document.

As Python objects they take up to 21 times as much: `[]` is 3 bytes of text, and 64 of memory.
"""


MOST_PARTS = 1 << 25
"""Lists, objects and commas of one JSON value.

Each is two bytes at least, and takes up to a hundred times that once it is read.
"""


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

    `problem` says, once they were read, why there are no more of them: cut off, damaged, too many. `known`
    keeps what was found out of its first bytes, by a name, for whoever asks again.
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
        """A source of what a file holds: unpacked, and in UTF-8. Raises `WrongUse` where that needs an
        extra.
        """
        source = cls(name, file)
        source._content = inflated(file, source._cut)
        source.file = recoded(source._content)
        return source

    def sha256(self) -> tuple[str, int]:
        """The digest (hex) and the number of its bytes, unpacked: it is the same transcript, however it is
        packed.
        """
        self._content.seek(0)
        digest, size = hashlib.sha256(), 0
        while piece := self._content.read(1 << 20):
            digest.update(piece)
            size += len(piece)
        return digest.hexdigest(), size

    def _cut(self, problem: str) -> None:
        self.problem = problem

    def head(self, size: int = 1 << 16) -> bytes:
        """The first bytes.

        They are kept: every format asks for them, and a packed file begins anew each time.
        """
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

    What recorders write and JSON has not is read all the same: `NaN`, lone surrogates as U+FFFD, a backslash
    before what it escapes nothing of as itself.
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


MOST_MEMBERS = 100_000
MOST_BYTES = 128 << 20
"""Bytes that may come out of one member."""
MOST_FRAMES = 100_000
"""Zstandard frames of one member: a recorder that flushes ends one and begins another."""
MOST_TOGETHER = 8 << 30
"""Bytes that may come out of all members."""
MOST_RATIO = 2000
"""Bytes that may come out for one that goes in.

Repetitive JSON reaches some hundreds; deflate itself ends at 1032.
"""

MAGIC = b"PK\x03\x04"
_EMPTY = b"PK\x05\x06"
_HEADER = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED, _ZSTANDARD = 0, 8, 93
_SIZES_FOLLOW = 0x8
_ENCRYPTED = 0x1
_SMALL = 1 << 20
_STEP = 1 << 15  # bytes: behind each frame, what follows it in a step is copied


class BadMember(ValueError):
    """A member that cannot be read, and why."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """A member: its name, where its own header stands, how many bytes it takes, and how they are packed."""

    name: str
    offset: int
    packed: int
    method: int
    encrypted: bool = False


class Archive:
    """A zip file. `problem` says what is wrong with the whole of it, "" for nothing; `refused` why none of it
    is read.

    Of several members of one name the last counts, as for every reader of zip files.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.problem, self.refused = file, "", ""
        self.members: dict[str, Member] = {}
        for member in self._listed():
            if len(self.members) >= MOST_MEMBERS:
                self.problem = f"more than {MOST_MEMBERS} members: the others are not read"
                break
            self.members[member.name] = member
        self._left = MOST_TOGETHER

    def read(self, name: str) -> bytes:
        """A member's bytes.

        Raises `BadMember` where they cannot be had, `WrongUse` where that needs an extra.
        """
        member = self.members[name]
        if self.refused:
            raise BadMember(self.refused)
        if member.encrypted:
            raise BadMember("it is encrypted")
        header = _header(self._file, member.offset)
        if header is None:
            raise BadMember("it has no header")
        self._file.seek(member.offset + _HEADER.size + header[-2] + header[-1])
        packed = self._file.read(min(member.packed, MOST_BYTES))
        most = min(self._left, max(_SMALL, min(MOST_BYTES, MOST_RATIO * len(packed))))
        data = _unpacked(packed, member.method, most)
        self._left -= len(data)
        if len(packed) < member.packed:
            raise BadMember("it is cut off")
        return data

    def _listed(self) -> Iterator[Member]:
        try:
            with zipfile.ZipFile(self._file) as archive:
                listed = archive.infolist()
        except (
            zipfile.BadZipFile,
            ValueError,
            NotImplementedError,
            struct.error,
            OSError,
            EOFError,
        ) as error:
            self.problem = f"the archive has no directory, and was read member by member ({error})"
            yield from self._found()
            return
        self.refused = _overlap(listed)
        for info in listed:
            if not info.is_dir():
                encrypted = bool(info.flag_bits & _ENCRYPTED)
                yield Member(
                    info.filename, info.header_offset, info.compress_size, info.compress_type, encrypted
                )

    def _found(self) -> Iterator[Member]:
        """The members of an archive without a directory, up to the first whose size its header does not
        say.
        """
        offset = 0
        while (header := _header(self._file, offset)) is not None:
            _, _, flags, method, _, _, _, packed, unpacked, named, extra = header
            name = self._file.read(named).decode(errors="replace")
            if flags & _SIZES_FOLLOW or 0xFFFFFFFF in (packed, unpacked):
                return
            yield Member(name, offset, packed, method, bool(flags & _ENCRYPTED))
            offset += _HEADER.size + named + extra + packed


def _overlap(listed: Sequence[zipfile.ZipInfo]) -> str:
    """Why an archive is not what a recorder writes, "" if it may be: members that share bytes, so that few
    hold much.
    """
    placed = sorted(listed, key=lambda info: info.header_offset)
    for info, following in pairwise(placed):
        end = info.header_offset + _HEADER.size + len(info.orig_filename) + info.compress_size
        if end > following.header_offset:
            return f"members overlap: {info.filename[:80]!r} and {following.filename[:80]!r}"
    total = sum(info.file_size for info in listed)
    return (
        f"{total} bytes would come out of it: at most {MOST_TOGETHER} are read"
        if total > MOST_TOGETHER
        else ""
    )


def is_archive(head: bytes) -> bool:
    """Whether these first bytes are a zip file's."""
    return head.startswith((MAGIC, _EMPTY))


def _header(file: BinaryIO, offset: int) -> tuple[int, ...] | None:
    """A member's own header, without its signature's meaning: (signature, …, name's length, extra's
    length).
    """
    if offset < 0:  # a directory that was damaged, or cut in front, says so
        return None
    file.seek(offset)
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        return None
    return (0, *_HEADER.unpack(data)[1:])


def _unpacked(packed: bytes, method: int, most: int) -> bytes:
    if method == _STORED:
        return packed
    if method == _DEFLATED:
        return _inflated(packed, most)
    if method == _ZSTANDARD:
        return _unzstd(packed, most)
    raise BadMember(f"it is packed by method {method}, which is not read here")


def _inflated(packed: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj(wbits=-15)
    try:
        data = inflater.decompress(packed, most + 1)
    except zlib.error as error:
        raise BadMember(f"it is damaged: {error}") from error
    return _bounded(data, most, whole=inflater.eof)


def _unzstd(packed: bytes, most: int) -> bytes:
    new, failed = zstandard()
    pieces: list[bytes] = []
    frame, frames, left = new(), 1, most + 1
    for start in range(0, len(packed), _STEP):
        rest = packed[start : start + _STEP]
        while left and (rest or not (frame.needs_input or frame.eof)):
            if frame.eof:
                frame, frames = new(), frames + 1
            if frames > MOST_FRAMES:
                raise BadMember(f"it is packed in more than {MOST_FRAMES} frames")
            try:
                pieces.append(frame.decompress(rest, left))
            except failed as error:
                raise BadMember(f"it is damaged: {error}") from error
            left -= len(pieces[-1])
            rest = frame.unused_data if frame.eof else b""
    return _bounded(b"".join(pieces), most, whole=frame.eof or not packed)


def _bounded(data: bytes, most: int, *, whole: bool) -> bytes:
    if len(data) > most:
        raise BadMember(f"more than {most} bytes come out of it")
    if not whole:
        raise BadMember("it is cut off")
    return data
