"""What tests of a store need to say: small records, and appends without fuss."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from refold.store.protocol import Head, Lease, Record, Store, Stored

MEGABYTE = b'"' + b"x" * (2**20 - 2) + b'"'


def record(number: int = 0, content: bytes | None = None, kind: str = "note_added") -> Record:
    """A small record, different for each number."""
    return Record(at=number, kind=kind, body=b'{"n":%d}' % number, content=content, salt=b"salt" * 4)


def records(count: int, first: int = 0) -> list[Record]:
    """So many small records, some with content."""
    return [record(n, b'"said %d"' % n if n % 2 else None) for n in range(first, first + count)]


async def append(store: Store, run: str, new: Sequence[Record]) -> Head:
    """Append at the end, wherever that is."""
    return await store.append(run, (await store.head(run)).seq, await take(store, run), new)


async def take(store: Store, run: str) -> Lease:
    """The run's lease, from any holder."""
    claim = await store.claim(run)
    return await store.lease(run, holder="a test", over=claim.token if claim else None)


async def events(
    store: Store, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
) -> list[Stored]:
    """The events of all chunks."""
    return [event async for chunk in store.read(run, after, upto, checked=checked) for event in chunk]


def said(event: Stored | Record) -> tuple[int, str, bytes, bytes | None]:
    """What a record and the event that it became have in common, salt aside."""
    return event.at, event.kind, event.body, event.content


class Promises:
    """What a suite of tests is told about the store."""

    pytestmark = pytest.mark.anyio

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        """An empty store, closed at the end. Called anew by each test."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self) -> AsyncGenerator[Store]:
        """The store of a test."""
        async with self.open_store() as opened:
            yield opened

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for the open store; if negative, its clock is set back. May edit what it keeps."""
        raise NotImplementedError
