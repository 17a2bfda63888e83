"""Files whose schema is an attack: every command ends within seconds, by an exit code that means what it should."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from refold.engine import Agent, ScriptedModel, say

SECONDS = 20
"""The most that a command may take: all of it a start of Python, on a machine that does much else."""

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS {} FROM n"
HEAVY = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(hex(randomblob(1e8))) AS {} FROM n"

COMMANDS = (("ls",), ("verify", "--all"), ("audit", "--all"), ("show", "@last"), ("resume", "r1"), ("worker", "--once"))
"""Some that read, and some that write."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A closed store with one run."""
    path = tmp_path_factory.mktemp("written") / "runs.db"
    Agent(model=ScriptedModel([say("Done.")]), store=path).run_sync("Go.", run_id="r1")
    return path.read_bytes()


def refold(*words: str | Path) -> tuple[int, str]:
    """What a command does in a process of its own: its exit code, and what it complains of."""
    ran = subprocess.run(
        [sys.executable, "-m", "refold.console", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return ran.returncode, ran.stderr


def by_hand(path: Path, *statements: str) -> None:
    """What somebody does to a file who has sqlite3 and means harm."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in ("PRAGMA writable_schema = ON", *statements):
            raw.execute(statement)


def planted(kind: str, name: str, sql: str, page: int = 0) -> str:
    """A row of the schema that no statement could make."""
    quoted = sql.replace("'", "''")
    return f"INSERT INTO sqlite_schema VALUES ('{kind}', '{name}', '{name}', {page}, '{quoted}')"


def view(name: str, column: str = "x") -> str:
    return f"CREATE VIEW {name} AS {ENDLESS.format(column)}"


PRAGMAS = ("application_id", "user_version", "quick_check", "journal_mode", "data_version", "table_info")
"""Some of what SQLite offers as a table too, which is looked up only after what the file calls so."""

def huge(path: Path) -> None:
    """More objects than anybody needs."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN")
        raw.execute("PRAGMA writable_schema = ON")
        rows = ((f"v{n}", f"v{n}", f"CREATE VIEW v{n} AS SELECT {n}") for n in range(200_000))
        raw.executemany("INSERT INTO sqlite_schema VALUES ('view', ?, ?, 0, ?)", rows)
        raw.execute("COMMIT")


def long(path: Path) -> None:
    """One object with more words than anybody needs."""
    columns = ", ".join(f"'{n}' AS c{n}" for n in range(1_500)) + ", '" + "x" * 5_000_000 + "' AS long"
    by_hand(path, f"CREATE VIEW long AS SELECT {columns}")
