"""Control over runs by their log alone.

Runs can be answered and halted without model and tools. Halting a run takes its lease away: the engine that
drives it cannot write any longer, and stops when it notices. Calls in flight are settled as outcome unknown.
"""

from collections.abc import Callable

import msgspec

from refold.engine import clock
from refold.engine.clock import SystemClock
from refold.engine.compatibility import installed_guards, refuse_blind
from refold.engine.journal import Journal, refuse_imported
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
    """Return a run for adding an answer or a resolution to its log: `run.answer(...)`, `await run.detach()`.

    It cannot be driven, because it has no model and no tools. `registry` has its guards, by default the
    installed ones. Guards take part in decisions that follow an answer, so a missing guard raises `WrongUse`.
    """
    runtime = _runtime_without_model(store, registry or installed_guards(), refuse_blind)
    return Run(run, msgspec.structs.replace(runtime, driven=False), None)


async def halt(
    store: Store, run: str, reason: str = "", *, by: str = "user", registry: Registry = BUILTIN
) -> RunResult:
    """Cancel a run and the child runs that it waits for, even while engines drive them.

    A run that has ended stays unchanged. Raises `UnknownRun`, `RunImported`, `Damaged`, and errors of the
    store.
    """
    if not (await store.head(run)).seq:
        raise UnknownRun(run)
    await refuse_imported(store, run)
    async with Tenure(store, run, LEASE_SECONDS, take_over=True) as tenure:
        await tenure.hold()  # first, so that its engine cannot record what it starts from here on
        state = await Journal(store, run, tenure).load(registry)
        for child in () if state.ended else open_children(state):
            if (await store.head(child)).seq:
                await halt(store, child, reason, by=by, registry=registry)
        halted = Run(run, _runtime_without_model(store, registry, _accept_any), None, take_over=True)
        if not state.ended:
            halted.cancel(reason, by=by)
        return await halted.result()


def _runtime_without_model(store: Store, registry: Registry, check: Callable[[RunState], None]) -> Runtime:
    return Runtime(
        world=World(model=ScriptedModel([]), tools={}, clock=SystemClock(), redactor=redactor_of()),
        store=store,
        registry=registry,
        salts=clock.new_salts(None),
        check=check,
    )


def _accept_any(state: RunState) -> None:
    """Accept any run: neither its model nor its tools are used."""
