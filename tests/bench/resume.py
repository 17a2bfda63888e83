"""How long it takes to open a run up to its next effect: from its first event, and from its last snapshot.

By itself it opens one store, as an engine does: `python tests/bench/resume.py STORE [--save]`, which also
saves a snapshot of what it found.
"""

import asyncio
import shutil
import sqlite3
import sys
import time
from pathlib import Path

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.big_run import write
from bench.timing import Case
from bench.workload import RUN
from refold.engine.journal import Journal
from refold.engine.tenure import Tenure
from refold.reducers import BUILTIN, RunState, next_effects
from refold.replay import state_at
from refold.store import SqliteStore
from refold.store.protocol import LEASE_SECONDS

MESSAGES_AN_EVENT = 130 / 341  # of the run that is written here


def resume_cases(folder: Path, events: int) -> dict[str, Case]:
    """Each returns its seconds. `scan` is the anchor: plain sqlite3 reading the same rows, and nothing else.

    The snapshot is the one that an engine leaves behind.
    """
    folded, kept = folder / f"folded-{events}.db", folder / f"kept-{events}.db"
    asyncio.run(write(folded, round(events * MESSAGES_AN_EVENT)))
    shutil.copy(folded, kept)
    asyncio.run(_save(kept))
    return {
        "scan": lambda: _scan(folded),
        "folded": lambda: asyncio.run(_opened(folded)),
        "snapshot": lambda: asyncio.run(_opened(kept)),
    }


def _scan(path: Path) -> float:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    begun = time.perf_counter()
    rows = connection.execute("SELECT * FROM event ORDER BY key")
    while rows.fetchmany(512):
        pass
    taken = time.perf_counter() - begun
    connection.close()
    return taken


async def _opened(path: Path) -> float:
    async with await SqliteStore.open(path, readonly=True) as store:
        begun = time.perf_counter()
        _, state = await _loaded(store)
        assert next_effects(state)
        return time.perf_counter() - begun


async def _loaded(store: SqliteStore) -> tuple[Journal, RunState]:
    journal = Journal(store, RUN, Tenure(store, RUN, LEASE_SECONDS))
    return journal, await journal.load(BUILTIN)


async def _save(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        journal, state = await _loaded(store)
        state, _ = await state_at(store, RUN, state.digested)
        await journal.snapshot(state)


if __name__ == "__main__":
    if "--save" in sys.argv:
        asyncio.run(_save(Path(sys.argv[1])))
    print(f"{asyncio.run(_opened(Path(sys.argv[1]))) * 1000:.1f} ms in this process")
