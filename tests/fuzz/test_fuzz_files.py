"""Files that a disk, another program or a person broke: an answer or one of our errors, and not a byte is
written.
"""

import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.asking import assert_sound, examples, refold, told, within
from fuzz.conftest import RUNS, Written
from refold.engine import ScriptedModel
from refold.reducers.errors import RefoldError
from refold.store import SqliteStore
from refold.store.protocol import Record, Seal, SealedHead, Snapshot, Store

PAGE = 4096
COMMANDS = (
    ("ls",), ("show", "aa11"), ("show", "aa22", "--all"), ("show", "bb33", "--raw"), ("state", "aa22"), ("view", "aa22@t2"),
    ("why", "bb33@e9"), ("verify", "--all"), ("audit", "--all"), ("verify", "aa11", "bb33"), ("audit", "@last"),
)  # fmt: skip

Break = Callable[[bytes], bytes]


def untouched(folder: Path) -> dict[str, bytes | int]:
    """What is in a folder, but for what SQLite needs to read a file: an empty journal, and its index."""
    found = {
        each.name: each.read_bytes() if each.is_file() else each.stat().st_mode for each in folder.iterdir()
    }
    return {
        name: data
        for name, data in found.items()
        if not name.endswith("-shm") and (name[-4:] != "-wal" or data)
    }


def flipped(places: list[int], to: list[int]) -> Break:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for place, value in zip(places, to, strict=False):
            changed[place % len(data)] ^= value
        return bytes(changed)

    return change


def page(number: int, change: Break) -> Break:
    """One page changed, of however many there are."""

    def changed(data: bytes) -> bytes:
        start = number % max(len(data) // PAGE, 1) * PAGE
        return data[:start] + change(data[start : start + PAGE]) + data[start + PAGE :]

    return changed


def swapped(first: int, second: int) -> Break:
    def change(data: bytes) -> bytes:
        pages = [data[start : start + PAGE] for start in range(0, len(data), PAGE)]
        one, other = first % len(pages), second % len(pages)
        pages[one], pages[other] = pages[other], pages[one]
        return b"".join(pages)

    return change


_PLACES = st.lists(st.integers(0, 2**20), min_size=1, max_size=8)
# Most of what SQLite steers by is in the first page, and in the first bytes of the others.
_STEERING = st.lists(
    st.integers(0, 24).flatmap(lambda at: st.integers(0, 24).map(lambda byte: at * PAGE + byte)),
    min_size=1,
    max_size=4,
)
BREAKS = st.one_of(
    st.builds(flipped, _PLACES, st.lists(st.integers(1, 255), min_size=8, max_size=8)),
    st.builds(flipped, _STEERING, st.lists(st.integers(1, 255), min_size=4, max_size=4)),
    st.builds(
        flipped,
        st.lists(st.integers(0, 99), min_size=1, max_size=2),
        st.lists(st.integers(1, 255), min_size=2, max_size=2),
    ),
    st.integers(0, 24).map(lambda number: page(number, lambda data: bytes(len(data)))),
    st.tuples(st.integers(0, 24), st.binary(min_size=1, max_size=9)).map(
        lambda drawn: page(drawn[0], lambda data: (drawn[1] * PAGE)[: len(data)])
    ),
    st.builds(swapped, st.integers(0, 24), st.integers(0, 24)),
    st.integers(0, 2**20).map(lambda size: lambda data: data[: size % len(data)]),
    st.integers(0, 24).map(lambda pages: lambda data: data[: pages * PAGE]),
    st.binary(max_size=200).map(lambda more: lambda data: data + more),
    st.binary(max_size=200).map(lambda other: lambda data: other),
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken")


def lay(folder: Path, data: bytes, journal: bytes = b"") -> Path:
    """A folder with nothing but this file, and a journal beside it if there is one."""
    for each in folder.iterdir():
        each.unlink()
    path = folder / "runs.db"
    path.write_bytes(data)
    if journal:
        path.with_name("runs.db-wal").write_bytes(journal)
    return path


async def read(path: Path) -> list[RefoldError]:
    """Everything that can be read of a file."""
    errors = list[RefoldError]()
    try:
        async with await SqliteStore.open(path, readonly=True) as store:
            runs = list[str]()
            try:
                async for chunk in store.runs():
                    runs += [run for run, _ in chunk]
            except RefoldError as error:
                errors.append(error)
            for run in runs:
                errors += await told(store, run)
    except RefoldError as error:
        errors.append(error)
    return errors


@examples(90)
@given(change=BREAKS)
def test_any_broken_file(change: Break, written: Written, scratch: Path) -> None:
    """However the file of a closed store is broken, all of it is read or refused, and it stays as it was."""
    path = lay(scratch, change(written.closed))
    before = untouched(scratch)
    with within():
        anyio.run(read, path)
    assert before == untouched(scratch)


@examples(60)
@given(change=BREAKS, other=st.one_of(st.just(bytes), BREAKS))
def test_any_broken_journal(change: Break, other: Break, written: Written, scratch: Path) -> None:
    """However the journal that a killed process left is broken, and the file too, it is read or refused."""
    data = written.killed if other is bytes else other(written.killed)
    path = lay(scratch, data, change(written.journal) or b"\0")
    before = untouched(scratch)
    with within():
        anyio.run(read, path)
    assert before == untouched(scratch)


@examples(40)
@given(change=BREAKS, left=st.booleans())
def test_any_broken_file_to_write(change: Break, left: bool, written: Written, scratch: Path) -> None:
    """However a file is broken, opening it to write and adding to each of its runs works or is one of our
    errors.
    """
    path = (
        lay(scratch, change(written.closed))
        if not left
        else lay(scratch, written.killed, change(written.journal))
    )
    with within():
        anyio.run(add, path)


async def add(path: Path) -> None:
    """Ask a store for all that it can do, each once: what is refused is refused by an error of ours."""
    with suppress(RefoldError):
        async with await SqliteStore.open(path, durability="process") as store:
            for run in (*RUNS, "new"):
                for ask in ASKED:
                    with suppress(RefoldError):
                        await ask(store, run)


async def _append(store: Store, run: str) -> None:
    lease = await store.lease(run, holder="a test")
    note = Record(
        at=2**62, kind="note_added", body=b'{"annotation":"note_added","at":%d,"by":"a test"}' % 2**62
    )
    head = await store.append(run, (await store.head(run)).seq, lease, [note])
    await store.renew(lease)
    await store.save_snapshot(run, Snapshot(seq=head.seq, version="1", data=b"{}"))
    await store.erase(run, head.seq, lease, [1], note)
    await store.release(lease)


async def _seal(store: Store, run: str) -> None:
    head = await store.head(run)
    sealed = [one async for chunk in store.sealed_heads() for one in chunk]
    place = len(sealed) + 1
    seal = Seal(size=place, at=0, root=bytes(32), key=bytes(32), signature=bytes(64))
    await store.add_seal([SealedHead(place=place, run=run, seq=head.seq, hash=head.hash)], seal)
    assert [one async for chunk in store.seals() for one in chunk]


ASKED: tuple[Callable[[Store, str], Awaitable[object]], ...] = (
    told,
    lambda store, run: store.wake(run),
    _append,
    lambda store, run: store.due(9),
    lambda store, run: store.claim(run),
    lambda store, run: store.snapshot(run, "1"),
    lambda store, run: store.read_some(run, [3, 1]),
    _seal,
)


def foreign(*statements: str) -> Callable[[Path], None]:
    """A database of another program."""

    def make(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            for statement in statements:
                raw.execute(statement)

    return make


@pytest.mark.parametrize("words", [("ls",), ("verify", "--all"), ("resume", "aa11")], ids=" ".join)
def test_an_empty_file_beside_a_journal(words: tuple[str, ...], written: Written, scratch: Path) -> None:
    """What a killed process left in its journal is not deleted because somebody emptied the file: exit code
    3.
    """
    path = lay(scratch, b"", written.journal)
    ran = refold(*words, "--store", path)
    assert_sound(ran)
    assert (3, "") == (ran.code, ran.out)
    assert written.journal == path.with_name("runs.db-wal").read_bytes()


MANY = "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 200) INSERT INTO t SELECT i FROM n"


@pytest.mark.parametrize("words", COMMANDS[1::4], ids=" ".join)
@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(lambda path: path.write_text("not a database\n" * 500), 2, id="text"),
        pytest.param(lambda path: path.write_bytes(b""), 2, id="empty"),
        pytest.param(lambda path: path.write_bytes(b"SQLite format 3\0"), 2, id="sixteen bytes"),
        pytest.param(lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000), 2, id="a header of rubbish"),
        pytest.param(lambda path: path.write_bytes(b"PK\x03\x04" + bytes(500)), 2, id="a zip"),
        pytest.param(lambda path: path.mkdir(), 2, id="a folder"),
        pytest.param(os.mkfifo, 2, id="a pipe"),
        pytest.param(lambda path: path.symlink_to(path), 2, id="a link to itself"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), 2, id="a device"),
        pytest.param(foreign("CREATE TABLE t (i)", MANY), 2, id="another program's"),
        pytest.param(foreign("PRAGMA encoding = 'UTF-16'", "CREATE TABLE event (key)"), 2, id="another encoding"),
        pytest.param(foreign("PRAGMA page_size = 65536", "CREATE TABLE run (id)", "VACUUM"), 2, id="large pages"),
    ],
)  # fmt: skip
def test_what_is_no_store(
    make: Callable[[Path], None], code: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    """Every command says that a file is no store, by exit code 2, and leaves it alone."""
    (tmp_path / "f").mkdir()
    path = tmp_path / "f" / "runs.db"
    make(path)
    before = _seen(tmp_path / "f")
    ran = refold(*words, "--store", path)
    assert_sound(ran)
    assert (code, "") == (ran.code, ran.out)
    assert str(path) in ran.err
    assert before == _seen(tmp_path / "f")


def _seen(folder: Path) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes() if each.is_file() and each.stat().st_size else b""
        for each in folder.iterdir()
        if not each.is_symlink()
    }


@pytest.mark.parametrize("words", [*COMMANDS, ("resume", "bb33"), ("run", "Go")], ids=" ".join)
def test_a_file_that_another_program_locked(
    words: tuple[str, ...], written: Written, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command says that the file is locked, by exit code 4, and does not wait for ever."""
    monkeypatch.setattr("refold.store.connection.BUSY_SECONDS", 0.05)
    monkeypatch.setattr("refold.console.agents.model_at", lambda *_, **__: ScriptedModel([]))
    path = lay(scratch, written.closed)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        ran = refold(*words, "--store", path)
    assert_sound(ran)
    assert (4, "") == (ran.code, ran.out)
    assert "lock" in ran.err


@examples(30)
@given(change=BREAKS, words=st.sampled_from(COMMANDS), form=st.sampled_from(["text", "json"]))
def test_every_command_on_any_broken_file(
    change: Break, words: tuple[str, ...], form: str, written: Written, scratch: Path
) -> None:
    """Whatever is broken in a file, every command answers or complains, by an exit code that means
    something.
    """
    path = lay(scratch, change(written.closed))
    before = untouched(scratch)
    ran = refold(*words, "-o", form, "--store", path)
    assert_sound(ran)
    assert before == untouched(scratch)
