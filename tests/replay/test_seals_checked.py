"""Seals held against a store that somebody else could write: what shows, what does not, and what is said of
it.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.replay import Problem, Verification
from refold.replay.evidence import Evidence, SealedRun, check_seals, sealed_runs, with_seals
from refold.replay.verification import NO_SEAL, UNKEYED
from refold.store import MemoryStore
from refold.store.protocol import Seal, SealedHead
from refold.store.seals import Kept, MerkleTree, leaf_of, seal
from refold.store.verify_bundle import key_id, seal_message
from support.sealing import append, erase, record, records, sealed, signing_key

pytestmark = pytest.mark.anyio

KEY, OTHER = signing_key(), signing_key(2)


class Written(MemoryStore):
    """A store whose every byte somebody else can write."""

    def cut(self, run: str, upto: int) -> None:
        del self._tables.logs[run][upto:]

    def delete(self, run: str) -> None:
        del self._tables.logs[run]

    def edit_entries(self, change: Callable[[list[SealedHead]], list[SealedHead]]) -> None:
        self._heads[:] = change(self._heads)

    def edit_seals(self, change: Callable[[list[Seal]], list[Seal]]) -> None:
        self._sealed[:] = change(self._sealed)

    async def kept(self) -> Kept:
        return Kept(self._sealed[-1].size, self._sealed[-1].root)


async def three_seals(store: Written) -> None:
    """Runs a, b and c; three seals over 3, 4 and 5 heads, so 4, 6 and 8 entries; two more events of b after
    the last.
    """
    await sealed(store, "a", "b", "c", count=4)
    await append(store, "b", records(3, first=10))
    await seal(store, KEY, now=10**18 + 1)
    await append(store, "c", records(1, first=20))
    await seal(store, KEY, now=10**18 + 2)
    await append(store, "b", records(2, first=30))


async def found_in(store: Written, *lines: Kept) -> tuple[Evidence, dict[str, SealedRun]]:
    evidence = await check_seals(store, [KEY.public], lines)
    return evidence, await sealed_runs(store, evidence)


async def test_what_was_sealed_holds() -> None:
    """Seals, heads and runs are counted, and each run is covered up to its last sealed event."""
    async with Written() as store:
        await three_seals(store)
        evidence, runs = await found_in(store, await store.kept())
        only = await sealed_runs(store, evidence, {"b"})
        line = (await store.kept()).line
    assert (3, 8, 8, ()) == (evidence.seals, evidence.entries, evidence.trusted, evidence.problems)
    assert (line, 10**18 + 2, (key_id(KEY.public),), 1) == (
        evidence.newest,
        evidence.at,
        evidence.keys,
        evidence.lines,
    )
    assert {"a": (4, 1), "b": (7, 2), "c": (5, 2)} == {
        run: (each.seq, each.heads) for run, each in runs.items()
    }
    assert {"b": runs["b"]} == only
    assert not any(each.problem for each in runs.values())


async def test_erasing_breaks_no_seal() -> None:
    """A sealed event whose content is erased is still the event that was sealed."""
    async with Written() as store:
        await three_seals(store)
        await erase(store, "c", 4)
        evidence, runs = await found_in(store)
    assert evidence.holds
    assert runs["c"].problem is None


async def recompute(store: Written, run: str) -> None:
    """Another log, as long and longer, whose chain holds."""
    store.delete(run)
    await append(store, run, records(12, first=50))


EDITS: list[tuple[str, Callable[[Written], Awaitable[object] | None], tuple[str, int]]] = [
    ("a tail cut off", lambda store: store.cut("b", 6), ("b", 7)),
    ("cut off before the first seal", lambda store: store.cut("c", 1), ("c", 4)),
    ("a run deleted", lambda store: store.delete("a"), ("a", 4)),
    ("a whole chain computed anew", lambda store: recompute(store, "b"), ("b", 4)),
]


@pytest.mark.parametrize(("edit", "where"), [pytest.param(*row, id=what) for what, *row in EDITS])
async def test_a_run_that_is_not_what_was_sealed(
    edit: Callable[[Written], Awaitable[object] | None], where: tuple[str, int]
) -> None:
    """The run and the first sealed event that is not there any more are named; no other run is blamed."""
    async with Written() as store:
        await three_seals(store)
        done = edit(store)
        if done is not None:
            await done
        evidence, runs = await found_in(store)
    assert evidence.holds
    assert [where] == [(run, each.problem.seq) for run, each in runs.items() if each.problem]


def entry(place: int, **fields: object) -> Callable[[list[SealedHead]], list[SealedHead]]:
    return lambda log: [
        msgspec.structs.replace(each, **fields) if each.place == place else each for each in log
    ]


def signature(number: int, **fields: object) -> Callable[[list[Seal]], list[Seal]]:
    return lambda log: [
        msgspec.structs.replace(each, **fields) if n == number else each for n, each in enumerate(log)
    ]


def by(key_number: int, number: int) -> Callable[[list[Seal]], list[Seal]]:
    """A seal signed again, by another key."""

    def change(log: list[Seal]) -> list[Seal]:
        old, key = log[number], signing_key(key_number)
        signed = key.sign(seal_message(old.size, old.at, old.root))
        return [
            *log[:number],
            msgspec.structs.replace(old, key=key.public, signature=signed),
            *log[number + 1 :],
        ]

    return change


DAMAGE: list[tuple[str, Callable[[Written], None], str, int]] = [
    ("an entry's event changed", lambda s: s.edit_entries(entry(2, seq=3)), "seal 4: its root does not match", 0),
    ("an entry's hash changed", lambda s: s.edit_entries(entry(5, hash=bytes(32))), "seal 6: its root", 4),
    ("an entry's run changed", lambda s: s.edit_entries(entry(7, run="x")), "seal 8: its root does not match", 6),
    ("a seal's last entry changed", lambda s: s.edit_entries(entry(6, seq=2)), "seal 6: its root does not match", 4),
    ("an entry taken out", lambda s: s.edit_entries(lambda log: log[:1] + log[2:]), "entry 3 is in the place of entry 2", 0),
    ("entries swapped", lambda s: s.edit_entries(lambda log: [log[1], log[0], *log[2:]]), "entry 2 is in the place of", 0),
    ("entries cut off", lambda s: s.edit_entries(lambda log: log[:6]), "it covers 8 entries, but there are 6", 6),
    ("all entries cut off", lambda s: s.edit_entries(lambda log: []), "it covers 4 entries, but there are 0", 0),
    ("the last seal removed", lambda s: s.edit_seals(lambda log: log[:2]), "entries 7 to 8 are not covered by a signed checkpoint", 6),
    ("all seals removed", lambda s: s.edit_seals(lambda log: []), "entries 1 to 8 are not covered by a signed checkpoint", 0),
    ("a root changed", lambda s: s.edit_seals(signature(1, root=bytes(32))), "seal 6: its root does not match", 8),
    ("a size changed", lambda s: s.edit_seals(signature(2, size=9)), "it covers 9 entries, but there are 8", 6),
    ("a time changed", lambda s: s.edit_seals(signature(2, at=2 * 10**18)), "its signature does not match key", 6),
    ("a signature changed", lambda s: s.edit_seals(signature(2, signature=bytes(64))), "its signature does not match", 6),
    ("no signature at all", lambda s: s.edit_seals(signature(2, signature=b"")), "its signature does not match", 6),
    ("another key", lambda s: s.edit_seals(by(2, 2)), f"signed by another key, {key_id(OTHER.public)}", 6),
    ("out of order", lambda s: s.edit_seals(lambda log: [log[1], log[0], log[2]]), "out of order", 8),
    ("of an earlier time", lambda s: s.edit_seals(signature(2, at=1)), "out of order", 6),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "problem", "trusted"), [pytest.param(*row, id=what) for what, *row in DAMAGE]
)
async def test_a_changed_log_of_heads(edit: Callable[[Written], None], problem: str, trusted: int) -> None:
    """What was changed is said, and heads count as covered only as far as a good seal reaches."""
    async with Written() as store:
        await three_seals(store)
        edit(store)
        evidence, runs = await found_in(store)
    assert not evidence.holds
    assert {0: 0, 4: 3, 6: 4, 8: 5}[trusted] == sum(each.heads for each in runs.values())
    assert problem in "\n".join(evidence.problems)
    assert trusted == evidence.trusted


async def rolled_back(store: Written) -> None:
    """Everything as it was at the second seal."""
    store.edit_seals(lambda log: log[:2])
    store.edit_entries(lambda log: log[:6])


async def test_a_roll_back_shows_by_a_kept_line_only() -> None:
    """Without the line nobody can know, which is said; with it, it shows."""
    async with Written() as store:
        await three_seals(store)
        line = await store.kept()
        await rolled_back(store)
        evidence, _ = await found_in(store)
        kept, _ = await found_in(store, line)
    assert evidence.holds
    assert "no signed checkpoint was removed" in evidence.cannot_prove[0]
    assert ["it has 6 entries, fewer than the kept line seal 8:"] == [each[:50] for each in kept.problems]
    assert "after the last line given" in kept.cannot_prove[0]


async def test_a_store_sealed_anew_shows_by_a_kept_line() -> None:
    """Whoever holds the key and writes another log of heads cannot make it have the kept root."""
    async with Written() as store:
        await three_seals(store)
        line = await store.kept()
        store.edit_seals(lambda log: [])
        store.edit_entries(lambda log: [])
        for run in "abc":
            await recompute(store, run)
        for n in range(3):
            await append(store, "a", [record(90 + n)])
            await seal(store, KEY, now=3 * 10**18 + n)
        assert (await found_in(store))[0].holds
        evidence, _ = await found_in(store, line)
    assert [f"its first 8 entries differ from the kept line {line.line[:24]}…"] == [*evidence.problems]


async def test_keys_that_were_changed() -> None:
    """A store sealed by one key and then another holds under both, and not under one of them."""
    async with Written() as store:
        await sealed(store, "a")
        await append(store, "a", records(1))
        await seal(store, OTHER, now=2 * 10**18, before=[KEY.public])
        both = await check_seals(store, [KEY.public, OTHER.public])
        one = await check_seals(store, [OTHER.public])
    assert both.holds
    assert [f"seal 2: it is signed by another key, {key_id(KEY.public)}"] == [*one.problems]


async def test_a_line_without_a_key() -> None:
    """What a kept line covers is trusted by itself; no signature is looked at."""
    async with Written() as store:
        await three_seals(store)
        line = await store.kept()
        store.edit_seals(signature(2, signature=bytes(64)))
        evidence = await check_seals(store, [], [line])
    assert (8, True, ()) == (evidence.trusted, evidence.holds, evidence.keys)


async def test_problems_are_counted_and_the_first_kept() -> None:
    """However many seals are bad, what is kept of it is bounded."""
    async with Written() as store:
        await sealed(store, "a")
        store.edit_seals(lambda log: [msgspec.structs.replace(log[0], root=bytes(32))] * 150)
        evidence = await check_seals(store, [KEY.public])
    assert (100, 50) == (len(evidence.problems), evidence.more)


@given(seq=st.integers(0, 9), events=st.integers(0, 9))
def test_what_cannot_be_proved_of_a_run(seq: int, events: int) -> None:
    """A run is covered up to its last sealed event, and what is beyond is said to be."""
    found = Verification(
        run="r", events=events, contents=0, erased=0, digests=0, hash="", agent_state="COMPLETED"
    )
    told = with_seals(found, SealedRun(seq=seq, heads=1))
    covered = min(seq, events)
    assert covered == told.sealed
    if not covered:
        assert (NO_SEAL, UNKEYED) == told.cannot_prove
    elif covered < events:
        assert (f"anything after event {covered}: the last signed checkpoint is older",) == told.cannot_prove
    else:
        assert () == told.cannot_prove


@given(
    runs=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3)), min_size=1, max_size=12),
    cut=st.integers(0, 12),
)
def test_every_earlier_line_holds_for_ever(runs: Sequence[tuple[str, int]], cut: int) -> None:
    """Whatever is sealed later, the root of each earlier seal is that of the log's beginning."""
    entries = [
        SealedHead(place=n, run=run, seq=seq, hash=bytes([n]) * 32) for n, (run, seq) in enumerate(runs, 1)
    ]
    tree, roots = MerkleTree(), [MerkleTree().root()]
    for each in entries:
        tree.add(leaf_of(each))
        roots.append(tree.root())
    again = MerkleTree()
    for each in entries[:cut]:
        again.add(leaf_of(each))
    assert roots[min(cut, len(entries))] == again.root()


@pytest.mark.parametrize(
    ("chain", "sealed_at", "told"), [(None, 4, 4), (3, 4, 3), (5, 4, 4), (None, None, None)]
)
def test_the_first_problem_is_the_runs(chain: int | None, sealed_at: int | None, told: int | None) -> None:
    """Of what the chain and the seals show to be wrong, a run's verdict names what comes first."""
    problems = [
        None if seq is None else Problem(seq=seq, kind="k", problem="p") for seq in (chain, sealed_at)
    ]
    found = Verification(
        run="r",
        events=9,
        contents=0,
        erased=0,
        digests=0,
        hash="",
        agent_state="COMPLETED",
        problem=problems[0],
    )
    verdict = with_seals(found, SealedRun(seq=9, heads=1, problem=problems[1]))
    assert told == (verdict.problem.seq if verdict.problem else None)
    assert (told is None) == verdict.whole
