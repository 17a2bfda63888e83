"""Results for which nothing waits any more: kept as annotations, also when the run has stopped or ended meanwhile."""

import logging

from refold.engine.journal import Journal
from refold.engine.makers import LateMaker
from refold.engine.runtime import Runtime
from refold.engine.schedule import due_in
from refold.engine.stores import opened
from refold.engine.tenure import BRIEF, Tenure
from refold.store.protocol import LEASE_SECONDS

_PATIENCE = LEASE_SECONDS + BRIEF
"""Seconds that another engine is waited for: it lets the run go soon, or its lease runs out."""

_LOGGER = logging.getLogger("refold.late")


async def keep_late(runtime: Runtime, run: str, make: LateMaker) -> None:
    """Bring a late result into the log of a run that no engine here drives any more.

    Where that cannot be (another engine has the run, the store is closed), a warning says that it is lost.
    """
    try:
        now = runtime.world.clock.now
        async with opened(runtime.store) as store:
            tenure = Tenure(store, run, BRIEF, patience=_PATIENCE)
            journal = Journal(store, run, tenure)
            due: float | None = 0.0
            try:
                await tenure.hold()
                state = await journal.load(runtime.registry)
                due = due_in(state, now())
                salt = runtime.salts(state.seq + 1)
                await journal.annotate(state, make(state, max(state.at, now()), salt), salt, runtime.registry)
            finally:
                await tenure.let_go(due)
    except Exception as error:  # no task waits for this: it must not bring down the event loop
        _LOGGER.warning("run %s: a result that came late could not be kept: %s", run, error)
