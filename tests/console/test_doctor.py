"""`refold doctor`: whether a store can be read, what its settings promise, and what is hidden in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold, record
from refold.engine import say
from support.edited import edited
from support.postgres import PostgresServer, execute, new_schema


def diagnosis(refold: Refold, store: object, *words: str, code: int) -> dict[str, Any]:
    ran = refold("doctor", *words, "-o", "json", "--store", store)
    assert (code, "") == (ran.code, ran.err)
    found: dict[str, Any] = json.loads(ran.out)
    return found


@pytest.fixture
def filled(postgres: str) -> str:
    """A store in PostgreSQL with a run of four events."""
    record(postgres, [say("Done.")], run_id="r1")  # type: ignore[arg-type]
    return postgres


@pytest.fixture(scope="module")
def safe() -> Iterator[PostgresServer]:
    """A server with the settings of an installation."""
    server = PostgresServer({"autovacuum": "off"})
    try:
        yield server.start()
    finally:
        server.remove()


def test_a_file(refold: Refold, store: Path) -> None:
    """Each writer of a file chooses what its appends survive, so that is unknown; edits are refused."""
    record(store, [say("Done.")], run_id="r1")
    found = diagnosis(refold, store, code=125)
    assert (str(store), 1, 4, None, None, True) == tuple(
        found[name] for name in ("store", "runs", "events", "power_cut", "skew", "refuses_edits")
    )
    ran = refold("doctor", "--store", store)
    for line in ("has        1 run, 4 events", "power cut  unknown", "edits      the store refuses them"):
        assert line in ran.out


def test_a_server_without_fsync(refold: Refold, filled: str, postgres_address: str) -> None:
    """What the server may lose in a power cut is named, with the settings that say it."""
    if "127.0.0.1" not in postgres_address:
        pytest.skip("another server's settings are its own")
    found = diagnosis(refold, filled, code=1)
    assert (1, 4, False, False, True) == tuple(
        found[name] for name in ("runs", "events", "power_cut", "loss", "refuses_edits")
    )
    assert "off" == found["settings"]["fsync"]
    assert abs(found["skew"]) < 1
    assert "that acknowledged events survive a power cut: the server runs with fsync off" in found["gaps"]
    ran = refold("doctor", "--store", filled)
    assert "power cut  an append that returned may be lost" in ran.out
    assert "fsync off" in ran.out


@pytest.mark.slow
def test_a_server_as_installed(refold: Refold, safe: PostgresServer) -> None:
    """With fsync and without a standby, appends survive a power cut, and the loss of the disk does not."""
    address = new_schema(safe.address)
    record(address, [say("Done.")], run_id="r1")  # type: ignore[arg-type]
    found = diagnosis(refold, address, "--deep", code=0)
    assert (True, False, True, "") == tuple(
        found[name] for name in ("power_cut", "loss", "refuses_edits", "damage")
    )
    assert [
        "that acknowledged events survive a failover: the server waits for no synchronous standby"
    ] == found["gaps"]
    execute(address, "ALTER TABLE {s}.event DISABLE TRIGGER event_delete")
    found = diagnosis(refold, address, code=1)
    assert (True, False) == (found["power_cut"], found["refuses_edits"])
    assert any("trigger 'event_delete'" in gap for gap in found["gaps"])
    assert "edits      NOT refused" in refold("doctor", "--store", address).out


def test_hidden_rows(refold: Refold, filled: str) -> None:
    """Events that readers would not see are found by `--deep`, and not looked for without it."""
    execute(
        filled,
        "SET session_replication_role = replica",
        "INSERT INTO {s}.event SELECT 99, seq, at, kind, hash, content_digest, salt, body, content FROM {s}.event",
    )
    assert diagnosis(refold, filled, code=1)["damage"] is None
    found = diagnosis(refold, filled, "--deep", code=3)
    assert "event 1 belongs to run number 99, which does not exist" in found["damage"]
    assert "which does not exist" in refold("doctor", "--deep", "--store", filled).out


def test_a_file_with_hidden_rows(refold: Refold, store: Path) -> None:
    """The same in a file, whose damage every command reports."""
    record(store, [say("Done.")], run_id="r1")
    edited(store, "DELETE FROM run")
    ran = refold("doctor", "--deep", "--store", store)
    assert (3, True) == (ran.code, "event 1 of run number 1 belongs to no run" in ran.out), ran


def test_a_server_that_is_away(refold: Refold, impatient: None) -> None:
    """A server that does not answer is an external failure."""
    ran = refold("doctor", "--store", "postgresql://ann@127.0.0.1:1/d?connect_timeout=1")
    assert (4, "", True) == (ran.code, ran.out, "the server cannot be reached" in ran.err)


def test_no_store(refold: Refold, tmp_path: Path, postgres: str) -> None:
    """A store that does not exist is wrong use, and none is created."""
    for store in (tmp_path / "none.db", postgres):
        for _ in range(2):
            ran = refold("doctor", "--store", store)
            assert (2, "") == (ran.code, ran.out), ran
    assert not (tmp_path / "none.db").exists()
    ran = refold("doctor")
    assert (2, True) == (ran.code, "no runs yet" in ran.err)


def test_a_bundle(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A bundle is only read: what its file survives is unknown."""
    record(store, [say("Done.")], run_id="r1")
    assert 0 == refold("pack", "r1", "--out", tmp_path / "b.zip", "--store", store).code
    found = diagnosis(refold, f"bundle:{tmp_path / 'b.zip'}", "--deep", code=125)
    assert (1, 4, None, None, "") == tuple(
        found[name] for name in ("runs", "events", "power_cut", "refuses_edits", "damage")
    )
    assert [] == found["gaps"]


def test_a_server_that_waits_for_a_standby(refold: Refold, safe: PostgresServer) -> None:
    """No append returns while no synchronous standby is connected: that is named, and is not well."""
    address = new_schema(safe.address)
    record(address, [say("Done.")], run_id="r1")  # type: ignore[arg-type]
    safe.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    try:
        for _ in range(100):  # sessions read the new settings within a moment
            if safe.execute("SHOW synchronous_standby_names") == [("*",)]:
                break
        found = diagnosis(refold, address, code=1)
        assert found["stalled"]
        assert "writes     WAIT: synchronous_standby_names is set" in refold("doctor", "--store", address).out
    finally:
        safe.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
