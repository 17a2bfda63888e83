"""Both stores keep every promise of a store, on asyncio and on trio."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from refold.store import MemoryStore, SqliteStore, Store
from refold.store.testing import StoreConformance


class TestMemoryStore(StoreConformance):
    def open_store(self) -> AbstractAsyncContextManager[Store]:
        return MemoryStore()


class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    # What a flush adds is time: the code is the same.
    @asynccontextmanager
    async def open_store(self) -> AsyncGenerator[Store]:
        async with await SqliteStore.open(self.path, durability="process") as store:
            yield store
