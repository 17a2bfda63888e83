"""Makes the run that `big.py` measures: `python tests/bench/big_run.py STORE MESSAGES`.

Nothing of it is made up but what comes from the world: the facts. What is decided on them is decided by the
rules, with a window of some hundred messages and two guards, so it audits clean. It stops where a model is to
be asked.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.workload import RUN, SALT, Group, answered, begun, returned
from refold.engine.journal import record
from refold.reducers import RunState, advance
from refold.store import SqliteStore
from refold.store.protocol import Record

POLICY = {
    "limits": [{"type": "step", "value": 1_000_000}],
    "history": [{"do": "tail", "last": 40, "when": {"messages": 120}}],
    "guards": [{"guard": "repetition"}, {"guard": "stall"}],
}
_SMALLEST, _LARGEST = 2_000, 16_000
"""Characters of a tool's result."""
_AT_ONCE = 4_000
"""Records of an append."""


def records(messages: int) -> Iterator[list[Record]]:
    """The run as large appends."""
    waiting: list[Record] = []
    for state, group in _groups(messages):
        waiting += [record(event, state.at, SALT) for event in group]
        if len(waiting) >= _AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _groups(messages: int) -> Iterator[tuple[RunState, Group]]:
    state, group = begun(POLICY)
    yield state, group
    number = 0
    while state.messages < messages or state.request is None:
        if state.batch is None:
            number += 1
            # Nobody sent anything: a digest that is made up would show as a request that differs.
            fact = replace(answered(state, number), sent="")
        else:
            fact = returned(state, number, _SMALLEST + number * 7919 % (_LARGEST - _SMALLEST))
        state, group = advance(state, fact)
        yield state, group


async def write(path: Path, messages: int) -> int:
    """Write the run to a new store; the number of its events."""
    async with await SqliteStore.open(path, durability="process") as store:
        lease, seq = await store.lease(RUN, holder="bench"), 0
        for batch in records(messages):
            seq = (await store.append(RUN, seq, lease, batch)).seq
        await store.release(lease)
    return seq


if __name__ == "__main__":
    file, number = Path(sys.argv[1]), int(sys.argv[2])
    print(f"{asyncio.run(write(file, number)):,} events, {number:,} messages")
