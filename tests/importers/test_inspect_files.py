"""Inspect logs as files: archives and documents, samples as runs, headers and journals, and what is broken
off.
"""

import io
import json
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.formats.inspect_logs.importer import INSPECT
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.source import BadTranscript, Source
from support.inspect_logs import DOCUMENT, SAMPLE, log
from support.transcribed import encoded, every, items_of, tally_of, whole_up_to


def archive(members: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, value in members.items():
            packed.writestr(name, json.dumps(value))
    return file.getvalue()


MEMBERS = {
    "header.json": {**DOCUMENT, "samples": None},
    "samples/1_epoch_1.json": SAMPLE,
    "reductions.json": [{"kept": 1}],
}


def test_an_archive_says_what_a_document_says() -> None:
    """`.eval` and `.json` are one log: the same items, but for where they stand."""

    def bare(items: list[Item]) -> list[str]:
        kinds = (Prompted, Answered, Returned, Said)
        return [repr(item).replace(item.position, "") for item in items if isinstance(item, kinds)]

    items = items_of(INSPECT, archive(MEMBERS))
    assert bare(items_of(INSPECT, DOCUMENT)) == bare(items)
    assert "samples/1_epoch_1.json $.events[1]" == every(items, Answered)[0].position
    assert "kept" in " ".join(each.rest for each in every(items, Remarked))


def test_each_sample_of_each_epoch_is_a_run() -> None:
    """Runs are named by sample and epoch, and a name that repeats is made different."""
    items = items_of(INSPECT, log(SAMPLE, SAMPLE | {"epoch": 2}, SAMPLE))
    assert ["1_epoch_1", "1_epoch_2", "1_epoch_1 #2"] == [began.key for began in every(items, RunBegan)]


def test_a_log_that_broke_off_has_its_journal() -> None:
    """Without a header the start of the journal stands for it; finished samples are finished, others open."""
    broken = {"_journal/start.json": {"version": 2, "eval": DOCUMENT["eval"]}}
    broken |= {"samples/1_epoch_1.json": SAMPLE, "samples/2_epoch_1.json": SAMPLE | {"scores": {}}}
    ended = every(items_of(INSPECT, archive(broken)), RunEnded)
    assert [("finished", "log status=started"), ("open", "log status=started")] == [
        (each.end, each.end_source) for each in ended
    ]


def test_the_header_overrules_the_journal() -> None:
    """The journal's start is written first and stays; the header, written last, knows how it ended."""
    members = {"_journal/start.json": {"version": 2, "eval": DOCUMENT["eval"]}, **MEMBERS}
    assert "log status=success" == every(items_of(INSPECT, archive(members)), RunEnded)[0].end_source


STATS = {
    "started_at": "2025-02-07T00:00:00+00:00",
    "completed_at": "2025-02-07T00:01:00+00:00",
    "model_usage": {"m": {"input_tokens": 999, "output_tokens": 9}},
}


def test_the_headers_usage_counts_only_where_no_sample_has_any() -> None:
    """A header may cover samples that the file does not hold."""
    with_usage = tally_of(items_of(INSPECT, log(SAMPLE, stats=STATS)))
    bare = {key: value for key, value in SAMPLE.items() if key not in ("model_usage", "events")}
    without = tally_of(items_of(INSPECT, log(bare, stats=STATS)))
    assert (30, 999) == (with_usage.input_tokens, without.input_tokens)
    assert ("2025-01-01T09:00:00.500000Z", "2025-02-07T00:00:00Z") == (
        with_usage.first_timestamp,
        without.first_timestamp,
    )


def test_a_log_without_samples_has_an_end_and_no_run() -> None:
    """Its counts are zero, its usage and times the header's."""
    items = items_of(INSPECT, log(status="cancelled", stats=STATS))
    assert ([], "cancelled") == (every(items, RunBegan), every(items, RunEnded)[0].end)
    assert (0, 999) == ((tally := tally_of(items)).messages, tally.input_tokens)


def test_nan_is_read() -> None:
    """Inspect writes it, though JSON has none."""
    assert 3 == len(
        every(items_of(INSPECT, json.dumps(log(SAMPLE | {"total_time": float("nan")}))), Answered)
    )


@pytest.mark.parametrize(
    ("document", "score"),
    [
        pytest.param(DOCUMENT, 95, id="a document"),
        pytest.param(archive(MEMBERS), 95, id="an archive"),
        pytest.param(archive({"word/document.xml": 1}), None, id="another archive"),
        pytest.param({"eval": {}, "version": 1}, None, id="another document"),
        pytest.param(
            {"eval": {"task": "t", "run_id": "r", "dataset": {}}, "pad": "x" * 70_000, "version": 2},
            90,
            id="its version far behind",
        ),
    ],
)
def test_knows_its_own(document: Any, score: int | None) -> None:
    """A log is told by its content."""
    match = INSPECT.match(Source.of("t", encoded(document)))
    assert score == (match.score if match else None)


@pytest.mark.parametrize(
    "document",
    [archive({"a.txt": 1}), b"PK\x05\x06", {"a": 1}, [1]],
    ids=["archive", "empty", "object", "list"],
)
def test_what_is_no_log_is_refused(document: Any) -> None:
    """Nothing is guessed of what holds not one sample or header."""
    with pytest.raises(BadTranscript):
        items_of(INSPECT, document)


def test_an_unreadable_member_is_told_and_passed_over() -> None:
    """One broken sample costs that sample; one that breaks off is told up to there."""
    file = io.BytesIO(archive(MEMBERS))
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr("samples/2_epoch_1.json", "oops")
        packed.writestr("samples/3_epoch_1.json", json.dumps(SAMPLE)[:-90])
    items = items_of(INSPECT, file.getvalue())
    assert ["1_epoch_1", "3_epoch_1"] == [began.key for began in every(items, RunBegan)]
    unread = [(each.position.split(".")[0], each.code) for each in every(items, Unread)]
    assert [("samples/2_epoch_1", "cut"), ("samples/3_epoch_1", "cut")] == unread
    assert isinstance(items[-2], Unread)  # with the run that it belongs to, before its end


@given(which=st.sampled_from([encoded(DOCUMENT), archive(MEMBERS)]), data=st.data())
def test_cut_anywhere_it_imports_up_to_the_cut(which: bytes, data: st.DataObject) -> None:
    """Half a log has no answer that the whole one has not, and no event by halves."""
    part = whole_up_to(INSPECT, which[: data.draw(st.integers(0, len(which)))])
    assert {"go", "done"} >= {answer.text for answer in every(part, Answered)}
    assert {"one", "two"} >= {returned.output for returned in every(part, Returned)}
