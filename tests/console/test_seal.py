"""`keygen`, `seal` and `verify --key` as a person types them."""

import json
import sqlite3
from pathlib import Path

import pytest

from console.conftest import Refold, public, record
from console.test_listings import tamper
from refold.engine import say
from support.sealing import signing_key, write_key


def test_a_key_is_not_written_over(refold: Refold, key: Path) -> None:
    """A second `keygen` of the same name is wrong use."""
    before = key.read_bytes()
    assert 2 == refold("keygen", key).code
    assert before == key.read_bytes()


def test_sealing_again_prints_the_same_line(refold: Refold, store: Path, key: Path, line: str) -> None:
    """What is to be kept stays the same until something new is recorded; stdout has that line and no
    other.
    """
    ran = refold("seal", "--key", key, "--store", store)
    assert (0, f"{line}\n") == (ran.code, ran.out)
    assert line.startswith("seal 3:")
    document = json.loads(refold("seal", "--key", key, "--store", store, "-o", "json").out)
    assert (line, 0, 2, []) == tuple(document[name] for name in ("line", "added", "runs", "broken"))


def test_a_sealed_store_verifies(refold: Refold, store: Path, key: Path, line: str, waiting: str) -> None:
    """Levels and denominators: what was checked, what is covered, and what cannot be proved."""
    ran = refold("verify", "--all", "--key", public(key), "--seal", line, "--store", store)
    assert 0 == ran.code, ran.err
    for said in (
        "signed checkpoints: valid",
        "1 signed checkpoint over 3 entries, against key",
        "3 of 3 entries; 2 log heads of these runs compared",
        "2 of 3 covered and intact",
        "no event",
        f"newest    {line}",
        "that no signed checkpoint was removed after the last line given with --seal",
        "that what was recorded is what happened",
    ):
        assert said in ran.out
    *runs, seals = map(
        json.loads,
        refold("verify", "--all", "--key", public(key), "--store", store, "-o", "json").out.splitlines(),
    )
    assert [0, True, True] == [run["sealed"] and run["sealed"] == run["events"] for run in runs]
    assert (3, 2, []) == (seals["runs"], seals["sealed_runs"], seals["gone"])


def test_without_a_key_nothing_is_said_of_seals(refold: Refold, store: Path, line: str) -> None:
    """`verify` by itself says what it always did."""
    ran = refold("verify", "--all", "--store", store)
    assert 0 == ran.code
    assert "signed checkpoints:" not in ran.out
    assert "sealed  " not in ran.out


LAST = "(SELECT max(key) FROM event WHERE key >> 32 = (SELECT number FROM run WHERE id = 'aa11'))"
GONE = "(SELECT number FROM run WHERE id = 'aa11')"


@pytest.mark.parametrize(
    ("statements", "words", "said"),
    [
        pytest.param([f"DELETE FROM event WHERE key = {LAST}"], ["aa11"], "the store does not have it", id="cut tail"),
        pytest.param(
            [f"DELETE FROM event WHERE key >> 32 = {GONE}", "DELETE FROM run WHERE id = 'aa11'"], ["--all"],
            "gone      run aa11: covered up to event", id="deleted run",
        ),
        pytest.param(
            [f"DELETE FROM event WHERE key >> 32 = {GONE}", "DELETE FROM run WHERE id = 'aa11'"], ["aa11"],
            "gone      run aa11: covered up to event", id="deleted run, by its name",
        ),
        pytest.param(["UPDATE sealed_head SET seq = 1 WHERE place = 1"], ["--all"], "its root does not match", id="changed entry"),
        pytest.param(["UPDATE seal SET root = zeroblob(32)"], ["--all"], "its root does not match", id="changed root"),
        pytest.param(
            ["UPDATE event SET content = NULL, salt = NULL WHERE content IS NOT NULL"], ["--all"],
            "event 1 (run_started): its payload is missing, and no erasure record", id="contents taken away",
        ),
        pytest.param(["DELETE FROM seal"], ["--all"], "are not covered by a signed checkpoint", id="seal removed"),
    ],
)  # fmt: skip
def test_what_a_chain_does_not_show(
    statements: list[str], words: list[str], said: str, refold: Refold, store: Path, key: Path, line: str
) -> None:
    """The plain verdict of what is left is whole; with the key it is damaged, and says where."""
    for statement in statements:
        tamper(store, statement)
    ran = refold("verify", *words, "--key", public(key), "--store", store)
    assert 3 == ran.code, ran.out + ran.err
    assert said in ran.out
    if "SET content" not in statements[0]:  # which needs no seal to show
        assert 0 == refold("verify", "aa22", "--store", store).code


def test_a_store_rolled_back(refold: Refold, store: Path, key: Path, line: str, tmp_path: Path) -> None:
    """A store put back from an old copy passes with the key, and fails with the line that was kept."""
    old = tmp_path / "old.db"
    with sqlite3.connect(store) as source, sqlite3.connect(old) as target:
        source.backup(target)
    record(store, [say("More.")], run_id="cc44")
    kept = refold("seal", "--key", key, "--store", store).out.strip()
    words = ["verify", "--all", "--key", public(key), "--store", old]
    assert 0 == refold(*words).code
    ran = refold(*words, "--seal", kept)
    assert (3, True) == (ran.code, "it has 3 entries, fewer than the kept line seal 5:" in ran.out)


def test_a_store_rolled_back_is_not_sealed_again(
    refold: Refold, store: Path, key: Path, line: str, tmp_path: Path
) -> None:
    """A line that was kept stops the next seal, with nothing signed; without it, another past is signed
    unseen.
    """
    old = tmp_path / "old.db"
    with sqlite3.connect(store) as source, sqlite3.connect(old) as target:
        source.backup(target)
    record(store, [say("More.")], run_id="cc44")
    words = ["seal", "--key", key, "--store"]
    ran = refold(*words, store, "--seal", line)
    assert 0 == ran.code, ran.err
    kept = ran.out.strip()
    assert f"{kept}\n" == refold(*words, store, "--seal", line, "--seal", kept).out
    record(old, [say("Nothing.")], run_id="dd55")
    ran = refold(*words, old, "--seal", kept)
    assert (3, "") == (ran.code, ran.out)
    assert "it has 3 entries, fewer than the kept line seal 5:" in ran.err
    assert 0 == refold(*words, old).code
    ran = refold(*words, old, "--seal", kept)
    assert (3, True) == (ran.code, "its first 5 entries differ from the kept line seal 5:" in ran.err)
    assert 2 == refold(*words, old, "--seal", "x").code


RENAME = [
    "UPDATE run SET id = 'aa11-2' WHERE id = 'aa11'",
    "UPDATE event SET body = replace(body, '\"aa11\"', '\"aa11-2\"') WHERE kind = 'run_started'",
]


def test_a_run_renamed(refold: Refold, store: Path, key: Path, line: str) -> None:
    """A word that was the id of a sealed run is not taken for the beginning of another's."""
    for statement in RENAME:
        tamper(store, statement)
    ran = refold("verify", "aa11", "--key", public(key), "--store", store)
    assert 3 == ran.code
    assert "gone      run aa11: covered up to event" in ran.out


def test_nothing_of_what_was_asked_is_sealed(refold: Refold, store: Path, key: Path, line: str) -> None:
    """A run that no seal covers is not accepted under a key or a line, whatever else is sealed; among others
    it is said.
    """
    record(store, [say("Later.")], run_id="ee66")
    for words in (["--key", public(key)], ["--seal", line]):
        ran = refold("verify", "ee66", *words, "--store", store)
        assert (125, True) == (ran.code, "none covers these runs: inconclusive" in ran.out)
        ran = refold("verify", "ee66", "aa11", *words, "--store", store)
        assert (0, True) == (ran.code, "1 of 2 covered and intact" in ran.out)


def test_the_state_before_a_cut(refold: Refold, store: Path, key: Path, line: str) -> None:
    """Where events are gone, the way to the state before leads to one that is there."""
    tamper(store, f"DELETE FROM event WHERE key > {LAST} - 3 AND key >> 32 = {GONE}")
    ran = refold("verify", "aa11", "--key", public(key), "--store", store)
    command = ran.out.split("the state before it: refold ")[1].splitlines()[0]
    assert 0 == refold(*command.split()).code, command


def test_another_key(refold: Refold, store: Path, line: str, tmp_path: Path) -> None:
    """A signature by another key says whose it is."""
    other = write_key(tmp_path / "other.pub", signing_key())
    ran = refold("verify", "--all", "--key", other, "--store", store)
    assert 3 == ran.code
    assert "is signed by another key" in ran.out


def test_never_sealed(refold: Refold, store: Path, finished: str, key: Path) -> None:
    """A key, and a store without any seal: it cannot be judged."""
    ran = refold("verify", "--all", "--key", public(key), "--store", store)
    assert 125 == ran.code
    assert "signed checkpoints: none" in ran.out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["verify", "--all", "--key", "KEY"], "is a private key", id="the private key"),
        pytest.param(["verify", "--all", "--key", "none.pub"], "cannot be read", id="no key there"),
        pytest.param(["verify", "--all", "--seal", "x"], "expected what `refold seal` prints", id="no line"),
        pytest.param(["seal", "--key", "KEY.pub"], "is a public key", id="the public key"),
        pytest.param(["seal"], "--key", id="no key"),
        pytest.param(["erase", "aa11@e3"], "--why", id="no reason"),
        pytest.param(["erase", "aa11@e3", "--why", " ", "--yes"], "expected a reason", id="an empty reason"),
        pytest.param(["erase", "aa11", "--why", "x"], "expected an event", id="no event"),
        pytest.param(["erase", "aa11@t1", "--why", "x"], "expected an event", id="a turn"),
        pytest.param(["erase", "aa11@e99", "--why", "x"], "has events 1 to", id="no such event"),
        pytest.param(
            ["erase", "aa11@e2", "--why", "x"], "e1 run_started, e3 model_responded", id="nothing said"
        ),
        pytest.param(["pack", "zz", "--out", "b.zip"], "matches no run in this store", id="no run"),
        pytest.param(["unpack", "none.zip", "--out", "new.db"], "the file does not exist", id="no bundle"),
        pytest.param(["verify", "none.zip"], "the file does not exist", id="no bundle to verify"),
    ],
)
def test_wrong_use(
    words: list[str], problem: str, refold: Refold, store: Path, finished: str, key: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What cannot be is refused with exit code 2, before anything is changed, and said in a sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOLD_STORE", str(store))
    before = _files(tmp_path)
    ran = refold(*(word.replace("KEY", str(key)) for word in words))
    assert 2 == ran.code, ran.out
    assert problem in ran.err
    assert before == _files(tmp_path)


def _files(folder: Path) -> list[str]:
    """All but SQLite's own journal, which comes and goes."""
    return sorted(each.name for each in folder.iterdir() if not each.name.endswith(("-shm", "-wal")))


def test_under_seals_the_verdicts_are_counted_too(refold: Refold, store: Path, tmp_path: Path) -> None:
    """With a key, as without one, `verify --all` says of how many runs each verdict was, before it tells of
    the seals.
    """
    for number in range(3):
        record(store, [say("Done.")], run_id=f"run-{number}")
    key = tmp_path / "key"
    refold("keygen", key)
    assert 0 == refold("seal", "--key", key, "--store", store).code
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TRIGGER event_is_final")
        connection.execute("UPDATE event SET at = at + 1 WHERE key = (SELECT max(key) FROM event)")
    connection.close()
    alone = refold("verify", "--all", "--store", store)
    sealed = refold("verify", "--all", "--key", f"{key}.pub", "--store", store)
    assert (3, 3) == (alone.code, sealed.code)
    assert alone.out.splitlines()[-1] in sealed.out.splitlines()
    assert "3 runs: 2 intact, 1 DAMAGED" == alone.out.splitlines()[-1]
