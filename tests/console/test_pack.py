"""`pack`, `unpack` and `verify` of a bundle as a person types them."""

import json
from pathlib import Path

import pytest

from console.conftest import EVIL, Refold, public, record
from console.test_listings import tamper
from refold.engine import Agent, ScriptedModel, call, say
from refold.store import packer
from support.edited import rechained


def test_a_bundle_under_a_line_of_others(
    refold: Refold, store: Path, key: Path, line: str, tmp_path: Path
) -> None:
    """A bundle none of whose runs is sealed is not accepted by the line of its store's seal."""
    record(store, [say("Later.")], run_id="ee66")
    refold("pack", "ee66", "--out", tmp_path / "b.zip", "--store", store)
    for words in (["--key", public(key)], ["--seal", line]):
        ran = refold("verify", tmp_path / "b.zip", *words)
        assert (125, True) == (ran.code, "covers none of its runs" in ran.out)


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
    """Without --out it lies in the current folder; one that is there already is left as it is."""
    monkeypatch.chdir(tmp_path)
    assert 0 == refold(*words, "--store", store).code
    before = (tmp_path / name).read_bytes()
    again = refold(*words, "--store", store)
    assert (2, before) == (again.code, (tmp_path / name).read_bytes())


def test_pack_verify_unpack(refold: Refold, store: Path, key: Path, line: str, tmp_path: Path) -> None:
    """A bundle verifies offline, says what it covers, and becomes a store in which every command works."""
    file, new = tmp_path / "b.zip", tmp_path / "new.db"
    ran = refold("pack", "aa11", "aa22", "--out", file, "--store", store)
    assert (0, True) == (ran.code, "2 of them covered by the newest signed checkpoint" in ran.out)
    ran = refold("verify", file, "--key", public(key), "--seal", line)
    assert 0 == ran.code, ran.out
    assert "2 of 2 runs" in ran.out
    assert "run aa11: intact" in ran.out
    assert "\x1b" not in ran.out
    document = json.loads(refold("-o", "json", "verify", file).out)
    assert (True, line, 2) == (document["whole"], document["seal"], document["sealed_runs"])
    assert 0 == refold("unpack", file, "--out", new).code
    assert 0 == refold("audit", "--all", "--store", new).code
    assert (
        refold("show", "aa11", "--raw", "--store", store).out
        == refold("show", "aa11", "--raw", "--store", new).out
    )
    assert 2 == refold("unpack", file, "--out", new).code
    assert 2 == refold("pack", "aa11", "--out", file, "--store", store).code


def test_bundles_and_runs_at_once(refold: Refold, store: Path, line: str, key: Path, tmp_path: Path) -> None:
    """Each of several is judged; the worst verdict is the exit code, and a damaged bundle hides no run."""
    file = tmp_path / "b.zip"
    refold("pack", "aa11", "--out", file, "--store", store)
    file.write_bytes(file.read_bytes()[:-1])
    ran = refold("verify", file, "aa22", "--store", store)
    assert 3 == ran.code
    assert f"bundle {file}: DAMAGED" in ran.out
    assert "run aa22: intact" in ran.out
    assert 3 == refold("-o", "json", "verify", file).code


def test_a_line_and_a_bundle(refold: Refold, store: Path, line: str, key: Path, tmp_path: Path) -> None:
    """A bundle's seal is compared with a kept line of its size; one of another size cannot be."""
    file = tmp_path / "b.zip"
    refold("pack", "aa11", "--out", file, "--store", store)
    assert 3 == refold("verify", file, "--seal", "seal 3:" + "00" * 32).code
    assert 125 == refold("verify", file, "--seal", "seal 5:" + "00" * 32).code


def test_a_forged_run_in_a_whole_bundle(refold: Refold, store: Path, finished: str, tmp_path: Path) -> None:
    """A bundle may chain and list everything, and hold events that no engine could have written."""
    from console.test_forged import forged

    forged(store, finished, tmp_path / "forged.db", lambda records: [records[0], *records[3:]])
    file = tmp_path / "b.zip"
    assert 0 == refold("pack", finished, "--out", file, "--store", tmp_path / "forged.db").code
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
    assert 0 == refold("pack", run, "--tree", "--out", file, "--store", store).code
    document = json.loads(refold("-o", "json", "verify", file).out)
    assert 3 == len(document["runs"])
    assert run in [each["run"] for each in document["runs"]]
    assert 0 == refold("pack", run, "--out", tmp_path / "one.zip", "--store", store).code
    assert 1 == len(json.loads(refold("-o", "json", "verify", tmp_path / "one.zip").out)["runs"])


@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "another end"])
def test_a_child_that_is_not_what_its_parent_saw(
    cut: bool, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's log has the hash at which its child ended: a child cut off, or ended otherwise, shows
    without a seal.
    """
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
    ran = refold("pack", "root1", "--tree", "--out", file, "--store", store)
    assert (3, True) == (ran.code, "with a hash that is not in that run's log" in ran.err)

    async def unchecked(*words: object) -> None:
        pass

    monkeypatch.setattr(packer, "_check_children", unchecked)
    assert 0 == refold("pack", "root1", "--tree", "--out", file, "--store", store).code
    ran = refold("verify", file)
    assert (3, True) == (ran.code, "with a hash that is not in that run's log" in ran.out)


def test_nothing_hostile_reaches_the_terminal(
    refold: Refold, store: Path, key: Path, line: str, tmp_path: Path
) -> None:
    """What a bundle says is shown as every other text from elsewhere: in one line, its control characters
    escaped.
    """
    file = tmp_path / "b\x1b[31m.zip"
    refold("pack", "aa11", "--out", file, "--store", store)
    for words in (
        ["verify", file],
        ["verify", file, "--seal", "seal 3:" + "00" * 32],
        ["unpack", file, "--out", file],
    ):
        ran = refold(*words)
        assert not set("\x1b\x07\u202e") & set(ran.out + ran.err)
    assert EVIL not in ran.err
