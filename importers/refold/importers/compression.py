"""Bytes as they are meant: unpacked where gzip or Zstandard packed them, in UTF-8 where another encoding was
written.

All of it in a stream, bounded, and as often from its beginning as somebody wants. What is cut or damaged is
read up to there, and a note says so.
"""

import codecs
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from refold.reducers.errors import WrongUse

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE = 1 << 18
_PACKED = 1 << 15  # small: what is left of a piece is copied for each member that begins in it

MOST_INFLATED = 8 << 30
"""Bytes that may come out of one compressed file."""

MOST_EMPTY = 10_000
"""Members or frames, one behind the other, of which nothing comes: each costs as much as one that says
something.
"""

GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

Note = Callable[[str], None]
"""Told what keeps the rest of a stream from being read."""

Pieces = Callable[[], Iterator[bytes]]
"""The bytes from the beginning, piece by piece."""


def inflated(file: BinaryIO, note: Note) -> BinaryIO:
    """The bytes that were packed into a file; the file itself, where none were.

    Raises `WrongUse` for Zstandard where nothing is installed that reads it.
    """
    file.seek(0)
    magic = file.read(4)
    if magic.startswith(GZIP):
        return _stream(lambda: _bounded(_gunzipped(_pieces(file, _PACKED), note), note))
    if magic.startswith(ZSTANDARD):
        new, failed = zstandard()
        return _stream(lambda: _bounded(_unpacked(_pieces(file, _PACKED), new, failed, note), note))
    return file


def recoded(file: BinaryIO) -> BinaryIO:
    """The file in UTF-8 without a mark at its beginning; the file itself, where it is so already."""
    file.seek(0)
    head = file.read(64)
    encoding = _encoding(head)
    if encoding is None:
        return file
    decoder = codecs.getincrementaldecoder(encoding)
    return _stream(lambda: _recoded(_pieces(file), decoder("replace")))


_MARKS = (  # the wider ones first: a mark of UTF-32 begins with one of UTF-16
    ("utf-32", (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    ("utf-16", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
    ("utf-8-sig", (codecs.BOM_UTF8,)),
)


def _encoding(head: bytes) -> str | None:
    """By its mark, or by where the zeros of ASCII text stand in the wider encodings."""
    for encoding, marks in _MARKS:
        if head.startswith(marks):
            return encoding
    first = head[:8]
    if len(first) < 4 or not any(first):
        return None
    if first[0] and not any(first[1::2]) and all(first[::2]):
        return "utf-16-le"
    if first[1] and not any(first[::2]) and all(first[1::2]):
        return "utf-16-be"
    return None


def _pieces(file: BinaryIO, size: int = _PIECE) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(size):
        yield piece


def _gunzipped(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    """Every member of a gzip file, one after the other; zeros behind the last are padding."""
    inflater = zlib.decompressobj(wbits=31)
    begun, empty = False, 0
    for piece in pieces:
        data = piece
        while data and empty <= MOST_EMPTY:
            if inflater.eof:
                data = data.lstrip(b"\0")
                inflater, begun = zlib.decompressobj(wbits=31), False
                continue
            begun = True
            try:
                found = inflater.decompress(data, _PIECE)
            except zlib.error as error:
                note(f"the gzip stream is damaged: {error}")
                return
            empty = 0 if found else empty + inflater.eof
            yield found
            data = inflater.unconsumed_tail or inflater.unused_data
        if empty > MOST_EMPTY:
            note(f"more than {MOST_EMPTY} members of which nothing comes")
            return
    if begun and not inflater.eof:
        note("the gzip stream is cut off")


class _ZstdFrames(Protocol):
    """What Python's and its backport's Zstandard decompressors are to us."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _unpacked(
    pieces: Iterator[bytes], new: Callable[[], _ZstdFrames], failed: type[Exception], note: Note
) -> Iterator[bytes]:
    """Every frame of a Zstandard file, one after the other."""
    frames, begun, empty = new(), False, 0
    for piece in pieces:
        data = piece
        while (data or not (frames.needs_input or frames.eof)) and empty <= MOST_EMPTY:
            if frames.eof:
                frames, begun = new(), False
            begun = True
            try:
                found = frames.decompress(data, _PIECE)
            except failed as error:
                note(f"the Zstandard stream is damaged: {error}")
                return
            empty = 0 if found else empty + frames.eof
            yield found
            data = frames.unused_data if frames.eof else b""
        if empty > MOST_EMPTY:
            note(f"more than {MOST_EMPTY} frames of which nothing comes")
            return
    if begun and not frames.eof:
        note("the Zstandard stream is cut off")


def zstandard() -> tuple[Callable[[], _ZstdFrames], type[Exception]]:
    """What unpacks one frame of Zstandard, and what it raises. Raises `WrongUse` where it is not
    installed.
    """
    try:
        if sys.version_info >= (3, 14):
            from compression.zstd import ZstdDecompressor, ZstdError
        else:
            from backports.zstd import ZstdDecompressor, ZstdError
    except ImportError as error:
        problem = "it is packed by Zstandard, which is not installed here: pip install 'refold[transcripts]'"
        raise WrongUse(problem) from error
    return ZstdDecompressor, ZstdError


def _bounded(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    left = MOST_INFLATED
    for piece in pieces:
        if len(piece) > left:
            note(f"more than {MOST_INFLATED} bytes come out of it")
            return
        left -= len(piece)
        yield piece


def _recoded(pieces: Iterator[bytes], decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    for piece in pieces:
        yield decoder.decode(piece).encode(errors="replace")
    yield decoder.decode(b"", final=True).encode(errors="replace")


def _stream(pieces: Pieces) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Again(pieces), _PIECE))


class _Again(io.RawIOBase):
    """A stream of pieces as a file. To go back is to begin again."""

    def __init__(self, pieces: Pieces) -> None:
        self._begin = pieces
        self._rest, self._pieces, self._place = b"", pieces(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        view = memoryview(buffer)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._place += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            while self.read(_PIECE):
                pass
            return self.seek(self._place + offset)
        wanted = offset + (self._place if whence == io.SEEK_CUR else 0)
        if wanted < self._place:
            self._rest, self._pieces, self._place = b"", self._begin(), 0
        while self._place < wanted and self.read(min(_PIECE, wanted - self._place)):
            pass
        return self._place
