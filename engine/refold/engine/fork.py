"""Forks: a new run that goes on live from a prefix of another's log. That one is not changed, and may go on itself."""

from collections.abc import Mapping, Sequence

import msgspec

from refold.engine.compatibility import refuse_unmeasured, refuse_unpriced
from refold.engine.journal import Journal, RunExists
from refold.engine.makers import Maker, maker
from refold.engine.runtime import Runtime
from refold.reducers import composition
from refold.reducers.composition import forked
from refold.reducers.errors import DamagedLog, WrongUse
from refold.reducers.events import Fact, InputReceived, RunForked, RunStarted, ToolReturned
from refold.reducers.guards.duty import versions_of
from refold.reducers.machine import AgentState
from refold.reducers.pending import whole
from refold.reducers.policy import Policy
from refold.reducers.sizes import refuse_unmeasured_cuts, refuse_without_tokenizer
from refold.reducers.state import RunState
from refold.reducers.vocabulary import shared
from refold.store.protocol import UnknownRun

MADE_UP = "a person"
"""Who made up results and messages, where no name is given."""


_AS_ANY = ("run", "rules", "tools", "seed", "labels", "versions", "worker")
"""What a fork's first fact says as that of any run does."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork is to be: `opened` says how a run of the same agent would begin. `results` are made up, by call.

    `policy`, if there is one, was checked, and stands for the parent's.
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
        """The state at the cut, and the facts that the fork begins with.

        Raises `WrongUse` where nothing can be cut, and `RunExists` where the fork's id is taken.
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
                f"run {self.parent} has events 1 to {head.seq}: it cannot be forked at event {self.at}"
            )
        state = await journal.load(self.runtime.registry)
        policy = self.policy or state.policy
        refuse_unpriced(policy, [self.runtime.world.model])
        refuse_unmeasured(policy, self.runtime.world.model)
        refuse_without_tokenizer(policy)
        refuse_unmeasured_cuts(state, policy)
        if state.seq != self.at:
            raise DamagedLog(self.parent, state.seq + 1, "it is missing")
        self._check(state, around[1].kind if len(around) > 1 else None)
        return state, self._facts(state, around[0].run, around[0].hash)

    def _check(self, state: RunState, following: str | None) -> None:
        if not whole(state, following):
            why = (
                f"it has ended there ({state.agent_state})"
                if state.ended
                else f"event {self.at + 1} ({following}) was decided together with it"
            )
            raise WrongUse(
                f"run {self.parent} cannot be forked at event {self.at}: {why}; `refold.replay.cut` names places that can"
            )

    def _facts(self, state: RunState, parent: str, hashed: bytes) -> list[Maker]:
        # Where an imported run's source ends no person is asked: the fork asks the model, and the message goes with it.
        waits = state.agent_state is AgentState.WAITING_FOR_INPUT and not state.unasked
        if waits and self.say:
            _refuse_message(state)

        said = "" if waits else self.say
        begun = maker(
            self._opening(state, parent, hashed),
            lambda state, fact, salt: forked(state, fact, said, salt, self.runtime.world.redactor),
        )
        facts = [begun, *(self._result(call, text) for call, text in self.results.items())]
        return [*facts, self._answer()] if waits and self.say else facts

    def _opening(self, state: RunState, parent: str, hashed: bytes) -> RunForked:
        opened, setup = self.opened, state.setup
        another = opened.model != setup.model
        settings = opened.settings or setup.settings
        return RunForked(
            at=0,
            **shared(opened, *_AS_ANY),
            parent=parent,
            parent_seq=self.at,
            parent_hash=hashed.hex(),
            policy=self.policy,
            model=opened.model if another else None,
            settings=None if settings == setup.settings else settings,
            guards=versions_of(self.policy or state.policy, self.runtime.registry),
            address=opened.address if opened.address != setup.address else None,
            price=opened.price if opened.price != setup.price else None,
            context=opened.context or 0 if another else None,
            by=self.by if self.say or self.results else "",
            results=tuple(self.results),
        )

    def _result(self, call: str, text: str) -> Maker:
        def complete(state: RunState, fact: ToolReturned, salt: bytes) -> Fact:
            said = self.runtime.world.redactor_of(state).text(text)
            calls = state.batch.calls if state.batch else ()
            name = next((each.name for each in calls if each.id == call), "")
            return composition.returned(state, fact, said, name, "", salt)

        return maker(ToolReturned(at=0, call=call), complete)

    def _answer(self) -> Maker:
        def complete(state: RunState, fact: InputReceived, salt: bytes) -> Fact:
            return composition.received(state, fact, self.say, salt, self.runtime.world.redactor_of(state))

        return maker(InputReceived(at=0, by=self.by), complete)


def _refuse_message(state: RunState) -> None:
    asked: Sequence[str] = state.approval.event.calls if state.approval else ()
    if asked or state.batch is not None:
        raise WrongUse(
            f"run {state.setup.run} asks about calls at event {state.seq}, and no message answers that: fork it there "
            "without one, and answer the fork"
        )
