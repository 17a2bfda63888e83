"""The benchmark of the commands knows them all, and what it types can be done."""

from pathlib import Path

import pytest

from bench.commands import ALSO, USES, fill_small, measured
from refold.console.app import COMMANDS


def test_every_command_is_measured() -> None:
    """A command is measured, or is said why not; nothing is measured that is no command."""
    assert COMMANDS.keys() == USES.keys()
    assert [] == [words for words, use in USES.items() if bool(use.small) == bool(use.why)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small store is."""
    made = tmp_path_factory.mktemp("bench")
    fill_small(made / "small.db", made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("words", [use.small for use in (*ALSO, *USES.values()) if use.small])
def test_what_is_measured_is_done(folder: Path, words: str) -> None:
    """What is typed on the small store is done: it costs something, and is neither wrong use nor a
    failure.
    """
    told = measured(words, folder, folder / "small.db")
    assert told.code in (0, 1, 125), told
    assert told.seconds > 0
    assert told.peak > 2**20
