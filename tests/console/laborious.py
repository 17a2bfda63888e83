"""`refold` with a model that asks for one call and then ends, and a tool that tells a file of each time it
ran.

python laborious.py WORD...

The file is named by EFFECTS. While the file that GATE names does not exist, the tool waits for it; with
STUBBORN, whoever cancels it.
"""

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel

from refold.console import agents
from refold.console.main import main
from refold.engine import CallContext, Model, ModelRequest, Reply, call, say, tool
from refold.engine.models.protocol import Delta
from refold.reducers.vocabulary import Role


class Laborious:
    """Knows from what it is shown, and from nothing else, what comes next."""

    name = "laborious"
    priced = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """One call, then an answer."""
        await anyio.lowlevel.checkpoint()
        worked = any(message.role is Role.TOOL for message in request.messages)
        yield say("Worked.") if worked else call("work")

    async def aclose(self) -> None:
        """Nothing to let go of."""


@tool
async def work(context: CallContext) -> str:
    """Do something that must not be done twice."""
    descriptor = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{os.getpid()} {context.run}\n".encode())
    os.close(descriptor)
    with anyio.CancelScope(shield="STUBBORN" in os.environ):
        while not await anyio.Path(os.environ["GATE"]).exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.01)
    return "done"


def resolve(name: str, **_: object) -> Model:
    """The only model there is."""
    return Laborious()


def effects() -> list[tuple[int, str]]:
    """Which process worked on which run, in order."""
    path = Path(os.environ["EFFECTS"])
    rows = path.read_text().splitlines() if path.exists() else []
    return [(int(process), run) for process, run in map(str.split, rows)]


if __name__ == "__main__":
    vars(agents)["model_at"] = resolve
    sys.exit(main(sys.argv[1:]))
