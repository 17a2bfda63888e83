"""`run` and `resume`: from the words that were typed to a log on disk."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.conftest import EVIL, Refold
from console.test_hostile import dangerous
from refold.engine import call, fail, say
from refold.reducers.vocabulary import FailureClass

Scripted = Callable[[list[Any]], None]


Mine = Callable[[str, str], None]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mine]:
    """Writes a module `mine` here with a tool `act`: its parameter and replay class."""

    def write(parameter: str, replay: str) -> None:
        sys.modules.pop("mine", None)
        text = f"from refold.engine import tool\n@tool(replay={replay!r})\ndef act({parameter}) -> str:\n    'Act.'\n    return ''\n"
        (tmp_path / "mine.py").write_text(text)
        importlib.invalidate_caches()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield write
    sys.modules.pop("mine", None)


def test_run(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> None:
    """A run with the files tools is told line by line, ends with 0, and verifies and audits clean."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.md").write_text("Hello there.")
    scripted([call("read_file", path="a.md"), say("It greets.")])
    ran = refold("run", "Read a.md", "--root", tmp_path / "files", "--store", store, "--label", "who=me")
    assert 0 == ran.code, ran.err
    words = [line.split()[1] for line in ran.out.splitlines() if line.startswith("t")]
    assert ["asked", "call", "spent", "result", "asked", "said", "spent", "end"] == words
    assert "COMPLETED: the model finished its turn (end_turn)" in ran.out
    assert "refold audit" in ran.err
    assert (0, 0) == (
        refold("verify", "@last", "--store", store).code,
        refold("audit", "@last", "--store", store).code,
    )
    told = json.loads(refold("show", "@last", "-o", "json", "--store", store).out)
    assert ("Read a.md", {"who": "me"}) == (told["task"], told["labels"])


def test_run_as_json(refold: Refold, scripted: Scripted, store: Path) -> None:
    """A line an event, and a last line that says how the run stands."""
    scripted([say(f"Hi {EVIL}")])
    ran = refold("run", "Greet", "--store", store, "-o", "json")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ["recorded"] * 4 + ["result"] == [line["type"] for line in lines]
    assert ["run_started", "model_requested", "model_responded", "state_changed"] == [
        line["event"]["kind"] for line in lines[:-1]
    ]
    assert ("COMPLETED", f"Hi {EVIL}", 0, 4) == tuple(
        lines[-1][name] for name in ("state", "text", "exit_code", "events")
    )
    assert set() == dangerous(ran.out)


@pytest.mark.parametrize(
    ("lines", "policy", "code", "state"),
    [
        pytest.param([say("Done.")], "{}", 0, "COMPLETED", id="completed"),
        pytest.param([call("write_todos", items=[])], '{"limits": [{"type": "step", "value": 1}]}', 1, "MAX_STEPS", id="a limit"),
        pytest.param([say("So?")], '{"end_of_turn": "wait"}', 1, "WAITING_FOR_INPUT", id="waiting for a person"),
        pytest.param([fail(FailureClass.AUTH, "no")], "{}", 4, "ERROR", id="the provider failed"),
    ],
)  # fmt: skip
def test_exit_codes(
    lines: list[Any],
    policy: str,
    code: int,
    state: str,
    refold: Refold,
    scripted: Scripted,
    store: Path,
    tmp_path: Path,
) -> None:
    """How the run ended is the exit code."""
    (tmp_path / "p.json").write_text(json.dumps({"schema": "refold/v1", **json.loads(policy)}))
    scripted(lines)
    ran = refold("run", "Go", "--policy", tmp_path / "p.json", "--store", store, "-o", "json")
    last = json.loads(ran.out.splitlines()[-1])
    assert (code, code, state) == (ran.code, last["exit_code"], last["state"])


def test_the_providers_reason_is_on_the_last_lines(refold: Refold, scripted: Scripted, store: Path) -> None:
    """A request that the provider refused says why on the line that ends `run`, in its JSON, and in
    `show`.
    """
    said = "model_not_found: The model `x` does not exist"
    scripted([fail(FailureClass.BAD_REQUEST, said)])
    ran = refold("run", "Go", "--store", store)
    (ending,) = [line for line in ran.out.splitlines() if line.startswith("ERROR: ")]
    assert ending.endswith(f"(provider:bad_request): {said}")
    scripted([fail(FailureClass.BAD_REQUEST, said)])
    last = json.loads(refold("run", "Go", "--store", store, "-o", "json").out.splitlines()[-1])
    assert said == last["provider_error"]
    assert [f"provider  {said}"] == [
        line for line in refold("show", "@last", "--store", store).out.splitlines() if said in line
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--model", "gpt"], "expected provider:model", id="no provider"),
        pytest.param(["--model", "nobody:x"], "nobody", id="an unknown provider"),
        pytest.param(["--model", "openai:x"], "OPENAI_API_KEY", id="a missing key"),
        pytest.param(["--tools", "files"], "--root DIR", id="files without a root"),
        pytest.param(["--tools", "magic"], "expected files, files-ro, todos, shell", id="an unknown tool"),
        pytest.param(["--tools", "no.such:tool"], "ModuleNotFoundError", id="a module that is not there"),
        pytest.param(["--tools", "json:__doc__"], "expected a tool", id="what is no tool"),
        pytest.param(
            ["--tools", "json:loads"], "tool loads, parameter s", id="a function that cannot be a tool"
        ),
        pytest.param(["--root", "/no/such"], "give a directory that exists", id="a root that is not there"),
        pytest.param(["--label", "x"], "expected name=value", id="a label without a value"),
        pytest.param(["--label", "a=\udcff"], "--label 'a=\\udcff': is not", id="a label that is no text"),
        pytest.param(["--model", "openai:f\udcff"], "--model 'openai:f", id="a model that is no text"),
        pytest.param(["--system=\udcff"], "--system '\\udcff': is not", id="an option with its value"),
        pytest.param(["--policy", "none.toml"], "none.toml: cannot be read", id="a policy that is not there"),
    ],
)
def test_what_cannot_run(
    words: list[str], says: str, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong use is said before anything is made: no store, no run."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("REFOLD_MODEL", "openai:never")
    if "--model" not in words:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
    ran = refold("run", "Go", *words, "--store", tmp_path / "runs.db")
    assert (2, "") == (ran.code, ran.out)
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["REFOLD_MODEL", "REFOLD_BASE_URL"])
def test_a_variable_that_is_no_text(
    name: str, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment says is checked as what was typed is."""
    monkeypatch.setenv("REFOLD_MODEL", "openai:x")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv(name, "openai:\udcff")
    ran = refold("run", "Go", "--store", tmp_path / "runs.db")
    assert (2, f"refold: {name} 'openai:\\udcff': is not UTF-8\n") == (ran.code, ran.err)
    assert [] == list(tmp_path.iterdir())


def test_the_default_store_is_made(refold: Refold, scripted: Scripted, tmp_path: Path) -> None:
    """Without --store the first run makes the user's own."""
    scripted([say("Hi.")])
    assert 0 == refold("run", "Greet").code
    assert ["runs.db"] == [path.name for path in tmp_path.rglob("*.db")]
    assert 1 == len(json.loads(refold("ls", "-o", "json").out))


def test_answering_a_run(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> None:
    """A run that waits goes on with a message, and its log audits clean."""
    (tmp_path / "p.toml").write_text('schema = "refold/v1"\nend_of_turn = "wait"\n')
    scripted([say("So?")])
    assert 1 == refold("run", "Go", "--policy", tmp_path / "p.toml", "--store", store).code
    scripted([say("Fine.")])
    ran = refold("resume", "@last", "--message", f"Yes {EVIL}", "--store", store)
    assert 1 == ran.code
    assert "Fine." in ran.out
    assert set() == dangerous(ran.out + ran.err)
    told = json.loads(refold("show", "@last", "-o", "json", "--store", store).out)
    assert [["resumed"], [f'message from user: "Yes {EVIL}"']] == [turn["marks"] for turn in told["turns"]]
    assert 0 == refold("audit", "@last", "--store", store).code
    for words in (
        ["@last", "--filter", "turn:2"],
        ["@last@t2", "--all"],
    ):  # the message is of the turn it led to
        kinds = [
            json.loads(line)["kind"]
            for line in refold("show", *words, "-o", "json", "--store", store).out.splitlines()
        ]
        assert ["input_received", "model_requested"] == [
            kind for kind in kinds if kind in ("input_received", "model_requested")
        ]


@pytest.mark.parametrize(
    ("run", "words", "code", "says"),
    [
        pytest.param("bb33", [], 1, "waits for a message", id="waiting, and no message"),
        pytest.param("aa11", [], 0, "has ended", id="ended well"),
        pytest.param("aa22", [], 1, "has ended", id="ended by a limit"),
        pytest.param(
            "aa11", ["--message", "More"], 2, "only in WAITING_FOR_INPUT", id="ended, and a message"
        ),
        pytest.param(
            "bb33", ["--message", "Go on"], 2, "--tools module:attribute", id="tools of one's own are missing"
        ),
    ],
)
def test_resume(
    run: str, words: list[str], code: int, says: str, refold: Refold, store: Path, waiting: str
) -> None:
    """What there is nothing to do for is said, changes nothing, and has the exit code of the run's state."""
    before = refold("show", run, "--raw", "--store", store).out
    ran = refold("resume", run, *words, "--store", store)
    assert code == ran.code
    assert says in ran.err
    assert before == refold("show", run, "--raw", "--store", store).out


def test_resuming_wants_the_root(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> None:
    """The files tools come back by their recorded names, once it is said where."""
    (tmp_path / "p.toml").write_text('schema = "refold/v1"\nend_of_turn = "wait"\n')
    scripted([say("So?")])
    refold("run", "Go", "--policy", tmp_path / "p.toml", "--root", tmp_path, "--store", store)
    ran = refold("resume", "@last", "--message", "x", "--store", store)
    assert 2 == ran.code
    assert "add --root DIR" in ran.err
    scripted([say("Fine.")])
    assert 1 == refold("resume", "@last", "--message", "x", "--root", tmp_path, "--store", store).code


@pytest.mark.parametrize(
    ("begun", "resumed"),
    [
        pytest.param(["--root", "."], ["--root", "."], id="files and todos"),
        pytest.param(["--root", ".", "--tools", "files-ro"], ["--root", "."], id="files to read"),
        pytest.param(["--root", ".", "--tools", "files-ro"], ["--root", ".", "--tools", "files"], id="more of them"),
        pytest.param(
            ["--root", ".", "--tools", "shell,todos"], ["--root", ".", "--tools", "todos,shell"], id="a shell"
        ),
        pytest.param(["--tools", "mine:act"], ["--tools", "mine:act"], id="one's own"),
        pytest.param(["--tools", ""], [], id="none"),
    ],
)  # fmt: skip
def test_tools_are_rebuilt(
    begun: list[str], resumed: list[str], refold: Refold, scripted: Scripted, mine: Mine, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    """A run goes on with its tools, made again as they were."""
    mine("path: str", "read_only")
    (tmp_path / "p.toml").write_text('schema = "refold/v1"\nend_of_turn = "wait"\n')
    scripted([say("So?")])
    assert 1 == refold("run", "Go", "--policy", tmp_path / "p.toml", *begun, "--store", store).code
    scripted([say("Fine.")])
    ran = refold("resume", "@last", "--message", "x", *resumed, "--store", store)
    assert 1 == ran.code, ran.err
    assert "Fine." in ran.out


@pytest.mark.parametrize(
    ("parameter", "replay"), [("path: int", "read_only"), ("path: str", "idempotent")], ids=["schema", "class"]
)  # fmt: skip
def test_a_tool_that_has_changed(
    parameter: str, replay: str, refold: Refold, scripted: Scripted, mine: Mine, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    """A run does not go on with a tool that is another one now: the run and the tool are named, nothing
    changes.
    """
    mine("path: str", "read_only")
    (tmp_path / "p.toml").write_text('schema = "refold/v1"\nend_of_turn = "wait"\n')
    scripted([say("So?")])
    refold("run", "Go", "--policy", tmp_path / "p.toml", "--tools", "mine:act", "--store", store)
    before = refold("show", "@last", "--raw", "--store", store).out
    mine(parameter, replay)
    ran = refold("resume", "@last", "--message", "x", "--tools", "mine:act", "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert "the schema, replay class or agent of the tool act has changed" in ran.err
    assert before == refold("show", "@last", "--raw", "--store", store).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--price", "cheap"], "--price 'cheap': expected IN/OUT", id="no price"),
        pytest.param(["--price", "1"], "--price '1': expected IN/OUT", id="half a price"),
        pytest.param(
            ["--price", "1/-1"], "price: expected dollars per million tokens", id="less than nothing"
        ),
        pytest.param(["--timeout", "0"], "timeout: expected seconds above 0, got 0.0", id="no time"),
    ],
)
def test_terms_that_no_server_has(refold: Refold, store: Path, words: list[str], says: str) -> None:
    """They are refused before anything is made."""
    address = ["--model", "openai:mine", "--base-url", "http://127.0.0.1:9/v1"]
    ran = refold("run", "Go", *address, *words, "--store", store)
    assert (2, False) == (ran.code, store.exists())
    assert says in ran.err
