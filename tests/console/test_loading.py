"""What a command loads: what it needs, and not what others do. A short command takes as long as its
imports.
"""

import subprocess
import sys
from pathlib import Path

import pytest

# Each of these takes about as long to load as all that a short command does.
LOOP = {"aiosqlite", "anyio", "asyncio"}
SHOWN = {"pydantic", "rich.console", "typer"}
ENGINE = {
    "importlib.metadata",
    "refold.engine.agent",
    "refold.engine.compatibility",
    "refold.importers",
    "transitions",
}
PROCESSES = {"concurrent.futures", "multiprocessing"}
HEAVY = LOOP | SHOWN | ENGINE | PROCESSES

# Do what the words say, and print which of the modules named first was loaded for it.
LOADED = """
import os, sys
heavy, words = sys.argv[1].split(","), sys.argv[2:]
said = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
from refold.console.main import main
code = main(words)
os.write(said, " ".join([str(code), *sorted(set(heavy) & set(sys.modules))]).encode())
"""


@pytest.mark.parametrize(
    ("words", "may"),
    [
        ("-h", set[str]()),
        ("--version", {"importlib.metadata"}),
        ("ls", set[str]()),
        ("ls -o json", set[str]()),
        ("show RUN", set[str]()),
        ("show RUN -o json", set[str]()),
        ("show RUN@e1", set[str]()),
        ("show RUN@t1", set[str]()),
        ("show RUN --all", {"concurrent.futures"}),
        ("diff RUN RUN", set[str]()),
        ("grep type:tool RUN", PROCESSES),
        ("stats RUN", PROCESSES),
        ("view RUN", ENGINE),
        ("state RUN", ENGINE),
        ("why RUN", ENGINE),
        ("blame RUN steps", ENGINE),
        ("export RUN", ENGINE | PROCESSES),
        ("verify RUN", ENGINE | PROCESSES),
        ("audit RUN", ENGINE | PROCESSES),
        ("whatif RUN --policy guardrails", ENGINE | PROCESSES),
    ],
)
def test_what_a_command_loads(store: Path, finished: str, words: str, may: set[str]) -> None:
    """Neither an event loop, nor the terminal, where none is, nor the engine is loaded for a command that
    asks for none.
    """
    typed = words.replace("RUN", finished).split()
    named = [] if typed[0].startswith("-") else ["--store", str(store)]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, ",".join(HEAVY), *typed, *named],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    code, *loaded = done.stdout.split()
    assert code in "01", done.stderr
    assert set() == set(loaded) - may
