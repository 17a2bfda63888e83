"""Agents that hand tasks on, in processes of their own, to be killed. Commands as `agent_process` reads them.

Run as a module from the folder of the tests.

An editor hands a task to each of two writers, which act in turn. Whatever an act does to the world it writes,
and has on disk, in a file of which the store knows nothing.
"""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import anyio.lowlevel

from crash import agent_process
from refold.engine import Agent, CallContext, ModelRequest, Reply, Tool, call, calls, say, tool
from refold.engine.models.protocol import Delta
from refold.engine.models.script import deltas
from refold.reducers.vocabulary import Role
from refold.store import SqliteStore
from refold.store.protocol import Head, Lease, Record, Store

ROUNDS, ACTS = 3, 3
POLICY = {"limits": [{"type": "token", "value": 1_000_000}, {"type": "time", "value": 3600}]}


class Counting:
    """A model that knows from how often it answered what comes next."""

    priced = False

    def __init__(self, name: str, line: Callable[[int], Reply]) -> None:
        self.name, self._line = name, line

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await anyio.lowlevel.checkpoint()
        reply = self._line(sum(message.role is Role.ASSISTANT for message in request.messages))
        for delta in deltas(reply):
            yield delta
        yield reply

    async def aclose(self) -> None:
        """Nothing to let go of."""


def acting(effects: Path) -> Tool:
    @tool
    def act(number: int, context: CallContext) -> str:
        descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{context.run} {context.call}\n".encode())
        os.fsync(descriptor)
        os.close(descriptor)
        return f"act {number}"

    return act


def editor(effects: Path, store: Store) -> Agent:
    def writing(answered: int) -> Reply:
        return call("act", number=answered) if answered < ACTS else say(f"{ACTS} acts.")

    def editing(answered: int) -> Reply:
        both = (("ann", {"task": f"Part {answered}."}), ("bob", {"task": f"Part {answered}."}))
        return calls(*both) if answered < ROUNDS else say("All parts are there.")

    writers = [
        Agent(model=Counting(name, writing), tools=[acting(effects)], name=name, policy=POLICY)
        for name in ("ann", "bob")
    ]
    return Agent(
        model=Counting("editor", editing),
        tools=[writer.as_tool() for writer in writers],
        name="editor",
        policy=POLICY,
        store=store,
    )


class Telling:
    """A store that writes a line into a pipe after each append, of whichever run."""

    def __init__(self, store: SqliteStore, told: TextIO) -> None:
        self._store, self._told = store, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        head = await self._store.append(run, expected_seq, lease, records, release=release)
        print(run, head.seq, file=self._told, flush=True)
        return head


async def main(path: str, run_id: str, effects: str, pipe: str) -> None:
    with Path(pipe).open("w") as told:  # noqa: ASYNC230 - nothing else goes on yet
        async with await SqliteStore.open(path) as opened:
            store = Telling(opened, told)
            agent = editor(Path(effects), store)
            began = (await store.head(run_id)).seq > 0
            run = agent.resume(run_id) if began else agent.start("Write.", run_id=run_id)
            result = await run.result()
            assert result.state == "COMPLETED", result.outcome


if __name__ == "__main__":
    agent_process.main = main
    agent_process.serve()
