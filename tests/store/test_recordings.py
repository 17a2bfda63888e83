"""Recordings: logs as JSON lines, byte for byte; and what is said of a file that is none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import WrongUse
from refold.store import MemoryStore, open_here, open_store
from refold.store.chain import seeded_salt
from refold.store.protocol import Record, UnknownRun
from refold.store.recordings import (
    DamagedRecording,
    NotARecording,
    RecordedRun,
    RecordingStore,
    encode_recording,
    read_recording,
    recorded_run,
    write_recording,
)
from refold.store.testing import append, records

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def body(seq: int) -> bytes:
    return b'{"n":%d,"seed":7}' % seq


def made(count: int = 4) -> RecordedRun:
    events = [
        Record(
            at=seq,
            kind="note_added",
            body=body(seq),
            content=b'{"text":"<b>\\u00e4"}' if seq % 2 else None,
            salt=seeded_salt(7, seq) if seq % 2 else b"",
        )
        for seq in range(1, count + 1)
    ]
    return RecordedRun(run="r", seed=7, records=events)


@given(
    st.lists(
        st.builds(
            Record,
            at=st.integers(0, 2**53),
            kind=st.sampled_from(["note_added", "tool_returned"]),
            body=JSON,
            content=st.none() | JSON,
            salt=st.sampled_from([b"", b"abc", seeded_salt(7, 1), seeded_salt(7, 2)]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_records_come_back(tmp_path_factory: Any, events: list[Record]) -> None:
    """Kinds, bodies, contents and salts, to the byte."""
    path = tmp_path_factory.mktemp("recordings") / "r.jsonl"
    runs = [RecordedRun(run="r", seed=7, records=events), made()]
    write_recording(path, runs)
    assert runs == read_recording(path)


def test_the_file() -> None:
    """A line for the run and one for each event; the salt only where it does not follow from the seed."""
    lines = [json.loads(line) for line in encode_recording([made(2)]).splitlines()]
    assert [
        {"recording": 1, "run": "r", "events": 2, "seed": 7},
        {
            "seq": 1,
            "at": 1,
            "kind": "note_added",
            "content": {"text": "<b>ä"},
            "body": {"n": 1, "seed": 7},
            "salt": "seed",
        },
        {"seq": 2, "at": 2, "kind": "note_added", "body": {"n": 2, "seed": 7}},
    ] == lines


@pytest.mark.anyio
async def test_the_same_hashes(tmp_path: Path) -> None:
    """A run of a store, with erased payloads, has the same head when it is read from a recording."""
    store = MemoryStore()
    await append(store, "r", records(6))
    run = await recorded_run(store, "r")
    write_recording(tmp_path / "r.jsonl", [run])
    for opened in (open_here(tmp_path / "r.jsonl"), await open_store(tmp_path / "r.jsonl", readonly=True)):
        assert isinstance(opened, RecordingStore)
        assert await store.head("r") == await opened.head("r")
        assert [("r", await store.head("r"))] == [each async for chunk in opened.runs() for each in chunk]
    with pytest.raises(UnknownRun):
        await recorded_run(store, "no")


@pytest.mark.anyio
async def test_nothing_is_written_to_it(tmp_path: Path) -> None:
    """Every way to write is refused, and the file stays as it was."""
    path = tmp_path / "r.jsonl"
    write_recording(path, [made()])
    before = path.read_bytes()
    store = RecordingStore(path)
    with pytest.raises(WrongUse, match="recordings are read-only"):
        await store.lease("r", holder="a test")
    with pytest.raises(WrongUse, match="recordings are read-only"):
        await store.wake("r")
    assert before == path.read_bytes()


def edit(**changes: Any) -> str:
    """The text of a recording with another second line."""
    first, second, *rest = encode_recording([made()]).splitlines(keepends=True)
    return "".join(
        [first, json.dumps({**json.loads(second), **changes}, separators=(",", ":")) + "\n", *rest]
    )


TEXT = encode_recording([made()])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(TEXT[: len(TEXT) // 2], "line 3: ", id="cut within a line"),
        pytest.param(
            "".join(TEXT.splitlines(keepends=True)[:-1]),
            "run r has 3 of 4 events: the file was cut off",
            id="cut",
        ),
        pytest.param(
            "".join(TEXT.splitlines(keepends=True)[:2] + TEXT.splitlines(keepends=True)[3:]),
            "line 3: expected event 2, got event 3",
            id="a line is missing",
        ),
        pytest.param(edit(salt="xyz"), "line 2: salt or digest: expected hex digits", id="salt"),
        pytest.param(edit(more=1), "line 2: Object contains unknown field `more`", id="unknown field"),
        pytest.param(TEXT.replace("<b>", "<b\xff>", 1), "", id="other text"),
        pytest.param(TEXT + TEXT.splitlines()[1], "line 6: ", id="a line too many"),
        pytest.param(TEXT.replace("\n", "\n\n"), "", id="blank lines"),
        pytest.param(
            TEXT.replace('"body":{', '"body":' + "[" * 100_000 + "{", 1), "line 2: ", id="deeply nested"
        ),
        pytest.param(
            "<<<<<<< ours\n" + TEXT, 'expected a first line that begins with {"recording":', id="a merge"
        ),
        pytest.param(
            TEXT.replace('"recording":1', '"recording":2'),
            "format 2 is newer than 1: update refold",
            id="newer",
        ),
        pytest.param(
            TEXT.replace('"events":4', '"events":0'), "a run has at least 1 event, got 0", id="no events"
        ),
        pytest.param("", 'expected a first line that begins with {"recording":', id="empty"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    """An error that names the line; other texts of a payload and blank lines are no damage."""
    path = tmp_path / "r.jsonl"
    path.write_text(text, encoding="utf-8")
    if not message:
        assert 4 == len(read_recording(path)[0].records)
        return
    with pytest.raises((DamagedRecording, NotARecording)) as found:
        read_recording(path)
    assert message in str(found.value)
    assert str(path) in str(found.value)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    """It is named; a folder is none either."""
    with pytest.raises(NotARecording, match=r"no\.jsonl: No such file"):
        read_recording(tmp_path / "no.jsonl")
    with pytest.raises(NotARecording, match="Is a directory"):
        read_recording(tmp_path)


def test_a_failed_write_leaves_the_file(tmp_path: Path) -> None:
    """A recording is replaced whole or not at all."""
    path = tmp_path / "r.jsonl"
    write_recording(path, [made()])

    def failing() -> Any:
        yield made()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_recording(path, failing())
    assert [made()] == read_recording(path)
    assert ["r.jsonl"] == [each.name for each in tmp_path.iterdir()]
