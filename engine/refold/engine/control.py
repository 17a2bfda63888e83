"""A run of which nothing is at hand but its log: no model, no tool, no guard.

It can be told something, and stopped. An engine that drives it is fenced out when it is stopped: that can write
nothing more, and ends when it notices. What was in flight is settled honestly: how it ended is unknown.
"""

from collections.abc import Callable

import msgspec

from refold.engine import entropy
from refold.engine.clock import SystemClock
from refold.engine.compatibility import refuse_blind
from refold.engine.guards import installed_guards
from refold.engine.imported_runs import refuse_imported
from refold.engine.journal import Journal
from refold.engine.models.script import ScriptedModel
from refold.engine.result import RunResult
from refold.engine.run import Run
from refold.engine.runtime import Runtime
from refold.engine.secrets import redactor_of
from refold.engine.tenure import Tenure
from refold.engine.world import World
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.meters import open_children
from refold.reducers.state import RunState
from refold.store.protocol import LEASE_SECONDS, Store, UnknownRun


def unattended(store: Store, run: str, registry: Registry | None = None) -> Run:
    """The run, to put an answer or a resolution into its log and leave it: `run.answer(...)`, `await run.detach()`.

    It cannot be driven: it has no model and no tools. `registry` names its guards, by default those installed here:
    they have their say in what follows from an answer, so one that is missing is refused with `WrongUse`.
    """
    runtime = _nowhere(store, registry or installed_guards(), refuse_blind)
    return Run(run, msgspec.structs.replace(runtime, driven=False), None)


async def halt(
    store: Store, run: str, reason: str = "", *, by: str = "user", registry: Registry = BUILTIN
) -> RunResult:
    """Cancel a run, and the child runs that it waits for, even while an engine drives them. A run that has ended stays so.

    Raises `UnknownRun`, `RunImported`, `Damaged`, and what a store raises.
    """
    if not (await store.head(run)).seq:
        raise UnknownRun(run)
    await refuse_imported(store, run)
    async with Tenure(store, run, LEASE_SECONDS, take_over=True) as tenure:
        await tenure.hold()  # first: what its engine begins from here on is lost
        state = await Journal(store, run, tenure).load(registry)
        for child in () if state.ended else open_children(state):
            if (await store.head(child)).seq:
                await halt(store, child, reason, by=by, registry=registry)
        halted = Run(run, _nowhere(store, registry, _anything), None, take_over=True)
        if not state.ended:
            halted.cancel(reason, by=by)
        return await halted.result()


def _nowhere(store: Store, registry: Registry, check: Callable[[RunState], None]) -> Runtime:
    return Runtime(
        world=World(model=ScriptedModel([]), tools={}, clock=SystemClock(), redactor=redactor_of()),
        store=store,
        registry=registry,
        salts=entropy.salts(None),
        check=check,
    )


def _anything(state: RunState) -> None:
    """Whatever the run was started with: nothing of it is used."""
