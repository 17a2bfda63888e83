"""End to end, with a client of a few lines that plays a script over loopback and writes a transcript."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clients.comparison import compare
from clients.imported import read_import
from clients.scripts import Answer, Script, Shell, UnknownTool, Usage
from clients.server import Recorder, serving
from clients.truth import Outcome, Truth, read_truth

TOOLS = [
    {
        "type": "function",
        "function": {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}},
    }
]
SCRIPT = Script(
    turns=(
        Answer("I look.", (Shell("ls"),), Usage(11, 0, 1)),
        Answer("An unknown tool.", (UnknownTool(),), Usage(12, 0, 2)),
        Answer("Done.", usage=Usage(13, 0, 3)),
    )
)


def ask(url: str, said: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"messages": said, "tools": TOOLS}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        message: dict[str, Any] = json.loads(response.read())["choices"][0]["message"]
    return message


def agent(url: str) -> list[dict[str, Any]]:
    """An agent loop that executes no tools: each call returns a fixed text."""
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "SCRIPT=main"},
    ]
    while True:
        said.append(ask(url, said))
        calls = said[-1].get("tool_calls") or []
        if not calls:
            return said
        for call in calls:
            text = f"{call['function']['name']}: done"
            said.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def play(folder: Path) -> tuple[Truth, list[dict[str, Any]]]:
    recorder = Recorder(SCRIPT, folder, folder / "truth.jsonl")
    with serving(recorder) as url:
        said = agent(url)
    outcome = Outcome(
        client="c", script="s", version="1", format="openai_messages", codes=(0,), seconds=(1.0,)
    )
    (folder / "outcome.json").write_bytes(msgspec.json.encode(outcome))
    return read_truth(folder), said


def drop_second_result(said: list[dict[str, Any]]) -> None:
    del said[5]


def nothing(said: list[dict[str, Any]]) -> None:
    pass


@pytest.mark.parametrize(
    ("mutation", "wrong"),
    [
        pytest.param(nothing, {}, id="an unchanged transcript"),
        pytest.param(
            drop_second_result,
            {"results": ["main 2 call 1"], "view": ["main 3"]},
            id="a removed result",
        ),
    ],
)
def test_an_import_is_held_against_what_was_sent(
    tmp_path: Path, mutation: Callable[[list[dict[str, Any]]], None], wrong: dict[str, list[str]]
) -> None:
    """The import equals what the server received; a changed transcript differs exactly there."""
    truth, said = play(tmp_path)
    mutation(said)
    transcripts = tmp_path / "transcripts"
    transcripts.mkdir()
    (transcripts / "chat.json").write_text(json.dumps(said), encoding="utf-8")
    found = compare(truth, read_import(transcripts, tmp_path / "store.db"))
    claims = {
        name: [each.place for each in some if each.what and not each.unknown] for name, some in found.items()
    }
    assert wrong == {name: places for name, places in claims.items() if places}
    assert [True] * 3 == [each.unknown for each in found["tokens"]]
