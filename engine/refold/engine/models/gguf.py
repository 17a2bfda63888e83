"""Looking at a GGUF file before native code does: is it one, and is all of it there?

llama.cpp says no more of a bad file than that loading failed, and how it takes a hostile one is not known. So the
header is read here, with every count bounded by the size of the file. Source of the format: the GGUF
specification of the ggml project, versions 2 and 3 (little-endian; version 1 is obsolete).
"""

import mmap
import struct
from pathlib import Path
from types import MappingProxyType
from typing import Final

from refold.reducers.errors import WrongUse
from refold.store.protocol import FileProblem

MAGIC: Final = b"GGUF"
VERSIONS: Final = frozenset({2, 3})

# Metadata value types of fixed size, in bytes: u8 i8 u16 i16 u32 i32 f32 bool, u64 i64 f64.
_FIXED: Final = MappingProxyType({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8})
_STRING: Final = 8
_ARRAY: Final = 9

# Tensor type: weights a block, bytes a block. A type that is not listed is checked for its start only.
_BLOCKS: Final = MappingProxyType({
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
})  # fmt: skip


class BadWeights(FileProblem, WrongUse):
    """A file that cannot be run as a GGUF model. `path` is the file, `problem` one sentence."""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; give a whole GGUF file, or fetch one with `refold model fetch`"


def check(path: Path) -> None:
    """Raise `BadWeights` unless the file is a GGUF of a known version that holds every tensor it lists."""
    try:
        if not path.is_file():
            raise BadWeights(str(path), "there is no such file" if not path.exists() else "it is not a file")
        with path.open("rb") as file:
            start = file.read(8)
            _check_start(path, start)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _Header(path, data).check()
    except OSError as error:
        raise BadWeights(str(path), f"it cannot be read ({error.strerror})") from error


def _check_start(path: Path, start: bytes) -> None:
    if start[:4] != MAGIC:
        raise BadWeights(str(path), f"it is no GGUF file: it begins with {start[:4]!r}, not {MAGIC!r}")
    version = int.from_bytes(start[4:8], "little")
    if len(start) == 8 and version not in VERSIONS:
        raise BadWeights(str(path), f"it is GGUF version {version}, and only versions 2 and 3 can be run")


class _Header:
    """A cursor over the header; the first read past the end says that the file is cut short."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 8
        self.alignment = 32

    def check(self) -> None:
        tensors, pairs = self.number(8), self.number(8)
        for _ in range(self.plausible(pairs, 13)):
            self.pair()
        ends = [self.tensor() for _ in range(self.plausible(tensors, 24))]
        start = -(-self.at // self.alignment) * self.alignment
        if ends and start + max(ends) > len(self.data):
            raise self.cut(start + max(ends))

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def take(self, size: int) -> bytes:
        start = self.skip(size)
        return self.data[start : self.at]

    def skip(self, size: int) -> int:
        """Go on by `size` bytes; the place before. Nothing is read, so that a huge size costs nothing."""
        start = self.at
        if size > len(self.data) - start:
            raise self.cut(start + size)
        self.at = start + size
        return start

    def cut(self, needed: int) -> BadWeights:
        size = len(self.data)
        return BadWeights(
            str(self.path), f"it is cut short or damaged: {size} bytes, where it speaks of {needed}"
        )

    def plausible(self, count: int, size: int) -> int:
        """A count of things of at least `size` bytes each, if the rest of the file could hold them."""
        if count * size > len(self.data) - self.at:
            raise self.cut(self.at + count * size)
        return count

    def pair(self) -> None:
        key = self.take(self.number(8))
        kind = self.number(4)
        if key == b"general.alignment" and kind == 4:
            self.alignment = self.power(self.number(4))
        else:
            self.value(kind)

    def power(self, alignment: int) -> int:
        if alignment < 1 or alignment & (alignment - 1):
            raise self.broken(f"an alignment of {alignment}")
        return alignment

    def value(self, kind: int) -> None:
        if kind == _STRING:
            self.skip(self.number(8))
        elif kind == _ARRAY:
            self.array(self.number(4), self.number(8))
        elif kind in _FIXED:
            self.skip(_FIXED[kind])
        else:
            raise self.broken(f"a value of type {kind}")

    def array(self, kind: int, count: int) -> None:
        if kind == _STRING:
            for _ in range(self.plausible(count, 8)):
                self.skip(self.number(8))
        elif kind in _FIXED:
            self.skip(self.plausible(count, _FIXED[kind]) * _FIXED[kind])
        else:  # nested arrays: allowed by the format, used by no model
            raise self.broken(f"an array of type {kind}")

    def tensor(self) -> int:
        """The end of a tensor's data, in bytes from where tensor data begins."""
        self.skip(self.number(8))
        rank = self.number(4)
        if rank > 4:
            raise self.broken(f"a tensor of {rank} dimensions")
        weights = 1
        for length in struct.unpack(f"<{rank}Q", self.take(8 * rank)):
            weights *= length
        kind, offset = self.number(4), self.number(8)
        block, size = _BLOCKS.get(kind, (1, 0))
        return offset + weights // block * size

    def broken(self, found: str) -> BadWeights:
        return BadWeights(
            str(self.path), f"it is damaged: {found} near byte {self.at} is not part of any GGUF"
        )
