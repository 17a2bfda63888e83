"""Effects on the outside world: requests that outlive their process, and a world that records them."""

from collections.abc import Callable
from typing import TypeVar

import anyio.lowlevel
import msgspec
import trio

from refold.engine import CallContext
from refold.testing.simulation.faults import Kind, Point
from refold.testing.simulation.process import current, part

T = TypeVar("T")

_SECONDS = (0.1, 1.0, 5.0)


async def deliver(act: Callable[[], T], seconds: float | None = None) -> T:
    """Model a request to a service: `act` happens in the service, and its result comes back.

    In a simulation, the request takes virtual seconds in each direction, and `act` happens even if the
    process that sent it is suspended or dies. Without a simulation, `act` happens at once.

    Args:
        act: the effect. It must not wait.
        seconds: virtual seconds in each direction; chosen by the seed if None.

    Raises:
        Exception: what `act` raises, or `ConnectionError` for a planned fault: the effect may still happen.
    """
    process = current.get(None)
    if process is None:
        await anyio.lowlevel.checkpoint()
        return act()
    world, sender = process.world, part.get()
    if world.closed:
        raise ConnectionError("the schedule is over; no request is delivered any more")
    takes = world.chance.choice(_SECONDS) if seconds is None else seconds

    def arrive() -> T:
        world.activity.append(sender)
        world.note(lambda: f"a request of p{process.number} arrives")
        return act()

    delivery = world.launch(arrive, takes)
    await process.through(Point.SEND, delivery.over.wait, _disconnected)
    await trio.sleep(takes)
    return delivery.result()


def _disconnected(kind: Kind) -> Exception:
    return ConnectionError(f"as planned ({kind})")


class Effect(msgspec.Struct, frozen=True):
    """An effect in a `Ledger`: its name, and the call that caused it."""

    name: str
    run: str
    call: str
    key: str


class Ledger:
    """An outside world that records effects. It is the default world of a simulation.

    An effect that one call has twice is a violation.
    """

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._epochs: dict[str, int] = {}

    async def effect(self, name: str, context: CallContext, *, once: bool = False) -> None:
        """Have an effect through `deliver`.

        Args:
            name: what the effect is, such as the tool's name.
            context: the call.
            once: whether the world ignores an effect that this call had before, by its idempotency key.

        Raises:
            ConnectionError: a planned fault, or `fence` refused this engine.
        """

        def act() -> None:
            if context.epoch < self._epochs.get(context.key, 0):
                raise ConnectionError(f"engine {context.epoch} was replaced")
            if once and self.happened(name, context):
                return
            self.effects.append(Effect(name, context.run, context.call, context.key))

        await deliver(act)

    def happened(self, name: str, context: CallContext) -> bool:
        """Return whether the call has had this effect."""
        return any(each.name == name and each.key == context.key for each in self.effects)

    def fence(self, context: CallContext) -> None:
        """Refuse effects of this call by engines that were replaced, from now on."""
        self._epochs[context.key] = max(context.epoch, self._epochs.get(context.key, 0))

    def violations(self) -> list[str]:
        """Return a sentence for each effect that a call had twice."""
        seen: list[Effect] = []
        twice: list[Effect] = []
        for each in self.effects:
            (twice if each in seen and each not in twice else seen).append(each)
        return [f"run {each.run} call {each.call}: {each.name} happened more than once" for each in twice]
