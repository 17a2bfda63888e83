"""Runs on disk, made by a scripted model, and the command to look at them with."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from refold.console.main import main
from refold.engine import Agent, Model, ScriptedModel, calls, say, tool
from refold.engine.models.script import Line

# What a model or a tool may say to take over a terminal: colour, window title, C1, reading order, markup,
# bell.
EVIL = "\x1b[31mred\x1b]0;owned\x07\x9b2J \u202eevil\u202c [bold]loud[/bold] \x00\r\u2066"


LABORIOUS = Path(__file__).with_name("laborious.py")


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Refold = Callable[..., Ran]
Started = Callable[..., "subprocess.Popen[str]"]


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return f"{path} holds {EVIL}"


@tool
def act() -> str:
    """Do something that goes wrong."""
    raise ValueError(EVIL)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("REFOLD_STORE", "REFOLD_MODEL", "REFOLD_BASE_URL", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the runs of a test are."""
    return tmp_path / "runs.db"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that read give a server up that cannot be reached, without another attempt."""
    from refold.store.postgres.store import PostgresStore

    defaults = vars(PostgresStore)["open_here"].__func__.__kwdefaults__
    monkeypatch.setitem(defaults, "patience", 0.0)


@pytest.fixture
def refold(capsys: pytest.CaptureFixture[str]) -> Refold:
    """Runs the command in this process."""

    def run(*words: str | Path) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def started(store: Path) -> Iterator[Started]:
    """Starts `refold` in a process of its own, with the model and the tool of `laborious`."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        argv = [sys.executable, str(LABORIOUS), *words, "--store", str(store)]
        running.append(
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def record(
    store: Path,
    lines: Sequence[Line],
    task: str = "Look.",
    *,
    run_id: str,
    policy: dict[str, Any] | None = None,
) -> str:
    """A run on disk; its id."""
    model = ScriptedModel(list(lines))
    agent = Agent(model=model, tools=[look, act], policy=policy, store=store)
    return agent.run_sync(task, run_id=run_id, seed=7).run


@pytest.fixture
def finished(store: Path) -> str:
    """A run of three turns that ended well; everything in it is hostile."""
    both = calls(("look", {"path": "a.md"}), ("act", {}), text=f"First {EVIL}")
    lines = [both, calls(("look", {"path": EVIL})), say(f"Done {EVIL}")]
    return record(store, lines, f"Task {EVIL}", run_id="aa11")


@pytest.fixture
def limited(store: Path, finished: str) -> str:
    """A run, newer than `finished`, that a step limit ended."""
    lines = [calls(("look", {"path": "x"}))] * 2
    policy = {"limits": [{"type": "step", "value": 2}]}
    return record(store, lines, run_id="aa22", policy=policy)


@pytest.fixture
def waiting(store: Path, limited: str) -> str:
    """A run, newer than `limited`, that waits for a person."""
    return record(store, [say("And now?")], run_id="bb33", policy={"end_of_turn": "wait"})


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Line]], None]:
    """Makes every model that the command asks for one that says these lines."""

    def use(lines: Sequence[Line]) -> None:
        def resolve(name: str, **_: object) -> Model:
            return ScriptedModel(list(lines))

        monkeypatch.setattr("refold.console.agents.model_at", resolve)

    return use


@pytest.fixture
def key(refold: Refold, tmp_path: Path) -> Path:
    """A private key; the public one lies beside it."""
    assert 0 == refold("keygen", tmp_path / "k").code
    return tmp_path / "k"


@pytest.fixture
def line(refold: Refold, store: Path, finished: str, limited: str, key: Path) -> str:
    """The line that sealing two runs printed."""
    ran = refold("seal", "--key", key, "--store", store)
    assert (0, "2 new log heads of 2 runs, 3 entries signed; key") == (
        ran.code,
        ran.err.partition(" key")[0] + " key",
    )
    return ran.out.strip()


def public(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")
