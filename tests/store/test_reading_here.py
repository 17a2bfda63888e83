"""A store that is read in the thread that asks: nothing is waited for, so no event loop is needed."""

import os
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from refold.reducers.errors import WrongUse
from refold.store import SqliteStore, Store, connection
from refold.store.connection import row_page
from refold.store.readable import Readable
from refold.store.testing import append, events, records

T = TypeVar("T")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A store with one run `r` of six events, closed."""

    async def fill() -> None:
        async with await SqliteStore.open(tmp_path / "runs.db", durability="process") as store:
            await append(store, "r", records(6))

    anyio.run(fill)
    return tmp_path / "runs.db"


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing."""
    with pytest.raises(StopIteration) as done:
        work.send(None)
    found: T = done.value.value
    return found


async def told(store: Store) -> list[object]:
    """What a reader is told of a store: of the run `r`, and of all."""
    await store.check()
    return [
        await events(store, "r"),
        await store.read_some("r", [1]),
        await store.read_kinds("r", {"note_added"}),
        await store.lineage("r"),
        await store.head("r"),
        (await store.claim("r")) is None,
        [run async for chunk in store.runs("") for run in chunk],
    ]


def test_reading_here_needs_no_event_loop(filled: Path) -> None:
    """Nothing that reads a store which was opened to be read here waits for anything, and all is told as to
    any reader.
    """

    async def read() -> list[object]:
        async with await SqliteStore.open(filled, readonly=True) as store:
            return await told(store)

    async def read_here() -> list[object]:
        async with SqliteStore.open_here(filled) as store:
            with pytest.raises(WrongUse, match="read-only"):
                await store.wake("r")
            return await told(store)

    assert anyio.run(read) == at_once(read_here())


def test_ctrl_c_while_reading_here(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a long statement ends the program, and is not taken for a file made to be read
    for ever.
    """
    forever = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 60000000) SELECT max(i), 0, 0 FROM n"
    file = Readable.open_here(filled)
    # However late the key is pressed on a busy machine, the statement is not ended for its length before
    # that.
    monkeypatch.setattr(connection, "LOOKS", 10**6)
    ctrl_c = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background ignores Ctrl-C
    try:
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt):
            at_once(file.read(row_page, forever, ()))
    finally:
        signal.signal(signal.SIGINT, before)
    at_once(file.close())
