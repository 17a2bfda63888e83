"""Who acts in a simulated world: models that say what they are shown to deserve, tools that keep a ledger,
people.
"""

import hashlib
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
import trio

from refold.engine import CallContext, ModelError, ModelRequest, Reply, Run, Tool, calls, fail, say, tool
from refold.engine.models.protocol import Delta
from refold.engine.models.script import deltas
from refold.engine.tools.protocol import CannotTell, DidNot, Happened, Reconciled
from refold.reducers import pending
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, Role, StopReason
from simulation.faults import Kind, Point
from simulation.process import Process, current
from simulation.world import Execution, World

Line = Reply | ModelError


class Thought(msgspec.Struct, frozen=True):
    """What a model will do with a request: wait `takes` virtual seconds, then say it.

    `breaks`: the stream ends before its last word. `raises`: with an error that no model should raise.
    """

    line: Line
    takes: float = 0.0
    breaks: bool = False
    raises: bool = False


class Mind(Protocol):
    """What makes a model say one thing rather than another."""

    def think(self, request: ModelRequest, world: World) -> Thought:
        """What is said to this request; to the same one, another time, it may be something else."""
        ...


class Script(msgspec.Struct, frozen=True):
    """Says one line a turn, in order, and the last one for ever; without tools to offer, it sums up.

    Lines that are failures come before a line's first try.
    """

    lines: tuple[Line | Thought, ...]
    name: str = ""

    def think(self, request: ModelRequest, world: World) -> Thought:
        """The line after as many as the request shows answers; a failure, until it has failed so once."""
        if not request.tools:
            return Thought(say("What was done until now: the first part."), takes=0.3)
        said = sum(message.role is Role.ASSISTANT for message in request.messages)
        turns: list[list[Line | Thought]] = [[]]
        for line in self.lines:
            turns[-1].append(line)
            if not (isinstance(line, ModelError) or (isinstance(line, Thought) and line.breaks)):
                turns.append([])
        turn = turns[min(said, len(turns) - 2)]
        place = world.asked[f"{self.name} {said}"]
        world.asked[f"{self.name} {said}"] += 1
        line = turn[min(place, len(turn) - 1)]
        return line if isinstance(line, Thought) else Thought(line)


_PASSING = (
    FailureClass.OVERLOADED,
    FailureClass.RATE_LIMIT,
    FailureClass.NETWORK,
    FailureClass.TIMEOUT,
    FailureClass.STREAM_BROKEN,
)


class Whim(msgspec.Struct, frozen=True):
    """Says anything, from the seed and from what it is shown; after `most` requests nothing but plain
    ends.
    """

    seed: str
    tools: tuple[str, ...]
    most: int = 10

    def think(self, request: ModelRequest, world: World) -> Thought:
        """The same for the same request, as often as it was asked before."""
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


class SimulatedModel:
    """A model of whichever process asks it. Its failures are those of its mind, and those that are
    planned.
    """

    name = "simulated"
    priced = True
    context = 200

    def __init__(self, mind: Mind) -> None:
        self._mind = mind

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream what comes to mind."""
        process = current.get()
        thought = await process.through(Point.ASK, lambda: self._thought(request), _overloaded)
        await trio.sleep(thought.takes)
        if isinstance(thought.line, ModelError):
            raise ModelError(
                thought.line.failure,
                thought.line.message,
                retry_after=thought.line.retry_after,
                partial_text=thought.line.partial_text,
            )
        for delta in deltas(thought.line):
            await process.through(Point.SAY, trio.lowlevel.checkpoint, _broken)
            yield delta
        if thought.raises:
            raise RuntimeError("a model that breaks its promise")
        if not thought.breaks:
            yield thought.line

    async def _thought(self, request: ModelRequest) -> Thought:
        return self._mind.think(request, current.get().world)

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _overloaded(kind: Kind) -> Exception:
    return ModelError(FailureClass.OVERLOADED, f"as planned ({kind})")


def _broken(kind: Kind) -> Exception:
    return ModelError(FailureClass.STREAM_BROKEN, f"as planned ({kind})")


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


async def _reconciled(context: CallContext) -> Reconciled:
    """What the ledger says; now and then a reconciler does not know."""
    process = current.get()
    await process.through(Point.RECONCILE, trio.lowlevel.checkpoint, _raised)
    if process.world.chance.random() < 0.1:
        return CannotTell()
    if process.world.acted((context.run, context.call)):
        return Happened(f"the outcome of {context.call}" if process.world.chance.random() < 0.8 else None)
    return DidNot()


async def _fenced(context: CallContext) -> Reconciled:
    """The same, of a ledger that takes nothing more from an engine that was replaced."""
    current.get().world.fence((context.run, context.call), context.epoch)
    found = await _reconciled(context)
    return DidNot(final=True) if isinstance(found, DidNot) else found


async def _act(
    process: Process, execution: Execution, context: CallContext, takes: float, fails: bool
) -> str:
    if process.dead:
        raise _raised(Kind.KILL)
    process.world.began((context.run, context.call), execution)
    process.world.say(lambda: f"p{process.number} runs {execution.tool} {context.run}/{context.call}")
    await process.through(Point.BEGIN, trio.lowlevel.checkpoint, _raised)
    if process.dead:
        raise _raised(Kind.KILL)
    # One that takes no time acts in the very moment in which its process wakes.
    over = process.world.send((context.run, context.call), execution, context.epoch, takes / 2)
    await process.through(Point.SEND, over.wait, _raised)
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
    _tool("book", Replay.RECONCILABLE, reconcile=_reconciled),
    _tool("pay", Replay.RECONCILABLE, reconcile=_fenced),
    _tool("slow", Replay.AT_MOST_ONCE, timeout=5),
)
"""One of each replay class, and one that is cut off after 5 s. What they do is in the world's ledger."""


class Person:
    """Somebody who answers what a run asks, so many times, and then stays away."""

    def __init__(self, chance: random.Random, times: int, words: Sequence[str] = ("approve",)) -> None:
        self._chance, self.times, self._words = chance, times, words

    def answer(self, run: Run, state: RunState) -> bool:
        """Answer a run that waits for a person; False for somebody who stays away."""
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
        """What became of a call; people look at the world, and do not always see."""
        if self._chance.random() < 0.2:
            return Doubt.UNKNOWN
        return Doubt.HAPPENED if current.get().world.acted((run, call)) else Doubt.DID_NOT
