"""Seals: signed checkpoints over a Merkle tree of the heads of all runs.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

A tree over n leaves splits at the largest power of two below n. So it is a row of full trees, one for each
binary one of n, joined from the right. Adding a leaf joins trees of equal size, as adding 1 to a binary
number carries. Only the row is stored, so memory is O(log n). To check that a shorter log is a prefix of this
one, the checker computes the root over its first leaves again. It has the complete log, so it needs no
consistency proof.

An entry records that event `seq` of `run` had this hash at some time. The hash covers the run up to that
event, and the root covers all entries, so one signature covers everything sealed so far. The last entry of
each seal belongs to no run: it has the root of a second tree over the newest entry of each run. A proof of an
entry in that tree shows that no later event of its run had been sealed by then. The message that a seal signs
and the leaf of an entry are computed in `verify_bundle`, which must work without this module.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256

import msgspec

from refold.reducers.errors import Damaged, WrongUse
from refold.store.files import SigningKey
from refold.store.protocol import Head, Seal, SealedElsewhere, SealedHead, Store
from refold.store.verify_bundle import NEWEST, key_id, leaf_hash, node_hash, seal_message, verify_signature

EMPTY = sha256(b"").digest()
"""The root over no leaves."""


class MerkleTree:
    """A Merkle tree that leaves are added to. `size` is the number of leaves."""

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
        """Return the root over all leaves so far, 32 bytes."""
        if not self._row:
            return EMPTY
        *rest, root = self._row
        for peak in reversed(rest):
            root = node_hash(peak, root)
        return root


class _Peak(msgspec.Struct):
    """A full tree of the row: its root, and its leaves for which a path is computed."""

    root: bytes
    wanted: list[int]


class Prover:
    """A Merkle tree that also computes the paths of some leaves, by index from 0: O(log n) bytes for each.

    `paths` are complete after `finish`: the siblings on the way up, lowest first.
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
            peak = self._join(self._row.pop(), peak)
            carries >>= 1
        self._row.append(peak)
        self.size += 1

    def finish(self) -> bytes:
        """Complete the paths and return the root over all leaves. No leaf may be added afterwards."""
        if not self._row:
            return EMPTY
        *rest, peak = self._row
        for left in reversed(rest):
            peak = self._join(left, peak)
        return peak.root

    def _join(self, left: _Peak, right: _Peak) -> _Peak:
        for index in left.wanted:
            self.paths[index].append(right.root)
        for index in right.wanted:
            self.paths[index].append(left.root)
        return _Peak(node_hash(left.root, right.root), left.wanted + right.wanted)


_LINE = re.compile(r"(?:seal )?([1-9][0-9]{0,17}):([0-9a-f]{64})")


class DamagedSeals(Damaged):
    """The log of heads differs from what was sealed, so nothing can be added to it."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the log of heads: {self.problem}"


class Kept(msgspec.Struct, frozen=True):
    """A tree's size and root that the operator keeps of a seal, out of reach of the store's writer."""

    size: int
    root: bytes

    @property
    def line(self) -> str:
        """The text to keep: `seal 42:` and 64 hex digits."""
        return f"seal {self.size}:{self.root.hex()}"


class BrokenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose log no longer contains its sealed event `seq`, with that event's hash in hex."""

    run: str
    seq: int
    hash: str
    problem: str


class SealResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `seal`: the seal, `added` new heads, `runs` in the store. `broken` runs were left out."""

    seal: Seal
    added: int
    runs: int
    broken: tuple[BrokenRun, ...] = ()


def parse_kept_line(line: str) -> Kept:
    """Parse a kept line. Raises `WrongUse`."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise WrongUse(
            f"{line[:100]!r}: expected what `refold seal` prints, as in `seal 42:` and 64 hexadecimal digits"
        )
    return Kept(int(found[1]), bytes.fromhex(found[2]))


def is_signed(seal: Seal) -> bool:
    """Return whether the signature is valid for the key in the seal."""
    return verify_signature(seal.key, seal_message(seal.size, seal.at, seal.root), seal.signature)


def same_head(one: Head, other: Head) -> bool:
    """Return whether number and hash are equal, whatever the classes of the two."""
    return (one.seq, one.hash) == (other.seq, other.hash)


def leaf_of(entry: SealedHead) -> bytes:
    """Return the entry's leaf in the tree."""
    return leaf_hash(entry.run, entry.seq, entry.hash)


class Lines:
    """Kept lines, each compared with the root of the log of heads at its size while the tree grows."""

    def __init__(self, lines: Sequence[Kept]) -> None:
        self._left = sorted(lines, key=lambda line: line.size, reverse=True)

    def met(self, tree: MerkleTree) -> list[tuple[Kept, str]]:
        """Return the lines of the tree's current size, each with its problem or `""`."""
        found = list[tuple[Kept, str]]()
        while self._left and self._left[-1].size == tree.size:
            line = self._left.pop()
            same = line.root == tree.root()
            changed = f"its first {line.size} entries differ from the kept line {line.line[:24]}…"
            found.append((line, "" if same else changed))
        return found

    def missed(self, tree: MerkleTree) -> list[str]:
        """Return problems for lines of a larger size than the complete tree."""
        return [
            f"it has {tree.size} entries, fewer than the kept line {line.line[:24]}…: the rest was removed"
            for line in self._left
        ]


async def seal(
    store: Store, key: SigningKey, now: int, lines: Sequence[Kept] = (), before: Sequence[bytes] = ()
) -> SealResult:
    """Add the new head of every run to the log of heads and sign the root.

    Without new heads, nothing is signed unless the key changed. A run whose log no longer contains its sealed
    event is left out, so that a new seal does not hide the damage. Memory grows with runs and seals, not with
    events.

    Args:
        store: the store to seal.
        key: signs the root.
        now: nanoseconds since the epoch.
        lines: kept lines of earlier seals. A log of heads that does not extend each of them is not signed.
            Without any, a rollback of the store to an earlier seal is not detected.
        before: public keys that may have signed the last seal besides `key`, after a change of keys.

    Raises:
        DamagedSeals: the log of heads differs from what was signed or kept, or another key signed it.
        DamagedStore: events may be hidden.
        WrongUse: the store has no runs.
        SealedElsewhere: another seal came first.
    """
    await store.check()
    tree, last, sealed = await _log_of_heads(store, Lines(lines), {key.public, *before})
    new, broken, runs = await _compare_heads(store, sealed)
    if new or last is None or last.key != key.public:
        entries = _entries(tree.size, new, sealed | new) if new else []
        for entry in entries:
            tree.add(leaf_of(entry))
        last = _sign(tree, key, max(now, last.at if last else now))
        await store.add_seal(entries, last)
    return SealResult(seal=last, added=len(new), runs=runs, broken=tuple(broken))


async def _compare_heads(
    store: Store, sealed: Mapping[str, Head]
) -> tuple[dict[str, Head], list[BrokenRun], int]:
    """Return the heads not sealed yet, the runs without their sealed event, and the number of runs."""
    new, broken, runs, rest = dict[str, Head](), list[BrokenRun](), 0, dict(sealed)
    async for chunk in store.runs():
        for run, head in chunk:
            was = rest.pop(run, None)
            problem = await breakage(store, run, head, was) if was else _reserved(run, head)
            if problem is not None:
                broken.append(problem)
            elif head.seq and not (was and same_head(head, was)):
                new[run] = head
            runs += head.seq > 0
    broken += [_broken_run(run, head, "the store has no such run") for run, head in rest.items()]
    return new, broken, runs


def _entries(size: int, new: Mapping[str, Head], newest: Mapping[str, Head]) -> list[SealedHead]:
    """Return the entries that a seal adds to a log of heads of `size` entries: new heads, and one entry over
    the newest head of each run.
    """
    tree = MerkleTree()
    for leaf in leaves_of(newest):
        tree.add(leaf)
    heads = [*new.items(), (NEWEST, Head(seq=tree.size, hash=tree.root()))]
    return [
        SealedHead(place=place, run=run, seq=head.seq, hash=head.hash)
        for place, (run, head) in enumerate(heads, size + 1)
    ]


def leaves_of(newest: Mapping[str, Head]) -> Iterator[bytes]:
    """Yield the leaves of the tree over the newest head of each run, ordered by id."""
    return (leaf_hash(run, newest[run].seq, newest[run].hash) for run in sorted(newest))


def _reserved(run: str, head: Head) -> BrokenRun | None:
    return (
        _broken_run(run, head, "no run may have this id: it is reserved for the log of heads")
        if run == NEWEST
        else None
    )


async def breakage(store: Store, run: str, head: Head, sealed: Head) -> BrokenRun | None:
    """Return how the log of a run, ending at `head`, differs from its sealed head; None if it does not."""
    if head.seq < sealed.seq:
        return _broken_run(run, sealed, f"its log ends at event {head.seq}")
    if same_head(head, sealed):
        return None
    for event in await store.read_some(run, [sealed.seq], checked=False):
        same = event.hash == sealed.hash
        return None if same else _broken_run(run, sealed, f"the event has the hash {event.hash.hex()} now")
    return _broken_run(run, sealed, "the event is missing")


def _broken_run(run: str, sealed: Head, problem: str) -> BrokenRun:
    return BrokenRun(run=run, seq=sealed.seq, hash=sealed.hash.hex(), problem=problem)


def _sign(tree: MerkleTree, key: SigningKey, at: int) -> Seal:
    if not tree.size:
        raise WrongUse("there is nothing to seal: no run of this store has an event")
    root = tree.root()
    signature = key.sign(seal_message(tree.size, at, root))
    return Seal(size=tree.size, at=at, root=root, key=key.public, signature=signature)


async def last_seal(store: Store) -> Seal | None:
    """Return the newest seal of a store; None if it has none."""
    last: Seal | None = None
    async for chunk in store.seals():
        last = chunk[-1]
    return last


async def _log_of_heads(
    store: Store, lines: Lines, keys: Collection[bytes]
) -> tuple[MerkleTree, Seal | None, dict[str, Head]]:
    """Check every seal against the root at its size. Return the tree over all entries, the last seal, and the
    last head of each run.
    """
    before = [each async for chunk in store.seals() for each in chunk]
    left = before[::-1]
    tree, heads, wrong = await _entries_under(store, lines, left)
    last = before[-1] if before else None
    size = last.size if last else 0
    if tree.size > size and await last_seal(store) != last:
        raise SealedElsewhere(size, tree.size)
    wrong += lines.missed(tree)
    if tree.size != size:
        wrong.append(f"it has {tree.size} entries, but the last seal covers {size}")
    wrong += [f"seal {each.size} does not match the entries" for each in left]
    wrong += _signature_problems(before, keys)
    if wrong:
        raise DamagedSeals(f"{wrong[0]}; nothing was signed; see `refold verify --key`")
    return tree, last, heads


async def _entries_under(
    store: Store, lines: Lines, left: list[Seal]
) -> tuple[MerkleTree, dict[str, Head], list[str]]:
    """Return the tree over all entries, the last head of each run, and which roots are not those signed.

    Seals are popped from the end of `left`, oldest first, when the tree reaches their sizes.
    """
    tree, heads, wrong = MerkleTree(), dict[str, Head](), list[str]()
    async for chunk in store.sealed_heads():
        for entry in chunk:
            tree.add(leaf_of(entry))
            wrong += [problem for _, problem in lines.met(tree) if problem]
            while left and left[-1].size == tree.size:
                each = left.pop()
                if each.root != tree.root():
                    wrong.append(f"the first {each.size} entries differ from those that were signed")
            if entry.run != NEWEST:
                heads[entry.run] = entry
    return tree, heads, wrong


def _signature_problems(seals: Sequence[Seal], keys: Collection[bytes]) -> list[str]:
    """Return which seals are not signed by their own key, and whether the last one has none of `keys`."""
    wrong = [
        f"seal {each.size} has an invalid signature for its key {key_id(each.key)}"
        for each in seals
        if not is_signed(each)
    ]
    if seals and (last := seals[-1]).key not in keys:
        wrong.append(
            f"seal {last.size} is signed by another key, {key_id(last.key)}: if it was yours, pass it with --last-key"
        )
    return wrong
