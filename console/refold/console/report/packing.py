"""A list that only grows and is read once, in the memory of a tenth of its JSON: the events of a long run are many."""

import zlib
from collections.abc import Iterator

import msgspec

_BLOCK = 1 << 20  # bytes of JSON that are packed together
_LEVEL = 1

ENCODER = (
    msgspec.json.Encoder()
)  # in the order in which a mapping was made: changes of a state hold in theirs


class Packed:
    """Values as the elements of a JSON array, packed as they come."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._open = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, value: object) -> None:
        """Take one value more. It is encoded now: what changes in it later is not seen."""
        self._open += b"," if self._count else b""
        self._open += ENCODER.encode(value)
        self._count += 1
        if len(self._open) >= _BLOCK:
            self._blocks.append(zlib.compress(self._open, _LEVEL))
            self._open.clear()

    def pieces(self) -> Iterator[bytes]:
        """The JSON text of the array without its brackets. A piece may end anywhere between two values, never in one."""
        yield from map(zlib.decompress, self._blocks)
        yield bytes(self._open)
