"""A word beside a log: recorded in any run, whether it goes on or has ended, and nothing follows from it."""

import time
from collections.abc import Callable

from refold.engine import entropy
from refold.engine.journal import Journal
from refold.engine.tenure import BRIEF, Tenure
from refold.reducers.events import Annotation
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import RunState
from refold.store.protocol import Claim, Store, UnknownRun

AnnotationMaker = Callable[[RunState, int, bytes], Annotation]
"""(state, at, salt) -> the annotation."""


async def annotate(
    store: Store, run: str, make: AnnotationMaker, *, registry: Registry = BUILTIN
) -> RunState:
    """Append an annotation, and leave the run as it was, waiting for an engine or not. The state after it.

    Raises `UnknownRun`, `Damaged`, `Held` while an engine has the run, `Overtaken` if one wrote just now, and what a
    store raises.
    """
    if not (await store.head(run)).seq:
        raise UnknownRun(run)
    tenure = Tenure(store, run, BRIEF)
    journal = Journal(store, run, tenure)
    # Reading may take long, the lease is short: it is taken for the writing, which is refused if the log went on.
    state = await journal.load(registry)
    wanted = _wanted_in(await store.claim(run))
    try:
        await tenure.hold()
        salt = entropy.salts(None)(state.seq + 1)
        event = make(state, max(state.at, time.time_ns()), salt)
        return await journal.annotate(state, event, salt, registry)
    finally:
        await tenure.let_go(wanted)


def _wanted_in(claim: Claim | None) -> float | None:
    """In how many seconds an engine is wanted: taking the lease makes the store forget it."""
    if claim is None:
        return None
    return 0.0 if claim.holder else max(0.0, claim.seconds)  # a holder whose lease we get is gone
