"""Session files of command-line agents, cut, doubled and shuffled: what was written stays readable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.derivation.gap import conversations
from refold.importers.fields import stamp
from refold.importers.items import Item, Remarked, RunBegan, RunEnded, Unread
from refold.importers.registry import importer
from refold.importers.session_rows import MOST_DEPTH, MOST_KEPT, Noise, Row, Rows
from refold.importers.source import Source
from support.transcripts import path_of

LOGS = [
    "claude_code/edge-cases.jsonl",
    "claude_code/sidechain-in-file.jsonl",
    "claude_code/stop-hook-reflection.jsonl",
    "codex/rate-limit-0.53.jsonl",
    "codex/schema-drift.jsonl",
    "copilot_cli/written-session.jsonl",
    "droid/written-session.jsonl",
    "gemini_cli/jsonl-0.40.jsonl",
    "grok_cli/written-history.jsonl",
    "kimi_cli/written-context.jsonl",
    "kimi_cli/written-wire.jsonl",
    "pi/compaction-v3.jsonl",
    "pi/ignorable-entries-v3.jsonl",
    "qwen_code/written-session.jsonl",
]
DOCUMENTS = ["gemini_cli/two-prompts.json", "gemini_cli/warning-only.json", "opencode/written-session.json"]


def data_of(file: str) -> bytes:
    """The bytes of a transcript of the repository."""
    with path_of(file).open("rb") as opened:
        return Source.opened(file, opened).whole()


def read(file: str, data: bytes) -> list[Item]:
    """The items of bytes, by the importer of this file's format."""
    return list(conversations(importer(file.split("/", maxsplit=1)[0]).items(Source.of(file, data))))


def covered(items: list[Item]) -> set[int]:
    """The lines that the positions of items name."""
    found = (re.fullmatch(r"lines? (\d+)(?:-(\d+))?", item.position) for item in items)
    spans = [(int(match[1]), int(match[2] or match[1])) for match in found if match]
    return {line for first, last in spans for line in range(first, last + 1)}


def written(data: bytes) -> set[int]:
    """The lines with something in them."""
    return {number for number, line in enumerate(data.split(b"\n"), 1) if line.strip()}


CASES = {file: data_of(file) for file in (*LOGS, *DOCUMENTS)}


@given(data=st.data())
@pytest.mark.parametrize("file", LOGS)
def test_no_line_is_lost_however_a_log_was_damaged(file: str, data: st.DataObject) -> None:
    """Lines dropped, doubled, swapped, joined, and the end cut off: all that is left is covered by items of
    runs.
    """
    lines = CASES[file].splitlines()
    order = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=len(lines) + 4))
    ends = data.draw(
        st.lists(
            st.sampled_from([b"\n", b"\n", b"\n", b"", b"\r\n"]), min_size=len(order), max_size=len(order)
        )
    )
    damaged = b"".join(lines[place] + end for place, end in zip(order, ends, strict=True))
    damaged = damaged[: data.draw(st.integers(1, len(damaged)))]

    items = read(file, damaged)

    assert isinstance(items[0], RunBegan)
    edges = [type(item) for item in items if isinstance(item, RunBegan | RunEnded)]
    assert [RunBegan, RunEnded] * (len(edges) // 2) == edges
    assert isinstance(items[-1], RunEnded)
    # One broken object is a document that was cut, and its position is the whole of it.
    assert set() == written(damaged) - covered(items) or "$" in {item.position for item in items}


@given(data=st.data())
@pytest.mark.parametrize("file", DOCUMENTS)
def test_a_document_imports_up_to_its_cut(file: str, data: st.DataObject) -> None:
    """A chat cut anywhere is one run, and says that it was cut."""
    whole = CASES[file]
    place = data.draw(st.integers(1, len(whole.rstrip()) - 1))

    items = read(file, whole[:place])

    assert isinstance(items[0], RunBegan)
    assert isinstance(items[-1], RunEnded)
    assert any(isinstance(item, Unread) for item in items)


@pytest.mark.parametrize(
    "name",
    ["claude_code", "codex", "copilot_cli", "droid", "gemini_cli", "grok_cli", "kimi_cli", "pi", "qwen_code"],
)
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\xff\xfe", id="no text"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[" * 100_000, id="deep"),
        *(
            pytest.param(
                b'{"type":"user","uuid":"u","message":{"content":%s}}' % (b"[" * n + b"]" * n), id=f"{n} deep"
            )
            for n in (190, 900, 985, 990, 995)
        ),
        pytest.param(b"1 " * 5_000, id="many values"),
        pytest.param(
            b'{"type":"user","message":{"role":"user","content":[1,null,{"type":[]}]}}', id="wrong types"
        ),
        pytest.param(
            b'{"type":"assistant","message":{"usage":[],"content":{"a":1}},"uuid":5}', id="wrong types too"
        ),
        pytest.param(
            b'{"type":"response_item","payload":{"type":"message","content":7}}', id="wrong payload"
        ),
        pytest.param(
            b'{"type":"message","message":{"role":"assistant","content":"\\ud800"}}', id="half a surrogate"
        ),
        pytest.param(
            b'{"type":"gemini","id":7,"toolCalls":[1,{"result":3,"args":NaN}],"tokens":[]}', id="no numbers"
        ),
        pytest.param(b'{"$set":{"messages":[1,"a",null]}}\n{"$rewindTo":"gone"}', id="patches of nothing"),
        pytest.param(
            b'{"timestamp":1e308,"type":"event_msg","payload":{"type":"token_count","info":[]}}', id="a time"
        ),
    ],
)
def test_no_line_is_too_strange(name: str, line: bytes) -> None:
    """Whatever stands in a line, a run begins and ends, and nothing is raised."""
    items = list(importer(name).items(Source.of("x", line + b"\n" + line + b"\n")))

    assert isinstance(items[0], RunBegan)
    assert isinstance(items[-1], RunEnded)


def test_a_line_may_hold_several_objects_and_a_broken_end() -> None:
    """Objects of one line come in their order; what is none after them is named with its reason."""
    found = list(Rows(Source.of("x", b'{"a":1} {"b":2}[3]{"c":\n\n{"d":4}\n')))

    assert [
        Row(1, {"a": 1}, None, 7, 1),
        Row(1, {"b": 2}, None, 7, 2),
        Noise(what="no_object", line=1, text="[3]", problem="JSON, but not an object"),
    ] == found[:3]
    assert isinstance(found[3], Noise)
    assert ("not_json", 1, '{"c":') == (found[3].what, found[3].line, found[3].text)
    assert Row(3, {"d": 4}, None, 7, 3) == found[4]


@pytest.mark.parametrize(("levels", "code"), [(MOST_DEPTH - 1, None), (MOST_DEPTH, "too_deep")])
def test_a_row_has_a_depth_that_is_read(levels: int, code: str | None) -> None:
    """One level more than that, and the row is kept as text."""
    deep = b'{"a":' + b"[" * levels + b"]" * levels + b"}"
    for line in (deep, deep + deep):
        assert {code} == {
            found.what if isinstance(found, Noise) else None for found in Rows(Source.of("x", line))
        }


def test_what_cannot_be_read_is_kept_but_bounded() -> None:
    """Of a long line that is no JSON, its beginning is kept."""
    (found,) = Rows(Source.of("x", b"x" * (MOST_KEPT + 9)))

    assert isinstance(found, Noise)
    assert MOST_KEPT == len(found.text)


def test_adjacent_rows_without_meaning_share_a_remark() -> None:
    """One remark has a range of lines and all their rows; a row of another kind ends it, and a gap."""
    data = b'{"type":"a"}\n{"type":"b"}\n{"type":"permission-mode"}\n{"type":"c"}\n\n{"type":"d"}\n'

    found = [item for item in read("claude_code/x", data) if isinstance(item, Remarked)]

    assert [
        ("lines 1-2", "unmapped", '[{"type":"a"},{"type":"b"}]'),
        ("line 3", "permission_mode", '{"type":"permission-mode"}'),
        ("line 4", "unmapped", '{"type":"c"}'),
        ("line 6", "unmapped", '{"type":"d"}'),
    ] == [(item.position, item.what, item.rest) for item in found]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("2026-01-31T13:00:07.000Z", "2026-01-31T13:00:07Z"),
        ("2026-01-31T13:00:07.120Z", "2026-01-31T13:00:07.120Z"),
        ("2026-01-31T13:00:07+00:00", "2026-01-31T13:00:07Z"),
        ("2026-01-31T13:00:07", "2026-01-31T13:00:07"),
    ],
)
def test_times_are_told_as_they_were_written(source: str, told: str) -> None:
    """Digits stay, a fraction of zero goes, UTC is Z, no zone is none."""
    assert told == stamp(source)
