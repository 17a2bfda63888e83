"""aiosqlite speaks asyncio; this lets any event loop call it, or none where nothing is waited for."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Bridge(Protocol):
    """A way to an asyncio event loop."""

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> Awaitable[T]:
        """Await it: `function(*args)` on asyncio."""
        ...

    async def aclose(self) -> None:
        """Let go of the loop, if it was ours."""
        ...


class DirectBridge:
    """We are on asyncio already, or need no loop at all."""

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> Awaitable[T]:
        """What `function(*args)` gives to await."""
        return function(*args)

    async def aclose(self) -> None:
        """Nothing to let go of."""
