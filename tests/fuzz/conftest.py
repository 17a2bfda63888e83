"""What the fuzz tests share: a store on disk for them to break."""

from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from fuzz.recordings import named, recording
from refold.store import SqliteStore
from support.forging import write


@pytest.fixture
def anyio_backend() -> str:
    """One event loop does: what is read is the same on each."""
    return "asyncio"


class Written(NamedTuple):
    """The bytes of a store with three runs: closed, and as a process leaves it that is killed."""

    closed: bytes
    killed: bytes
    journal: bytes

    def __repr__(self) -> str:
        return f"Written({len(self.closed)}, {len(self.killed)}, {len(self.journal)} bytes)"


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return anyio.run(_written, tmp_path_factory.mktemp("written") / "runs.db")


RUNS = {"aa11": "two_tools_then_an_answer", "aa22": "preset_hermes", "bb33": "approvals_with_a_person"}


async def _written(path: Path) -> Written:
    async with await SqliteStore.open(path, durability="process") as store:
        for run, name in RUNS.items():
            await write(store, run, named(recording(name, bare=True), run))
        killed, journal = _bytes(path), _bytes(path.with_name("runs.db-wal"))
    return Written(_bytes(path), killed, journal)


def _bytes(path: Path) -> bytes:
    return path.read_bytes()
