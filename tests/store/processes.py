"""What other processes do to a store: run with a path, a run and a count."""

import sys

import anyio

from refold.store import Conflict, SqliteStore
from refold.store.protocol import Held, LeaseLost
from refold.store.testing import append, records


async def main(path: str, run: str, count: int) -> None:
    """Append two events so many times, whoever else does; print the head after each."""
    async with await SqliteStore.open(path) as store:
        for _ in range(count):
            while True:
                try:
                    head = await append(store, run, records(2))
                except (Conflict, Held, LeaseLost):
                    continue
                break
            print(head.seq, flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
