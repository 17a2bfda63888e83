"""Check signed checkpoints: every covered event must still exist, unchanged.

The log of heads is read twice, in chunks. The first pass recomputes its tree and checks each checkpoint
against the root at its size, and against its key. The second pass compares each covered entry with the event
it names. `verify` checks the hash chain before that event.
"""

from collections.abc import AsyncIterator, Collection, Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers.errors import Damaged
from refold.replay.verification import NO_SEAL, UNKEYED, Problem, Verification
from refold.store.protocol import Seal, SealedHead, Store
from refold.store.seals import Kept, Lines, MerkleTree, is_signed, last_seal, leaf_of
from refold.store.verify_bundle import NEWEST, key_id, loose_erasures

MOST = 100
"""Maximum number of problems kept; further ones are counted."""

NO_LINE = "that no signed checkpoint was removed with its events: keep the lines of `refold seal`, and pass them with --seal"
NOT_TRUE = "that what was recorded is what happened"


class SealedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a run in the log of heads.

    `heads` counts them, `seq` is the last event among them, and `problem` the first problem.
    """

    seq: int = 0
    heads: int = 0
    problem: Problem | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking the log of heads.

    `seals` checkpoints were checked over `entries` entries; the first `trusted` are covered by a valid
    checkpoint or a kept line. `newest` is the last valid checkpoint as `refold seal` prints it, made `at` (ns
    since the epoch, 0: none). `keys` are the ids of the given keys, `lines` the number of kept lines. The
    first `problems` are kept, `more` counts the others.
    """

    seals: int
    entries: int
    trusted: int
    newest: str
    at: int
    keys: tuple[str, ...]
    lines: int
    problems: tuple[str, ...]
    more: int = 0

    @property
    def holds(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What is not proven for any run."""
        after = "that no signed checkpoint was removed after the last line given with --seal"
        return (after if self.lines else NO_LINE, NOT_TRUE)


async def check_seals(store: Store, keys: Collection[bytes], lines: Sequence[Kept] = ()) -> Evidence:
    """Check the log of heads against its checkpoints, the public keys and kept checkpoint lines.

    Without keys, signatures are not checked, and only kept lines are trusted.
    """
    checker = _Checker(store, keys, lines)
    async for chunk in store.seals():
        for seal in chunk:
            await checker.take(seal)
    return await checker.finish()


async def sealed_runs(
    store: Store, evidence: Evidence, runs: Collection[str] | None = None
) -> dict[str, SealedRun]:
    """Compare each trusted entry with its event, by run. None means all runs, including deleted ones."""
    found: dict[str, SealedRun] = {}
    async for entry in _entries(store):
        if entry.place > evidence.trusted:
            break
        if entry.run != NEWEST and (runs is None or entry.run in runs):
            known = found.get(entry.run, SealedRun())
            problem = known.problem or await _compare_entry(store, entry)
            seq = max(known.seq, entry.seq)
            found[entry.run] = SealedRun(seq=seq, heads=known.heads + 1, problem=problem)
    return found


def with_seals(found: Verification, sealed: SealedRun) -> Verification:
    """Add the result for checkpoints to a verification, and drop what they prove from `not proven`."""
    upto = min(sealed.seq, found.events)
    unproved: tuple[str, ...] = (NO_SEAL, UNKEYED) if not upto else ()
    if 0 < upto < found.events:
        unproved = (f"anything after event {upto}: the last signed checkpoint is older",)
    if upto and found.loose:
        unproved += (loose_erasures(found.loose),)
    problem, unjudged = found.problem, found.unjudged
    if sealed.problem is not None and (problem is None or sealed.problem.seq < problem.seq):
        problem, unjudged = sealed.problem, False
    return replace(
        found, sealed=upto, heads=sealed.heads, problem=problem, unjudged=unjudged, cannot_prove=unproved
    )


class _Checker:
    """Takes checkpoints in order, and adds entries to the tree up to the size of each."""

    def __init__(self, store: Store, keys: Collection[bytes], lines: Sequence[Kept]) -> None:
        self._store, self._entries = store, _entries(store)
        self._keys, self._lines, self._waiting = keys, lines, Lines(lines)
        self._tree = MerkleTree()
        self._seals = self._signed = self._trusted = self._more = self._place = 0
        self._last: Seal | None = None
        self._newest: Seal | None = None
        self._problems: list[str] = []

    async def take(self, seal: Seal) -> None:
        self._seals += 1
        last, self._last = self._last, seal
        self._signed = max(self._signed, seal.size)
        if last is not None and (seal.size < last.size or seal.at < last.at):
            self._add_problem(f"seal {seal.size} is out of order: it follows seal {last.size}")
            return
        await self._grow(seal.size)
        problem = self._find_problem(seal)
        if problem:
            self._add_problem(f"seal {seal.size}: {problem}")
        elif self._keys:
            self._trusted, self._newest = seal.size, seal

    async def finish(self) -> Evidence:
        await self._grow(None)
        if (
            self._tree.size > self._signed and await last_seal(self._store) == self._last
        ):  # no checkpoint was added meanwhile
            self._add_problem(
                f"entries {self._signed + 1} to {self._tree.size} are not covered by a signed checkpoint: one was removed"
            )
        for problem in self._waiting.missed(self._tree):
            self._add_problem(problem)
        newest = self._newest
        return Evidence(
            seals=self._seals,
            entries=self._tree.size,
            trusted=self._trusted,
            newest=Kept(newest.size, newest.root).line if newest else "",
            at=newest.at if newest else 0,
            keys=tuple(map(key_id, self._keys)),
            lines=len(self._lines),
            problems=tuple(self._problems),
            more=self._more,
        )

    def _find_problem(self, seal: Seal) -> str:
        if self._tree.size < seal.size:
            return f"it covers {seal.size} entries, but there are {self._tree.size}: the others were removed"
        if self._tree.root() != seal.root:
            return "its root does not match the entries: an entry or the root was changed"
        if self._keys and seal.key not in self._keys:
            return f"it is signed by another key, {key_id(seal.key)}"
        if self._keys and not is_signed(seal):
            return f"its signature does not match key {key_id(seal.key)}: size, time, root or signature was changed"
        return ""

    async def _grow(self, size: int | None) -> None:
        """Add entries up to this number, comparing each kept line at its size."""
        while size is None or self._tree.size < size:
            entry = await anext(self._entries, None)
            if entry is None:
                break
            if entry.place != self._place + 1:
                self._add_problem(f"entry {entry.place} is in the place of entry {self._place + 1}")
            self._place = entry.place
            self._tree.add(leaf_of(entry))
            self._compare_lines()

    def _compare_lines(self) -> None:
        for line, problem in self._waiting.met(self._tree):
            if problem:
                self._add_problem(problem)
            else:
                self._trusted = max(self._trusted, line.size)

    def _add_problem(self, problem: str) -> None:
        if len(self._problems) < MOST:
            self._problems.append(problem)
        else:
            self._more += 1


async def _entries(store: Store) -> AsyncIterator[SealedHead]:
    async for chunk in store.sealed_heads():
        for entry in chunk:
            yield entry


async def _compare_entry(store: Store, entry: SealedHead) -> Problem | None:
    kind, problem = "sealed head", "a signed checkpoint covers it, but the store does not have it"
    try:
        # One event at a time: a page of them could be large.
        for event in await store.read_some(entry.run, [entry.seq], checked=False):
            if event.hash == entry.hash:
                return None
            kind, problem = (
                event.kind,
                f"its hash is {event.hash.hex()}, but a signed checkpoint covers {entry.hash.hex()}",
            )
    except Damaged as error:
        problem = str(error)
    return Problem(seq=entry.seq, kind=kind, problem=problem)
