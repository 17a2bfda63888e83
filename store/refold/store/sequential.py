"""Stores that never wait, read without an event loop: see `open_here`."""

from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, TypeVar, cast

from refold.store.protocol import Store, Stored, UnknownRun

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, such as one that only reads a store, without an
    event loop.
    """
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError(f"{work} waits for {awaited}")


def read_log(store: Store, run: str) -> Iterator[Stored]:
    """Yield the run's complete log in order.

    Raises as `Store.read`, and `UnknownRun` for a run without events.
    """
    pages, empty = store.read(run), True
    while page := at_once(_next_page(pages)):
        empty = False
        yield from page
    if empty:
        raise UnknownRun(run)


async def _next_page(pages: AsyncIterator[Sequence[Stored]]) -> Sequence[Stored]:
    try:
        return await anext(pages)
    except StopAsyncIteration:
        return ()
