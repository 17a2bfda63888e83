"""Ids that somebody chooses for a run: whoever finds it in a list can type it after any command."""

from pathlib import Path

import pytest

from console.conftest import Refold, record
from refold.engine import Agent, ScriptedModel, say
from refold.reducers.errors import WrongUse
from refold.store import MemoryStore

MEANS_NOTHING = ["", "*", "@last", "x@e1", "x@t2", "@", "--help", "-o", "-", "a b", " ", "a\tb", "a\nb", "\x1b[31m", "\x00", "a\u202eb", "a\u200b", "a\u00a0b", "x.zip", "\ud800"]  # fmt: skip
MEANS_ITSELF = ["a", "0", "a-b", "a.b:c/d", "é漢", "a*", "**", "last", "~", "zip", "a" * 200]


@pytest.mark.parametrize("run", MEANS_NOTHING, ids=ascii)
def test_an_id_that_no_command_can_name(run: str) -> None:
    """A run is not started, and none forked, under an id that a command would take for something else."""
    store = MemoryStore()
    agent = Agent(model=ScriptedModel([say("Done.")]), store=store)
    with pytest.raises(WrongUse, match="the command line cannot address such a run"):
        agent.start("Go.", run_id=run)
    with pytest.raises(WrongUse, match="the command line cannot address such a run"):
        agent.run_sync("Go.", run_id=run)
    with pytest.raises(WrongUse, match="the command line cannot address such a run"):
        agent.fork("r", 1, fork_id=run)


@pytest.mark.parametrize("run", MEANS_ITSELF, ids=ascii)
def test_any_other_id(run: str, refold: Refold, store: Path) -> None:
    """Every other id is taken, and means its run after a command."""
    record(store, [say("Done.")], run_id=run)
    record(store, [say("Done.")], run_id="other")
    for words in (["verify", run], ["show", run], ["state", f"{run}@e1"]):
        ran = refold(*words, "--store", store)
        assert 0 == ran.code, ran.err
        assert "other" not in ran.out
