"""Where an agent's logs are: a store that the caller keeps, or a file that is opened for as long as it is needed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from os import PathLike

from refold.engine.expected import wrong
from refold.store import SqliteStore
from refold.store.protocol import Store

StoreSource = Store | str | PathLike[str]


def source(given: StoreSource) -> StoreSource:
    """Where logs are to be, as it was given. Raises `WrongUse` for what is neither a store nor a path."""
    if not isinstance(given, str | PathLike) and not callable(getattr(given, "append", None)):
        raise wrong("store", "the path of a file, or a store", given)
    return given


@asynccontextmanager
async def opened(source: StoreSource) -> AsyncGenerator[Store]:
    """The store of a source; one that was opened here is closed here."""
    if not isinstance(source, str | PathLike):
        yield source
        return
    async with await SqliteStore.open(source) as store:
        yield store
