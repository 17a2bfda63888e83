"""Simulated models: a mind decides their responses, planned faults make them fail."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

import msgspec
import trio

from refold.engine import ModelError, ModelRequest, Reply, say
from refold.engine.models.protocol import Delta, Model
from refold.engine.models.script import deltas
from refold.reducers.vocabulary import FailureClass, Role
from refold.testing.simulation.faults import Kind, Point
from refold.testing.simulation.process import current
from refold.testing.simulation.world import World

Line = Reply | ModelError
Computed = Callable[[ModelRequest], Line]
"""A line that depends on the request."""


class Thought(msgspec.Struct, frozen=True):
    """What a model does with a request: it waits `takes` virtual seconds, then responds with the line.

    `breaks`: the stream ends before the reply. `raises`: the model raises an error that no model may raise.
    """

    line: Line
    takes: float = 0.0
    breaks: bool = False
    raises: bool = False


class Mind(Protocol):
    """Decides what a model responds."""

    def think(self, request: ModelRequest, world: World) -> Thought:
        """Return the response to a request. It may differ when the request is repeated."""
        ...


class Script(msgspec.Struct, frozen=True):
    """Responds with one line a turn, by the number of responses in the prompt: any process can continue.

    The last line is repeated. A failure comes once, before the line after it. A request without tools, as
    for a summary, gets a fixed text. `takes`: virtual seconds of a response, unless its line is a
    `Thought`.
    """

    lines: tuple[Line | Thought | Computed, ...]
    name: str = ""
    takes: float = 0.0

    def think(self, request: ModelRequest, world: World) -> Thought:
        """Return the line of this turn, or a failure that this turn has not had yet."""
        if not request.tools:
            return Thought(say("What was done until now: the first part."), takes=0.3)
        done = sum(message.role is Role.ASSISTANT for message in request.messages)
        turns: list[list[Line | Thought | Computed]] = [[]]
        for line in self.lines:
            turns[-1].append(line)
            if not (isinstance(line, ModelError) or (isinstance(line, Thought) and line.breaks)):
                turns.append([])
        turn = turns[min(done, len(turns) - 2)]
        place = world.asked[f"{self.name} {done}"]
        world.asked[f"{self.name} {done}"] += 1
        line = turn[min(place, len(turn) - 1)]
        if isinstance(line, Thought):
            return line
        return Thought(line if isinstance(line, Reply | ModelError) else line(request), self.takes)


class SimulatedModel:
    """A model that any process can ask. With `like`, it has the name and context window of that model."""

    def __init__(self, mind: Mind, like: Model | None = None) -> None:
        self._mind = mind
        self.name = "simulated" if like is None else like.name
        self.priced = True if like is None else like.priced
        self.context: int | None = 200 if like is None else getattr(like, "context", None)
        self.address: str = getattr(like, "address", "")
        self.price: str = getattr(like, "price", "")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream the response of the mind, with the planned faults."""
        process = current.get()
        thought = await process.through(Point.ASK, lambda: self._think(request), _overloaded)
        await trio.sleep(thought.takes)
        if isinstance(thought.line, ModelError):
            raise ModelError(
                thought.line.failure,
                thought.line.message,
                status=thought.line.status,
                retry_after=thought.line.retry_after,
                partial_text=thought.line.partial_text,
            )
        for delta in deltas(thought.line):
            await process.through(Point.SAY, trio.lowlevel.checkpoint, _broken)
            yield delta
        if thought.raises:
            raise RuntimeError("a model that breaks its protocol")
        if not thought.breaks:
            yield thought.line

    async def _think(self, request: ModelRequest) -> Thought:
        return self._mind.think(request, current.get().world)

    async def aclose(self) -> None:
        """Do nothing."""


class FaultyModel:
    """A model of the user's own, with the planned faults."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.priced = model.name, model.priced
        self.context: int | None = getattr(model, "context", None)
        self.address: str = getattr(model, "address", "")
        self.price: str = getattr(model, "price", "")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream the response of the model."""
        process = current.get()
        await process.through(Point.ASK, trio.lowlevel.checkpoint, _overloaded)
        async with aclosing(self._model.stream(request)) as stream:
            async for item in stream:
                if not isinstance(item, Reply):
                    await process.through(Point.SAY, trio.lowlevel.checkpoint, _broken)
                yield item

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()


def _overloaded(kind: Kind) -> Exception:
    return ModelError(FailureClass.OVERLOADED, f"as planned ({kind})")


def _broken(kind: Kind) -> Exception:
    return ModelError(FailureClass.STREAM_BROKEN, f"as planned ({kind})")
