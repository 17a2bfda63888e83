"""One file, run by run: packed, cut, in odd encodings; ids, counts and what was odd."""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from refold.importers import compression, source
from refold.importers.documents import decode_truncated
from refold.importers.items import Item, Remarked, RunBegan, RunEnded, Unread
from refold.importers.registry import FormatMatch, UnknownFormat, detect_format, importer
from refold.importers.source import MOST_DOCUMENT, MOST_LINE, BadTranscript, Source, decode_json
from refold.importers.survey import count_runs
from refold.importers.tallies import RunCounts
from refold.importers.transcript import Transcript, run_id
from refold.reducers.events import Diagnosed, SourceRecorded
from support.told import END, answered, began, said
from support.transcripts import path_of, read, salts

SMALL = "claude_code/tiny-1.0.jsonl"


class Listed:
    """An importer of a list of items."""

    name = "listed"

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def match(self, source: Source) -> FormatMatch | None:
        return FormatMatch(1, "always")

    def items(self, source: Source) -> Iterator[Item]:
        return iter(self._items)


def plain(file: str) -> bytes:
    """The bytes of a transcript, unpacked."""
    with path_of(file).open("rb") as opened:
        source = Source.opened(file, opened)
        return source.whole()


def reading(*items: Item, data: bytes = b"x") -> Transcript:
    """A file that says these items, read to its end."""
    found = Transcript(Source.of("folder/a.jsonl", data), Listed(items))
    for run in found.runs():
        for _ in run.derive(salts):
            pass
    return found


def opened(data: bytes) -> Source:
    return Source.opened("a.jsonl", io.BytesIO(data))


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "two gzip members": lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]) + b"\0" * 512,
    "zstd": zstd.compress,
    "two zstd frames": lambda data: zstd.compress(data[:100]) + zstd.compress(data[100:]),
    "utf-16 with a mark": lambda data: data.decode().encode("utf-16"),
    "utf-16-le": lambda data: data.decode().encode("utf-16-le"),
    "utf-16-be": lambda data: data.decode().encode("utf-16-be"),
    "utf-8 with a mark": lambda data: b"\xef\xbb\xbf" + data,
    "utf-16, packed": lambda data: gzip.compress(data.decode().encode("utf-16")),
}


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_however_it_is_packed_it_says_the_same(pack: Callable[[bytes], bytes]) -> None:
    """Packed or in another encoding, a transcript has the same counts."""
    assert read(Source.of(SMALL, plain(SMALL))).counts == read(opened(pack(plain(SMALL)))).counts


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_packing_makes_no_other_transcript(pack: Callable[[bytes], bytes]) -> None:
    """The digest, and so the id of each run, is of what was packed."""
    data = plain(SMALL)
    assert Source.of(SMALL, data).sha256() == opened(pack(data)).sha256()


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_a_packed_file_that_is_cut_is_read_up_to_the_cut(pack: Callable[[bytes], bytes]) -> None:
    """What can be unpacked is imported; that the rest is missing is said, and counts as unread."""
    rows = plain(SMALL) + b"".join(b'{"type":"noise","n":%d}\n' % number for number in range(30_000))
    packed = pack(rows)
    source = opened(packed[: len(packed) * 3 // 4])
    found = Transcript(source, importer("claude_code"))
    notes = [each.event for run in found.runs() for group in run.derive(salts) for each in group]
    assert "truncated" in source.problem
    assert "cut_off" in {note.code for note in notes if isinstance(note, Diagnosed)}
    assert 1 <= found.unread
    assert 6 == found.counts().messages


def test_a_cut_that_leaves_nothing_to_read_is_named() -> None:
    """Where a packed document is cut so early that nothing can be read of it, the refusal says that it was
    cut.
    """
    source = opened(gzip.compress(b'[{"role": "user", "content": "' + b"go " * 99)[:40])
    with pytest.raises(BadTranscript, match=r"no list of messages \(.*truncated"):
        list(Transcript(source, importer("openai_messages")).runs())


def checked(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


@pytest.mark.parametrize("pack", [gzip.compress, checked], ids=["gzip", "zstd"])
def test_a_packed_file_that_was_damaged_is_read_up_to_there(pack: Callable[[bytes], bytes]) -> None:
    """Damaged inside: what came before is read, and what is wrong is said."""
    data = bytes(range(256)) * 8000
    packed = bytearray(pack(data + plain(SMALL)))
    packed[len(packed) // 2] ^= 0xFF
    packed[len(packed) // 2 + 1] ^= 0xFF
    source = opened(bytes(packed))
    assert len(source.whole()) <= len(data) + len(plain(SMALL))
    assert source.problem


def test_a_document_may_be_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than fit a machine of 4 GB as objects, whatever stands in them, are refused."""
    assert MOST_DOCUMENT * 64 / 3 <= 3 << 30
    assert source.MOST_BYTES <= MOST_DOCUMENT
    monkeypatch.setattr("refold.importers.source.MOST_DOCUMENT", 9)
    with pytest.raises(BadTranscript, match="more than 9 bytes"):
        Source.of("mine", b"[1,2,3,4,5]").document()


def test_no_bomb_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small file that unpacks to more than is allowed, what is allowed is read."""
    monkeypatch.setattr(compression, "MOST_INFLATED", 1 << 20)
    source = opened(gzip.compress(b"\n" * (8 << 20)))
    assert len(source.whole()) <= 1 << 20
    assert "more than 1048576 bytes" in source.problem


@given(data=st.binary(max_size=2000), places=st.lists(st.integers(0, 2500), max_size=5))
def test_an_unpacked_stream_is_a_file(data: bytes, places: list[int]) -> None:
    """Whoever seeks in it reads what they would in the file that was packed."""
    source, file = opened(gzip.compress(data)), io.BytesIO(data)
    for place in places:
        source.file.seek(place)
        file.seek(place)
        assert file.read(7) == source.file.read(7)
    source.file.seek(0, io.SEEK_END)
    assert b"" == source.file.read()


def test_a_line_without_end_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a line that is longer than any row, its length is known, and the next line is read."""
    monkeypatch.setattr("refold.importers.source.MOST_LINE", 1000)
    lines = list(Source.of("x", b"a" * 2500 + b"\nb\n").lines())
    assert [(1, 1000, 1501), (2, 1, 0)] == [(line.number, len(line.text), line.left_out) for line in lines]
    assert MOST_LINE >= 1 << 20


@pytest.mark.parametrize(
    ("data", "value"),
    [
        pytest.param(b'{"a": 1}', {"a": 1}, id="JSON"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}', {"a": 1}, id="with a mark"),
        pytest.param(b'{"a": "\\ud800"}', {"a": "\ufffd"}, id="half a surrogate pair"),
        pytest.param(b'{"a": "\xe9"}', {"a": "\ufffd"}, id="Latin-1"),
        pytest.param(
            rb'{"a": "x \* \\* \u12 \n"}', {"a": "x \\* \\* \\u12 \n"}, id="escapes that JSON has not"
        ),
        pytest.param(b'{"a": 1e400}', {"a": float("inf")}, id="a number that is too large"),
    ],
)
def test_what_recorders_write_is_read(data: bytes, value: object) -> None:
    """JSON as it is found in files is read, whatever is odd in it."""
    assert value == decode_json(data)


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 200_000, b"", b"{", b"nul", b"1" * 5000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    """What is none, or nested without end, is a `ValueError`, and no other exception."""
    with pytest.raises(ValueError):  # noqa: PT011 - the contract is the class
        decode_json(data)


def test_an_id_follows_from_bytes_and_key() -> None:
    """The same bytes give the same ids, other bytes or another key others."""
    ids = {run_id("f", sha, key) for sha in ("a", "b") for key in ("", "1")}
    assert 4 == len(ids)
    assert run_id("f", "a", "1") in ids
    assert {17 + 1} == {len(each) for each in ids}


def test_runs_of_one_key_are_told_apart() -> None:
    """Two runs that a file calls the same have ids of their own, and that is said."""
    found = reading(began(), answered("a"), END, began(), answered("b"), END)
    assert ["key_repeated"] == [problem.code for problem in found.problems]
    assert 2 == found.counts().runs


def test_what_stands_before_a_run_is_in_its_log() -> None:
    """Remarks at the head of a file are in the log of the first run."""
    source = Source.of("a", b"x")
    found = Transcript(source, Listed([Remarked(position="top", what="header"), began(), said("t"), END]))
    events = [each.event for run in found.runs() for group in run.derive(salts) for each in group]
    assert "header" in [each.what for each in events if isinstance(each, SourceRecorded)]


def test_a_run_that_nobody_ends_has_an_end() -> None:
    """Where another begins, or the file is over, before a run's end: how it ended is unknown, and said so."""
    found = reading(began(), answered("a"), RunBegan(position="2", key="k2"), answered("b"))
    assert (2, "unknown") == (found.counts().runs, found.counts().end)


def test_an_end_without_a_run_speaks_for_the_file() -> None:
    """What is counted of a file without any run counts, and is no run."""
    end = RunEnded(position="$", end="cancelled", end_source="status", used=(5, None, None, 0))
    found = reading(end)
    assert (0, 5, "cancelled") == (found.counts().runs, found.counts().input_tokens, found.counts().end)


def test_a_run_that_is_not_derived_is_passed_over() -> None:
    """Who wants only the second run gets it whole."""
    source = Source.of("a", b"x")
    found = Transcript(
        source, Listed([began(), said("1"), END, RunBegan(position="", key="b"), said("2"), END])
    )
    kept = [run for run in found.runs() if run.key == "b" and list(run.derive(salts))]
    assert ["b"] == [run.key for run in kept]
    assert 2 == found.counts().runs


def test_problems_are_counted_and_the_first_are_kept() -> None:
    """Of a file with many odd places all are counted, the unread ones apart."""
    odd = [Unread(position=f"line {n}", code="odd", problem="odd") for n in range(50)]
    found = reading(began(), *odd, END)
    assert (50, 50, 20) == (found.odd, found.unread, len(found.problems))


ENDS = [
    pytest.param("claude_code", ["finished"], "finished", id="one run"),
    pytest.param(
        "inspect", ["finished", "limit:message", "finished"], "finished=2;limit:message=1", id="several"
    ),
    pytest.param("tau_bench", ["finished"], "finished=1", id="a list of one"),
    pytest.param("tau_bench", ["unknown", "unknown"], "unknown", id="nothing is known"),
    pytest.param("inspect", [], "unknown", id="no run"),
]


@pytest.mark.parametrize(("name", "ends", "told"), ENDS)
def test_how_several_ended(name: str, ends: list[str], told: str) -> None:
    """How many ended how, by name; of one run its end alone."""
    listed = [RunEnded(position="", end=end, end_source="") for end in ends]
    assert told == count_runs(name, len(ends), listed, []).end


def test_what_no_format_says_is_no_zero() -> None:
    """A count that no run has is `-`; one that some have is their sum."""
    tallies = [RunCounts(messages=2), RunCounts(messages=3, tool_calls=None)]
    found = count_runs("inspect", 2, [END, END], tallies)
    assert (5, "-", "-") == (found.messages, found.tool_calls, found.first_timestamp)


def test_times_are_the_earliest_and_the_latest() -> None:
    """Of several runs the first and last instants, in the words of the source, whatever their offsets."""
    pairs = [
        ("2025-01-01T10:00:00+02:00", "2025-01-01T09:00:00Z"),
        ("2025-01-01T08:30:00Z", "2025-01-01T08:45:00Z"),
    ]
    tallies = [RunCounts(first_timestamp=first, last_timestamp=last) for first, last in pairs]
    found = count_runs("inspect", 2, [END, END], tallies)
    assert ("2025-01-01T10:00:00+02:00", "2025-01-01T09:00:00Z") == (
        found.first_timestamp,
        found.last_timestamp,
    )


HOSTILE = "<script>alert(1)</script>\x1b]0;owned\x07\u202e"


def test_hostile_fields_are_text() -> None:
    """Markup, escapes and turned text in every field are kept as text, in the log and in the label of the
    file.
    """
    source = Source.of(f"../../{HOSTILE}", b"x")
    found = Transcript(source, Listed([began(), said(HOSTILE), answered(HOSTILE), END]))
    events = [each for run in found.runs() for group in run.derive(salts) for each in group]
    assert found.origin.file == HOSTILE.rsplit("/", 1)[-1]
    assert events


@given(cut=st.integers(0, 100))
def test_a_file_that_is_cut_anywhere_is_imported_up_to_the_cut(cut: int) -> None:
    """A session of which only a part is there is imported, or refused as no transcript: nothing else is
    raised.
    """
    data = plain(SMALL)
    source = Source.of("a", data[: len(data) * cut // 100])
    with suppress(BadTranscript, UnknownFormat):
        found = read(source, detect_format(source).format)
        assert all(audit.clean for audit in found.audits)


def test_a_document_nested_without_end_is_no_crash() -> None:
    """A JSON document that nests without end is refused, or read up to there: nothing else happens."""
    deep = json.dumps({"sessionId": "x", "messages": []})[:-2].encode() + b"[" * 300_000
    with suppress(BadTranscript):
        assert read(Source.of("a", deep), "gemini_cli").counts.runs


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_nothing_packed_a_million_times_is_not_unpacked(pack: Callable[[bytes], bytes]) -> None:
    """Members of which nothing comes, one behind the other, end a stream some day, and that is said."""
    few, many = compression.MOST_EMPTY // 2, 3 * compression.MOST_EMPTY
    source = opened(pack(b"a") + pack(b"") * few + pack(b"b") + pack(b"") * many + pack(b"c"))
    assert b"ab" == source.whole()
    assert f"more than {compression.MOST_EMPTY}" in source.problem


def test_a_packed_file_is_not_unpacked_for_each_format() -> None:
    """However many ask for the first bytes of a file, they are unpacked once."""

    class Counted(io.BytesIO):
        begun = 0

        def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
            self.begun += not (offset or whence)
            return super().seek(offset, whence)

    file = Counted(gzip.compress(plain(SMALL)))
    source = Source.opened("a.jsonl", file)
    source.head(1 << 20)
    before = file.begun
    assert plain(SMALL)[:100] == source.head(100)
    assert before == file.begun


@pytest.mark.parametrize("part", [b"[],", b"{},", b"0,"])
def test_small_values_without_number_are_not_read(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON of so many values that they would fill the memory is refused before they are made; long texts are
    not.
    """
    monkeypatch.setattr("refold.importers.source.MOST_PARTS", 1000)
    with pytest.raises(ValueError, match="more than 1000 lists, objects and commas"):
        decode_json(b"[" + part * 1000 + b"0]")
    assert decode_truncated(b"[" + part * 1000) is None
    assert decode_truncated(b"[" + part * 100) is not None
    assert {"a": "x" * 5000} == decode_json(b'{"a":"' + b"x" * 5000 + b'"}')
