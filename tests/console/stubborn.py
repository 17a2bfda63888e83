"""`refold` with a model that never answers, or a tool that will not be cancelled: for tests that press
Ctrl-C.

python stubborn.py model|tool|flood WORD...
"""

import sys
from collections.abc import AsyncGenerator

import anyio

from refold.console import agents
from refold.console.main import main
from refold.engine import Model, ModelRequest, Reply, ScriptedModel, call, say, tool
from refold.engine.models.protocol import Delta, TextDelta


class Endless:
    """Says one word, and then nothing."""

    name = "endless"
    priced = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Never comes to an end."""
        yield TextDelta("well")
        await anyio.sleep_forever()

    async def aclose(self) -> None:
        """Nothing to let go of."""


@tool
async def hold() -> None:
    """Will not be cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(60)


@tool(replay="read_only")
def flood() -> str:
    """Say a lot."""
    return "much " * 3000


def resolve(name: str, **_: object) -> Model:
    if MODE == "model":
        return Endless()
    if MODE == "tool":
        return ScriptedModel([call("hold"), say("never")])
    return ScriptedModel([call("flood")] * 45 + [say("done")])


if __name__ == "__main__":
    MODE = sys.argv[1]
    vars(agents)["model_at"] = resolve
    sys.exit(main(sys.argv[2:]))
