"""Another process, which says when appends have returned: run with a path and a durability.

Each turn, eight runs append at once. Once all have returned it prints the number of their last event, and
waits for a line to go on: whoever kills it then, or cuts its power, must find them all.
"""

import sys

import anyio

from refold.store import Lease, Record, SqliteStore
from refold.store.access import SYNCHRONOUS

RUNS = 8


async def main(path: str, durability: str) -> None:
    (kept,) = [each for each in SYNCHRONOUS if each == durability]
    async with await SqliteStore.open(path, durability=kept) as store:
        leases = [await store.lease(f"run-{n}", holder="one") for n in range(RUNS)]
        seq = 0
        while True:
            async with anyio.create_task_group() as tasks:
                for lease in leases:
                    tasks.start_soon(store.append, lease.run, seq, lease, said(lease, seq))
            seq += 2
            print(seq, flush=True)
            sys.stdin.readline()


def said(lease: Lease, seq: int) -> list[Record]:
    """Two events, 20 KB: some turns make SQLite bring its write-ahead log into the file."""
    content = b'"%s %d %s"' % (lease.run.encode(), seq, b"x" * 20_000)
    return [Record(at=seq, kind="k", body=b"{}"), Record(at=seq, kind="k", body=b"{}", content=content)]


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
