"""Results for which nothing waits any more: kept as annotations, also when the run has stopped or ended meanwhile."""

import logging
from collections.abc import Callable

from refold.engine.journal import Journal
from refold.engine.schedule import due_in
from refold.engine.stores import StoreSource, opened
from refold.engine.tenure import BRIEF, Tenure
from refold.reducers.events import LateResult
from refold.reducers.guards import Registry
from refold.reducers.state import RunState
from refold.store.protocol import LEASE_SECONDS

_PATIENCE = LEASE_SECONDS + BRIEF
"""Seconds that another engine is waited for: it lets the run go soon, or its lease runs out."""

_LOGGER = logging.getLogger("refold.late")

LateMaker = Callable[[RunState, int, bytes], LateResult]
"""(state, at, salt) -> the annotation, when its turn has come."""


async def keep_late(
    source: StoreSource,
    run: str,
    registry: Registry,
    now: Callable[[], int],
    salts: Callable[[int], bytes],
    make: LateMaker,
) -> None:
    """Bring a late result into the log of a run that no engine here drives any more.

    Where that cannot be (another engine has the run, the store is closed), a warning says that it is lost.
    """
    try:
        async with opened(source) as store:
            tenure = Tenure(store, run, BRIEF, patience=_PATIENCE)
            journal = Journal(store, run, tenure)
            due: float | None = 0.0
            try:
                await tenure.hold()
                state = await journal.load(registry)
                due = due_in(state, now())
                salt = salts(state.seq + 1)
                await journal.annotate(state, make(state, max(state.at, now()), salt), salt, registry)
            finally:
                await tenure.let_go(due)
    except Exception as error:  # nobody waits for this: it must not bring down the event loop
        _LOGGER.warning("run %s: a result that came late could not be kept: %s", run, error)
