"""`seal`, `verify --key`, `erase`, `pack` and `unpack` as a person types them."""

import json
import sqlite3
from pathlib import Path

import anyio
import pytest

from console.conftest import EVIL, Refold, record
from console.test_listings import tamper
from refold.engine import Agent, ScriptedModel, call, say
from refold.store import SqliteStore, chain, packer
from support.sealing import signing_key, write_key


@pytest.fixture
def key(refold: Refold, tmp_path: Path) -> Path:
    """A private key; the public one lies beside it."""
    assert 0 == refold("keygen", tmp_path / "k").code
    return tmp_path / "k"


@pytest.fixture
def line(refold: Refold, store: Path, finished: str, limited: str, key: Path) -> str:
    """The line that sealing two runs printed."""
    ran = refold("seal", "--key", key, "--store", store)
    assert (0, "2 new heads of 2 runs; key") == (ran.code, ran.err[:26])
    return ran.out.strip()


def public(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")


def test_a_key_is_not_written_over(refold: Refold, key: Path) -> None:
    """A second `keygen` of the same name is wrong use."""
    before = key.read_bytes()
    assert 2 == refold("keygen", key).code
    assert before == key.read_bytes()


def test_sealing_again_prints_the_same_line(refold: Refold, store: Path, key: Path, line: str) -> None:
    """What is to be kept stays the same until something new is recorded; stdout has that line and no other."""
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
        "the seals: hold",
        "1 seals over 3 entries, against key",
        "3 of 3 entries, of which 2 are heads of these runs",
        "2 of 3 sealed and whole",
        "no event of it",
        f"newest    {line}",
        "that no seal was removed after the one that was kept last",
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
    assert "seals" not in ran.out
    assert "sealed  " not in ran.out


LAST = "(SELECT max(key) FROM event WHERE key >> 32 = (SELECT number FROM run WHERE id = 'aa11'))"
GONE = "(SELECT number FROM run WHERE id = 'aa11')"


@pytest.mark.parametrize(
    ("statements", "words", "said"),
    [
        pytest.param([f"DELETE FROM event WHERE key = {LAST}"], ["aa11"], "the store does not have it", id="cut tail"),
        pytest.param(
            [f"DELETE FROM event WHERE key >> 32 = {GONE}", "DELETE FROM run WHERE id = 'aa11'"], ["--all"],
            "gone      run aa11: sealed up to event", id="deleted run",
        ),
        pytest.param(
            [f"DELETE FROM event WHERE key >> 32 = {GONE}", "DELETE FROM run WHERE id = 'aa11'"], ["aa11"],
            "gone      run aa11: sealed up to event", id="deleted run, by its name",
        ),
        pytest.param(["UPDATE sealed_head SET seq = 1 WHERE place = 1"], ["--all"], "its root is not", id="changed entry"),
        pytest.param(["UPDATE seal SET root = zeroblob(32)"], ["--all"], "its root is not", id="changed root"),
        pytest.param(
            ["UPDATE event SET content = NULL, salt = NULL WHERE content IS NOT NULL"], ["--all"],
            "event 1 (run_started): its content is gone, and no notice", id="contents taken away",
        ),
        pytest.param(["DELETE FROM seal"], ["--all"], "are under no seal", id="seal removed"),
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
    assert (3, True) == (ran.code, "it has 3 entries, and seal 5:" in ran.out)


def test_a_store_rolled_back_is_not_sealed_again(
    refold: Refold, store: Path, key: Path, line: str, tmp_path: Path
) -> None:
    """A line that was kept stops the next seal, with nothing signed; without it, another past is signed unseen."""
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
    assert "it has 3 entries, and seal 5:" in ran.err
    assert 0 == refold(*words, old).code
    ran = refold(*words, old, "--seal", kept)
    assert (3, True) == (ran.code, "its first 5 entries are not those of seal 5:" in ran.err)
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
    assert "gone      run aa11: sealed up to event" in ran.out


def test_nothing_of_what_was_asked_is_sealed(refold: Refold, store: Path, key: Path, line: str) -> None:
    """A run that no seal covers is not accepted under a key or a line, whatever else is sealed; among others it is said."""
    record(store, [say("Later.")], run_id="ee66")
    for words in (["--key", public(key)], ["--seal", line]):
        ran = refold("verify", "ee66", *words, "--store", store)
        assert (125, True) == (ran.code, "cover none of these runs: cannot be judged" in ran.out)
        ran = refold("verify", "ee66", "aa11", *words, "--store", store)
        assert (0, True) == (ran.code, "1 of 2 sealed and whole" in ran.out)


def test_a_bundle_under_a_line_of_others(
    refold: Refold, store: Path, key: Path, line: str, tmp_path: Path
) -> None:
    """A bundle none of whose runs is sealed is not accepted by the line of its store's seal."""
    record(store, [say("Later.")], run_id="ee66")
    refold("pack", "ee66", "-o", tmp_path / "b.zip", "--store", store)
    for words in (["--key", public(key)], ["--seal", line]):
        ran = refold("verify", tmp_path / "b.zip", *words)
        assert (125, True) == (ran.code, "covers none of its runs" in ran.out)


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
    assert "the seals: there are none" in ran.out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(["pack", "aa11"], "aa11.zip", id="a bundle"),
        pytest.param(["report", "aa11"], "aa11.html", id="a page"),
    ],
)
def test_a_file_without_a_name_is_named_for_its_run(
    words: list[str], name: str, refold: Refold, store: Path, finished: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without -o it lies in the current folder; one that is there already is left as it is."""
    monkeypatch.chdir(tmp_path)
    assert 0 == refold(*words, "--store", store).code
    before = (tmp_path / name).read_bytes()
    again = refold(*words, "--store", store)
    assert (2, before) == (again.code, (tmp_path / name).read_bytes())


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
        pytest.param(["pack", "zz", "-o", "b.zip"], "is no run in this store", id="no run"),
        pytest.param(["unpack", "none.zip", "-o", "new.db"], "there is no such file", id="no bundle"),
        pytest.param(["verify", "none.zip"], "there is no such file", id="no bundle to verify"),
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


# --- erasing


def test_erasing(refold: Refold, store: Path, key: Path, line: str) -> None:
    """The words are gone from the file, the log says so, and log, seals, decisions and bundles hold."""
    said = "First"
    assert said in refold("show", "aa11", "--raw", "--store", store).out
    ran = refold("erase", "aa11@e3", "--why", "asked to", "--by", "ann", "--yes", "--store", store)
    assert 0 == ran.code, ran.err
    for told in ("bytes are erased", "its digest", "bundles, backups, exports"):
        assert told in ran.out
    raw = refold("show", "aa11", "--raw", "--store", store).out
    assert said not in raw
    assert ("content_erased", "ann", "asked to", [3]) == _notice(raw)
    assert said.encode() not in store.read_bytes() + _journal(store)
    loose = "that contents were erased by whom, and why, the log says: 1, with their notices under no seal"
    ran = refold("verify", "aa11", "--key", public(key), "--store", store)
    assert (0, True, True) == (ran.code, "1 of them erased" in ran.out, loose in ran.out)
    ran = refold("audit", "aa11", "--store", store)
    assert (0, True) == (ran.code, "every decision follows" in ran.out)
    assert 0 == refold("pack", "aa11", "-o", store.with_name("b.zip"), "--store", store).code
    assert loose in refold("verify", store.with_name("b.zip"), "--key", public(key)).out
    assert 0 == refold("seal", "--key", key, "--store", store).code
    assert 0 == refold("pack", "aa11", "-o", store.with_name("c.zip"), "--store", store).code
    for words in (["aa11", "--store", store], [store.with_name("c.zip")]):
        ran = refold("verify", *words, "--key", public(key))
        assert (0, False) == (ran.code, "under no seal" in ran.out)


def test_a_notice_holds_no_secret(refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who erased and why are redacted as all that is recorded is: by the environment, and by the run's policy."""
    record(store, [say("x")], run_id="ff77", policy={"redact": ["AC-[0-9]+"]})
    monkeypatch.setenv("BILLING_TOKEN", "Zx9kQ88abCDefGH1jk")
    said = "Zx9kQ88abCDefGH1jk AC-00042"
    assert (
        0
        == refold(
            "erase", "ff77@e1", "--why", f"w {said}", "--by", f"b {said}", "--yes", "--store", store
        ).code
    )
    kind, by, why, seqs = _notice(refold("show", "ff77", "--raw", "--store", store).out)
    assert ("content_erased", "b [REDACTED] [REDACTED]", "w [REDACTED] [REDACTED]", [1]) == (
        kind,
        by,
        why,
        seqs,
    )


def _notice(raw: str) -> tuple[str, str, str, list[int]]:
    last = json.loads(raw.splitlines()[-1])
    body = last["body"] if isinstance(last["body"], dict) else json.loads(last["body"])
    return last["kind"], body["by"], body["why"], body["seqs"]


def _journal(store: Path) -> bytes:
    path = store.with_name(store.name + "-wal")
    return path.read_bytes() if path.exists() else b""


def test_what_is_left_after_erasing(refold: Refold, store: Path, finished: str) -> None:
    """`show`, `state` and `why` go on working; `view` says of a turn that needs the words that they were erased."""
    refold("erase", "aa11@e3", "--why", "x", "--yes", "--store", store)
    for words in (
        ["show", "aa11"],
        ["show", "aa11", "--all"],
        ["state", "aa11"],
        ["why", "aa11@e4"],
        ["view", "aa11@t1"],
    ):
        assert 0 == refold(*words, "--store", store).code, words
    ran = refold("view", "aa11@t2", "--store", store)
    assert (125, True) == (ran.code, "was erased" in ran.err)


def test_a_guard_that_needs_what_was_erased(refold: Refold, store: Path) -> None:
    """An audit says which decision cannot be judged, and why; without such a guard nothing is in doubt."""
    policy = {"guards": [{"guard": "keywords", "words": ["finish"]}]}
    for run, guarded in (("dd55", policy), ("dd66", None)):
        record(store, [call("look", path="x"), say("I finish.")], run_id=run, policy=guarded)
        raw = refold("show", run, "--raw", "--store", store).out.splitlines()
        answers = [each["seq"] for each in map(json.loads, raw) if each["kind"] == "model_responded"]
        assert 0 == refold("erase", f"{run}@e{answers[-1]}", "--why", "x", "--yes", "--store", store).code
        assert 0 == refold("verify", run, "--store", store).code
    ran = refold("audit", "dd55", "--store", store)
    assert 125 == ran.code, ran.out
    assert "unreplayable" in ran.out
    assert "keywords: content erased" in ran.out
    assert "DIFFERS" not in ran.out
    assert 0 == refold("audit", "dd66", "--store", store).code


def test_erasing_twice(refold: Refold, store: Path, finished: str) -> None:
    """What was erased may be erased again, as a reader may have kept the journal from being cleaned."""
    refold("erase", "aa11@e3", "--why", "x", "--yes", "--store", store)
    ran = refold("erase", "aa11@e3", "--why", "x", "--yes", "--store", store, "-o", "json")
    assert (0, True, 0) == (ran.code, json.loads(ran.out)["again"], json.loads(ran.out)["size"])


@pytest.mark.parametrize("after", [None, 0.0, 3600.0])
def test_erasing_leaves_a_run_to_its_worker(
    after: float | None, refold: Refold, store: Path, finished: str
) -> None:
    """A run that was to be taken up is to be taken up afterwards, at the time that was set."""

    async def claims(*, first: bool) -> tuple[list[str], bool]:
        async with await SqliteStore.open(store) as opened:
            if first:
                await opened.release(await opened.lease("aa11", holder="test"), after)
            claim = await opened.claim("aa11")
            return [*await opened.due(5)], claim is not None and claim.holder == ""

    expected = anyio.run(lambda: claims(first=True))
    assert 0 == refold("erase", "aa11@e3", "--why", "x", "--yes", "--store", store).code
    assert expected == anyio.run(lambda: claims(first=False))


def test_a_run_that_somebody_drives_is_not_erased(refold: Refold, store: Path, finished: str) -> None:
    """It is said who has it, and nothing is changed."""

    async def hold() -> None:
        async with await SqliteStore.open(store) as opened:
            await opened.lease("aa11", holder="worker 7")

    anyio.run(hold)
    before = refold("show", "aa11", "--raw", "--store", store).out
    ran = refold("erase", "aa11@e3", "--why", "x", "--yes", "--store", store)
    assert (4, True) == (ran.code, "worker 7" in ran.err)
    assert before == refold("show", "aa11", "--raw", "--store", store).out


# --- bundles


def test_pack_verify_unpack(refold: Refold, store: Path, key: Path, line: str, tmp_path: Path) -> None:
    """A bundle verifies offline, says what it covers, and becomes a store in which every command works."""
    file, new = tmp_path / "b.zip", tmp_path / "new.db"
    ran = refold("pack", "aa11", "aa22", "-o", file, "--store", store)
    assert (0, True) == (ran.code, "2 of them under the store's newest seal" in ran.out)
    ran = refold("verify", file, "--key", public(key), "--seal", line)
    assert 0 == ran.code, ran.out
    assert "2 of 2 runs" in ran.out
    assert "run aa11: whole" in ran.out
    assert "\x1b" not in ran.out
    document = json.loads(refold("-o", "json", "verify", file).out)
    assert (True, line, 2) == (document["whole"], document["seal"], document["sealed_runs"])
    assert 0 == refold("unpack", file, "-o", new).code
    assert 0 == refold("audit", "--all", "--store", new).code
    assert (
        refold("show", "aa11", "--raw", "--store", store).out
        == refold("show", "aa11", "--raw", "--store", new).out
    )
    assert 2 == refold("unpack", file, "-o", new).code
    assert 2 == refold("pack", "aa11", "-o", file, "--store", store).code


def test_bundles_and_runs_at_once(refold: Refold, store: Path, line: str, key: Path, tmp_path: Path) -> None:
    """Each of several is judged; the worst verdict is the exit code, and a damaged bundle hides no run."""
    file = tmp_path / "b.zip"
    refold("pack", "aa11", "-o", file, "--store", store)
    file.write_bytes(file.read_bytes()[:-1])
    ran = refold("verify", file, "aa22", "--store", store)
    assert 3 == ran.code
    assert f"bundle {file}: DAMAGED" in ran.out
    assert "run aa22: whole" in ran.out
    assert 3 == refold("-o", "json", "verify", file).code


def test_a_line_and_a_bundle(refold: Refold, store: Path, line: str, key: Path, tmp_path: Path) -> None:
    """A bundle's seal is compared with a kept line of its size; one of another size cannot be."""
    file = tmp_path / "b.zip"
    refold("pack", "aa11", "-o", file, "--store", store)
    assert 3 == refold("verify", file, "--seal", "seal 3:" + "00" * 32).code
    assert 125 == refold("verify", file, "--seal", "seal 5:" + "00" * 32).code


def test_a_forged_run_in_a_whole_bundle(refold: Refold, store: Path, finished: str, tmp_path: Path) -> None:
    """A bundle may chain and list everything, and hold events that no engine could have written."""
    from console.test_forged import forged

    forged(store, finished, tmp_path / "forged.db", lambda records: [records[0], *records[3:]])
    file = tmp_path / "b.zip"
    assert 0 == refold("pack", finished, "-o", file, "--store", tmp_path / "forged.db").code
    ran = refold("verify", file)
    assert (3, True) == (ran.code, "run aa11 event 2" in ran.out)


def test_a_tree(refold: Refold, tmp_path: Path) -> None:
    """With `--tree` a run brings the runs that its calls started, and theirs."""
    store, file = tmp_path / "tree.db", tmp_path / "b.zip"
    grandchild = Agent(model=ScriptedModel([say("leaf")]), name="leaf", store=store)
    child = Agent(
        model=ScriptedModel([call("ask_leaf", task="x"), say("branch")]),
        tools=[grandchild.as_tool("ask_leaf")], name="branch", store=store,
    )  # fmt: skip
    root = Agent(
        model=ScriptedModel([call("ask_branch", task="x"), say("root")]),
        tools=[child.as_tool("ask_branch")], name="root", store=store,
    )  # fmt: skip
    run = root.run_sync("Go.", run_id="root1").run
    assert 0 == refold("pack", run, "--tree", "-o", file, "--store", store).code
    document = json.loads(refold("-o", "json", "verify", file).out)
    assert 3 == len(document["runs"])
    assert run in [each["run"] for each in document["runs"]]
    assert 0 == refold("pack", run, "-o", tmp_path / "one.zip", "--store", store).code
    assert 1 == len(json.loads(refold("-o", "json", "verify", tmp_path / "one.zip").out)["runs"])


@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "another end"])
def test_a_child_that_is_not_what_its_parent_saw(
    cut: bool, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's log has the hash at which its child ended: a child cut off, or ended otherwise, shows without a seal."""
    store, file = tmp_path / "tree.db", tmp_path / "b.zip"
    child = Agent(model=ScriptedModel([say("leaf")]), name="leaf", store=store)
    script = ScriptedModel([call("ask_leaf", task="x"), say("root")])
    Agent(model=script, tools=[child.as_tool("ask_leaf")], store=store).run_sync("Go.", run_id="root1")
    event = "key >> 32 = (SELECT number FROM run WHERE id <> 'root1')"
    if cut:
        tamper(store, f"DELETE FROM event WHERE key = (SELECT max(key) FROM event WHERE {event})")
    else:
        tamper(store, f"UPDATE event SET at = at + 1 WHERE key = (SELECT max(key) FROM event WHERE {event})")
        rechained(store)
    ran = refold("pack", "root1", "--tree", "-o", file, "--store", store)
    assert (3, True) == (ran.code, "with a hash that is not in that run's log" in ran.err)

    async def unchecked(*words: object) -> None:
        pass

    monkeypatch.setattr(packer, "_check_children", unchecked)
    assert 0 == refold("pack", "root1", "--tree", "-o", file, "--store", store).code
    ran = refold("verify", file)
    assert (3, True) == (ran.code, "with a hash that is not in that run's log" in ran.out)


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


def test_nothing_hostile_reaches_the_terminal(
    refold: Refold, store: Path, key: Path, line: str, tmp_path: Path
) -> None:
    """What a bundle says is shown as every other text from elsewhere: in one line, its control characters escaped."""
    file = tmp_path / "b\x1b[31m.zip"
    refold("pack", "aa11", "-o", file, "--store", store)
    for words in (
        ["verify", file],
        ["verify", file, "--seal", "seal 3:" + "00" * 32],
        ["unpack", file, "-o", file],
    ):
        ran = refold(*words)
        assert not set("\x1b\x07\u202e") & set(ran.out + ran.err)
    assert EVIL not in ran.err
