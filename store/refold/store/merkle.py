"""A Merkle tree over a log that only grows: its root, and proofs that a leaf is in it. RFC 9162, section 2.1. Pure.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

A tree over n leaves splits at the largest power of two below n. So it is a row of full trees, as many as n has binary
ones, joined from the right; and adding a leaf joins equal ones, as adding 1 to a number carries. The row is all that
is kept: memory is O(log n), whatever the log's length. That a shorter log is the beginning of this one is shown by
computing the root over its first leaves again: the checker has the whole log, so no consistency proof is needed.
"""

from collections.abc import Collection
from hashlib import sha256

import msgspec

from refold.store.verify_bundle import node_hash

EMPTY = sha256(b"").digest()
"""The root over no leaves."""


class MerkleTree:
    """A tree that takes leaves, and says the root over those it has. `size` is how many."""

    def __init__(self) -> None:
        self.size = 0
        self._row: list[bytes] = []

    def add(self, leaf: bytes) -> None:
        """Take the next leaf's hash."""
        carries = self.size
        while carries & 1:
            leaf = node_hash(self._row.pop(), leaf)
            carries >>= 1
        self._row.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """The root over all leaves so far; 32 bytes."""
        if not self._row:
            return EMPTY
        *rest, root = self._row
        for peak in reversed(rest):
            root = node_hash(peak, root)
        return root


class _Peak(msgspec.Struct):
    """A full tree of the row: its root, and the leaves in it for which a path is wanted."""

    root: bytes
    wanted: list[int]


class Prover:
    """A tree that also keeps the paths of some leaves, by index from 0: O(log n) bytes for each.

    `paths` are whole once `finish` was called: the siblings on the way up, the lowest first.
    """

    def __init__(self, wanted: Collection[int]) -> None:
        self.size = 0
        self.paths: dict[int, list[bytes]] = {index: [] for index in wanted}
        self._row: list[_Peak] = []

    def add(self, leaf: bytes) -> None:
        """Take the next leaf's hash."""
        peak = _Peak(leaf, [self.size] if self.size in self.paths else [])
        carries = self.size
        while carries & 1:
            peak = self._joined(self._row.pop(), peak)
            carries >>= 1
        self._row.append(peak)
        self.size += 1

    def finish(self) -> bytes:
        """The root over all leaves; the paths lead to it. No leaf may be added after it."""
        if not self._row:
            return EMPTY
        *rest, peak = self._row
        for left in reversed(rest):
            peak = self._joined(left, peak)
        return peak.root

    def _joined(self, left: _Peak, right: _Peak) -> _Peak:
        for index in left.wanted:
            self.paths[index].append(right.root)
        for index in right.wanted:
            self.paths[index].append(left.root)
        return _Peak(node_hash(left.root, right.root), left.wanted + right.wanted)
