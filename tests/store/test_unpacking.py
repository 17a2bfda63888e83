"""Bundles written into a database: the same hashes, all runs or none that are there already."""

from pathlib import Path

import pytest

from refold.reducers.errors import WrongUse
from refold.store import open_store
from refold.store.bundles import DamagedBundle
from refold.store.packer import pack
from refold.store.testing import append, events, records
from refold.store.unpacking import unpack

pytestmark = pytest.mark.anyio


@pytest.fixture
async def packed(tmp_path: Path) -> Path:
    """A bundle with two runs."""
    async with await open_store(tmp_path / "runs.db", durability="process") as store:
        await append(store, "a", records(700))
        await append(store, "b", records(3))
        await pack(store, ["a", "b"], tmp_path / "runs.zip")
    return tmp_path / "runs.zip"


async def test_runs_are_added_to_a_database(packed: Path, tmp_path: Path, postgres: str) -> None:
    """Events and hashes stay as they are; what the database had stays, too."""
    async with await open_store(postgres) as store:
        await append(store, "other", records(2))
    unpacked = await unpack(packed, postgres)
    assert (2, 703) == (unpacked.runs, unpacked.events)
    async with (
        await open_store(postgres, readonly=True) as there,
        await open_store(tmp_path / "runs.db", readonly=True) as here,
        await open_store(f"bundle:{packed}", readonly=True) as bundle,
    ):
        for run in ("a", "b"):
            assert await events(here, run) == await events(there, run) == await events(bundle, run)
        assert 2 == len(await events(there, "other"))


async def test_a_run_that_is_there_already(packed: Path, postgres: str) -> None:
    """Nothing is written."""
    async with await open_store(postgres) as store:
        await append(store, "b", records(1))
    with pytest.raises(WrongUse, match="has a run 'b' already; nothing was written"):
        await unpack(packed, postgres)
    async with await open_store(postgres, readonly=True) as store:
        assert 0 == (await store.head("a")).seq


async def test_a_damaged_bundle_adds_nothing(packed: Path, postgres: str) -> None:
    """The whole bundle is checked before the first event is written."""
    damage(packed)
    async with await open_store(postgres):
        pass
    with pytest.raises(DamagedBundle):
        await unpack(packed, postgres)
    async with await open_store(postgres, readonly=True) as store:
        assert [] == [page async for page in store.runs()]


def damage(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
