"""The command where nobody opened its stdin, stdout or stderr (`>&-`): its exit code is what it would be."""

import subprocess
from pathlib import Path

import pytest

from console.test_process import REFOLD
from support.edited import edited

CLOSED = [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"]


def asked(words: str, closed: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    line = f"{' '.join(REFOLD)} {words} {closed}"
    return subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, check=False, cwd=folder
    )


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("words", ["verify --all", "verify --all -o json", "ls", "audit --all"])
def test_nothing_is_wrong(words: str, closed: str, store: Path, finished: str, tmp_path: Path) -> None:
    """Of a clean store the code is 0, whatever is closed, and nobody is told of a bug."""
    ran = asked(f"{words} --store {store}", closed, tmp_path)
    assert (0, "") == (ran.returncode, ran.stderr)


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("words", ["verify --all", "verify --all -o json", "show aa11"])
def test_damage(words: str, closed: str, store: Path, finished: str, tmp_path: Path) -> None:
    """A damaged log is 3, whoever listens."""
    edited(store, "UPDATE event SET body = replace(body, 'a', 'b') WHERE key & 4294967295 = 1")
    ran = asked(f"{words} --store {store}", closed, tmp_path)
    assert (3, False) == (ran.returncode, "bug of refold" in ran.stderr)


@pytest.mark.parametrize("closed", CLOSED)
def test_what_is_written_is_written(closed: str, store: Path, finished: str, tmp_path: Path) -> None:
    """A file that was asked for is there and whole, and is not taken for what is closed."""
    ran = asked(f"report aa11 --out page.html --store {store}", closed, tmp_path)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert (tmp_path / "page.html").read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-"])
@pytest.mark.parametrize("words", ["run - --model local:none", "erase aa11@e1 --why x"])
def test_what_would_read_stdin(words: str, closed: str, store: Path, finished: str, tmp_path: Path) -> None:
    """What needs an answer, or a text, that cannot come is wrong use."""
    ran = asked(f"{words} --store {store}", closed, tmp_path)
    assert (2, False) == (ran.returncode, "bug of refold" in ran.stderr), ran
    assert ("stdin is closed" in ran.stderr) == words.startswith("run"), ran
