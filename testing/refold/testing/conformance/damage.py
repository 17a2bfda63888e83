"""Damage to a file: cut, changed, dropped, repeated, shuffled and forged bytes."""

from collections.abc import Iterable, Sequence
from typing import Literal

from hypothesis import strategies as st

_FORGED = [
    (b"null", b"[]"),
    (b"true", b"null"),
    (b'{"', b'["x",{"'),
    (b":", b':5,"z":'),
    (b"[", b"[[],"),
    (b"202", b"-9e99"),
]
"""Pieces of JSON, and others that may stand in their place."""

Kind = Literal["cut", "flip", "drop", "twice", "shuffle", "forge"]
Damage = tuple[Kind, int, int]
"""A kind of damage, and two numbers that pick its place."""

_KINDS: tuple[Kind, ...] = ("cut", "flip", "drop", "twice", "shuffle", "forge")
_PLACES = st.integers(0, 1 << 30)

damages: st.SearchStrategy[list[Damage]] = st.lists(
    st.tuples(st.sampled_from(_KINDS), _PLACES, _PLACES), min_size=1, max_size=3
)
"""Up to three damages, for a file of any size."""


def damage(data: bytes, done: Iterable[Damage]) -> bytes:
    """Return the bytes after these damages."""
    for each in done:
        data = _damage(data, each)
    return data


def _damage(data: bytes, done: Damage) -> bytes:
    kind, one, other = done
    first, last = sorted((one % (len(data) + 1), other % (len(data) + 1)))
    match kind:
        case "cut":
            return data[:first]
        case "flip":
            return data[:first] + bytes([other % 256]) + data[first + 1 :]
        case "drop":
            return data[:first] + data[last:]
        case "twice":
            return data[:last] + data[first:last] + data[last:]
        case "shuffle":
            lines = data.split(b"\n")
            place = one % len(lines)
            return b"\n".join([*lines[place:], *lines[:place]])
        case "forge":
            return _forge(data, _FORGED[one % len(_FORGED)], other)


def _forge(data: bytes, pair: Sequence[bytes], which: int) -> bytes:
    old, new = pair
    count = data.count(old)
    if not count:
        return data
    parts = data.split(old)
    place = which % count + 1
    return old.join(parts[:place]) + new + old.join(parts[place:])
