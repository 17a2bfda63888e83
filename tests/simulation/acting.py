"""The model, the tools and the operator of our own simulations. The tools keep a ledger."""

import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
import trio

from refold.engine import CallContext, ModelRequest, Reply, Run, Tool, calls, fail, say, tool
from refold.engine.tools.protocol import CannotTell, DidNot, Happened, Reconciled
from refold.reducers import pending
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, StopReason
from refold.testing.simulation.faults import Kind, Point
from refold.testing.simulation.models import Thought
from refold.testing.simulation.process import Process, current
from refold.testing.simulation.world import Call, Execution, World

_PASSING = (
    FailureClass.OVERLOADED,
    FailureClass.RATE_LIMIT,
    FailureClass.NETWORK,
    FailureClass.TIMEOUT,
    FailureClass.STREAM_BROKEN,
)


class Whim(msgspec.Struct, frozen=True):
    """Responds with anything, by its seed and the prompt; after `most` requests it only ends the run."""

    seed: str
    tools: tuple[str, ...]
    most: int = 10

    def think(self, request: ModelRequest, world: World) -> Thought:
        """Return a response that depends on the request and on how often it was made."""
        shown = hashlib.sha256(msgspec.msgpack.encode(tuple(request.messages))).hexdigest()
        world.asked[shown] += 1
        world.asked[self.seed] += 1
        chance = random.Random(f"{self.seed} {shown} {world.asked[shown]}")
        takes = chance.choice((0.0, 0.0, 0.5, 3.0, 70.0))
        if world.asked[self.seed] > self.most:
            return Thought(say("Done."))
        kind = chance.choices(
            ("calls", "plain", "fail", "broken", "empty", "raises"), (55, 15, 12, 10, 5, 3)
        )[0]
        match kind:
            case "calls":
                return Thought(self._calls(chance), takes)
            case "plain":
                stop = chance.choice((StopReason.END_TURN, StopReason.END_TURN, StopReason.MAX_TOKENS))
                return Thought(
                    say(chance.choice(("Well.", "More of it.\nDONE", "Hm " * 9)), stop=stop), takes
                )
            case "fail":
                partial = chance.choice(("", "Half of"))
                retry = chance.choice((None, None, 2_000_000_000))
                failure = chance.choice((*_PASSING, *_PASSING, *FailureClass))
                return Thought(fail(failure, partial_text=partial, retry_after=retry), takes)
            case "empty":
                return Thought(say(chance.choice(("", " "))), takes)
            case _:
                return Thought(self._calls(chance), takes, breaks=kind == "broken", raises=kind == "raises")

    def _calls(self, chance: random.Random) -> Reply:
        made = [self._call(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
        return calls(*made, text=chance.choice(("", "Let me see.\n")))

    def _call(self, chance: random.Random) -> tuple[str, dict[str, Any] | str]:
        name = chance.choice((*self.tools, *self.tools, "missing"))
        if chance.random() < 0.05:
            return name, '{"takes": '
        if name.startswith("transfer_to_"):
            return name, {"task": f"Part {chance.randint(1, 9)}."}
        takes = chance.choice((0, 0, 0.2, 4, 90))
        return name, {"takes": takes, "fails": chance.random() < 0.1, "lot": chance.randint(1, 3)}


def _raised(kind: Kind) -> Exception:
    return RuntimeError(f"as planned ({kind})")


def _tool(
    name: str,
    replay: Replay,
    timeout: float | None = None,
    reconcile: Callable[[CallContext], Awaitable[Reconciled]] | None = None,
) -> Tool:
    @tool(name=name, replay=replay, timeout=timeout, reconcile=reconcile)
    async def run(context: CallContext, takes: float = 0.0, fails: bool = False, lot: int = 0) -> str:
        process = current.get()
        return await _act(
            process, Execution(process.number, name, replay, context.key), context, takes, fails
        )

    return run


class Fences:
    """The newest epoch of each call that the ledger accepts."""

    def __init__(self) -> None:
        self._epochs: dict[Call, int] = {}

    def raise_epoch(self, call: Call, epoch: int) -> None:
        """Refuse engines with an older epoch from now on."""
        self._epochs[call] = max(epoch, self._epochs.get(call, 0))

    def accepts(self, call: Call, epoch: int) -> bool:
        """Return whether an engine with this epoch may have an effect for the call."""
        return epoch >= self._epochs.get(call, 0)


def _fences(world: World) -> Fences:
    return cast("Fences", world.state)


async def _reconcile(context: CallContext) -> Reconciled:
    """Return what the ledger has; sometimes the outcome is unknown."""
    process = current.get()
    await process.through(Point.RECONCILE, trio.lowlevel.checkpoint, _raised)
    if process.world.chance.random() < 0.1:
        return CannotTell()
    if process.world.acted((context.run, context.call)):
        return Happened(f"the outcome of {context.call}" if process.world.chance.random() < 0.8 else None)
    return DidNot()


async def _reconcile_fenced(context: CallContext) -> Reconciled:
    """Return the same, from a ledger that refuses engines that were replaced."""
    _fences(current.get().world).raise_epoch((context.run, context.call), context.epoch)
    found = await _reconcile(context)
    return DidNot(final=True) if isinstance(found, DidNot) else found


async def _act(
    process: Process, execution: Execution, context: CallContext, takes: float, fails: bool
) -> str:
    if process.dead:
        raise _raised(Kind.KILL)
    call, world = (context.run, context.call), process.world
    world.begin(call, execution)
    world.note(lambda: f"p{process.number} runs {execution.tool} {context.run}/{context.call}")
    await process.through(Point.BEGIN, trio.lowlevel.checkpoint, _raised)
    if process.dead:
        raise _raised(Kind.KILL)

    def act() -> None:
        execution.acted = _fences(world).accepts(call, context.epoch)
        world.note(
            lambda: f"{execution.tool} {call[0]}/{call[1]} of p{execution.process} acts: {execution.acted}"
        )

    # Without delay, it acts in the instant in which its process wakes up.
    await process.through(Point.SEND, world.launch(act, takes / 2).over.wait, _raised)
    if not execution.acted:
        raise _raised(Kind.KILL)
    await process.through(Point.ACT, trio.lowlevel.checkpoint, _raised)
    await trio.sleep(takes / 2)
    if fails:
        raise RuntimeError("it does not work")
    return f"{execution.tool} of {context.call} was done"


TOOLS = (
    _tool("look", Replay.READ_ONLY),
    _tool("set", Replay.IDEMPOTENT),
    _tool("act", Replay.AT_MOST_ONCE),
    _tool("book", Replay.RECONCILABLE, reconcile=_reconcile),
    _tool("pay", Replay.RECONCILABLE, reconcile=_reconcile_fenced),
    _tool("slow", Replay.AT_MOST_ONCE, timeout=5),
)
"""One of each replay class, and one with a time limit of 5 s."""


class Person:
    """An operator who answers a number of times and then stays away."""

    def __init__(self, chance: random.Random, times: int, words: Sequence[str] = ("approve",)) -> None:
        self._chance, self.times, self._words = chance, times, words

    def answer(self, run: Run, state: RunState) -> bool:
        """Answer a run that waits. Return False without an answer."""
        if self.times <= 0:
            return False
        self.times -= 1
        try:
            self._answer(run, state)
        except WrongUse:
            return False
        return True

    def _answer(self, run: Run, state: RunState) -> None:
        doubted = pending.unknown_calls(state) if state.batch is not None else ()
        if doubted and state.approval is None:
            for call in doubted[: self._chance.choice((1, 9))]:
                run.resolve(call, self._known(run.id, call), by="ann")
            return
        if state.approval is None:
            run.send(self._chance.choice(("Go on.", "And now?")))
            return
        words: dict[str, Any] = {}
        for call in state.approval.event.calls:
            word = self._chance.choice(self._words)
            words[call] = ("edit", json.dumps({"takes": 1})) if word == "edit" else word
        some = len(words) > 1 and self._chance.random() < 0.3
        run.answer(dict(list(words.items())[:1]) if some else words, by="ann")

    def _known(self, run: str, call: str) -> Doubt:
        """Return the outcome of a call in the ledger, or that it is unknown."""
        if self._chance.random() < 0.2:
            return Doubt.UNKNOWN
        return Doubt.HAPPENED if current.get().world.acted((run, call)) else Doubt.DID_NOT
