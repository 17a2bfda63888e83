"""A store's file as somebody leaves it who knows the schema: edited, and every trigger put back as it was."""

import sqlite3
from contextlib import closing
from pathlib import Path


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
