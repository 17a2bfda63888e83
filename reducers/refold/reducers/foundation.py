"""What a run was started with, from the few events that say so.

It decides what limits a run, so it is read from the log each time, and never from a cache beside it.
"""

from collections.abc import Iterable

from refold.reducers.events import Event, PolicyAmended, RunForked, RunStarted, kind_of
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import watches
from refold.reducers.meanings.facts import amended_setup, started_setup
from refold.reducers.meanings.forks import forked_setup
from refold.reducers.state import NEW, Setup, Watch

FOUNDING = frozenset(kind_of(event) for event in (RunStarted, RunForked, PolicyAmended))
"""The kinds of these events: nothing else changes a `Setup`."""


def founded(events: Iterable[Event], registry: Registry = BUILTIN) -> tuple[Setup, tuple[Watch, ...]]:
    """The setup after these events of a log, in order, and its guards as they would be before they saw anything."""
    setup, guards = NEW.setup, tuple[Watch, ...]()
    for event in events:
        match event:
            case RunStarted():
                setup = started_setup(event)
            case RunForked():
                setup = forked_setup(setup, event)
            case PolicyAmended():
                setup = amended_setup(setup, event)
            case _:
                continue
        guards = watches(setup.policy, registry, guards, event.guards)
    return setup, guards
