"""What is one is said in the singular, whatever command counts it."""

import re
from pathlib import Path

import pytest

from console.conftest import Refold, record
from refold.engine import call, say
from refold.engine.models.script import Line

POLICY = "schema: refold/v1\nlimits: [{type: step, value: 5}]\n"  # of one that is reached its reason speaks, which is in the log
ONE = re.compile(
    r"(?<![\d.,+])1 (steps|runs|events|facts|decisions|calls|messages|turns|tokens|files|times|heads|entries|tools|answers|places)\b"
)
COMMANDS = (
    ["ls"],
    ["show", "one"],
    ["show", "one", "--all"],
    ["show", "one@e1"],
    ["view", "one@t1"],
    ["stats", "one"],
    ["stats", "--all"],
    ["audit", "one"],
    ["audit", "--all"],
    ["verify", "--all"],
    ["whatif", "one", "--policy", "p.yaml"],
    ["whatif", "--all", "--policy", "p.yaml"],
    ["why", "one"],
    ["bisect", "one", "--when", "steps > 5"],
    ["grep", "kind:run_started", "--count"],
    ["pack", "one", "--out", "b.zip"],
    ["unpack", "b.zip", "--out", "other.db"],
    ["report", "one", "--out", "page.html"],
)


@pytest.mark.parametrize(
    "lines", [[say("Done.")], [call("look", path="a.md"), say("Done.")]], ids=["one step", "one call"]
)
def test_one_is_said_in_the_singular(
    lines: list[Line], refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command tells of one thing as of several, in a store of one run."""
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(POLICY)
    record(store, lines, "Go.", run_id="one")
    for words in COMMANDS:
        ran = refold(*words, "--store", store)
        assert ran.code != 2 or words[0] == "unpack", ran.err
        assert [] == [found[0] for found in ONE.finditer(ran.out + ran.err)], words
