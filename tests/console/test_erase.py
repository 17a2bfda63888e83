"""Erasing is for good: who types at a terminal is shown what goes and asked, and no script erases by one
word.
"""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from console.conftest import Refold, public, record
from refold.engine import Agent, ScriptedModel, call, say
from refold.store import SqliteStore

# a whole sentence: a few digits alone may stand in a digest too
SECRET = "The card is 4111."
WHY = ["--why", "asked to", "--by", "ann"]


@pytest.fixture
def secret(store: Path) -> str:
    """A run whose answer says what must go."""
    agent = Agent(model=ScriptedModel([say(SECRET)]), store=store)
    return agent.run_sync("Which card?", run_id="aa11").run


def said(refold: Refold, store: Path) -> str:
    """What the model said, as far as the store still knows."""
    return refold("show", "aa11", "--raw", "--store", store).out


def at_terminal(store: Path, answer: str) -> tuple[int, str]:
    """What the command does, and shows, where somebody types this."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "refold.console", "erase", "aa11@e3", *WHY, "--store", str(store)]
    os.write(ours, answer.encode())
    try:
        ran = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
        out, _ = ran.communicate(timeout=60)
    finally:
        os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # Linux says so at the end
        pass
    os.close(ours)
    return ran.returncode, (shown + out).decode()


def test_who_types_is_shown_what_goes_and_asked(refold: Refold, store: Path, secret: str) -> None:
    """With a yes the words are gone; before it, event, kind, size and first words stand on the terminal."""
    code, shown = at_terminal(store, "yes\n")
    assert 0 == code
    for told in (
        "event 3 (model_responded) of run aa11",
        "bytes",
        SECRET,
        "permanently",
        "Erase it?",
    ):
        assert told in shown
    assert SECRET not in said(refold, store)


@pytest.mark.parametrize("answer", ["no\n", "\n", "y\n", "\x04"])
def test_anything_but_yes_erases_nothing(refold: Refold, store: Path, secret: str, answer: str) -> None:
    """A no, an empty line, half a word, the end of input: the exit code is 1, and log and words are as they
    were.
    """
    before = said(refold, store)
    code, shown = at_terminal(store, answer)
    assert 1 == code
    assert "nothing was erased" in shown
    assert before == said(refold, store)


@pytest.mark.parametrize("output", [[], ["-o", "json"]])
def test_without_a_terminal_it_must_be_said(
    refold: Refold, store: Path, secret: str, output: list[str]
) -> None:
    """A script without --yes is wrong use, and erases nothing; with it, nobody is asked."""
    before = said(refold, store)
    ran = refold("erase", "aa11@e3", *WHY, *output, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert "event 3 (model_responded) of run aa11 needs a confirmation" in ran.err
    assert "--yes" in ran.err
    assert before == said(refold, store)
    ran = refold("erase", "aa11@e3", *WHY, "--yes", *output, "--store", store)
    assert 0 == ran.code
    assert not output or 3 == json.loads(ran.out)["seq"]
    assert SECRET not in said(refold, store)


def test_erasing(refold: Refold, store: Path, key: Path, line: str) -> None:
    """The words are gone from the file, the log says so, and log, seals, decisions and bundles hold."""
    said = "First"
    assert said in refold("show", "aa11", "--raw", "--store", store).out
    ran = refold("erase", "aa11@e3", "--why", "asked to", "--by", "ann", "--yes", "--store", store)
    assert 0 == ran.code, ran.err
    for told in ("bytes erased", "its digest", "bundles, backups, exports"):
        assert told in ran.out
    raw = refold("show", "aa11", "--raw", "--store", store).out
    assert said not in raw
    assert ("content_erased", "ann", "asked to", [3]) == _notice(raw)
    assert said.encode() not in store.read_bytes() + _journal(store)
    loose = "who erased payloads and why: no signed checkpoint covers the erasure records (1)"
    ran = refold("verify", "aa11", "--key", public(key), "--store", store)
    assert (0, True, True) == (ran.code, "1 of them erased" in ran.out, loose in ran.out)
    ran = refold("audit", "aa11", "--store", store)
    assert (0, True) == (ran.code, "every decision follows" in ran.out)
    assert 0 == refold("pack", "aa11", "--out", store.with_name("b.zip"), "--store", store).code
    assert loose in refold("verify", store.with_name("b.zip"), "--key", public(key)).out
    assert 0 == refold("seal", "--key", key, "--store", store).code
    assert 0 == refold("pack", "aa11", "--out", store.with_name("c.zip"), "--store", store).code
    for words in (["aa11", "--store", store], [store.with_name("c.zip")]):
        ran = refold("verify", *words, "--key", public(key))
        assert (0, False) == (ran.code, "no signed checkpoint covers" in ran.out)


def test_a_notice_holds_no_secret(refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who erased and why are redacted as all that is recorded is: by the environment, and by the run's
    policy.
    """
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
    """`show`, `state` and `why` go on working; `view` says of a turn that needs the words that they were
    erased.
    """
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


def test_a_fork_that_goes_on_needs_the_words(refold: Refold, store: Path) -> None:
    """What a fork that has not ended shows its model is not erased in the run that it goes on from; once it
    has ended, it is.
    """
    Agent(model=ScriptedModel([say("Done.")]), store=store).run_sync("Go on.", run_id="aa11")
    parent = Agent(model=ScriptedModel([say("Otherwise.")]), store=store)

    async def forked() -> None:
        async with await SqliteStore.open(store) as opened:
            agent = Agent(model=ScriptedModel([]), store=opened)
            await agent.fork("aa11", 2, fork_id="ff22").detach()

    anyio.run(forked)
    words = ("erase", "aa11@e1", *WHY, "--yes", "--store", store)
    ran = refold(*words)
    assert (2, True) == (ran.code, "run ff22 has not ended, and needs event 1 to continue" in ran.err)
    assert "Go on." in said(refold, store)
    anyio.run(lambda: parent.resume("ff22").result())
    assert 0 == refold(*words).code
    assert "Go on." not in said(refold, store)
