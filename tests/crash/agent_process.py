"""Agents in processes of their own, to be killed.

This is the process that starts them: it imports everything once and forks, so that a kill costs a millisecond
and not an import. It reads commands, a line each: `go` with a store, a run, a file for effects and a pipe,
tab between; `kill`; `wait`. To the last two it answers with the process's status, as `waitpid` gave it.

An agent begins its run, or takes it up where its log ends, and writes into the pipe the number of each event
that it was told is recorded. Its tools write a line each, and have it on disk, in a file of which the store
knows nothing.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel

from refold.engine import Agent, CallContext, ModelRequest, Recorded, Reply, Tool, calls, say, tool
from refold.engine.models.protocol import Delta
from refold.engine.models.script import deltas
from refold.reducers.vocabulary import Role
from refold.store import SqliteStore

STEPS = 10


class Planner:
    """A model that knows from what it is shown, and from nothing else, what comes next."""

    name = "planner"
    priced = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await anyio.lowlevel.checkpoint()
        step = sum(message.role is Role.ASSISTANT for message in request.messages)
        arguments = {"step": step}
        reply = say(f"Did {step} steps.")
        if step < STEPS:
            reply = calls(("look", arguments), ("fix", arguments), ("act", arguments))
        for delta in deltas(reply):
            yield delta
        yield reply

    async def aclose(self) -> None:
        """Nothing to let go of."""


def tools(effects: Path) -> list[Tool]:
    def write(name: str, context: CallContext) -> str:
        descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{name} {context.call} {context.key}\n".encode())
        os.fsync(descriptor)
        os.close(descriptor)
        return f"{name} done"

    @tool(replay="read_only")
    async def look(step: int, context: CallContext) -> str:
        return write("look", context)

    @tool(replay="idempotent")
    def fix(step: int, context: CallContext) -> str:
        return write("fix", context)

    @tool(replay="at_most_once")
    def act(step: int, context: CallContext) -> str:
        return write("act", context)

    return [look, fix, act]


async def main(path: str, run_id: str, effects: str, pipe: str) -> None:
    with Path(pipe).open("w") as told:  # noqa: ASYNC230 - nothing else goes on yet
        async with await SqliteStore.open(path) as store:
            agent = Agent(model=Planner(), tools=tools(Path(effects)), store=store)
            began = (await store.head(run_id)).seq > 0
            run = agent.resume(run_id) if began else agent.start("Work.", run_id=run_id)
            async for update in run.updates():
                if isinstance(update, Recorded):
                    print(update.seq, file=told, flush=True)


def serve() -> None:
    child = 0
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        if command == "go":
            child = os.fork()
            if child == 0:
                os.setsid()
                try:
                    anyio.run(main, *words)
                finally:
                    sys.stderr.flush()
                    os._exit(int(sys.exc_info()[0] is not None))
            continue
        if command == "kill":
            os.kill(child, signal.SIGKILL)  # ours until it is waited for, even if it is over
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
