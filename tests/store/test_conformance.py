"""Every store keeps every promise of a store, on asyncio and on trio."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import pytest

from refold.store import MemoryStore, SqliteStore, Store
from refold.store.postgres.store import PostgresStore
from refold.store.testing import StoreConformance
from support.postgres import execute


class TestMemoryStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def clock(self) -> None:
        self.now = 1000.0

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        return MemoryStore(lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    # What a flush adds is time: the code is the same.
    @asynccontextmanager
    async def open_store(self) -> AsyncGenerator[Store]:
        async with await SqliteStore.open(self.path, durability="process") as store:
            yield store

    def pass_time(self, seconds: float) -> None:
        # The clock is the machine's. That it went on is the same as that everything was written earlier.
        with closing(sqlite3.connect(self.path)) as other, other:
            other.execute("UPDATE claim SET until = until - ?", (round(seconds * 1000),))


class TestPostgresStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self, postgres: str) -> None:
        self.address = postgres

    @asynccontextmanager
    async def open_store(self) -> AsyncGenerator[Store]:
        async with await PostgresStore.open(self.address, durability="process") as store:
            yield store

    def pass_time(self, seconds: float) -> None:
        execute(self.address, f"UPDATE {{s}}.run SET until = until - {round(seconds * 1000)}")
