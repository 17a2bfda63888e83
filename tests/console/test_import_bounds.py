"""Transcripts that would take a day, or all memory: refused by name before anything is written, and soon."""

import io
import json
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Ran, Refold
from support.claude_code import answer, called, result, row, said, user
from support.sessions import Json
from support.transcripts import path_of

LINES = [
    user("u", None, "go"),
    answer("a", "u", "r1", called("t")),
    result("r", "a", "t"),
    answer("b", "r", "r2", said("ok")),
]
SESSION = "".join(json.dumps(each) + "\n" for each in LINES)
CODEX: list[Json] = [
    {"type": "session_meta", "payload": {"id": "s"}},
    {"type": "message", "role": "user", "content": "go"},
]

Refused = Callable[[bytes, str], None]


@pytest.fixture
def refused(refold: Refold, store: Path, tmp_path: Path) -> Refused:
    """That a file is refused for this reason, its name with it, and that not a line of a log was written."""

    def check(data: bytes, why: str) -> None:
        file = tmp_path / "much.jsonl"
        file.write_bytes(data)
        ran: Ran = refold("import", file, "--store", store)
        assert (3, "") == (ran.code, ran.out)
        assert "much.jsonl: not imported: " in ran.err
        assert why in ran.err
        assert [] == json.loads(refold("ls", "--store", store, "-o", "json").out)

    return check


@pytest.fixture(autouse=True)
def _low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a small file passes."""
    for module in ("source", "session_rows"):
        monkeypatch.setattr(f"refold.importers.{module}.MOST_LINES", 1000)
    for module in ("source", "formats.inspect_logs.messages"):
        monkeypatch.setattr(f"refold.importers.{module}.MOST_SAID", 10_000)
    monkeypatch.setattr("refold.importers.survey.MOST_ITEMS", 2000)


def lines(rows: Sequence[Json]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in rows).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(SESSION.encode() + b"{}\n" * 2000, "line 1001: more than 1000 lines", id="empty rows"),
        pytest.param(SESSION.encode() + b"\n" * 2000, "line 1001: more than 1000 lines", id="empty lines"),
        pytest.param(
            SESSION.encode() + (b"{}" * 900 + b"\n") * 3, "line 6: more than 1000 rows", id="on few lines"
        ),
        pytest.param(
            lines([CODEX[0], *[CODEX[1]] * 1000]), "line 1001: more than 1000 lines", id="of another format"
        ),
    ],
)
def test_more_rows_than_are_read(refused: Refused, data: bytes, why: str) -> None:
    """A file of rows without number is refused where the bound is passed."""
    refused(data, why)


def test_more_messages_than_are_read(refused: Refused) -> None:
    """Messages without number are refused, however few rows they stand in."""
    results = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}] * 3000
    refused(lines([*LINES[:2], user("r", "a", results)]), "line 3: more than 2000 items")


def test_empty_rows_within_the_bound_are_told_once(refold: Refold, tmp_path: Path) -> None:
    """Rows that say nothing share remarks, and one line counts them."""
    file = tmp_path / "a.jsonl"
    file.write_text(SESSION + "{}\n" * 900)
    told = json.loads(refold("import", "--dry-run", file, "-o", "json").out)
    assert 1 == told["diagnostics"]["count"]
    assert "kept unchanged: 900" in told["diagnostics"]["first"][0]["problem"]
    assert told["imported"][0]["events"] < 50


LONG = "x" * 20_000
LESS = "y" * 900


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        pytest.param([user("u", None, LONG)], "line 1", id="a prompt"),
        pytest.param([*LINES, user("v", "b", LONG)], "line 5", id="a prompt after a turn"),
        pytest.param([*LINES, user("v", "b", LESS), *[answer(f"c{n}", "v", "r3", said(LESS)) for n in range(20)]],
                     "line 1", id="an answer in many rows"),
        pytest.param([*LINES[:2], result("r", "a", "t", LONG)], "line 3", id="a result"),
        pytest.param([*LINES[:1], answer("a", "u", "r1", called("t", command=LONG))], "line 2", id="a call"),
        pytest.param([user(f"u{n}", f"u{n - 1}", LESS) for n in range(20)], "line 12", id="many before an answer"),
        pytest.param([*LINES, row("progress", "p", None, data=LONG)], "line 5", id="a row beside the messages"),
        pytest.param([*CODEX, *[{"type": "message", "role": "assistant", "content": LESS}] * 20],
                     "line 1", id="an answer of Codex in many items"),
        pytest.param([CODEX[0], {"type": "message", "role": "user", "content": LONG}], "line 2", id="a prompt of Codex"),
    ],
)  # fmt: skip
def test_more_in_one_piece_than_is_read(refused: Refused, rows: list[Json], where: str) -> None:
    """What would become one event of more than the bound is refused, with its row and the bound."""
    refused(lines(rows), "characters in one piece; the limit is 10000")
    refused(lines(rows), f"not imported: {where}")


def test_rows_without_meaning_are_joined_within_bounds(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that share a remark stay below what an event may hold, however many follow one another."""
    file = tmp_path / "a.jsonl"
    monkeypatch.setattr("refold.importers.source.MOST_SAID", 2 << 20)
    file.write_bytes(
        lines([*LINES, *[row("progress", f"p{n}", None, data="z" * 100_000) for n in range(50)]])
    )
    assert 0 == refold("import", file, "--store", store).code
    assert 0 == refold("verify", "@last", "--store", store).code


def test_a_text_that_is_asked_for_often(refused: Refused) -> None:
    """Short references to one long text do not make a message of any size."""
    parts = [{"type": "text", "text": "attachment://a"}] * 5000
    sample: Json = {"id": 1, "epoch": 1, "attachments": {"a": "z" * 5000}, "events": []}
    sample["messages"] = [{"role": "user", "content": parts}, {"role": "assistant", "content": "ok"}]
    log: Json = {
        "version": 2,
        "status": "success",
        "eval": {"task": "t", "run_id": "r", "dataset": {}},
        "samples": [sample],
    }
    refused(json.dumps(log).encode(), "characters in one piece")


def overlapping(count: int) -> bytes:
    """An archive with one member, and a directory that lists it under many names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/0.json", b'{"id": 1, "messages": [' + b" " * 1_000_000 + b"]}")
    data = file.getvalue()
    start = data.index(b"PK\x01\x02")
    entry = bytearray(data[start : start + 46])
    names = [b"samples/%d.json" % place for place in range(count)]
    listed = b""
    for name in names:
        struct.pack_into("<H", entry, 28, len(name))
        listed += bytes(entry) + name
    return (
        data[:start]
        + listed
        + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(listed), start, 0)
    )


def test_members_that_share_bytes(refused: Refused) -> None:
    """An archive of which members overlap is refused before one is unpacked."""
    refused(overlapping(2000), "members overlap: 'samples/0.json' and 'samples/1.json'")


def test_members_of_more_than_is_read(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive out of which too much would come is refused by what its directory says."""
    monkeypatch.setattr("refold.importers.source.MOST_TOGETHER", 1000)
    refused(path_of("inspect/generated-ok.eval").read_bytes(), "bytes when decompressed; the limit is 1000")


def test_an_honest_archive_is_no_bomb(refold: Refold, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archives of the tests are within the bounds as they are."""
    monkeypatch.undo()
    found: list[Any] = [
        path_of(f"inspect/{name}") for name in ("generated-ok.eval", "ctf-message-limit.eval")
    ]
    assert 0 == refold("import", "--dry-run", *found).code
