"""Seals: the heads of all runs in a Merkle tree, signed.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

A tree over n leaves splits at the largest power of two below n. So it is a row of full trees, as many as n
has binary ones, joined from the right; and adding a leaf joins equal ones, as adding 1 to a number carries.
The row is all that is kept: memory is O(log n), whatever the log's length. That a shorter log is the
beginning of this one is shown by computing the root over its first leaves again: the checker has the whole
log, so no consistency proof is needed.

An entry says: at some time, event `seq` of `run` had this hash. As the hash chains the run, an entry stands
for all of the run up to there; as the root stands for all entries, one signature stands for everything that
was sealed so far. The last entry of each seal is no run's: it has the root of a second tree, over the newest
entry of each run. So a proof that an entry is in that one shows that no later event of its run was sealed by
then. What a seal signs and an entry's leaf are in `verify_bundle`, so that a check of a bundle has them too.
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


_LINE = re.compile(r"(?:seal )?([1-9][0-9]{0,17}):([0-9a-f]{64})")


class DamagedSeals(Damaged):
    """The log of heads is not what was sealed: nothing can be added to it."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the log of heads: {self.problem}"


class Kept(msgspec.Struct, frozen=True):
    """What was kept of a seal where the store's writer cannot reach it: the tree's size and root."""

    size: int
    root: bytes

    @property
    def line(self) -> str:
        """As it is written down: `seal 42:` and 64 hex digits."""
        return f"seal {self.size}:{self.root.hex()}"


class BrokenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose log no longer has what was sealed of it: event `seq`, with its hash in hex."""

    run: str
    seq: int
    hash: str
    problem: str


class SealResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `seal` did: `added` new heads of `runs` runs in the store. `broken` runs were left out."""

    seal: Seal
    added: int
    runs: int
    broken: tuple[BrokenRun, ...] = ()


def kept(line: str) -> Kept:
    """The seal that a line tells of. Raises `WrongUse`."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise WrongUse(
            f"{line[:100]!r}: expected what `refold seal` prints, as in `seal 42:` and 64 hexadecimal digits"
        )
    return Kept(int(found[1]), bytes.fromhex(found[2]))


def is_signed(seal: Seal) -> bool:
    """Whether the signature is by the key that the seal names."""
    return verify_signature(seal.key, seal_message(seal.size, seal.at, seal.root), seal.signature)


def same_head(one: Head, other: Head) -> bool:
    """Whether both are the same event of a log, whatever else is said of either."""
    return (one.seq, one.hash) == (other.seq, other.hash)


def leaf_of(entry: SealedHead) -> bytes:
    """The entry's leaf in the tree."""
    return leaf_hash(entry.run, entry.seq, entry.hash)


class Lines:
    """Kept lines, each held against the root of a log of heads at its size, while the log's tree grows."""

    def __init__(self, lines: Sequence[Kept]) -> None:
        self._left = sorted(lines, key=lambda line: line.size, reverse=True)

    def met(self, tree: MerkleTree) -> list[tuple[Kept, str]]:
        """The lines of the tree's present size, each with what is wrong with it: `""` if nothing is."""
        found = list[tuple[Kept, str]]()
        while self._left and self._left[-1].size == tree.size:
            line = self._left.pop()
            same = line.root == tree.root()
            changed = f"its first {line.size} entries are not those of {line.line[:24]}…, which was kept"
            found.append((line, "" if same else changed))
        return found

    def missed(self, tree: MerkleTree) -> list[str]:
        """What is wrong once the tree has all entries: a line of more than there are."""
        return [
            f"it has {tree.size} entries, and {line.line[:24]}… was kept: the rest was removed"
            for line in self._left
        ]


async def seal(
    store: Store, key: SigningKey, now: int, lines: Sequence[Kept] = (), before: Sequence[bytes] = ()
) -> SealResult:
    """Add every head that is not the last one sealed of its run, and sign the root; `now` is ns since the
    epoch.

    `lines` were kept of earlier seals: a log of heads that does not begin with each of them is not signed.
    Without any, a store that was put back whole to an earlier seal is signed as if it had never gone on. The
    last seal is signed by the same key, or by one of the public keys `before`, after a change of keys: what a
    stranger signed is not gone on with. Where nothing is new, nothing is signed but under another key. A run
    whose log no longer has what was sealed of it is left out, for a new seal must not make it good. Memory is
    in proportion to the runs and the seals, not to events. Raises `DamagedSeals` if the log of heads is not
    what was signed or kept, `DamagedStore` where events may be hidden, `WrongUse` for a store without runs,
    `SealedElsewhere`.
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
    """Return the heads not sealed yet, the runs that lack what was sealed, and how many runs there are."""
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
    broken += [_broken(run, head, "the store has no such run") for run, head in rest.items()]
    return new, broken, runs


def _entries(size: int, new: Mapping[str, Head], newest: Mapping[str, Head]) -> list[SealedHead]:
    """What a seal adds to a log of so many entries: new heads, and one entry over the newest head of each
    run.
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
    """The leaves of the tree over the newest head of each run, in the order of their ids."""
    return (leaf_hash(run, newest[run].seq, newest[run].hash) for run in sorted(newest))


def _reserved(run: str, head: Head) -> BrokenRun | None:
    return _broken(run, head, "no run may have this id: the log of heads needs it") if run == NEWEST else None


async def breakage(store: Store, run: str, head: Head, sealed: Head) -> BrokenRun | None:
    """How the log of a run, which ends at `head`, no longer has what was sealed of it; None: it has."""
    if head.seq < sealed.seq:
        return _broken(run, sealed, f"its log ends at event {head.seq}")
    if same_head(head, sealed):
        return None
    for event in await store.read_some(run, [sealed.seq], checked=False):
        same = event.hash == sealed.hash
        return None if same else _broken(run, sealed, f"that event has the hash {event.hash.hex()} now")
    return _broken(run, sealed, "that event is gone")


def _broken(run: str, sealed: Head, problem: str) -> BrokenRun:
    return BrokenRun(run=run, seq=sealed.seq, hash=sealed.hash.hex(), problem=problem)


def _sign(tree: MerkleTree, key: SigningKey, at: int) -> Seal:
    if not tree.size:
        raise WrongUse("there is nothing to seal: no run of this store has an event")
    root = tree.root()
    signature = key.sign(seal_message(tree.size, at, root))
    return Seal(size=tree.size, at=at, root=root, key=key.public, signature=signature)


async def last_seal(store: Store) -> Seal | None:
    """The newest seal of a store; None if it has none."""
    last: Seal | None = None
    async for chunk in store.seals():
        last = chunk[-1]
    return last


async def _log_of_heads(
    store: Store, lines: Lines, keys: Collection[bytes]
) -> tuple[MerkleTree, Seal | None, dict[str, Head]]:
    """The tree over all entries, the seal over it, and the last head of each run in it.

    Each seal has the root at its size.
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
        wrong.append(f"it has {tree.size} entries, and {size} were last signed")
    wrong += [f"seal {each.size} is over other entries than there are" for each in left]
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
                    wrong.append(f"the first {each.size} entries are not those that were signed")
            if entry.run != NEWEST:
                heads[entry.run] = entry
    return tree, heads, wrong


def _signature_problems(seals: Sequence[Seal], keys: Collection[bytes]) -> list[str]:
    """Return which seals are not signed by their own key, and whether the last one has none of `keys`."""
    wrong = [
        f"the signature of seal {each.size} is not by its key {key_id(each.key)}"
        for each in seals
        if not is_signed(each)
    ]
    if seals and (last := seals[-1]).key not in keys:
        wrong.append(
            f"seal {last.size} is signed by another key, {key_id(last.key)}: was it yours, name it by --last-key"
        )
    return wrong
