"""What tests of stores share."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

# The conformance suite is no test module of ours, so pytest must be told to rewrite its assertions.
from refold.store import SqliteStore
from refold.store.testing import append, records


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    """A store whose commits wait for no disk."""
    async with await SqliteStore.open(tmp_path / "runs.db", durability="process") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def filled(path: Path) -> Path:
    """A store with one run `r` of six events, closed."""
    async with await SqliteStore.open(path, durability="process") as store:
        await append(store, "r", records(6))
    return path
