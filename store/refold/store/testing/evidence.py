"""Tests of erasure, snapshots, the log of heads, and concurrent appends of many runs."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from refold.reducers.errors import WrongUse
from refold.store.chain import START, check, extend
from refold.store.protocol import (
    Conflict,
    Head,
    Lease,
    LeaseLost,
    Record,
    Seal,
    SealedElsewhere,
    SealedHead,
    Snapshot,
    Store,
    StoreError,
)
from refold.store.testing.logs import Promises, append, events, record, records, shared_fields, take

# ruff: noqa: SIM300 - the expected value is on the left


NOTICE = Record(at=99, kind="content_erased", body=b'{"why":"asked"}')


def heads(first: int, last: int) -> list[SealedHead]:
    """Return entries of the log of heads with places `first` to `last`."""
    return [
        SealedHead(place=n, run=f"run-{n}", seq=n, hash=bytes([n % 256]) * 32) for n in range(first, last + 1)
    ]


def seal(size: int, at: int = 0) -> Seal:
    """Return a seal over `size` entries, without a valid signature."""
    return Seal(size=size, at=at, root=b"r" * 32, key=b"k" * 32, signature=b"s" * 64)


class EvidencePromises(Promises):
    """Tests of erasure, snapshots and seals."""

    async def test_erasing(self, store: Store) -> None:
        """`erase` removes content and salt and changes nothing else; the notice is the last event, and the
        chain is valid.
        """
        await append(store, "r", records(6))
        before = await events(store, "r")
        head = await store.erase("r", 6, await take(store, "r"), [2, 4], NOTICE)
        after = await events(store, "r")
        some = await store.read_some("r", [4])
        wanted = [replace(each, content=None, salt=b"") if each.seq in (2, 4) else each for each in before]
        assert wanted == after[:6]
        assert wanted[3:4] == list(some)
        assert (7, "content_erased") == (head.seq, after[6].kind)
        assert head.hash == after[6].hash
        previous = START
        for event in after:
            assert check(event, previous) is None
            previous = event

    async def test_erasing_again(self, store: Store) -> None:
        """An erased event may be erased again; one call may name several events, and one event twice."""
        await append(store, "r", records(6))
        lease = await take(store, "r")
        await store.erase("r", 6, lease, [2], NOTICE)
        await store.erase("r", 7, lease, [2, 4, 4], NOTICE)
        assert [None, None] == [each.content for each in await store.read_some("r", [2, 4])]
        assert 8 == (await store.head("r")).seq

    @pytest.mark.parametrize("bad", [0, 1, 7, -1, 2**40])
    async def test_what_cannot_be_erased(self, store: Store, bad: int) -> None:
        """For missing events and events without content, `erase` raises `WrongUse` and changes nothing."""
        await append(store, "r", records(6))
        before = await events(store, "r")
        with pytest.raises(WrongUse):
            await store.erase("r", 6, await take(store, "r"), [2, bad], NOTICE)
        assert before == await events(store, "r")

    async def test_erasing_is_an_append(self, store: Store) -> None:
        """With a wrong `expected_seq` or a lost lease, `erase` fails like `append` and erases nothing."""
        await append(store, "r", records(6))
        old, before = await take(store, "r"), await events(store, "r")
        lease = await take(store, "r")
        with pytest.raises(LeaseLost):
            await store.erase("r", 6, old, [2], NOTICE)
        with pytest.raises(Conflict):
            await store.erase("r", 5, lease, [2], NOTICE)
        with pytest.raises(WrongUse):
            await store.erase("other", 0, lease, [2], NOTICE)
        with pytest.raises(WrongUse):
            await store.erase("r", 6, lease, [], NOTICE)
        assert before == await events(store, "r")

    async def test_an_event_that_comes_erased(self, store: Store) -> None:
        """A record with only a digest of its content gets the same hash as the complete record."""
        whole = record(1, b'"a secret"')
        (wanted,) = extend("r", START, [whole])
        await append(
            store, "r", [replace(whole, content=None, salt=b"", content_digest=wanted.content_digest)]
        )
        assert [replace(wanted, content=None, salt=b"")] == await events(store, "r")

    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param(Record(at=0, kind="k", body=b"{}", content_digest=b"short"), id="a short digest"),
            pytest.param(
                Record(at=0, kind="k", body=b"{}", content=b'""', content_digest=bytes(32)),
                id="a digest beside content",
            ),
            pytest.param(
                Record(at=0, kind="k", body=b"{}", salt=b"s", content_digest=bytes(32)),
                id="a digest beside a salt",
            ),
        ],
    )
    async def test_a_digest_that_cannot_be(self, store: Store, bad: Record) -> None:
        """A digest of the wrong length, or beside a content or salt, raises `WrongUse`."""
        with pytest.raises(WrongUse):
            await append(store, "r", [bad])

    async def test_snapshots(self, store: Store) -> None:
        """`snapshot` returns the last one if the version matches; `save_snapshot` ignores one of an earlier
        or missing event.
        """
        old, new = (
            Snapshot(seq=3, version="1", data=b"\0old"),
            Snapshot(seq=5, version="1", data=b"new" * 9999),
        )
        assert await store.snapshot("r", "1") is None
        await store.save_snapshot("r", old)
        await append(store, "r", records(6))
        assert await store.snapshot("r", "1") is None
        await store.save_snapshot("r", old)
        assert old == await store.snapshot("r", "1")
        await store.save_snapshot("r", new)
        for useless in (
            old,
            Snapshot(seq=7, version="1", data=b""),
            Snapshot(seq=0, version="1", data=b""),
        ):
            await store.save_snapshot("r", useless)
        assert new == await store.snapshot("r", "1")
        assert await store.snapshot("r", "2") is None
        assert await store.snapshot("other", "1") is None

    async def test_a_snapshot_of_another_version(self, store: Store) -> None:
        """A later snapshot replaces the last one, even with another version."""
        await append(store, "r", records(6))
        await store.save_snapshot("r", Snapshot(seq=3, version="1", data=b"a"))
        await store.save_snapshot("r", Snapshot(seq=4, version="2", data=b"b"))
        assert await store.snapshot("r", "1") is None
        assert Snapshot(seq=4, version="2", data=b"b") == await store.snapshot("r", "2")

    async def test_erasing_takes_the_snapshot_too(self, store: Store) -> None:
        """Erasing deletes the run's snapshot, which may contain the payload, and not that of another run."""
        for run in ("r", "s"):
            await append(store, run, records(6))
            await store.save_snapshot(run, Snapshot(seq=3, version="1", data=b"a"))
        await store.erase("r", 6, await take(store, "r"), [2], NOTICE)
        assert await store.snapshot("r", "1") is None
        assert await store.snapshot("s", "1") is not None

    async def test_the_log_of_heads(self, store: Store) -> None:
        """Entries and seals are read back unchanged and in order; a seal may be added without entries."""
        assert ([], []) == (await _heads(store), await _seals(store))
        await store.add_seal(heads(1, 3), seal(3, 10))
        await store.add_seal([], seal(3, 20))
        await store.add_seal(heads(4, 1500), seal(1500, 15))
        assert heads(1, 1500) == await _heads(store)
        assert heads(1499, 1500) == await _heads(store, 1498)
        assert [] == await _heads(store, 1500)
        assert [seal(3, 10), seal(3, 20), seal(1500, 15)] == await _seals(store)

    async def test_of_two_seals_one_wins(self, store: Store) -> None:
        """A seal whose size does not fit the log of heads raises `SealedElsewhere` and adds nothing."""
        await store.add_seal(heads(1, 3), seal(3))
        for new, size in ((heads(3, 4), 4), (heads(5, 6), 6), ([], 2), ([], 4)):
            with pytest.raises(SealedElsewhere) as caught:
                await store.add_seal(new, seal(size))
            assert (size - len(new), 3) == (caught.value.expected, caught.value.size)
        assert (heads(1, 3), [seal(3)]) == (await _heads(store), await _seals(store))

    @pytest.mark.parametrize(
        ("new", "over"),
        [
            pytest.param([*heads(1, 1), *heads(3, 3)], seal(3), id="a gap"),
            pytest.param(heads(1, 3), seal(4), id="a size beyond the last place"),
            pytest.param(heads(1, 3), seal(2), id="a size before it"),
            pytest.param([SealedHead(place=1, run="r", seq=0, hash=bytes(32))], seal(1), id="no event"),
            pytest.param([SealedHead(place=1, run="r", seq=1, hash=b"")], seal(1), id="no hash"),
            pytest.param([SealedHead(place=1, run="\n", seq=1, hash=bytes(32))], seal(1), id="no run"),
            pytest.param(heads(1, 1), replace(seal(1), root=b""), id="no root"),
            pytest.param(heads(1, 1), replace(seal(1), key=b""), id="no key"),
            pytest.param(heads(1, 1), replace(seal(1), signature=b""), id="no signature"),
            pytest.param(heads(1, 1), seal(1, 2**63), id="a time beyond 64 bits"),
        ],
    )
    async def test_a_seal_that_no_log_can_hold(self, store: Store, new: list[SealedHead], over: Seal) -> None:
        """Places that do not count up to the seal's size, and fields of the wrong size, raise `WrongUse`."""
        with pytest.raises(WrongUse):
            await store.add_seal(new, over)
        assert ([], []) == (await _heads(store), await _seals(store))


async def _heads(store: Store, after: int = 0) -> list[SealedHead]:
    return [head async for chunk in store.sealed_heads(after) for head in chunk]


async def _seals(store: Store) -> list[Seal]:
    return [each async for chunk in store.seals() for each in chunk]


RUNS = 64
TURNS = 4


class GroupPromises(Promises):
    """Tests of concurrent writers, some of which fail."""

    async def test_64_runs_at_once(self, store: Store) -> None:
        """Each run's log has exactly what was appended to it, in order, with a valid chain."""

        async def live(store: Store, run: str, number: int) -> None:
            lease, seq = await store.lease(run, holder="one"), 0
            for turn in range(TURNS):
                head = await store.append(run, seq, lease, records(1 + (number + turn) % 4, 100 * turn))
                assert head.seq == seq + 1 + (number + turn) % 4
                seq = head.seq

        async with anyio.create_task_group() as tasks:
            for number in range(RUNS):
                tasks.start_soon(live, store, f"run-{number}", number)
        for number in range(RUNS):
            wanted = [
                shared_fields(each)
                for turn in range(TURNS)
                for each in records(1 + (number + turn) % 4, 100 * turn)
            ]
            got, previous = await events(store, f"run-{number}"), START
            assert wanted == [shared_fields(event) for event in got]
            for event in got:
                assert check(event, previous) is None
                previous = event

    async def test_bad_appends_among_good_ones(self, store: Store) -> None:
        """Appends that conflict or lost their lease fail with their own error; all others are written."""
        ended = dict[str, Head | StoreError]()

        async def one(store: Store, run: str, seq: int, lease: Lease) -> None:
            try:
                ended[run] = await store.append(run, seq, lease, records(3, 10))
            except StoreError as error:
                ended[run] = error

        asked = list[tuple[str, int, Lease]]()
        for number in range(30):
            run = f"run-{number}"
            old = await take(store, run)
            await store.append(run, 0, old, records(2))
            lease = await take(store, run) if number % 3 else old
            asked.append((run, 5 if number % 3 == 1 else 2, lease))
            if number % 3 == 0:
                await take(store, run)
        async with anyio.create_task_group() as tasks:
            for each in asked:
                tasks.start_soon(one, store, *each)
        sizes = [len(await events(store, run)) for run, _, _ in asked]
        kinds = [type(ended[run]) for run, _, _ in asked]
        assert [LeaseLost, Conflict, Head] * 10 == kinds
        assert [2, 2, 5] * 10 == sizes

    async def test_what_hangs_on_a_failed_append_fails(self, store: Store) -> None:
        """If an append fails, later appends of the same run that build on it fail too."""
        failed = list[int]()

        async def one(store: Store, lease: Lease, seq: int) -> None:
            with pytest.raises(Conflict):
                await store.append("r", seq, lease, records(2))
            failed.append(seq)

        await append(store, "r", records(1))
        lease = await take(store, "r")
        async with anyio.create_task_group() as tasks:
            for seq in (2, 4, 6):
                tasks.start_soon(one, store, lease, seq)
        assert 1 == (await store.head("r")).seq
        assert [2, 4, 6] == sorted(failed)

    @pytest.mark.parametrize("moment", [0, 1, 2, 3, 5, 8, 13, 30, 100])
    async def test_some_are_cancelled(self, store: Store, moment: int) -> None:
        """If some concurrent appends are cancelled, each of those is written completely or not at all, and
        all others are written.
        """

        async def one(store: Store, run: str, lease: Lease, scope: anyio.CancelScope) -> None:
            with scope:
                await store.append(run, 0, lease, records(3))

        scopes = {f"run-{number}": anyio.CancelScope() for number in range(12)}
        leases = {run: await store.lease(run, holder="one") for run in scopes}
        async with anyio.create_task_group() as tasks:
            for run, scope in scopes.items():
                tasks.start_soon(one, store, run, leases[run], scope)
            for _ in range(moment):
                await checkpoint()
            for number in range(0, 12, 2):
                scopes[f"run-{number}"].cancel()
        seqs = {run: (await store.head(run)).seq for run in scopes}
        assert {0, 3} >= set(seqs.values())
        assert [3] * 6 == [seqs[f"run-{number}"] for number in range(1, 12, 2)]
        for run, seq in seqs.items():  # a cancelled append is not written later either
            await store.append(run, seq, leases[run], records(1))
