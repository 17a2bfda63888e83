"""Databases of others: read as far as they are tables, and nothing that their schema says is run."""

import sqlite3
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.asking import within
from refold.store.foreign import BadDatabase, tables
from support.strategies import scaled


def made(*statements: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(";".join(statements))
    data = connection.serialize()
    connection.close()
    return data


PLAIN = made(
    "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 'x'), (2.5, NULL), (CAST(x'ff41' AS TEXT), x'4142')"
)


def test_plain_tables_are_read() -> None:
    """Numbers stay numbers, blobs and broken texts are read as text, rows keep their order."""
    table = tables(PLAIN)["t"]
    assert [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}, {"a": "\ufffdA", "b": "AB"}] == list(table)


def test_write_ahead_mode_is_no_hindrance() -> None:
    """A file whose header says WAL mode is read like any other."""
    marked = bytearray(PLAIN)
    marked[18:20] = b"\x02\x02"
    assert 3 == len(tables(bytes(marked))["t"].rows)


def test_views_are_not_run() -> None:
    """A view is no table, and an endless one costs nothing."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    assert ["t"] == list(tables(made("CREATE TABLE t (a)", f"CREATE VIEW spans AS {endless}")))


def test_generated_columns_are_not_run() -> None:
    """A generated column is an expression of the file's: the columns that are stored are read without it."""
    data = made(
        "CREATE TABLE t (a, b GENERATED ALWAYS AS (hex(a)), c AS (a || a) STORED)",
        "INSERT INTO t (a) VALUES (1)",
    )
    assert [{"a": 1}] == list(tables(data)["t"])


def test_triggers_do_not_run() -> None:
    """Nothing is written, so no trigger of the file's runs; indices on expressions are not used."""
    data = made(
        "CREATE TABLE t (a)",
        "CREATE INDEX i ON t (abs(a))",
        "INSERT INTO t VALUES (1)",
        "CREATE TRIGGER x AFTER INSERT ON t BEGIN DELETE FROM t; END",
    )
    assert [{"a": 1}] == list(tables(data)["t"])


def test_virtual_tables_are_not_opened() -> None:
    """A virtual table is passed over: its module is code."""
    found = tables(made("CREATE VIRTUAL TABLE v USING fts5(x)"))
    assert "v" not in found


@pytest.mark.slow
def test_a_huge_schema() -> None:
    """A database of more objects than anybody has is refused before they are all parsed, which would take
    minutes.
    """
    rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT 'view', 'v' || i, 'v' || i, 0, 'CREATE VIEW v' || i || ' AS SELECT 1' FROM n"
    data = made("CREATE TABLE t (a)", "PRAGMA writable_schema = ON", f"INSERT INTO sqlite_schema {rows}")
    with within(), pytest.raises(BadDatabase, match="interrupted"):
        tables(data)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"SQLite format 3\x00", PLAIN[:100], b"SQLite format 3\x00" + bytes(5000)]
)
def test_no_database(data: bytes) -> None:
    """What is no whole database is refused with SQLite's word for it."""
    with pytest.raises(BadDatabase):
        tables(data)


@settings(max_examples=scaled(60))
@given(st.lists(st.tuples(st.integers(16, len(PLAIN) - 1), st.integers(0, 255)), max_size=20))
def test_forged_pages(changes: list[tuple[int, int]]) -> None:
    """Any byte may be forged: rows or `BadDatabase`, nothing else."""
    forged = bytearray(PLAIN)
    for place, byte in changes:
        forged[place] = byte
    with suppress(BadDatabase):
        tables(bytes(forged))
