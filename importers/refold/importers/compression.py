"""Decompression (gzip, Zstandard) and recoding to UTF-8 of transcript files.

Both are bounded streams that can be read from the start several times. Data before damage or truncation is
read, and a note gives the reason.
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
_PACKED = 1 << 15  # small, because the rest of a piece is copied for each member that begins in it

MOST_INFLATED = 8 << 30
"""Maximum decompressed bytes of one file."""

MOST_EMPTY = 10_000
"""Maximum number of consecutive empty members or frames. Each costs as much time as one with data."""

GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

Note = Callable[[str], None]
"""Receives the reason why the rest of a stream cannot be read."""

Pieces = Callable[[], Iterator[bytes]]
"""Returns the bytes from the beginning, in pieces."""


def decompress(file: BinaryIO, note: Note) -> BinaryIO:
    """Return the decompressed content of a file, or the file itself if it is not compressed.

    Raises `WrongUse` for Zstandard if no decompressor is installed.
    """
    file.seek(0)
    magic = file.read(4)
    if magic.startswith(GZIP):
        return _stream(lambda: _limit_size(_decompress_gzip(_read_pieces(file, _PACKED), note), note))
    if magic.startswith(ZSTANDARD):
        new, failed = zstandard()
        return _stream(
            lambda: _limit_size(_decompress_zstd(_read_pieces(file, _PACKED), new, failed, note), note)
        )
    return file


def recode(file: BinaryIO) -> BinaryIO:
    """Return the file in UTF-8 without a byte order mark, or the file itself if it already is."""
    file.seek(0)
    head = file.read(64)
    encoding = _detect_encoding(head)
    if encoding is None:
        return file
    decoder = codecs.getincrementaldecoder(encoding)
    return _stream(lambda: _recode(_read_pieces(file), decoder("replace")))


_MARKS = (  # longest first: the UTF-32 mark begins with the UTF-16 mark
    ("utf-32", (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    ("utf-16", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
    ("utf-8-sig", (codecs.BOM_UTF8,)),
)


def _detect_encoding(head: bytes) -> str | None:
    """Detect an encoding by its byte order mark, or by the positions of zero bytes in ASCII text."""
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


def _read_pieces(file: BinaryIO, size: int = _PIECE) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(size):
        yield piece


def _decompress_gzip(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    """Yield the data of every member of a gzip file. Zeros after the last are padding."""
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
            note(f"more than {MOST_EMPTY} empty members in a row")
            return
    if begun and not inflater.eof:
        note("the gzip stream is truncated")


class _ZstdFrames(Protocol):
    """Interface of the Zstandard decompressors of Python and of `backports.zstd`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _decompress_zstd(
    pieces: Iterator[bytes], new: Callable[[], _ZstdFrames], failed: type[Exception], note: Note
) -> Iterator[bytes]:
    """Yield the data of every frame of a Zstandard file."""
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
            note(f"more than {MOST_EMPTY} empty frames in a row")
            return
    if begun and not frames.eof:
        note("the Zstandard stream is truncated")


def zstandard() -> tuple[Callable[[], _ZstdFrames], type[Exception]]:
    """Return a decompressor factory for one Zstandard frame, and its exception type.

    Raises `WrongUse` if Zstandard is not installed.
    """
    try:
        if sys.version_info >= (3, 14):
            from compression.zstd import ZstdDecompressor, ZstdError
        else:
            from backports.zstd import ZstdDecompressor, ZstdError
    except ImportError as error:
        problem = "compressed with Zstandard, which needs: pip install 'refold[transcripts]'"
        raise WrongUse(problem) from error
    return ZstdDecompressor, ZstdError


def _limit_size(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    left = MOST_INFLATED
    for piece in pieces:
        if len(piece) > left:
            note(f"more than {MOST_INFLATED} bytes when decompressed")
            return
        left -= len(piece)
        yield piece


def _recode(pieces: Iterator[bytes], decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    for piece in pieces:
        yield decoder.decode(piece).encode(errors="replace")
    yield decoder.decode(b"", final=True).encode(errors="replace")


def _stream(pieces: Pieces) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_RestartableStream(pieces), _PIECE))


class _RestartableStream(io.RawIOBase):
    """A stream of pieces as a seekable file. Seeking backwards restarts the stream."""

    def __init__(self, pieces: Pieces) -> None:
        self._begin = pieces
        self._rest, self._read_pieces, self._place = b"", pieces(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._rest:
            piece = next(self._read_pieces, None)
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
            self._rest, self._read_pieces, self._place = b"", self._begin(), 0
        while self._place < wanted and self.read(min(_PIECE, wanted - self._place)):
            pass
        return self._place
