"""`-o` is the format of results and `--out` is a file, on every command."""

import json
from pathlib import Path

import pytest

from console.conftest import Refold
from refold.console.app import COMMANDS, command_of
from refold.console.screen import OutputFormat

FILES = {"pack", "unpack", "export", "report", "shrink", "testcase"}
"""The commands that write a file whose name may be typed."""

WORDS = {
    "pack": ["aa11"],
    "unpack": ["b.zip"],
    "export": ["aa11"],
    "report": ["aa11"],
    "shrink": ["aa11", "--when", "calls > 0"],
    "testcase": ["aa11"],
}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_means_the_same_by_an_option(words: str) -> None:
    """`-o` takes `text` or `json` on every command, and exactly the commands that write a file have
    `--out`.
    """
    options = {opt: each for each in command_of(words).params for opt in each.opts if opt.startswith("-")}
    assert options["-o"] is options["--output"]
    assert [form.value for form in OutputFormat] == list(getattr(options["-o"].type, "choices", []))
    assert (words in FILES) == ("--out" in options)


@pytest.mark.parametrize("form", [form.value for form in OutputFormat])
@pytest.mark.parametrize("command", sorted(FILES))
def test_a_format_is_no_file_name(
    command: str, form: str, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format behind `--out` is refused with both ways out, and no file of that name appears."""
    monkeypatch.chdir(tmp_path)
    ran = refold(command, *WORDS[command], "--out", form)
    assert 2 == ran.code
    assert f"'{form}' is a format: type -o {form}, or --out ./{form} for a file of this name" in ran.err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("command", sorted(FILES))
def test_a_file_name_is_no_format(
    command: str, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file behind `-o` is refused with the option that names files, and the file does not appear."""
    monkeypatch.chdir(tmp_path)
    ran = refold(command, *WORDS[command], "-o", "page.html")
    assert 2 == ran.code
    assert "'page.html' is not a format (text or json); to write to a file, use --out page.html" in ran.err
    assert [] == list(tmp_path.iterdir())


def test_a_result_is_json_while_a_file_is_written(refold: Refold, finished: str, store: Path) -> None:
    """Both options side by side: the page is in its file, and what was written is one JSON document."""
    file = store.with_name("page.html")
    ran = refold("report", finished, "-o", "json", "--out", file, "--store", store)
    assert 0 == ran.code
    assert str(file) == json.loads(ran.out)["path"]
    assert file.exists()
