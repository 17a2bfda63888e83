"""Files whose schema is an attack: every command ends within seconds, by an exit code that means what it
should.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fuzz.asking import assert_sound, refold
from refold.engine import Agent, ScriptedModel, say
from refold.store import schema

PAGE, DEPTH, BRANCHES = 4096, 10, 400
OTHER = 0x12345678
"""Another program's application id."""

Attack = Callable[[Path], None]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A closed store with one run."""
    path = tmp_path_factory.mktemp("written") / "runs.db"
    Agent(model=ScriptedModel([say("Done.")]), store=path).run_sync("Go.", run_id="r1")
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, written: bytes) -> Path:
    path = tmp_path / "runs.db"
    path.write_bytes(written)
    return path


def by_hand(*statements: str) -> Attack:
    """What somebody does to a file who has sqlite3 and means harm."""

    def attack(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            for statement in ("PRAGMA writable_schema = ON", *statements):
                raw.execute(statement)

    return attack


def endless(name: str, column: str = "x") -> str:
    """A view that has a first row and no last one."""
    return f"CREATE VIEW {name} AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT max(i) AS {column} FROM n"


def planted(kind: str, name: str, sql: str) -> str:
    """A row of the schema that no statement could make."""
    quoted = sql.replace("'", "''")
    return f"INSERT INTO sqlite_schema VALUES ('{kind}', '{name}', '{name}', 0, '{quoted}')"


def reworded(name: str, old: str, new: str) -> str:
    """The text of an object changed, as no ALTER would."""
    return f"UPDATE sqlite_schema SET sql = replace(sql, '{old}', '{new}') WHERE name = '{name}'"


def huge(path: Path) -> None:
    """More objects than anybody needs."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("BEGIN")
        names = (f"v{n}" for n in range(200_000))
        rows = ((name, name, f"CREATE VIEW {name} AS SELECT 1") for name in names)
        raw.executemany("INSERT INTO sqlite_schema VALUES ('view', ?, ?, 0, ?)", rows)
        raw.execute("COMMIT")


def circular(path: Path) -> None:
    """The table of runs is a tree in which all branches of a branch are one: to read it takes longer than
    there is.
    """
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'run'").fetchone()
    first, leaf = len(data) // PAGE + 1, data[(root - 1) * PAGE : root * PAGE]
    for child in range(first + 1, first + 1 + DEPTH):
        cells = (child.to_bytes(4, "big") + b"\1") * BRANCHES
        start = PAGE - len(cells)
        header = (
            b"\5\0\0"
            + BRANCHES.to_bytes(2, "big")
            + start.to_bytes(2, "big")
            + b"\0"
            + child.to_bytes(4, "big")
        )
        places = b"".join(place.to_bytes(2, "big") for place in range(start, PAGE, 5))
        data += (header + places).ljust(start, b"\0") + cells
    data += leaf
    data[28:32] = (len(data) // PAGE).to_bytes(4, "big")
    path.write_bytes(data)
    by_hand(f"UPDATE sqlite_schema SET rootpage = {first} WHERE name = 'run'")(path)


PRAGMAS = ("application_id", "user_version", "quick_check", "journal_mode", "data_version", "trusted_schema")
"""Some of what SQLite offers as a table too, which it looks up only after what the file calls so."""

ATTACKS: dict[str, Attack] = {
    **{f"a view pragma_{name}": by_hand(endless(f"pragma_{name}", name)) for name in PRAGMAS},
    "a view json_each": by_hand(endless("json_each", "value")),
    "a view sqlite_schema": by_hand(planted("view", "sqlite_schema", endless("sqlite_schema", "name"))),
    "a view sqlite_master": by_hand(planted("view", "sqlite_master", endless("sqlite_master", "name"))),
    "a view for the events": by_hand("DROP VIEW log", "DROP TABLE event", endless("event", "key")),
    "a view for the runs": by_hand("DROP VIEW log", "DROP TABLE run", endless("run", "number")),
    "another view log": by_hand("DROP VIEW log", endless("log")),
    "a virtual table": by_hand("CREATE VIRTUAL TABLE more USING fts5(x)"),
    "a virtual table of a module that is not there": by_hand(planted("table", "more", "CREATE VIRTUAL TABLE more USING nosuch(x)")),
    "a generated column": by_hand(reworded("event", "content TEXT", "content TEXT AS (hex(zeroblob(at)))")),
    "a check that has no end": by_hand(reworded("event", "key & 4294967295 > 0", "length(hex(zeroblob(900000000))) > 0")),
    "an index on an expression": by_hand("CREATE INDEX more ON event (abs(at))"),
    "statistics that are computed": by_hand(planted("table", "sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat AS (hex(zeroblob(900000000))))")),
    "a huge schema": huge,
    "a long object": by_hand(f"CREATE VIEW long AS SELECT {' + '.join(['1'] * 900)} AS x, '{'x' * 900_000}' AS y"),
}  # fmt: skip


@pytest.mark.parametrize("words", [("verify", "--all"), ("worker", "--until-idle")], ids=" ".join)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_schema_that_is_an_attack(attack: str, words: tuple[str, ...], path: Path) -> None:
    """A store whose schema somebody changed is refused with exit code 3, whether it is read or written."""
    ATTACKS[attack](path)
    ran = refold(*words, "--store", path)
    assert_sound(ran)
    assert (3, "") == (ran.code, ran.out), ran.err


@pytest.mark.parametrize("attack", ["a view pragma_user_version", "a huge schema", "a long object"])
@pytest.mark.parametrize("words", [("ls",), ("audit", "--all"), ("worker", "--until-idle")], ids=" ".join)
def test_another_programs_file(attack: str, words: tuple[str, ...], path: Path) -> None:
    """So is what says that it is another program's, with exit code 2, and nothing in it is run."""
    ATTACKS[attack](path)
    by_hand(f"PRAGMA application_id = {OTHER}")(path)
    ran = refold(*words, "--store", path)
    assert_sound(ran)
    assert (2, "") == (ran.code, ran.out), ran.err


@pytest.mark.parametrize(("application", "version"), [(0, 0), (schema.APPLICATION_ID, 99)])
@pytest.mark.parametrize("attack", ["a view pragma_application_id", "a huge schema"])
def test_a_file_that_is_none_of_ours(attack: str, application: int, version: int, path: Path) -> None:
    """A hostile schema that names no program, or a version that is not known, is refused with exit code 2."""
    ATTACKS[attack](path)
    by_hand(f"PRAGMA application_id = {application}", f"PRAGMA user_version = {version}")(path)
    ran = refold("verify", "--all", "--store", path)
    assert_sound(ran)
    assert (2, "") == (ran.code, ran.out), ran.err


def test_a_trigger_that_has_no_end(path: Path) -> None:
    """A trigger keeps everybody from writing, and nobody from reading: nothing that reads runs it."""
    trigger = "CREATE TRIGGER again AFTER INSERT ON claim BEGIN INSERT INTO claim SELECT * FROM claim; END"
    by_hand(trigger)(path)
    assert 0 == refold("verify", "--all", "--store", path).code
    assert 3 == refold("worker", "--until-idle", "--store", path).code


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("ls",), ("show", "zz"), ("verify", "--all"), ("cancel", "zz", "--why", "now")], ids=" ".join
)
def test_a_table_that_has_no_end(words: tuple[str, ...], path: Path) -> None:
    """Pages that lead to themselves are found, or given up on: exit code 3."""
    circular(path)
    ran = refold(*words, "--store", path)
    assert_sound(ran)
    assert 3 == ran.code, ran.err


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(ATTACKS["a view pragma_application_id"], id="a view"),
        pytest.param(circular, id="a table", marks=pytest.mark.slow),
    ],
)
def test_a_process_ends(attack: Attack, path: Path) -> None:
    """No thread is left that would keep the process of a command from its end."""
    attack(path)
    words = [sys.executable, "-m", "refold.console", "show", "zz", "--store", str(path)]
    assert 3 == subprocess.run(words, capture_output=True, timeout=60, check=False).returncode
