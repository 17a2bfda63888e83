"""A store's file: changed by hand, and looked at."""

import sqlite3
from contextlib import closing
from pathlib import Path

from refold.store import GENESIS, Head, Store, check
from refold.store.testing import events


def by_hand(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run statements as a person with the `sqlite3` shell would; the rows of the last one."""
    with closing(sqlite3.connect(path)) as raw:
        rows = [raw.execute(statement).fetchall() for statement in statements]
        raw.commit()
    return rows[-1]


async def problems(store: Store, run: str) -> list[str]:
    """What `check` says about the run's events, with their numbers."""
    previous, found = Head(seq=0, hash=GENESIS), list[str]()
    for event in await events(store, run, checked=False):
        if problem := check(event, previous):
            found.append(f"{event.seq}: {problem}")
        previous = Head(seq=event.seq, hash=event.hash)
    return found
