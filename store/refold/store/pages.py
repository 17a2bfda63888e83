"""Reading in chunks of bounded size."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

ROWS = 512
"""The most rows of a chunk."""

BYTES = 2**20
"""The size in bytes at which a chunk ends. It may be larger by one row, for a row is never cut."""

T = TypeVar("T")


class Pages(Generic[T], AsyncIterator[Sequence[T]]):
    """Chunks, from a function that gives the next one and an empty one at the end.

    No async generator, on purpose: a reader that stops half-way leaves nothing behind that an event loop would
    have to finalise (trio warns when it has to), and between two chunks nothing is open, so a slow reader
    keeps no writer from its checkpoints.
    """

    def __init__(self, following: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._following = following

    async def __anext__(self) -> Sequence[T]:
        page = await self._following()
        if not page:
            raise StopAsyncIteration
        return page
