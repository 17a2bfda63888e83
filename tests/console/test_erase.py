"""Erasing is for good: who types at a terminal is shown what goes and asked, and no script erases by one word."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from console.conftest import Refold
from refold.engine import Agent, ScriptedModel, say

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
        "for good",
        "Erase it?",
    ):
        assert told in shown
    assert SECRET not in said(refold, store)


@pytest.mark.parametrize("answer", ["no\n", "\n", "y\n", "\x04"])
def test_anything_but_yes_erases_nothing(refold: Refold, store: Path, secret: str, answer: str) -> None:
    """A no, an empty line, half a word, the end of input: the exit code is 1, and log and words are as they were."""
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
    assert "event 3 (model_responded) of run aa11 would be gone for good" in ran.err
    assert "--yes" in ran.err
    assert before == said(refold, store)
    ran = refold("erase", "aa11@e3", *WHY, "--yes", *output, "--store", store)
    assert 0 == ran.code
    assert not output or 3 == json.loads(ran.out)["seq"]
    assert SECRET not in said(refold, store)
