"""Every version of the decision rules that a log may name. Old ones stay here, and stay callable.

A run is decided by the rules that it was started under, for as long as it lives: resumed or audited, by
whatever version of refold.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from refold.reducers.errors import NewerLog
from refold.reducers.events import Decision, Fact
from refold.reducers.rules.order import RULES, Look, decide
from refold.reducers.state import RunState


class Decide(Protocol):
    """What follows from a fact: see `refold.reducers.rules.order.decide`."""

    def __call__(
        self, state: RunState, fact: Fact, look: Look | None = None, /
    ) -> list[tuple[Decision, RunState]]:
        """Each decision, with the state after it."""
        ...


VERSIONS: Mapping[int, Decide] = MappingProxyType({RULES: decide})


def rules_of(state: RunState) -> Decide:
    """The rules that a run is decided by. Raises `NewerLog` for rules that this version does not have."""
    found = VERSIONS.get(state.setup.rules)
    if found is None:
        raise NewerLog(state.setup.run, state.seq, f"decision rules version {state.setup.rules}")
    return found
