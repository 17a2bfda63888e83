"""The world, as effects meet it: models, tools and clocks; and one effect on its way through it."""

import math
from collections.abc import Callable, Mapping
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
    """One model, some tools and a clock; `models` are others that may be asked instead, by name.

    `clocks` makes those of child runs; `repeatable`: their salts follow from their seeds, as this run's do.
    `redactor` knows the secrets that must not get into a log: what a model or a tool says passes it where it
    comes in.
    """

    model: Model
    tools: Mapping[str, Tool]
    clock: Clock
    models: Mapping[str, Model] = {}
    clocks: Callable[[], Clock] = SystemClock
    repeatable: bool = False
    redactor: Redactor = PLAIN

    def redactor_of(self, state: RunState) -> Redactor:
        """What is looked for in the run of this state: with the patterns of its own policy."""
        return self.redactor.under(state.policy.redact)


class Child(Protocol):
    """A run that a call started, while it is driven here."""

    def cancel(self, reason: str = "", *, by: str = "user") -> None:
        """Let it settle what is in flight, and end."""
        ...

    async def result(self) -> RunResult:
        """Drive it until it ends, or waits for a person."""
        ...


class Work(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One effect under way, and what its engine lends to it. `state` is that at which it was begun.

    `scope` is cancelled to settle it. `epoch` is the fencing token of the engine's lease. `audience` is who
    watches, `late` is told what a thread says after its call was cut off, `aside` that nothing more can be
    done for now: a child run waits for a person. `children` has the child runs that go on, by their ids.
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
    children: dict[str, Child]

    @property
    def call(self) -> RunTool | Reconcile:
        """The effect, of a call."""
        assert isinstance(self.effect, (RunTool, Reconcile))
        return self.effect

    @property
    def arguments(self) -> str:
        """The arguments of the call, as JSON text."""
        return arguments_of(self.state, self.call.call, self.journal.contents)

    @property
    def context(self) -> CallContext:
        """What a tool may know of the call."""
        call = self.call
        return CallContext(run=self.state.setup.run, call=call.call, key=call.key, epoch=self.epoch)

    @property
    def redactor(self) -> Redactor:
        """What is looked for in whatever is said here."""
        return self.world.redactor_of(self.state)

    def bound(self, timeout: int | None = None) -> AbstractContextManager[object]:
        """Cuts the block off once the effect has taken too long, or after `timeout` nanoseconds."""
        until = self.effect.until
        if until is None and timeout is None:
            return _UNBOUND
        left = math.inf if until is None else max(0, until - self.world.clock.now())
        return anyio.move_on_after((left if timeout is None else min(left, timeout)) / NANO)


class LongTool(Tool, frozen=True, kw_only=True):
    """A tool that sees its calls through itself: with facts of its own, and again after a crash, to their
    end.
    """

    async def see_through(self, work: Work) -> tuple[Maker, ...]:
        """The facts in which the call ends, its result last."""
        raise NotImplementedError
