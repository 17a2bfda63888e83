"""A list that only grows, in parts: each the deflated JSON of some of its values, which a browser reads without the others."""

import zlib
from collections.abc import Iterable, Sequence

import msgspec

_PART = 1 << 18  # bytes of JSON in a part: a browser reads one in some milliseconds
_RAW = -15  # deflate without header and checksum: whatever is hashed in it is checked by its hash

ENCODER = (
    msgspec.json.Encoder()
)  # in the order in which a mapping was made: changes of a state hold in theirs


class Packed:
    """Values as they come. `parts` are raw deflate streams, each of a JSON array; `counts` says how many values are in each."""

    def __init__(self, values: Iterable[object] = ()) -> None:
        self._parts: list[bytes] = []
        self._counts: list[int] = []
        self._open = bytearray()
        self._waiting = 0
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return sum(self._counts) + self._waiting

    def append(self, value: object) -> None:
        """Take one value more. It is encoded now: what changes in it later is not seen."""
        self._open += b"," if self._waiting else b"["
        self._open += ENCODER.encode(value)
        self._waiting += 1
        if len(self._open) >= _PART:
            self._close()

    @property
    def parts(self) -> Sequence[bytes]:
        """All parts, the last one as it is up to now."""
        self._close()
        return self._parts

    @property
    def counts(self) -> Sequence[int]:
        """How many values each part has."""
        self._close()
        return self._counts

    def _close(self) -> None:
        if self._waiting:
            packer = zlib.compressobj(wbits=_RAW)
            self._parts.append(packer.compress(self._open + b"]") + packer.flush())
            self._counts.append(self._waiting)
            self._open.clear()
            self._waiting = 0
