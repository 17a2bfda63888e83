"""Stores on disk that are opened at their first use, so that a test may create them where it would create a
`MemoryStore`.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from anyio import CancelScope, Lock

from refold.store import open_store
from refold.store.base import BaseStore

_PAGES = ("read", "sealed_heads", "seals", "runs")


class DurableStore:
    """Every method of a `Store`, over the store at an address, which is opened by the first call."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._store: BaseStore | None = None
        self._lock = Lock()

    async def _open(self) -> BaseStore:
        async with self._lock:
            with CancelScope(shield=True):
                if self._store is None:
                    self._store = await open_store(self.address, durability="process")
            assert self._store is not None
            return self._store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _PAGES:
            return lambda *args, **kwargs: _Pages(lambda: self._pages(name, *args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(await self._open(), name)(*args, **kwargs)

        return call

    async def _pages(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(await self._open(), name)(*args, **kwargs)

    async def aclose(self) -> None:
        if self._store is not None:
            await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It stays open until its test ends, as what it has may be read again."""


class _Pages:
    """Pages of a store that may not be open yet."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin
        self._pages: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Any]:
        if self._pages is None:
            self._pages = aiter(await self._begin())
        page: Sequence[Any] = await anext(self._pages)
        return page
