"""A store whose file is taken away, or has two names, while it is open."""

import os
from pathlib import Path

import pytest

from refold.store import SqliteStore
from refold.store.protocol import NotAStore, StoreUnavailable
from refold.store.testing import append, records

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_nothing_is_written_where_nobody_finds_it(tmp_path: Path, suffix: str, replaced: bool) -> None:
    """A store whose file, or journal, was removed or replaced takes no append, and does not say that it
    did.
    """
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(2))
        gone = tmp_path / f"runs.db{suffix}"
        gone.rename(tmp_path / "gone")
        if replaced:
            gone.write_bytes((tmp_path / "gone").read_bytes())
        with pytest.raises(StoreUnavailable, match="was removed or replaced while it was open"):
            await append(store, "r", records(1))
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.head("r")
        (tmp_path / "gone").replace(gone)
        assert (await append(store, "r", records(1))).seq == 3


async def test_one_file_has_one_name(tmp_path: Path) -> None:
    """A file with two names would have two journals, and be two stores: it is not opened to be written."""
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(2))
    os.link(path, tmp_path / "other.db")
    with pytest.raises(NotAStore, match="has several names"):
        await SqliteStore.open(tmp_path / "other.db")
    async with await SqliteStore.open(path, readonly=True) as store:
        assert (await store.head("r")).seq == 2
