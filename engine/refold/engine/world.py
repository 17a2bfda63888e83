"""The world of effects: models, tools and clocks; and the context of one effect."""

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import anyio
import msgspec

from refold.engine.clock import Clock, LateMaker, Maker, Stopwatch, SystemClock
from refold.engine.journal import Journal
from refold.engine.models.protocol import Model
from refold.engine.result import RunResult
from refold.engine.tools.protocol import CallContext, Tool
from refold.engine.updates import Audience
from refold.reducers.effects import CallModel, Reconcile, RunTool
from refold.reducers.secrets import PLAIN, Redactor
from refold.reducers.state import RunState
from refold.reducers.views import arguments_of
from refold.reducers.vocabulary import NANO

_UNBOUND: AbstractContextManager[object] = nullcontext()


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One model, tools and a clock; `models` are fallbacks, by name.

    `clocks` makes the clocks of child runs; `repeatable`: their salts are derived from their seeds, as this
    run's are. `anonymous`: process, versions, ids of responses and results that come too late are not
    recorded. `redactor` removes secrets from what models and tools return, before it is recorded.
    """

    model: Model
    tools: Mapping[str, Tool]
    clock: Clock
    models: Mapping[str, Model] = {}
    clocks: Callable[[], Clock] = SystemClock
    repeatable: bool = False
    anonymous: bool = False
    redactor: Redactor = PLAIN

    def redactor_of(self, state: RunState) -> Redactor:
        """Return the redactor of a run, with the patterns of its policy."""
        return self.redactor.under(state.policy.redact)


class Child(Protocol):
    """A run that a call started and this engine drives."""

    def cancel(self, reason: str = "", *, by: str = "user") -> None:
        """Settle what is in flight, and end the run."""
        ...

    def pause(self) -> None:
        """Stop between two steps, for another engine to continue."""
        ...

    async def result(self) -> RunResult:
        """Drive it until it ends or waits for an operator."""
        ...


class Work(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One effect in flight, begun at `state`, and what its engine lends to it.

    Cancelling `scope` settles it. `epoch` is the fencing token of the engine's lease. `audience` receives
    updates, `late` the result of a thread whose call was cut off. `aside` reports that the effect waits for
    an operator in a child run, or for its engine. `pausing` returns whether this engine is about to stop.
    `serve` serves the effects of child runs. `children` has the child runs in flight, by id.
    """

    effect: CallModel | RunTool | Reconcile
    state: RunState
    world: World
    journal: Journal
    stopwatch: Stopwatch
    scope: anyio.CancelScope
    epoch: int
    audience: Audience
    late: Callable[[LateMaker], None]
    aside: Callable[[], None]
    pausing: Callable[[], bool]
    serve: "Callable[[Work], Awaitable[tuple[Maker, ...]]]"
    children: dict[str, Child]

    @property
    def call(self) -> RunTool | Reconcile:
        """The effect of a call."""
        assert isinstance(self.effect, (RunTool, Reconcile))
        return self.effect

    @property
    def arguments(self) -> str:
        """Arguments of the call as JSON text."""
        return arguments_of(self.state, self.call.call, self.journal.contents)

    @property
    def context(self) -> CallContext:
        """What a tool receives about the call."""
        call = self.call
        return CallContext(run=self.state.setup.run, call=call.call, key=call.key, epoch=self.epoch)

    @property
    def redactor(self) -> Redactor:
        """The redactor of the run."""
        return self.world.redactor_of(self.state)

    def bound(self, timeout: int | None = None) -> AbstractContextManager[object]:
        """Cut the block off at the effect's deadline, or after `timeout` nanoseconds."""
        until = self.effect.until
        if until is None and timeout is None:
            return _UNBOUND
        left = math.inf if until is None else max(0, until - self.world.clock.now())
        return anyio.move_on_after((left if timeout is None else min(left, timeout)) / NANO)


class LongTool(Tool, frozen=True, kw_only=True):
    """A tool that serves its calls itself: with further facts, and by continuing them after a crash."""

    async def see_through(self, work: Work) -> tuple[Maker, ...]:
        """Return the facts that end the call, its result last."""
        raise NotImplementedError
