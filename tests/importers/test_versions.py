"""Clients newer than those that were tested: each run of theirs is warned of, in every format that names a
version.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.importers.items import RunBegan
from refold.importers.registry import FORMATS, importer
from refold.importers.source import Source
from refold.importers.survey import NEWER, TESTED, is_newer
from refold.importers.transcript import Transcript
from support.claude_code import answer, row, said, user
from support.inspect_logs import DOCUMENT
from support.sessions import CODEX, lines
from support.transcripts import FILES, WRITTEN, path_of, salts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "transcripts.md"


def session(version: str) -> str:
    """A session of Claude Code."""
    rows = [user("u", None, "go"), answer("a", "u", "m", said("hi"))]
    return lines(*(each | {"version": version} for each in rows)).decode()


def stream(version: str) -> str:
    """A stream that Claude Code printed."""
    head = row("system", "h", None, subtype="init", session_id="s", claude_code_version=version)
    return lines(head, answer("a", "h", "m", said("hi"))).decode()


def rollout(version: str) -> str:
    """A rollout of Codex."""
    meta = CODEX.row("session_meta", id="s", cli_version=version, cwd="/")
    return lines(meta, CODEX.message("user", "go")).decode()


def written(file: str, was: str) -> Callable[[str], str]:
    """A transcript of the repository, with another version in the place of its own."""
    return lambda version: path_of(file).read_text(encoding="utf-8").replace(f'"{was}"', f'"{version}"')


def log(version: str) -> str:
    """A log of Inspect."""
    return json.dumps({**DOCUMENT, "eval": {**DOCUMENT["eval"], "packages": {"inspect_ai": version}}})


def trajectory(version: str) -> str:
    """A trajectory of mini-swe-agent."""
    spoke = [{"role": "system", "content": "You are."}, {"role": "user", "content": "go"}]
    info = {"mini_version": version, "exit_status": "Submitted", "model_stats": {"api_calls": 0}}
    return json.dumps({"info": info, "messages": spoke, "trajectory_format": "mini-swe-agent-1"})


MADE: list[tuple[str, Callable[[str], str]]] = [
    ("claude_code", session),
    ("claude_code", stream),
    ("codex", rollout),
    ("copilot_cli", written("copilot_cli/written-session.jsonl", "1.0.10")),
    ("inspect", log),
    ("kimi_cli", written("kimi_cli/written-wire.jsonl", "1.9")),
    ("mini_swe_agent", trajectory),
    ("opencode", written("opencode/written-session.json", "1.18.4")),
    ("qwen_code", written("qwen_code/written-session.jsonl", "0.14.0")),
]


def warnings(format_: str, document: str) -> tuple[list[str], int]:
    """The warnings of a document, and how much of it could not be read."""
    reading = Transcript(Source.of("t", document.encode()), importer(format_))
    for run in reading.runs():
        list(run.derive(salts))
    return [problem.problem for problem in reading.problems if problem.code == NEWER], reading.unread


@pytest.mark.parametrize(("format_", "make"), MADE)
def test_a_newer_client_is_warned_of(format_: str, make: Callable[[str], str]) -> None:
    """A run of a newer client is diagnosed, and no less of it is read; one of the tested version, or an older
    one, is not.
    """
    tested = TESTED[format_].version
    major, _, rest = tested.partition(".")
    found, unread = warnings(format_, make(f"{int(major) + 1}.0.0"))
    assert 1 == len(found)
    assert (True, True) == (tested in found[0], f"{int(major) + 1}.0.0" in found[0])
    for known in (tested, f"{major}.0.1" if rest != "0.1" else "0.0.1", "0.0.1", "not a version"):
        assert ([], unread) == warnings(format_, make(known)), known


@pytest.mark.parametrize(
    ("version", "tested", "newer"),
    [
        ("1.2.4", "1.2.3", True),
        ("1.10", "1.9.9", True),
        ("v2", "1.9", True),
        ("1.2.3", "1.2.3", False),
        ("1.2.0", "1.2", False),
        ("1.2.3-beta.4", "1.2.3", False),
        ("0.3.58.dev9002", "0.3.57", True),
        ("", "1.0", False),
        ("latest", "1.0", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, tested: str, newer: bool) -> None:
    """Versions are compared number by number, and a word is no version."""
    assert newer is is_newer(version, tested)


@pytest.mark.parametrize("file", FILES + WRITTEN)
def test_no_transcript_here_is_newer_than_what_was_tested(file: str) -> None:
    """The table names a version no older than those of the transcripts that the importers are held
    against.
    """
    with path_of(file).open("rb") as opened:
        source = Source.opened(file, opened)
        reading = importer(file.split("/", maxsplit=1)[0]).items(source)
        began = [item for item in reading if isinstance(item, RunBegan)]
    tested = TESTED.get(file.split("/", maxsplit=1)[0])
    versions = [item.labels.get(tested.label, "") for item in began] if tested else []
    assert not [each for each in versions if tested and is_newer(each, tested.version)]


def test_the_page_has_the_tested_versions() -> None:
    """The reference lists the versions of the table, in its order."""
    rows = [f"| `{name}` | {each.client} | {each.version} |" for name, each in TESTED.items()]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")
    assert TESTED.keys() <= FORMATS.keys()
