"""Tests of forks: runs that continue a prefix of another run's log."""
# ruff: noqa: SIM300 - the expected value is on the left

import json

import pytest

from refold.reducers.errors import WrongUse
from refold.store.chain import START, check
from refold.store.checks import MOST_ANCESTORS
from refold.store.protocol import Conflict, Head, LeaseLost, Origin, Record, Snapshot, Store
from refold.store.testing.logs import MEGABYTE, Promises, append, events, record, records, shared_fields, take


def forked(parent: str, seq: int, hashed: bytes) -> Record:
    """Return the first record of a fork of `parent` after event `seq`."""
    body = {"parent": parent, "parent_seq": seq, "parent_hash": hashed.hex(), "other": [1]}
    return Record(at=seq, kind="run_forked", body=json.dumps(body).encode())


async def fork(store: Store, parent: str, seq: int, run: str, more: int = 2) -> Head:
    """Fork `parent` after event `seq`, and append `more` records."""
    (cut,) = await store.read_some(parent, [seq])
    new = [forked(cut.run, seq, cut.hash), *records(more, 50)]
    return await store.append(run, seq, await take(store, run), new)


class ForkPromises(Promises):
    """Tests of creating, reading and erasing forks, and of forks that are refused."""

    async def test_a_fork_is_read_from_event_1(self, store: Store) -> None:
        """A fork reads as the parent's events up to the cut, with the parent's id, then its own; the chain is
        valid.
        """
        await append(store, "r", records(5))
        head = await fork(store, "r", 3, "f")
        await append(store, "r", records(1, 90))
        whole, parent = await events(store, "f"), await events(store, "r")
        assert 6 == head.seq
        assert head == await store.head("f")
        assert parent[:3] == whole[:3]
        assert [("r", 1), ("r", 2), ("r", 3), ("f", 4), ("f", 5), ("f", 6)] == [(e.run, e.seq) for e in whole]
        previous = START
        for event in whole:
            assert check(event, previous) is None
            previous = event

    async def test_the_parent_does_not_notice(self, store: Store) -> None:
        """A fork does not change its parent's log, which can still grow."""
        await append(store, "r", records(5))
        before = await events(store, "r")
        await fork(store, "r", 3, "f")
        assert before == await events(store, "r")
        assert 6 == (await append(store, "r", records(1))).seq
        assert [("f", 6), ("r", 6)] == [(run, head.seq) async for c in store.runs() for run, head in c]

    async def test_reading_a_part(self, store: Store) -> None:
        """`after`, `upto` and event numbers count from the beginning of the prefix."""
        await append(store, "r", records(5))
        await fork(store, "r", 3, "f")
        whole = await events(store, "f")
        for after in range(-1, 8):
            for upto in (*range(8), None):
                wanted = whole[max(after, 0) : upto]
                assert wanted == await events(store, "f", after, upto), (after, upto)
        assert [whole[1], whole[3], whole[5]] == list(await store.read_some("f", [6, 2, 0, 4, 7, 4]))

    async def test_reading_kinds(self, store: Store) -> None:
        """`read_kinds` includes events of the prefix and no later events of the parent."""
        await append(store, "r", records(5))
        await fork(store, "r", 3, "f")
        whole = await events(store, "f")
        assert whole == list(await store.read_kinds("f", {event.kind for event in whole}))
        assert [whole[3]] == list(await store.read_kinds("f", [whole[3].kind]))

    async def test_a_fork_of_a_fork(self, store: Store) -> None:
        """Each ancestor contributes its part; `lineage` lists the fork points, oldest first."""
        await append(store, "r", records(5))
        await fork(store, "r", 3, "f")
        await fork(store, "f", 5, "g", more=0)
        await append(store, "g", records(2))
        whole = await events(store, "g")
        hashes = {event.seq: event.hash for event in whole}
        assert ["r"] * 3 + ["f"] * 2 + ["g"] * 3 == [event.run for event in whole]
        assert list(range(1, 9)) == [event.seq for event in whole]
        wanted = [Origin(run="r", seq=3, hash=hashes[3]), Origin(run="f", seq=5, hash=hashes[5])]
        assert wanted == list(await store.lineage("g"))
        assert [] == list(await store.lineage("r"))
        assert [] == list(await store.lineage("no such run"))

    async def test_a_long_prefix(self, store: Store) -> None:
        """A prefix larger than a chunk is read completely, in chunks of bounded size."""
        await append(store, "r", records(1200))
        await append(store, "r", [record(content=MEGABYTE) for _ in range(5)])
        await fork(store, "r", 1203, "f")
        sizes = [sum(len(e.content or b"") for e in chunk) async for chunk in store.read("f")]
        assert 1206 == len(await events(store, "f"))
        assert max(sizes) < 5 * len(MEGABYTE)

    @pytest.mark.parametrize(
        ("parent", "seq", "wrong"),
        [
            pytest.param("no such run", 3, False, id="no such run"),
            pytest.param("r", 9, False, id="beyond its end"),
            pytest.param("f", 2, False, id="not in that run's own log"),
            pytest.param("x", 4, False, id="itself"),
            pytest.param("r", 3, True, id="another hash"),
        ],
    )
    async def test_a_fork_of_what_is_not_there(
        self,
        store: Store,
        parent: str,
        seq: int,
        wrong: bool,  # noqa: FBT001
    ) -> None:
        """A fork of a missing or different event raises `WrongUse` and writes nothing."""
        await append(store, "r", records(5))
        await fork(store, "r", 3, "f")
        cut = await store.read_some("r", [seq])
        hashed = bytes(32) if wrong or not cut else cut[0].hash
        with pytest.raises(WrongUse):
            await store.append("x", seq, await take(store, "x"), [forked(parent, seq, hashed)])
        assert 0 == (await store.head("x")).seq
        assert [] == await events(store, "x")

    @pytest.mark.parametrize(
        "first",
        [
            pytest.param(record(), id="no fork"),
            pytest.param(forked("r", 2, bytes(32)), id="of another event"),
            pytest.param(Record(at=0, kind="run_forked", body=b"{}"), id="of nothing"),
            pytest.param(forked("\n", 3, bytes(32)), id="of no run"),
        ],
    )
    async def test_beginning_anywhere(self, store: Store, first: Record) -> None:
        """A new run must begin at event 1 or right after the event that its `run_forked` names: else the
        append raises `Conflict`.
        """
        await append(store, "r", records(5))
        with pytest.raises(Conflict):
            await store.append("x", 3, await take(store, "x"), [first])

    async def test_forking_a_run_that_has_begun(self, store: Store) -> None:
        """A run with events cannot become a fork (`Conflict`); a lost lease raises `LeaseLost`."""
        head = await append(store, "r", records(5))
        await append(store, "x", records(2))
        with pytest.raises(Conflict):
            await store.append("x", 5, await take(store, "x"), [forked("r", 5, head.hash)])
        lost = await take(store, "y")
        await take(store, "y")
        with pytest.raises(LeaseLost):
            await store.append("y", 5, lost, [forked("r", 5, head.hash)])

    async def test_how_deep_a_lineage_may_be(self, store: Store) -> None:
        """A fork may have at most `MOST_ANCESTORS` ancestors."""
        await append(store, "r0", records(1))
        for n in range(MOST_ANCESTORS):
            await fork(store, f"r{n}", n + 1, f"r{n + 1}", more=0)
        assert MOST_ANCESTORS == len(await store.lineage(f"r{MOST_ANCESTORS}"))
        assert MOST_ANCESTORS + 1 == len(await events(store, f"r{MOST_ANCESTORS}"))
        with pytest.raises(WrongUse):
            await fork(store, f"r{MOST_ANCESTORS}", MOST_ANCESTORS + 1, "x")

    async def test_erasing_in_a_parent(self, store: Store) -> None:
        """Erasing in the parent erases in the fork, keeps its chain valid, and deletes its snapshot."""
        await append(store, "r", [record(content=b'"secret"'), *records(4)])
        await fork(store, "r", 3, "f")
        await store.save_snapshot("f", Snapshot(seq=5, version="v", data=b'"secret"'))
        assert await store.snapshot("f", "v") is not None
        lease = await take(store, "r")
        await store.erase("r", 5, lease, [1], Record(at=9, kind="content_erased", body=b'{"seqs":[1]}'))
        assert await store.snapshot("f", "v") is None
        whole, previous = await events(store, "f"), START
        assert whole[0].content is None
        for event in whole:
            assert check(event, previous) is None
            previous = event

    async def test_erasing_through_a_fork(self, store: Store) -> None:
        """`erase` on a fork refuses the parent's events and erases the fork's own."""
        await append(store, "r", [record(content=b'"a"'), *records(4)])
        await fork(store, "r", 3, "f")
        before, lease = await events(store, "f"), await take(store, "f")
        with pytest.raises(WrongUse, match="run r"):
            await store.erase("f", 6, lease, [1], record())
        assert before == await events(store, "f")
        await store.erase("f", 6, lease, [6], record())
        assert [None, "f"] == [
            (await events(store, "f"))[5].content,
            (await store.read_some("f", [7]))[0].run,
        ]

    async def test_snapshots_of_a_fork(self, store: Store) -> None:
        """A fork has snapshots of its own events only."""
        await append(store, "r", records(5))
        await fork(store, "r", 3, "f")
        for seq, kept in ((3, None), (9, None), (5, 5)):
            await store.save_snapshot("f", Snapshot(seq=seq, version="v", data=b"x"))
            found = await store.snapshot("f", "v")
            assert kept == (found and found.seq)

    async def test_what_was_appended_to_a_fork(self, store: Store) -> None:
        """A fork can be appended to like any run."""
        await append(store, "r", records(5))
        await fork(store, "r", 5, "f")
        await append(store, "f", records(3, 70))
        assert [shared_fields(each) for each in records(3, 70)] == [
            shared_fields(e) for e in (await events(store, "f"))[8:]
        ]
