"""What the workers of a storm drive: an agent whose model plans from what it is shown, and tools that leave
traces.

A tool writes a line each time that it really runs, and has it written, into a file of which the store knows
nothing.
"""

import os
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio

from refold.engine import (
    Agent,
    CallContext,
    DidNot,
    Happened,
    ModelRequest,
    Reconciled,
    Reply,
    Tool,
    calls,
    say,
    tool,
)
from refold.engine.models.protocol import Delta
from refold.engine.models.script import deltas
from refold.reducers.vocabulary import Role
from refold.store.base import BaseStore
from refold.store.protocol import Head, Lease, Record

PAUSE = 0.05
"""Seconds that a model thinks, and a tool works: so that a kill finds something under way."""

POLICY = {"limits": [{"type": "step", "value": None}], "history": [{"do": "tail", "last": 12}]}


class Planner:
    """Calls tools for so many steps, then ends."""

    name = "planner"
    priced = False

    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await anyio.sleep(PAUSE)
        last = [message for message in request.messages if message.role is Role.ASSISTANT]
        step = 1 + (int(last[-1].text.rsplit(" ", 1)[-1]) if last else 0)
        reply = say(f"Did {step - 1} steps.")
        if step <= self._steps:
            reply = calls(
                *((name, {"step": step}) for name in ("look", "charge", "book")), text=f"step {step}"
            )
        for delta in deltas(reply):
            yield delta
        yield reply

    async def aclose(self) -> None:
        """Nothing to let go of."""


def note_heads(store: BaseStore, notes: Path) -> None:
    """Have a store note, beside itself, each head of which it said that it is on disk."""
    append = store.append

    async def noting(
        run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        head = await append(run, expected_seq, lease, records, release=release)
        trace(notes, f"{run} {head.seq} {head.hash.hex()}")
        return head

    store.append = noting  # type: ignore[method-assign]


def trace(path: Path, line: str) -> None:
    """Append a line, whole: a kill of this process does not undo it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def tools(effects: Path) -> list[Tool]:
    @tool(replay="read_only")
    async def look(step: int, context: CallContext) -> str:
        """May run as often as it likes."""
        await anyio.sleep(PAUSE)
        trace(effects, f"look {context.run} {context.call} {context.key}")
        return f"looked at {step}"

    @tool
    async def charge(step: int, context: CallContext) -> str:
        """Must never run twice."""
        await anyio.sleep(PAUSE)
        trace(effects, f"charge {context.run} {context.call} {context.key}")
        await anyio.sleep(PAUSE)
        return f"charged for {step}"

    def look_up(context: CallContext) -> Reconciled:
        done = f"book {context.run} {context.call} {context.key}"
        return Happened() if done in effects.read_text().splitlines() else DidNot(note="not in the file")

    @tool(replay="reconcilable", reconcile=look_up)
    def book(step: int, context: CallContext) -> str:
        """Can be looked up; in a thread, so that it goes on where it stood when its process is woken."""
        time.sleep(PAUSE)
        trace(effects, f"book {context.run} {context.call} {context.key}")
        return f"booked {step}"

    return [look, charge, book]


def agent(steps: int, effects: Path) -> Agent:
    """The agent of a storm; its runs need no agent that was there before."""
    return Agent(model=Planner(steps), tools=tools(effects), policy=POLICY, name="storm")
