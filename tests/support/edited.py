"""A store's file as somebody leaves it who knows the schema: edited, and every trigger put back as it was."""

import sqlite3
from contextlib import closing
from pathlib import Path

from refold.store import chain


def edited(path: Path, *statements: str) -> None:
    """Run statements on the file that its triggers would refuse."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        triggers = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(statement)
        for _, text in triggers:
            raw.execute(text)


def rechained(store: Path) -> None:
    """Compute the last hash of every run anew, as somebody would who edits the last event."""
    with sqlite3.connect(store) as raw:
        for run, key, at, kind, body, digest in raw.execute(LAST_EVENTS).fetchall():
            (before,) = raw.execute("SELECT hash FROM event WHERE key = ?", (key - 1,)).fetchone()
            header = chain.header(run, key & 0xFFFFFFFF, at, kind)
            linked = chain.link(before, header, body.encode(), digest)
            raw.execute("UPDATE event SET hash = ? WHERE key = ?", (linked, key))
    raw.close()


LAST_EVENTS = """
SELECT run.id, max(event.key), event.at, event.kind, event.body, event.content_digest
FROM run JOIN event ON event.key >> 32 = run.number GROUP BY run.number
"""
