"""A model that calls the agent's tools at random, with valid arguments."""

import hashlib
import json
import random
from typing import Any, cast

import msgspec

from refold.engine import ModelRequest, Reply, calls, say
from refold.testing.simulation.models import Thought
from refold.testing.simulation.world import World
from refold.testing.tool_arguments import arguments_of


class Whim(msgspec.Struct, frozen=True):
    """Calls tools by the seed of the world and the prompt; after `most` requests it only ends the run."""

    name: str
    most: int = 8

    def think(self, request: ModelRequest, world: World) -> Thought:
        """Return a response that depends on the request and on how often it was made."""
        prompt = hashlib.sha256(msgspec.msgpack.encode(tuple(request.messages))).hexdigest()
        world.asked[prompt] += 1
        world.asked[self.name] += 1
        chance = random.Random(f"whim {world.seed} {self.name} {prompt} {world.asked[prompt]}")
        takes = chance.choice((0.0, 0.5, 3.0))
        if world.asked[self.name] > self.most or not request.tools or chance.random() < 0.15:
            return Thought(say("Done."), takes)
        return Thought(self._call_some(request, chance), takes)

    def _call_some(self, request: ModelRequest, chance: random.Random) -> Reply:
        made: list[tuple[str, dict[str, Any] | str]] = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            tool = chance.choice(request.tools)
            made.append((tool.name, arguments_of(cast("dict[str, Any]", json.loads(tool.schema)), chance)))
        return calls(*made)
