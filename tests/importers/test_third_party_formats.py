"""A format from a package of its own: found by an entry point, imported like refold's own."""

import json
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.importers.registry import FORMATS, detect_format, formats, importer
from refold.importers.source import Source
from refold.reducers.errors import WrongUse
from support.installed import install
from support.transcripts import read

PACKAGE = Path(__file__).resolve().parents[1] / "example_format_package"
ROWS: tuple[dict[str, object], ...] = (
    {"bot": "shop", "from": "user", "text": "What is an apple?"},
    {"bot": "shop", "from": "bot", "call": {"id": "1", "tool": "price", "arguments": {"item": "apple"}}},
    {"bot": "shop", "from": "tool", "id": "1", "text": "30", "failed": False},
    {"bot": "shop", "from": "bot", "text": "30 cents."},
)
LOG = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages with the example in it, as an installer would leave it."""
    install(tmp_path, tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    shutil.copy(PACKAGE / "refold_bot_log.py", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("refold_bot_log", None)


@pytest.mark.usefixtures("site")
def test_a_file_is_recognized() -> None:
    """A file of an installed format is recognized by its content."""
    assert {"bot_log"} == {*formats()} - {*FORMATS}
    assert ("bot_log", 90) == ((found := detect_format(Source.of("x", LOG))).format, found.score)


@pytest.mark.usefixtures("site")
def test_it_is_imported() -> None:
    """An installed format's run has the messages, calls and results of its file, and its log audits clean."""
    found = read(Source.of("x", LOG))
    assert (1, 1, 2, 1, 1, 0) == (
        found.counts.runs,
        found.counts.user_messages,
        found.counts.assistant_messages,
        found.counts.tool_calls,
        found.counts.tool_results,
        found.counts.tool_errors,
    )
    assert ("finished", ()) == (found.counts.end, found.problems)
    assert all(audit.clean for audit in found.audits)


@pytest.mark.usefixtures("site")
def test_a_cut_file_is_read_up_to_the_cut() -> None:
    """A last line that was cut off is reported, and all lines before it are imported."""
    found = read(Source.of("x", LOG[:-5]))
    assert ("open", 1) == (found.counts.end, len(found.problems))


def test_without_the_package_it_is_unknown() -> None:
    """Without the package its format has no importer."""
    with pytest.raises(WrongUse, match="unknown format 'bot_log'"):
        importer("bot_log")


def test_a_name_that_is_taken_is_refused(site: Path) -> None:
    """A package cannot replace a format of refold's own."""
    entries = {"refold.formats": {"codex": "refold_bot_log:BOT_LOG"}}
    install(site, {"name": "refold-second", "version": "1.0", "entry-points": entries})
    with pytest.raises(WrongUse, match="'codex' of refold_bot_log:BOT_LOG: the name is already used"):
        formats()


@pytest.mark.parametrize("place", ["refold_missing:BOT_LOG", "refold_bot_log:MISSING"])
def test_one_that_cannot_be_loaded_is_named(site: Path, place: str) -> None:
    """An entry point that leads nowhere is reported with its format and place."""
    entries = {"refold.formats": {"other": place}}
    install(site, {"name": "refold-second", "version": "1.0", "entry-points": entries})
    with pytest.raises(WrongUse, match=f"cannot load format 'other' from {place}"):
        importer("other")


def test_one_that_fails_does_not_stand_in_the_way(site: Path) -> None:
    """An installed importer that raises is reported, and files of other formats are imported as before."""
    (site / "refold_failing.py").write_text(
        "class Failing:\n"
        "    name = 'failing'\n"
        "    def match(self, source):\n"
        "        raise RecursionError('nested')\n"
        "FAILING = Failing()\n",
        encoding="utf-8",
    )
    entries = {"refold.formats": {"failing": "refold_failing:FAILING"}}
    install(site, {"name": "refold-second", "version": "1.0", "entry-points": entries})
    with pytest.warns(RuntimeWarning, match="the importer of 'failing' failed on x: RecursionError"):
        assert "bot_log" == detect_format(Source.of("x", LOG)).format
