"""Files of agents that are not read here: refused with the closest format named, and never imported as
nothing.
"""

import json
from pathlib import Path

import pytest

from console.conftest import Refold
from support.claude_code import answer, called, result, row, said, user
from support.look_alikes import CLOSE, FAR
from support.transcripts import FILES, WRITTEN, path_of

ROWS = [
    user("u", None, "go"),
    answer("a", "u", "r1", called("t")),
    result("r", "a", "t"),
    answer("b", "r", "r2", said("ok")),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


@pytest.mark.parametrize("agent", CLOSE)
def test_a_look_alike_is_refused_by_name(refold: Refold, store: Path, file: Path, agent: str) -> None:
    """A file of which most maps to nothing is no transcript: the closest format and the way out are named."""
    closest, text = CLOSE[agent]
    file.write_text(text)
    ran = refold("import", file, "--store", store)
    assert 2 == ran.code
    assert "not imported" in ran.err
    assert f"The closest is {closest}" in ran.err
    assert f"--format {closest}" in ran.err
    assert [] == json.loads(refold("ls", "--store", store, "-o", "json").out)


@pytest.mark.parametrize("agent", FAR)
def test_what_looks_like_nothing_is_refused(refold: Refold, file: Path, agent: str) -> None:
    """A file of no known format is refused, and the formats are named."""
    file.write_text(FAR[agent])
    ran = refold("import", "--dry-run", file)
    assert 2 == ran.code
    assert "not a transcript of a known format" in ran.err


@pytest.mark.parametrize("agent", CLOSE)
def test_whoever_names_the_format_is_told_what_is_missing(refold: Refold, file: Path, agent: str) -> None:
    """With --format a look-alike is imported, with what maps to nothing counted, and not as if all were
    well.
    """
    closest, text = CLOSE[agent]
    file.write_text(text)
    ran = refold("import", "--dry-run", "--format", closest, file, "-o", "json")
    found = json.loads(ran.out)["diagnostics"]
    assert 1 == ran.code
    assert {"foreign"} <= {problem["code"] for problem in found["first"]} or found["unread"]


def test_in_a_folder_a_look_alike_is_no_note_beside(refold: Refold, file: Path) -> None:
    """What looks like a transcript and is none that can be read counts as not imported, unlike other
    files.
    """
    file.write_text(CLOSE["Droid, streamed"][1])
    file.with_name("notes.txt").write_text("hello")
    ran = refold("import", "--dry-run", file.parent)
    assert 2 == ran.code
    assert "1 skipped; 1 not imported" in ran.out


@pytest.mark.slow
def test_no_transcript_of_ours_is_taken_for_a_look_alike(refold: Refold) -> None:
    """Every transcript is imported by its content, those that hold next to nothing too."""
    ran = refold("import", "--dry-run", *map(path_of, FILES + WRITTEN), "-o", "json")
    assert ran.code in (0, 1)
    assert len(FILES + WRITTEN) == sum("imported" in json.loads(line) for line in ran.out.splitlines())


def test_rows_of_a_version_to_come_are_counted(refold: Refold, store: Path, file: Path) -> None:
    """A session with rows that nobody knows yet is imported, with one line that counts them."""
    new = [row("hologram", f"n{place}", None, picture="x") for place in range(100)]
    file.write_text("".join(json.dumps(each) + "\n" for each in [*ROWS, *new]))
    ran = refold("import", file, "--store", store)
    assert 0 == ran.code
    assert "odd       1 place\n" in ran.out
    assert "unknown types, kept unchanged: 100" in ran.out


def test_a_part_that_nobody_knows_is_told(refold: Refold, file: Path) -> None:
    """A message with a part of an unknown kind is imported, and what could not be read of it is named."""
    strange = answer("c", "b", "r3", {"type": "hologram", "picture": "x"})
    file.write_text("".join(json.dumps(each) + "\n" for each in [*ROWS, strange]))
    ran = refold("import", "--dry-run", file)
    assert 1 == ran.code
    assert "line 5: unknown parts in a message: hologram (unknown_part)" in ran.out


@pytest.mark.parametrize("name", ["gemini_cli/warning-only.json", "inspect/cancelled-no-samples.json"])
def test_nothing_said_is_never_silent(refold: Refold, name: str) -> None:
    """A transcript that holds no message says so in words."""
    ran = refold("import", "--dry-run", path_of(name))
    assert 0 == ran.code
    assert "(nothing_said)" in ran.out


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]', id="messages"
        ),
        pytest.param(
            "".join(
                json.dumps(each) + "\n"
                for each in [user("u", None, "hi"), answer("a", "u", "r", said(""), usage={}, content=[])]
            ),
            id="rows",
        ),
        pytest.param(
            "".join(
                json.dumps(each) + "\n"
                for each in [
                    {"type": "session_meta", "payload": {"id": "s"}},
                    {"type": "message", "role": "user", "content": "hi"},
                    {"type": "message", "role": "assistant", "content": []},
                ]
            ),
            id="items",
        ),
    ],
)
def test_an_empty_answer_is_an_answer(refold: Refold, file: Path, text: str) -> None:
    """A model may say nothing: that is no sign of another format, and nothing odd."""
    file.write_text(text)
    ran = refold("import", "--dry-run", file, "-o", "json")
    assert 0 == ran.code
    assert {"count": 0, "unread": 0, "first": []} == json.loads(ran.out)["diagnostics"]
