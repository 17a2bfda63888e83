"""Makers of facts: the instant, the salt and the state at which a fact enters the log are known only when its turn comes."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from refold.reducers.events import Fact, LateResult
from refold.reducers.state import RunState

Maker = Callable[[RunState, int, bytes], Fact]
"""(state, at, salt) -> the fact, when its turn in the queue has come."""

LateMaker = Callable[[RunState, int, bytes], LateResult]
"""The same for a result for which nothing waits any more."""

FactT = TypeVar("FactT", bound=Fact)


def maker(fact: FactT, complete: Callable[[RunState, FactT, bytes], Fact]) -> Maker:
    """Gives the fact its instant, and has it completed with what was said: `complete(state, fact, salt)`."""
    return lambda state, at, salt: complete(state, replace(fact, at=at), salt)


def recorded(fact: Fact) -> Maker:
    """The fact as it stands, with the instant that it has."""
    return lambda state, at, salt: fact  # noqa: ARG005
