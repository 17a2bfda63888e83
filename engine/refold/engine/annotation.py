"""A word beside a log: recorded in any run, whether it goes on or has ended, and nothing follows from it."""

import logging
import time
from collections.abc import Callable

from refold.engine import entropy
from refold.engine.journal import Journal
from refold.engine.makers import LateMaker
from refold.engine.runtime import Runtime
from refold.engine.schedule import due_in
from refold.engine.stores import opened
from refold.engine.tenure import BRIEF, Tenure
from refold.reducers.events import Annotation
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import RunState
from refold.reducers.vocabulary import shared
from refold.store.protocol import LEASE_SECONDS, Store, UnknownRun

AnnotationMaker = Callable[[RunState, int, bytes], Annotation]
"""(state, at, salt) -> the annotation."""

_PATIENCE = LEASE_SECONDS + BRIEF
"""Seconds that another engine is waited for: it lets the run go soon, or its lease runs out."""

_LOGGER = logging.getLogger("refold.late")


async def annotate(
    store: Store,
    run: str,
    make: AnnotationMaker,
    *,
    registry: Registry = BUILTIN,
    salts: entropy.Salts | None = None,
    now: Callable[[], int] = time.time_ns,
    patience: float = 0.0,
) -> RunState:
    """Append an annotation, and leave the run as it was, waiting for an engine or not. The state after it.

    `patience`: so many seconds an engine is waited for that has the run. Raises `UnknownRun`, `Damaged`, `Held` while
    an engine has the run, `Overtaken` if one wrote just now, and what a store raises.
    """
    if not (await store.head(run)).seq:
        raise UnknownRun(run)
    claim = await store.claim(run)
    async with Tenure(store, run, BRIEF, patience=patience) as tenure:
        # Taking the lease makes the store forget who wants an engine, and when.
        tenure.due = None if claim is None else max(0.0, claim.seconds)
        await tenure.hold()
        journal = Journal(store, run, tenure)
        state = await journal.load(registry)
        if claim is not None and claim.holder:  # it has the run no more, and may have said otherwise
            tenure.due = due_in(state, now())
        salt = (salts or entropy.salts(None))(state.seq + 1)
        event = make(state, max(state.at, now()), salt)
        after = evolve(state, event, registry)
        await journal.append(state, after, (event,), salt)
        return after


async def keep_late(runtime: Runtime, run: str, make: LateMaker) -> None:
    """Bring a late result into the log of a run that no engine here drives any more.

    Where that cannot be (another engine has the run, the store is closed), a warning says that it is lost.
    """
    try:
        async with opened(runtime.store) as store:
            await annotate(
                store,
                run,
                make,
                now=runtime.world.clock.now,
                patience=_PATIENCE,
                **shared(runtime, "registry", "salts"),
            )
    except BaseException as error:
        _LOGGER.warning(
            "run %s: a result that came late could not be kept: %s", run, str(error) or type(error).__name__
        )
        if not isinstance(
            error, Exception
        ):  # else no task waits for this: it must not bring down the event loop
            raise
