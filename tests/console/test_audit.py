"""`refold audit` of many runs, and the certificate of what it found."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold, record
from refold.engine import say
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
    assert (3, True) == (ran.code, "another key" in ran.out)
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
    assert (3, True) == (ran.code, "was taken out" in ran.out)
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
    assert (0, True) == (ran.code, "1 of the runs: their decisions were derived at import" in ran.out)
    assert 1 == json.loads(path.read_bytes())["certificate"]["totals"]["imported"]
