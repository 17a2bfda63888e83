"""`refold audit` of many runs, and the certificate of what it found."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold, record
from console.test_listings import tamper
from refold.engine import call, say
from support.bundles import zipped


@pytest.fixture
def many(store: Path) -> Path:
    """More runs than are told of one by one."""
    for number in range(23):
        record(store, [say("Done.")], run_id=f"run-{number:02}")
    return store


def test_of_many_runs_the_sum_is_told(refold: Refold, many: Path) -> None:
    """A store of many clean runs is a few lines, with what was derived and how fast."""
    ran = refold("audit", "--all", "--store", many)
    assert (0, "23 runs: every decision follows from the facts") == (ran.code, ran.out.splitlines()[0])
    assert 4 == len(ran.out.splitlines())


def test_each_run_is_a_line_of_json(refold: Refold, many: Path) -> None:
    """For programs nothing is summed up: a line a run, on as many processes as they like."""
    ran = refold("audit", "--all", "--store", many, "--jobs", "1", "-o", "json")
    assert {f"run-{number:02}" for number in range(23)} == {
        json.loads(line)["run"] for line in ran.out.splitlines()
    }


def test_what_was_not_checked_is_a_line_of_json(refold: Refold, tmp_path: Path) -> None:
    """A part that could not be checked is named as JSON, too, and not only by the exit code."""
    other = tmp_path / "other.zip"
    zipped(other, {"a": b""})
    ran = refold("audit", other, "-o", "json")
    assert 4 == ran.code
    assert [str(other)] == [json.loads(line)["part"] for line in ran.out.splitlines()]


def test_two_processes_say_what_one_says(refold: Refold, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes, each with parts of the store, come to the same lines."""
    monkeypatch.setattr("refold.console.audit.SHARD_OF_A_STORE", 20)
    alone = refold("audit", "--all", "--store", many, "--jobs", "1", "-o", "json")
    shared = refold("audit", "--all", "--store", many, "--jobs", "2", "-o", "json")
    assert (0, sorted(alone.out.splitlines())) == (shared.code, sorted(shared.out.splitlines()))


def certified(refold: Refold, store: Path, path: Path, *words: str | Path) -> dict[str, Any]:
    assert 0 == refold("audit", "--all", "--store", store, "--certificate", path, *words).code
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def test_a_certificate_says_what_was_found(refold: Refold, many: Path, tmp_path: Path) -> None:
    """The document has the counts, the versions and one policy for all runs; nobody signed it."""
    found = certified(refold, many, tmp_path / "audit.json")
    assert {"certificate"} == found.keys()
    said = found["certificate"]
    assert (23, 23, [23]) == (
        said["logs"],
        said["totals"]["clean"],
        list(said["totals"]["policies"].values()),
    )


def test_its_heads_are_those_of_a_seal(refold: Refold, many: Path, tmp_path: Path) -> None:
    """A seal over the same logs ends with the very root that the certificate has."""
    key = tmp_path / "key"
    refold("keygen", key)
    said = certified(refold, many, tmp_path / "audit.json")["certificate"]
    assert 0 == refold("seal", "--key", key, "--store", many).code
    assert 0 == refold("pack", "run-01", "--out", tmp_path / "one.zip", "--store", many).code
    import zipfile

    with zipfile.ZipFile(tmp_path / "one.zip") as bundle:
        sealed = json.loads(bundle.read("seals.json"))
    assert said["heads"] in json.dumps(sealed)


def test_a_signed_certificate_is_held_against_its_key(refold: Refold, many: Path, tmp_path: Path) -> None:
    """The key that signed it agrees, another does not, and a changed number is found."""
    mine, other, path = tmp_path / "mine", tmp_path / "other", tmp_path / "audit.json"
    refold("keygen", mine)
    refold("keygen", other)
    certified(refold, many, path, "--key", mine)
    assert 0 == refold("verify", path, "--key", f"{mine}.pub").code
    ran = refold("verify", path, "--key", f"{other}.pub")
    assert (3, True) == (ran.code, "signed by a key that was not given" in ran.out)
    path.write_bytes(path.read_bytes().replace(b'"clean":23', b'"clean":24'))
    ran = refold("verify", path, "--key", f"{mine}.pub")
    assert (3, True) == (ran.code, "it was changed" in ran.out)


def test_nobody_signed_it(refold: Refold, many: Path, tmp_path: Path) -> None:
    """Without a signature a certificate cannot be held against a key; by itself it is only read."""
    key, path = tmp_path / "key", tmp_path / "audit.json"
    refold("keygen", key)
    certified(refold, many, path)
    assert 0 == refold("verify", path).code
    assert 125 == refold("verify", path, "--key", f"{key}.pub").code


@pytest.mark.parametrize("held", [True, False], ids=["held against the key", "only read"])
def test_a_signature_that_was_taken_out_is_missed(
    refold: Refold, many: Path, tmp_path: Path, held: bool
) -> None:
    """A certificate that still names its key without a signature is not said to be signed by that key."""
    key, path = tmp_path / "key", tmp_path / "audit.json"
    refold("keygen", key)
    found = certified(refold, many, path, "--key", key)
    path.write_text(json.dumps({**found, "signature": ""}))
    ran = refold("verify", path, *(["--key", f"{key}.pub"] if held else []))
    assert (3, True) == (ran.code, "names a key, but has no signature" in ran.out)
    assert "signed  by key" not in ran.out


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(b'{"certificate":{}}', 2, id="empty"),
        pytest.param(b'{"certificate":{"format":"x"', 2, id="cut"),
        pytest.param(b'{"certificate":' + b"[" * 5000, 2, id="deep"),
    ],
)
def test_what_is_no_certificate(content: bytes, code: int, refold: Refold, tmp_path: Path) -> None:
    """A file that only begins as one is wrong use, with its name."""
    path = tmp_path / "audit.json"
    path.write_bytes(content)
    ran = refold("verify", path)
    assert (code, True) == (ran.code, str(path) in ran.err)


def test_nothing_is_written_over(refold: Refold, many: Path, tmp_path: Path) -> None:
    """A certificate that is there already stays."""
    path = tmp_path / "audit.json"
    path.write_text("mine")
    assert 2 == refold("audit", "--all", "--store", many, "--certificate", path).code
    assert "mine" == path.read_text()


def test_a_key_needs_something_to_sign(refold: Refold, many: Path, tmp_path: Path) -> None:
    """--key without --certificate is wrong use, before anything is audited."""
    assert 2 == refold("audit", "--all", "--store", many, "--key", tmp_path / "k").code


def edited(store: Path) -> None:
    """Somebody changes what a tool or a model said, and nothing else."""
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TRIGGER event_is_final")
        changed = "UPDATE event SET content = replace(content, 'Done', 'Gone') WHERE kind = 'model_responded'"
        assert connection.execute(
            changed + " AND key = (SELECT max(key) FROM event WHERE content LIKE '%Done%')"
        ).rowcount
    connection.close()


def test_a_certificate_is_not_clean_where_words_were_edited(
    refold: Refold, many: Path, tmp_path: Path
) -> None:
    """Nobody signs that a store is clean in which somebody changed what was said."""
    edited(many)
    path = tmp_path / "audit.json"
    ran = refold("audit", "--all", "--store", many, "--certificate", path)
    assert (3, 1) == (ran.code, json.loads(path.read_bytes())["certificate"]["totals"]["verdicts"]["damaged"])
    assert 3 == refold("verify", path).code


def test_imported_runs_are_said_to_be(refold: Refold, store: Path, tmp_path: Path) -> None:
    """That the decisions of an imported run follow is no merit of the agent, and the audit says so."""
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]))
    assert 0 == refold("import", chat, "--store", store).code
    assert "derived at import" in refold("audit", "@last", "--store", store).out
    path = tmp_path / "audit.json"
    ran = refold("audit", "--all", "--store", store, "--certificate", path)
    assert (0, True) == (ran.code, "1 run: decisions were derived at import" in ran.out)
    assert 1 == json.loads(path.read_bytes())["certificate"]["totals"]["imported"]


def by_hand(store: Path, *statements: str) -> None:
    """Change a store without its triggers."""
    with sqlite3.connect(store) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert connection.execute(statement).rowcount
    connection.close()


RUN_05 = "(SELECT number FROM run WHERE id = 'run-05')"
LAST = f"(SELECT max(key) FROM event WHERE key >> 32 = {RUN_05})"
CHANGES = [
    pytest.param([f"UPDATE event SET body = replace(body, 'Go', 'No') WHERE key = ({RUN_05} << 32) + 1"], id="a body"),
    pytest.param([f"UPDATE event SET content = replace(content, 'Done', 'Gone') WHERE key >> 32 = {RUN_05} "
                  "AND kind = 'model_responded'"], id="a content"),
    pytest.param([f"DELETE FROM event WHERE key = {LAST}"], id="the last event is gone"),
    pytest.param([f"DELETE FROM event WHERE key = ({RUN_05} << 32) + 2"], id="an event is gone"),
    pytest.param([f"DELETE FROM event WHERE key >> 32 = {RUN_05}", "DELETE FROM run WHERE id = 'run-05'"], id="it is gone"),
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES)
def test_a_certificate_beside_a_changed_store(
    changes: list[str], refold: Refold, many: Path, tmp_path: Path
) -> None:
    """Whatever was changed in a run since it was audited, `verify` names that run and no other, and ends with
    exit code 3.
    """
    key, path = tmp_path / "key", tmp_path / "audit.json"
    refold("keygen", key)
    certified(refold, many, path, "--key", key)
    by_hand(many, *changes)
    ran = refold("verify", path, "--key", f"{key}.pub", "--store", many)
    assert (3, True) == (ran.code, "clean, and THE STORE DIFFERS" in ran.out)
    assert ["run-05"] == [
        line.split()[1][:-1] for line in ran.out.splitlines() if line.startswith("  DIFFERS")
    ]
    found = json.loads(refold("verify", path, "--store", many, "-o", "json").out)["store"]
    assert (22, ["run-05"]) == (found["same"], [each["name"] for each in found["differing"]])


def test_a_certificate_beside_a_store_of_the_same_names(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A run with the same id and another whole log is not the one that was audited."""
    record(store, [say("Done.")], run_id="one")
    certified(refold, store, tmp_path / "audit.json")
    other = tmp_path / "other.db"
    record(other, [say("Gone.")], run_id="one")
    ran = refold("verify", tmp_path / "audit.json", "--store", other)
    assert (3, True) == (ran.code, "was audited with the hash" in ran.out)


def test_a_certificate_beside_its_own_store(refold: Refold, many: Path, tmp_path: Path) -> None:
    """Beside the store that was audited it agrees, and says which runs grew and how many are new; without one
    it says so.
    """
    path = tmp_path / "audit.json"
    certified(refold, many, path)
    alone = refold("verify", path)
    assert (0, True) == (alone.code, "unproved  that your store has these logs" in alone.out)
    ran = refold("verify", path, "--store", many)
    assert (0, True) == (ran.code, f"{many}: 23 same as audited" in ran.out)
    assert "that these are the logs" not in ran.out
    assert "unproved  who wrote it: it is not signed" in ran.out
    why = ("--why", "asked to", "--by", "ann", "--yes")
    assert 0 == refold("erase", "run-05@e1", *why, "--store", many).code
    record(many, [say("Done.")], run_id="new")
    ran = refold("verify", path, "--store", many)
    assert (0, True) == (ran.code, "22 same as audited, 1 grown, 1 not in the certificate" in ran.out)
    assert "grown     run-05: 1 event since, not audited" in ran.out
    assert "unproved  that runs and events that it does not name are intact" in ran.out


def test_a_certificate_names_its_runs(refold: Refold, many: Path, tmp_path: Path) -> None:
    """Each run that was followed to its end stands in the document with its number of events and its head."""
    said = certified(refold, many, tmp_path / "audit.json")["certificate"]
    verified = [
        json.loads(line) for line in refold("verify", "--all", "--store", many, "-o", "json").out.splitlines()
    ]
    assert {(each["run"], each["events"], each["hash"]) for each in verified} == {
        (each["run"], each["events"], each["head"]) for each in said["runs"]
    }


def test_a_head_that_is_not_under_the_root(refold: Refold, many: Path, tmp_path: Path) -> None:
    """A certificate whose runs are not those of its root was changed, also where nobody signed it."""
    path = tmp_path / "audit.json"
    said = certified(refold, many, path)["certificate"]
    path.write_text(path.read_text().replace(said["runs"][3]["head"], "00" * 32))
    ran = refold("verify", path)
    assert (3, True) == (ran.code, "its root does not match the runs that it lists" in ran.out)


def test_nothing_is_audited_where_the_certificate_stands_already(
    refold: Refold, many: Path, tmp_path: Path
) -> None:
    """A taken name is refused before the first run is audited, and no option is named that `audit` does not
    have.
    """
    path = tmp_path / "audit.json"
    path.write_text("mine")
    ran = refold("audit", "--all", "--store", many, "--certificate", path)
    assert (2, "") == (ran.code, ran.out)
    assert "already exists" in ran.err
    assert "--force" not in ran.err


def test_the_store_of_the_environment_is_not_compared(
    refold: Refold, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` compares a certificate only with a store named by --store, and reports that the one in
    REFOLD_STORE is unused.
    """
    path = tmp_path / "audit.json"
    assert 0 == refold("audit", "--all", "--store", many, "--certificate", path).code
    assert "REFOLD_STORE" not in refold("verify", path).out
    monkeypatch.setenv("REFOLD_STORE", str(many))
    assert (
        "the store in REFOLD_STORE: only a store named by --store is compared" in refold("verify", path).out
    )


@pytest.mark.parametrize("seq", range(3, 7))
def test_an_audit_of_a_damaged_log_ends_where_verify_does(seq: int, refold: Refold, store: Path) -> None:
    """Where an event was edited, all decisions before it agreed, up to the last event that `verify` finds
    intact.
    """
    record(store, [call("look", path="a"), say("Done.")], run_id="edited")
    tamper(store, f"UPDATE event SET body = replace(body, '{{', '{{ ') WHERE key & 4294967295 = {seq}")
    whole = json.loads(refold("verify", "edited", "--store", store, "-o", "json").out)
    ran = refold("audit", "edited", "--store", store)
    assert 3 == ran.code
    assert f"all agreed up to event {seq - 1}, then damaged" in ran.out
    assert "not all agreed" not in ran.out
    assert (
        seq - 1
        == whole["events"]
        == json.loads(refold("audit", "edited", "--store", store, "-o", "json").out)["events"]
    )
