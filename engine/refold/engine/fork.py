"""Forks, annotations, and late results: events for runs that no engine drives."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from refold.engine import clock
from refold.engine.arguments import opened
from refold.engine.clock import LateMaker, Maker, maker
from refold.engine.compatibility import refuse_unmeasured, refuse_unpriced
from refold.engine.journal import Journal, RunExists
from refold.engine.runtime import Runtime, due_in
from refold.engine.tenure import BRIEF, Tenure
from refold.reducers import composition
from refold.reducers.composition import forked
from refold.reducers.errors import DamagedLog, WrongUse
from refold.reducers.events import Annotation, Fact, InputReceived, RunForked, RunStarted, ToolReturned
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import versions_of
from refold.reducers.pending import whole
from refold.reducers.policy import Policy
from refold.reducers.sizes import refuse_unmeasured_cuts, refuse_without_tokenizer
from refold.reducers.state import RunState
from refold.store.protocol import LEASE_SECONDS, Store, UnknownRun

T = TypeVar("T")

MADE_UP = "a user"
"""Author of replaced results and added messages if no name is given."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A fork to be made: `opened` is how a new run of the agent would begin; `results` are by call.

    `policy`, if given, is valid and replaces the parent's.
    """

    opened: RunStarted
    parent: str
    at: int
    runtime: Runtime
    policy: Policy | None
    say: str = ""
    results: Mapping[str, str] = {}
    by: str = MADE_UP

    async def begin(self, journal: Journal) -> tuple[RunState, list[Maker]]:
        """Return the state at the fork, and the fork's first facts.

        Raises `WrongUse` for a place where the log cannot be forked, and `RunExists` for an id in use.
        """
        if (await journal.store.head(self.opened.run)).seq:
            raise RunExists(self.opened.run)
        journal.base = self.parent, self.at
        around = await journal.store.read_some(self.parent, [self.at, self.at + 1])
        if not around or around[0].seq != self.at:
            head = await journal.store.head(self.parent)
            if not head.seq:
                raise UnknownRun(self.parent)
            raise WrongUse(
                f"run {self.parent} has events 1 to {head.seq} and cannot be forked at event {self.at}"
            )
        state = await journal.load(self.runtime.registry)
        policy = self.policy or state.policy
        refuse_unpriced(policy, [self.runtime.world.model])
        refuse_unmeasured(policy, self.runtime.world.model)
        refuse_without_tokenizer(policy)
        refuse_unmeasured_cuts(state, policy)
        if state.seq != self.at:
            raise DamagedLog(self.parent, state.seq + 1, "the event is missing")
        self._check(state, around[1].kind if len(around) > 1 else None)
        return state, self._facts(state, around[0].run, around[0].hash)

    def _check(self, state: RunState, following: str | None) -> None:
        if not whole(state, following):
            why = (
                f"the run ended there ({state.agent_state})"
                if state.ended
                else f"event {self.at + 1} ({following}) was decided together with this event"
            )
            raise WrongUse(
                f"run {self.parent} cannot be forked at event {self.at}: {why}; `refold.replay.cut` finds a place"
            )

    def _facts(self, state: RunState, parent: str, hashed: bytes) -> list[Maker]:
        # At the end of an imported run no operator is waited for: the fork sends a request, with the message
        # in its prompt.
        waits = state.agent_state.awaits_operator and not state.no_request
        if waits and self.say:
            _refuse_message(state)

        message = "" if waits else self.say
        begun = maker(
            self._opening(state, parent, hashed),
            lambda state, fact, salt: forked(state, fact, message, salt, self.runtime.world.redactor),
        )
        facts = [begun, *(self._result(call, text) for call, text in self.results.items())]
        return [*facts, self._answer()] if waits and self.say else facts

    def _opening(self, state: RunState, parent: str, hashed: bytes) -> RunForked:
        opened, setup = self.opened, state.setup
        another = opened.model != setup.model
        return RunForked(
            at=0,
            run=opened.run,
            rules=opened.rules,
            parent=parent,
            parent_seq=self.at,
            parent_hash=hashed.hex(),
            policy=self.policy,
            model=_change(opened.model, setup.model),
            settings=_change(opened.settings or setup.settings, setup.settings),
            tools=opened.tools,
            seed=opened.seed,
            labels=opened.labels,
            versions=opened.versions,
            guards=versions_of(self.policy or state.policy, self.runtime.registry),
            address=_change(opened.address, setup.address),
            price=_change(opened.price, setup.price),
            context=opened.context or 0 if another else None,
            by=self.by if self.say or self.results else "",
            results=tuple(self.results),
            worker=opened.worker,
        )

    def _result(self, call: str, text: str) -> Maker:
        def complete(state: RunState, fact: ToolReturned, salt: bytes) -> Fact:
            output = self.runtime.world.redactor_of(state).text(text)
            calls = state.batch.calls if state.batch else ()
            name = next((each.name for each in calls if each.id == call), "")
            return composition.returned(state, fact, output, name, "", salt)

        return maker(ToolReturned(at=0, call=call), complete)

    def _answer(self) -> Maker:
        def complete(state: RunState, fact: InputReceived, salt: bytes) -> Fact:
            return composition.received(state, fact, self.say, salt, self.runtime.world.redactor_of(state))

        return maker(InputReceived(at=0, by=self.by), complete)


def _change(now: T, before: T) -> T | None:
    return None if now == before else now


def _refuse_message(state: RunState) -> None:
    asked: Sequence[str] = state.approval.event.calls if state.approval else ()
    if asked or state.batch is not None:
        raise WrongUse(
            f"run {state.setup.run} waits for decisions about calls at event {state.seq}, not for a message: fork it "
            "there without one, and answer the fork"
        )


AnnotationMaker = Callable[[RunState, int, bytes], Annotation]
"""(state, at, salt) -> the annotation."""

_PATIENCE = LEASE_SECONDS + BRIEF
"""Seconds to wait for another engine, until it releases the run or its lease expires."""

_LOGGER = logging.getLogger("refold.late")


async def annotate(
    store: Store,
    run: str,
    make: AnnotationMaker,
    *,
    registry: Registry = BUILTIN,
    salts: clock.Salts | None = None,
    now: Callable[[], int] = time.time_ns,
    patience: float = 0.0,
) -> RunState:
    """Append an annotation, and leave the run runnable or not as it was. Return the state after it.

    `patience`: seconds to wait for an engine that has the run. Raises `UnknownRun`, `Damaged`, `Held` if an
    engine has the run, `Overtaken` if one wrote just now, and errors of the store.
    """
    if not (await store.head(run)).seq:
        raise UnknownRun(run)
    claim = await store.claim(run)
    async with Tenure(store, run, BRIEF, patience=patience) as tenure:
        # Taking the lease makes the store forget when the run is runnable.
        tenure.due = None if claim is None else max(0.0, claim.seconds)
        await tenure.hold()
        journal = Journal(store, run, tenure)
        state = await journal.load(registry)
        if claim is not None and claim.holder:  # that engine's lease expired, so its due time may be outdated
            tenure.due = due_in(state, now())
        salt = (salts or clock.new_salts(None))(state.seq + 1)
        event = make(state, max(state.at, now()), salt)
        after = evolve(state, event, registry)
        await journal.append(state, after, (event,), salt)
        return after


async def keep_late(runtime: Runtime, run: str, make: LateMaker) -> None:
    """Record a late result in the log of a run that this process does not drive any longer.

    If that fails (another engine has the run, the store is closed), log a warning that it is lost.
    """
    try:
        async with opened(runtime.store) as store:
            await annotate(
                store,
                run,
                make,
                registry=runtime.registry,
                salts=runtime.salts,
                now=runtime.world.clock.now,
                patience=_PATIENCE,
            )
    except BaseException as error:
        _LOGGER.warning(
            "run %s: a late result could not be recorded: %s", run, str(error) or type(error).__name__
        )
        if not isinstance(error, Exception):  # nothing awaits this task, so an error would end the event loop
            raise
