"""Bytes of a transcript, and zip archives of transcripts, read in bounded pieces. Files that they name are
never opened.

Member names are only compared and displayed, never used as paths. This module reads stored, deflated and
Zstandard members itself (method 93, supported by Python from 3.14, before by `backports.zstd`), because a
truncated archive has no directory: its members are found by their own headers, one after the other.
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

from refold.importers.compression import decompress, recode, zstandard
from refold.importers.fields import JSON
from refold.reducers.errors import Damaged
from refold.reducers.text import clean

_NO_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

MOST_LINE = 64 << 20
"""Maximum bytes of a line or row that are read."""

MOST_LINES = 5_000_000
"""Maximum lines of one file. About ten thousand are read per second."""

MOST_SAID = 64 << 20
"""Maximum characters in one event. A reader needs several times as much memory for the largest event."""

MOST_DOCUMENT = 128 << 20
"""Maximum bytes of one JSON document.

Python objects take up to 21 times as much: `[]` is 3 bytes of text and 64 bytes in memory.
"""


MOST_PARTS = 1 << 25
"""Maximum lists, objects and commas in one JSON value.

Each is at least two bytes, and takes up to a hundred times that in memory.
"""


class BadTranscript(Damaged):
    """A file that cannot be imported, with position and problem."""

    def __init__(self, name: str, position: str, problem: str) -> None:
        super().__init__(name, position, problem)
        self.name, self.position, self.problem = name, position, problem

    def __str__(self) -> str:
        place = f" {self.position}" if self.position else ""
        return f"{self.name}{place}: {self.problem}"


def fits(name: str, position: str, size: int) -> None:
    """Raise `BadTranscript` if one event would have this many characters and that exceeds the limit."""
    if size > MOST_SAID:
        raise BadTranscript(name, position, f"{size} characters in one piece; the limit is {MOST_SAID}")


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line: its number from 1, its bytes without the newline, and the number of bytes left out."""

    number: int
    text: bytes
    left_out: int = 0


class Source:
    """A transcript: its name, and its bytes, which can be read several times.

    After reading, `problem` is the reason why the data is incomplete: truncated, damaged, too large. `known`
    caches what was derived from the first bytes, by name.
    """

    def __init__(self, name: str, file: BinaryIO, content: BinaryIO | None = None) -> None:
        self.name, self.file, self.problem = name, file, ""
        self.known: dict[str, JSON] = {}
        self._content = content or file
        self._head, self._asked = b"", 0

    @classmethod
    def of(cls, name: str, data: bytes) -> "Source":
        """Return a source with these bytes."""
        return cls(name, BytesIO(data))

    @classmethod
    def opened(cls, name: str, file: BinaryIO) -> "Source":
        """Return a source with a file's content, decompressed and recoded to UTF-8.

        Raises `WrongUse` if that needs an extra that is not installed.
        """
        source = cls(name, file)
        source._content = decompress(file, source._note_cut)
        source.file = recode(source._content)
        return source

    def sha256(self) -> tuple[str, int]:
        """Return the SHA-256 digest (hex) and the size of the decompressed bytes.

        So compression does not change a transcript's identity.
        """
        self._content.seek(0)
        digest, size = hashlib.sha256(), 0
        while piece := self._content.read(1 << 20):
            digest.update(piece)
            size += len(piece)
        return digest.hexdigest(), size

    def _note_cut(self, problem: str) -> None:
        self.problem = problem

    def head(self, size: int = 1 << 16) -> bytes:
        """Return the first bytes.

        They are cached, because every format reads them, and a compressed file must restart each time.
        """
        if size > self._asked:
            self.file.seek(0)
            self._head, self._asked = self.file.read(size), size
        return self._head[:size]

    def lines(self) -> Iterator[Line]:
        """Yield every line, including empty ones. Raises `BadTranscript` for more than `MOST_LINES`."""
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
        """Return all bytes. Raises `BadTranscript` for more than `MOST_DOCUMENT`."""
        self.file.seek(0)
        data = self.file.read(MOST_DOCUMENT + 1)
        if len(data) > MOST_DOCUMENT:
            raise BadTranscript(self.name, "", f"more than {MOST_DOCUMENT} bytes in one JSON document")
        return data

    def document(self) -> JSON:
        """Return the content as one JSON value. Raises `BadTranscript` if it is not JSON."""
        try:
            return decode_json(self.whole())
        except ValueError as error:
            raise BadTranscript(self.name, "", f"not a JSON document: {error}") from error


def decode_json(data: bytes) -> JSON:
    """Decode a JSON value. Raises `ValueError`.

    Accepts invalid JSON that recorders write: `NaN`, lone surrogates (read as U+FFFD), and backslashes that
    do not escape anything (kept).
    """
    data = data.removeprefix(BOM_UTF8)
    if too_many(data):
        raise ValueError(f"more than {MOST_PARTS} lists, objects and commas")
    try:
        return cast("JSON", msgspec.json.decode(data))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    said = data.decode(errors="replace")
    try:
        return _load_leniently(said)
    except json.JSONDecodeError as error:
        if "escape" not in error.msg:
            raise
    return _load_leniently(_NO_ESCAPE.sub(_keep_backslash, said))


def _load_leniently(said: str) -> JSON:
    try:
        if not _SURROGATE.search(said):
            return cast("JSON", json.loads(said))
        # One expression without names, so that at most two copies of a document are in memory.
        return cast("JSON", json.loads(clean(json.dumps(json.loads(said), ensure_ascii=False))))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _keep_backslash(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] else rf"\{escape[0]}"


def too_many(data: bytes) -> bool:
    """Return whether JSON data has more values than the limit."""
    return len(data) > MOST_PARTS and sum(map(data.count, (b"[", b"{", b","))) > MOST_PARTS


MOST_MEMBERS = 100_000
MOST_BYTES = 128 << 20
"""Maximum decompressed bytes of one member."""
MOST_FRAMES = 100_000
"""Maximum Zstandard frames of one member. A recorder that flushes ends one frame and begins another."""
MOST_TOGETHER = 8 << 30
"""Maximum decompressed bytes of all members."""
MOST_RATIO = 2000
"""Maximum ratio of decompressed to compressed bytes.

Repetitive JSON reaches some hundreds; deflate itself cannot exceed 1032.
"""

MAGIC = b"PK\x03\x04"
_EMPTY = b"PK\x05\x06"
_HEADER = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED, _ZSTANDARD = 0, 8, 93
_SIZES_FOLLOW = 0x8
_ENCRYPTED = 0x1
_SMALL = 1 << 20
_STEP = 1 << 15  # bytes of input per step; the rest of a step after a frame is copied


class BadMember(ValueError):
    """A member that cannot be read, and why."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """A member: its name, the offset of its header, its compressed size, and its method."""

    name: str
    offset: int
    packed: int
    method: int
    encrypted: bool = False


class Archive:
    """A zip file. `problem` is what is wrong with the file, "" for nothing; `refused` why no member is read.

    If several members have the same name, the last counts, as usual for zip files.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.problem, self.refused = file, "", ""
        self.members: dict[str, Member] = {}
        for member in self._list_members():
            if len(self.members) >= MOST_MEMBERS:
                self.problem = f"more than {MOST_MEMBERS} members; the others are not read"
                break
            self.members[member.name] = member
        self._left = MOST_TOGETHER

    def read(self, name: str) -> bytes:
        """Return a member's decompressed bytes.

        Raises `BadMember` if it cannot be read, `WrongUse` if that needs an extra that is not installed.
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
        data = _unpack(packed, member.method, most)
        self._left -= len(data)
        if len(packed) < member.packed:
            raise BadMember("it is truncated")
        return data

    def _list_members(self) -> Iterator[Member]:
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
            yield from self._find_members()
            return
        self.refused = _find_abuse(listed)
        for info in listed:
            if not info.is_dir():
                encrypted = bool(info.flag_bits & _ENCRYPTED)
                yield Member(
                    info.filename, info.header_offset, info.compress_size, info.compress_type, encrypted
                )

    def _find_members(self) -> Iterator[Member]:
        """Yield the members of an archive without a directory, up to the first of unknown size."""
        offset = 0
        while (header := _header(self._file, offset)) is not None:
            _, _, flags, method, _, _, _, packed, unpacked, named, extra = header
            name = self._file.read(named).decode(errors="replace")
            if flags & _SIZES_FOLLOW or 0xFFFFFFFF in (packed, unpacked):
                return
            yield Member(name, offset, packed, method, bool(flags & _ENCRYPTED))
            offset += _HEADER.size + named + extra + packed


def _find_abuse(listed: Sequence[zipfile.ZipInfo]) -> str:
    """Return why the archive may be a zip bomb: overlapping members or excessive size; "" if it is safe."""
    placed = sorted(listed, key=lambda info: info.header_offset)
    for info, following in pairwise(placed):
        end = info.header_offset + _HEADER.size + len(info.orig_filename) + info.compress_size
        if end > following.header_offset:
            return f"members overlap: {info.filename[:80]!r} and {following.filename[:80]!r}"
    total = sum(info.file_size for info in listed)
    return f"{total} bytes when decompressed; the limit is {MOST_TOGETHER}" if total > MOST_TOGETHER else ""


def is_archive(head: bytes) -> bool:
    """Return whether these first bytes are a zip file's."""
    return head.startswith((MAGIC, _EMPTY))


def _header(file: BinaryIO, offset: int) -> tuple[int, ...] | None:
    """Return the fields of a member's own header (signature as 0, …, name length, extra length), or None."""
    if offset < 0:  # in a directory that was damaged or is missing its first part
        return None
    file.seek(offset)
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        return None
    return (0, *_HEADER.unpack(data)[1:])


def _unpack(packed: bytes, method: int, most: int) -> bytes:
    if method == _STORED:
        return packed
    if method == _DEFLATED:
        return _inflate(packed, most)
    if method == _ZSTANDARD:
        return _decompress_zstd(packed, most)
    raise BadMember(f"its compression method {method} is not supported")


def _inflate(packed: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj(wbits=-15)
    try:
        data = inflater.decompress(packed, most + 1)
    except zlib.error as error:
        raise BadMember(f"it is damaged: {error}") from error
    return _check_complete(data, most, whole=inflater.eof)


def _decompress_zstd(packed: bytes, most: int) -> bytes:
    new, failed = zstandard()
    pieces: list[bytes] = []
    frame, frames, left = new(), 1, most + 1
    for start in range(0, len(packed), _STEP):
        rest = packed[start : start + _STEP]
        while left and (rest or not (frame.needs_input or frame.eof)):
            if frame.eof:
                frame, frames = new(), frames + 1
            if frames > MOST_FRAMES:
                raise BadMember(f"it has more than {MOST_FRAMES} compressed frames")
            try:
                pieces.append(frame.decompress(rest, left))
            except failed as error:
                raise BadMember(f"it is damaged: {error}") from error
            left -= len(pieces[-1])
            rest = frame.unused_data if frame.eof else b""
    return _check_complete(b"".join(pieces), most, whole=frame.eof or not packed)


def _check_complete(data: bytes, most: int, *, whole: bool) -> bytes:
    if len(data) > most:
        raise BadMember(f"it has more than {most} bytes when decompressed")
    if not whole:
        raise BadMember("it is truncated")
    return data
