"""Tests of logs: appending, reading, listing, closing."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import product

import anyio
import pytest
from anyio.lowlevel import checkpoint

from refold.reducers.errors import WrongUse
from refold.store.chain import START, check
from refold.store.protocol import Conflict, Head, Lease, LeaseLost, Record, Store, Stored

MEGABYTE = b'"' + b"x" * (2**20 - 2) + b'"'


def record(number: int = 0, content: bytes | None = None, kind: str = "note_added") -> Record:
    """Return a small record, different for each number."""
    return Record(at=number, kind=kind, body=b'{"n":%d}' % number, content=content, salt=b"salt" * 4)


def records(count: int, first: int = 0) -> list[Record]:
    """Return `count` small records, numbered from `first`; those with odd numbers have content."""
    return [record(n, b'"said %d"' % n if n % 2 else None) for n in range(first, first + count)]


async def append(store: Store, run: str, new: Sequence[Record]) -> Head:
    """Append at the end of the run's log, under a new lease."""
    return await store.append(run, (await store.head(run)).seq, await take(store, run), new)


async def take(store: Store, run: str) -> Lease:
    """Take the run's lease, from its holder if it has one."""
    claim = await store.claim(run)
    return await store.lease(run, holder="a test", over=claim.token if claim else None)


async def events(
    store: Store, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
) -> list[Stored]:
    """Return the events of all chunks that `Store.read` yields."""
    return [event async for chunk in store.read(run, after, upto, checked=checked) for event in chunk]


def shared_fields(event: Stored | Record) -> tuple[int, str, bytes, bytes | None]:
    """Return the fields that a record shares with its stored event, without the salt."""
    return event.at, event.kind, event.body, event.content


class Promises:
    """Base of the tests: the fixture of the store, and what a subclass must define."""

    pytestmark = pytest.mark.anyio

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        """Open an empty store, closed at the end. Each test calls this once."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self) -> AsyncGenerator[Store]:
        """Yield the open store of a test."""
        async with self.open_store() as opened:
            yield opened

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of the open store; a negative value sets it back.

        It may edit the stored data instead.
        """
        raise NotImplementedError


# ruff: noqa: SIM300 - the expected value is on the left


class LogPromises(Promises):
    """Tests of appending, reading, listing and closing."""

    async def test_reads_back_what_was_appended(self, store: Store) -> None:
        """Events of several appends are read back byte for byte, in order, numbered from 1."""
        new = records(7)
        await append(store, "r", new[:3])
        await append(store, "r", new[3:4])
        await append(store, "r", new[4:])
        got = await events(store, "r")
        assert [shared_fields(r) for r in new] == [shared_fields(e) for e in got]
        assert [("r", n) for n in range(1, 8)] == [(e.run, e.seq) for e in got]
        assert [r.salt if r.content is not None else b"" for r in new] == [e.salt for e in got]

    @pytest.mark.parametrize(
        "text", ["", "ß 漢字 \U0001f600", "e\u0301", "\u2028\r\n\ufeff", "'; DROP TABLE event; --"]
    )
    async def test_text_is_kept_exactly(self, store: Store, text: str) -> None:
        """No text is normalised, trimmed or quoted, in a run's id, a body or a content."""
        run = text.strip("\u2028\r\n") or "r"
        new = Record(at=-1, kind="k", body=text.encode(), content=text.encode())
        await append(store, run, [new])
        (got,) = await events(store, run)
        listed = [name async for chunk in store.runs() for name, _ in chunk]
        assert shared_fields(new) == shared_fields(got)
        assert ([run], run) == (listed, got.run)

    async def test_nothing_is_wrong_with_what_was_appended(self, store: Store) -> None:
        """`check` raises nothing for an undamaged store, empty or not."""
        await store.check()
        await append(store, "r", records(7))
        await take(store, "s")
        await store.check()

    async def test_the_head_is_that_of_the_last_event(self, store: Store) -> None:
        """`append` returns the number and hash of the last event, and `head` returns the same."""
        returned = await append(store, "r", records(3))
        asked = await store.head("r")
        last = (await events(store, "r"))[-1]
        assert Head(seq=3, hash=last.hash) == returned == asked

    async def test_the_chain_goes_on_over_appends(self, store: Store) -> None:
        """Each event's hash follows from the one before it, the first one's from `START`."""
        for first in range(0, 12, 3):
            await append(store, "r", records(3, first))
        previous, problems = START, list[str | None]()
        for event in await events(store, "r"):
            problems.append(check(event, previous))
            previous = event
        assert [None] * 12 == problems

    async def test_an_empty_run(self, store: Store) -> None:
        """A run without events has head 0, yields no events and is not listed, even if leased."""
        await take(store, "r")
        head, got = await store.head("r"), await events(store, "r")
        some = await store.read_some("r", [1])
        listed = [chunk async for chunk in store.runs()]
        assert (START, [], [], []) == (head, got, list(some), listed)

    @pytest.mark.parametrize("expected", [0, 1, 2, 4, 5, 100])
    async def test_a_wrong_expected_seq_conflicts(self, store: Store, expected: int) -> None:
        """An append with a wrong `expected_seq` raises `Conflict` with both numbers and writes nothing."""
        await append(store, "r", records(3))
        before = await events(store, "r")
        with pytest.raises(Conflict) as caught:
            await store.append("r", expected, await take(store, "r"), records(2))
        after = await events(store, "r")
        assert ("r", expected, 3) == (caught.value.run, caught.value.expected, caught.value.head)
        assert before == after

    async def test_a_new_run_starts_at_0(self, store: Store) -> None:
        """A first append that expects earlier events raises `Conflict` and creates no run."""
        with pytest.raises(Conflict):
            await store.append("r", 1, await take(store, "r"), records(1))
        assert [] == [chunk async for chunk in store.runs()]

    async def test_goes_on_after_a_conflict(self, store: Store) -> None:
        """After a refused append the next one is accepted and its chain is valid."""
        await append(store, "r", records(1))
        with pytest.raises(Conflict):
            await store.append("r", 0, await take(store, "r"), records(1))
        await append(store, "r", records(1))
        first, second = await events(store, "r")
        assert check(second, Head(seq=1, hash=first.hash)) is None

    @pytest.mark.parametrize("offset", [-1, 1])
    async def test_a_foreign_token_is_refused(self, store: Store, offset: int) -> None:
        """An append with another token than the lease's raises `LeaseLost` and writes nothing."""
        lease = await take(store, "r")
        await store.append("r", 0, lease, records(1))
        with pytest.raises(LeaseLost) as caught:
            await store.append("r", 1, Lease(run="r", token=lease.token + offset), records(1))
        assert 1 == (await store.head("r")).seq
        assert (lease.token + offset, lease.token) == (caught.value.token, caught.value.current)

    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param(Record(at=0, kind="k", body=b"\xff"), id="a body that is not UTF-8"),
            pytest.param(Record(at=0, kind="k", body=b"\xed\xa0\x80"), id="a body with a surrogate"),
            pytest.param(
                Record(at=0, kind="k", body=b"{}", content=b'"\xc3'), id="a content that is not UTF-8"
            ),
            pytest.param(Record(at=0, kind="k", body=b'"a\0b"'), id="a NUL"),
            pytest.param(Record(at=0, kind="", body=b"{}"), id="no kind"),
            pytest.param(Record(at=0, kind="a b", body=b"{}"), id="a kind with a space"),
            pytest.param(Record(at=2**63, kind="k", body=b"{}"), id="a time beyond 64 bits"),
        ],
    )
    async def test_a_record_that_no_log_can_hold(self, store: Store, bad: Record) -> None:
        """One invalid record makes the whole append raise `WrongUse`; nothing is written."""
        with pytest.raises(WrongUse):
            await store.append("r", 0, await take(store, "r"), [record(), bad])
        assert [] == await events(store, "r")

    async def test_an_append_that_makes_no_sense(self, store: Store) -> None:
        """An append of no records, at a negative number, with a lease of another run or with an invalid id
        raises `WrongUse`.
        """
        lease = await take(store, "r")
        with pytest.raises(WrongUse):
            await store.append("r", 0, lease, [])
        with pytest.raises(WrongUse):
            await store.append("r", -1, lease, records(1))
        with pytest.raises(WrongUse):
            await store.append("other", 0, lease, records(1))
        for run in ("", "a\0b", "a\nb", "\x1b[31m", "a\x7f", "a\x9b", "a\u2028b", "\ud800"):
            with pytest.raises(WrongUse):
                await take(store, run)
            with pytest.raises(WrongUse):
                await events(store, run)

    async def test_read_takes_bounds(self, store: Store) -> None:
        """`read` yields the events with after < seq <= upto, for any two integers."""
        await append(store, "r", records(10))
        for after, upto in product([-1, 0, 1, 5, 9, 10, 11, 2**70], [None, -1, 0, 1, 5, 10, 11, 2**70]):
            got = await events(store, "r", after, upto)
            wanted = [n for n in range(1, 11) if after < n and (upto is None or n <= upto)]
            assert (after, upto, wanted) == (after, upto, [e.seq for e in got])

    async def test_long_runs_come_in_chunks(self, store: Store) -> None:
        """2,500 events of one append are read in order, in more than two chunks, all non-empty."""
        await append(store, "r", records(2500))
        chunks = [list(chunk) async for chunk in store.read("r")]
        assert list(range(1, 2501)) == [event.seq for chunk in chunks for event in chunk]
        assert len(chunks) > 2
        assert all(chunks)

    async def test_large_contents_come_in_small_chunks(self, store: Store) -> None:
        """Events of a megabyte each are read completely, in several chunks."""
        for n in range(6):
            await append(store, "r", [record(n, MEGABYTE)])
        chunks = [list(chunk) async for chunk in store.read("r")]
        assert [MEGABYTE] * 6 == [event.content for chunk in chunks for event in chunk]
        assert len(chunks) > 2

    async def test_read_some(self, store: Store) -> None:
        """`read_some` returns events ascending, each once, and skips numbers that the run does not have."""
        await append(store, "other", records(50))
        await append(store, "r", records(1000))
        some = await store.read_some("r", [900, 2, 2, 0, -5, 1001, 2**70, 17])
        every = await store.read_some("r", range(2000))
        none = await store.read_some("r", [])
        assert [2, 17, 900] == [event.seq for event in some]
        assert {"r"} == {event.run for event in some}
        assert list(range(1, 1001)) == [event.seq for event in every]
        assert [] == list(none)

    async def test_read_kinds(self, store: Store) -> None:
        """`read_kinds` returns all events of the kinds, ascending, and none of another run."""
        await append(store, "other", [record(1, kind="rare")])
        await append(store, "r", records(900))
        await append(
            store, "r", [record(1, kind="rare"), record(2), record(3, kind="odd"), record(4, kind="rare")]
        )
        some = await store.read_kinds("r", {"rare", "odd", "never"})
        one, none = await store.read_kinds("r", ["odd"]), await store.read_kinds("nobody", ["odd"])
        whole = await events(store, "r")
        assert [whole[900], whole[902], whole[903]] == list(some)
        assert ([903], []) == ([event.seq for event in one], list(none))

    async def test_a_reader_left_half_way(self, store: Store) -> None:
        """A reader that stops after the first chunk does not block appends, reads or closing."""
        await append(store, "r", records(2000))
        async for _ in store.read("r"):
            break
        await append(store, "r", records(1))
        assert 2001 == len(await events(store, "r"))

    async def test_a_reader_comes_to_an_end(self, store: Store) -> None:
        """A reader ends even if an event is appended after each of its chunks."""
        await append(store, "r", records(1500))
        seqs = list[int]()
        async for chunk in store.read("r"):
            seqs += [event.seq for event in chunk]
            await append(store, "r", records(1))
            assert len(seqs) < 1600
        assert list(range(1, len(seqs) + 1)) == seqs

    async def test_runs_are_listed_newest_first(self, store: Store) -> None:
        """`runs` lists each run with its head, most recently created first."""
        heads = {run: await append(store, run, records(n)) for n, run in enumerate("bca", 1)}
        heads["b"] = await append(store, "b", records(1))
        listed = [item async for chunk in store.runs() for item in chunk]
        assert [(run, heads[run]) for run in "acb"] == listed

    async def test_runs_by_prefix(self, store: Store) -> None:
        """A prefix is matched literally and case-sensitively; wildcards have no meaning."""
        names = ["a", "A", "ab", "aB", "a%b", "a_b", "a*b", "ß1", "ss", "[a]"]
        for name in names:
            await append(store, name, records(1))
        for prefix in ["", "a", "A", "a%", "a_", "a*", "ab", "ß", "zz"]:
            listed = [name async for chunk in store.runs(prefix) for name, _ in chunk]
            assert [name for name in reversed(names) if name.startswith(prefix)] == listed

    async def test_appends_of_many_runs_at_once(self, store: Store) -> None:
        """Concurrent appends of several runs do not mix."""
        names = [f"run-{n}" for n in range(20)]

        async def live(store: Store, run: str, size: int) -> None:
            for turn in range(5):
                await append(store, run, records(size, turn * size))

        async with anyio.create_task_group() as tasks:
            for n, name in enumerate(names):
                tasks.start_soon(live, store, name, 1 + n * 7)
        for n, name in enumerate(names):
            wanted = [shared_fields(r) for r in records(5 * (1 + n * 7))]
            assert wanted == [shared_fields(e) for e in await events(store, name)]

    async def test_a_conflict_touches_no_other_run(self, store: Store) -> None:
        """All appends of one run succeed while all those of another fail."""
        await append(store, "bad", records(1))
        lease = await take(store, "bad")

        async def fail() -> None:
            with pytest.raises(Conflict):
                await store.append("bad", 0, lease, records(2))

        async with anyio.create_task_group() as tasks:
            for turn in range(10):
                tasks.start_soon(fail)
                await append(store, "good", records(1, turn))
        assert (1, 10) == ((await store.head("bad")).seq, (await store.head("good")).seq)

    async def test_of_two_writers_one_wins(self, store: Store) -> None:
        """Exactly one of several appends at the same place succeeds; the others raise `Conflict`."""
        won = list[tuple[int, int]]()

        async def race(store: Store, lease: Lease, writer: int, turn: int) -> None:
            try:
                await store.append("r", 2 * turn, lease, records(2, writer))
            except Conflict:
                return
            won.append((turn, writer))

        lease = await take(store, "r")
        for turn in range(10):
            async with anyio.create_task_group() as tasks:
                for writer in range(4):
                    tasks.start_soon(race, store, lease, writer, turn)
        got = await events(store, "r")
        assert list(range(10)) == [turn for turn, _ in won]
        assert [writer + n for _, writer in won for n in range(2)] == [event.at for event in got]

    @pytest.mark.parametrize("size", [3, 300])
    @pytest.mark.parametrize("moment", [0, 1, 2, 3, 5, 8, 20, 60, 200])
    async def test_an_append_cancelled_half_way(self, store: Store, moment: int, size: int) -> None:
        """A cancelled append is written completely or not at all; `head` shows which, and the store remains
        usable.
        """
        await append(store, "r", records(2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, store, "r", records(size))
            for _ in range(moment):
                await checkpoint()
            tasks.cancel_scope.cancel()
        head = await store.head("r")
        assert head.seq in (2, 2 + size)
        await append(store, "other", records(1))
        assert head == await store.head("r")
        await store.append("r", head.seq, await take(store, "r"), records(1))
        assert head.seq + 1 == len(await events(store, "r"))

    async def test_a_long_append_that_conflicts(self, store: Store) -> None:
        """A conflict refuses an append too long for one statement completely; the next one does not mix with
        it.
        """
        await append(store, "r", records(1))
        with pytest.raises(Conflict):
            await store.append("r", 0, await take(store, "r"), records(1000))
        await append(store, "r", records(1000, 5))
        got = await events(store, "r")
        assert [0, *range(5, 1005)] == [event.at for event in got]

    async def test_closing(self, store: Store) -> None:
        """A store may be closed twice; after that, every use raises `WrongUse`."""
        lease = await take(store, "r")
        await store.append("r", 0, lease, records(1))
        await store.aclose()
        await store.aclose()
        with pytest.raises(WrongUse):
            await store.append("r", 1, lease, records(1))
        with pytest.raises(WrongUse):
            await store.head("r")
        with pytest.raises(WrongUse):
            await events(store, "r")
