"""One SQLite file, open: a connection that writes, and one that reads beside it. Runs on asyncio alone."""

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self, cast

import aiosqlite
import anyio

from refold.reducers.errors import WrongUse
from refold.store import schema
from refold.store.connection import Row
from refold.store.opening import Durability, look, open_reader, open_writer
from refold.store.problems import translated


class Database:
    """The open file. `writer` is None if it was opened to be read only.

    No transaction is open between two round trips to a connection's thread: tasks may interleave and be
    cancelled as they like.
    """

    def __init__(self, path: str, writer: aiosqlite.Connection | None, reader: aiosqlite.Connection) -> None:
        self.path, self.reader = path, reader
        self._writer = writer
        self._tickets = count(1)

    @classmethod
    async def open(cls, path: Path, durability: Durability, *, readonly: bool) -> Self:
        """Open the file, make or migrate it if need be. Raises `NotAStore` before anything was changed."""
        with anyio.CancelScope(shield=True):  # half-open connections would be nobody's to close
            await asyncio.to_thread(look, path, readonly=readonly)
            with translated(str(path)):
                return await cls._open(path, durability, readonly=readonly)
        raise AssertionError  # for the type checkers: nothing cancels a shielded scope

    @classmethod
    async def _open(cls, path: Path, durability: Durability, *, readonly: bool) -> Self:
        writer = None if readonly else await open_writer(path, durability)
        try:
            return cls(str(path), writer, await open_reader(path))
        except BaseException:
            if writer:
                await writer.close()
            raise

    @property
    def writer(self) -> aiosqlite.Connection:
        """The connection that writes. Raises `WrongUse` if there is none."""
        if self._writer is None:
            raise WrongUse(f"store {self.path}: opened to be read only; open it without `readonly`")
        return self._writer

    async def insert(self, number: int, expected_seq: int, token: int, rows: Sequence[Row]) -> bool:
        """Append the rows if the run's head and token are the expected ones; else write nothing and say False.

        When it raises, cancellation included, nothing of it is in flight any more.
        """
        low = number << schema.SEQ_BITS
        unmoved = (low, low + schema.SEQ_MASK, low, low + expected_seq, number, token)
        with translated(self.path, writing=True):
            try:
                if len(rows) > schema.MAX_ROWS:
                    return await self._insert_staged(rows, unmoved)
                flat = [value for row in rows for value in row]
                return await self._change(schema.insert(len(rows)), (*flat, *unmoved)) > 0
            except asyncio.CancelledError:
                # The statement runs all the same, in its thread. That thread works in order: once it has
                # answered this, whoever reads the head reads how it ended.
                with anyio.CancelScope(shield=True):
                    await self.writer.execute_fetchall("SELECT NULL, NULL")
                raise

    async def add_run(self, run: str) -> None:
        """Give the run a number, if it has none."""
        with translated(self.path, writing=True):
            await self._change(schema.ADD_RUN, (run,))

    async def page(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """The first page of a query. It waits for no writer."""
        return await self._page(self.reader, sql, parameters)

    async def page_after_writes(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """The first page of a query, once everything is written that was asked to be."""
        return await self._page(self.writer, sql, parameters)

    async def _page(self, connection: aiosqlite.Connection, sql: str, parameters: Sequence[Any]) -> list[Row]:
        with translated(self.path):
            rows = await connection.execute_fetchall(sql, parameters)
        return cast("list[Row]", rows)

    async def close(self) -> None:
        """Close both connections. The last one to close a file tidies up its journal, so the writer is last."""
        with anyio.CancelScope(shield=True), translated(self.path):
            try:
                await self.reader.close()
            finally:
                if self._writer:
                    await self._writer.close()

    async def _insert_staged(self, rows: Sequence[Row], unmoved: Row) -> bool:
        ticket = next(self._tickets)
        await self._change(schema.STAGING)
        try:
            await self.writer.executemany(schema.STAGE, [(ticket, *row) for row in rows])
            return await self._change(schema.INSERT_STAGED, (ticket, *unmoved)) > 0
        finally:
            with anyio.CancelScope(shield=True):
                await self._change(schema.UNSTAGE, (ticket,))

    async def _change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return (await self.writer.execute(sql, parameters)).rowcount
