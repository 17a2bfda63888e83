"""`grep`: rows of every kind of event, and what is found and shown of a run."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import codec
from refold.reducers.errors import DamagedLog
from refold.reducers.events import (
    KINDS,
    Answer,
    Call,
    ContentErased,
    Event,
    ModelResponded,
    UnknownAnnotation,
)
from refold.reducers.vocabulary import StopReason
from refold.replay.kinds.table import TYPES
from refold.replay.queries.grep import EXCERPT, Match, Sieve, excerpt, grep, make_excerpt
from refold.replay.queries.rows import (
    FIELDS,
    START,
    FlatEvent,
    LogPlace,
    advance_place,
    event_question,
    row_of,
)
from refold.replay.reader import Step
from refold.store import MemoryStore
from refold.store.protocol import Stored, UnknownRun
from refold.testing.strategies.driver import MARKER, Driver
from refold.testing.strategies.events import events
from support import runs
from support.forging import recorded, records_of, write
from support.queried import driven, kept

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def store() -> MemoryStore:
    """The run of the transcript in `support.runs`."""
    made = MemoryStore()
    await runs.recorded_run(made)
    return made


@pytest.mark.parametrize(
    ("typed", "seqs"),
    [
        pytest.param("type:tool name:look", [8, 10, 19, 21, 27], id="a tool"),
        pytest.param("error:true", [3], id="what went wrong"),
        pytest.param("type:guard verdict:stop", [26], id="a guard"),
        pytest.param("verdict:refused", [27], id="a refused call"),
        pytest.param("turn:1 side:fact", [3, 5, 7, 10, 11], id="the facts of a turn"),
        pytest.param("paint", [7, 11], id="words"),
        pytest.param("reason:overloaded", [3, 4], id="a class of failures"),
        pytest.param("state:ERROR", [28], id="the end"),
        pytest.param("kind:history_pruned name:tail", [16, 23], id="a pass"),
        pytest.param("nothing of this", [], id="nothing"),
    ],
)
async def test_what_is_found(store: MemoryStore, typed: str, seqs: list[int]) -> None:
    """Of a known run, a filter finds these events."""
    found = [each async for each in grep(store, runs.RUN, event_question(typed))]
    assert seqs == [each.row.seq for each in found]


async def test_what_is_found_is_whole(store: MemoryStore) -> None:
    """Whether a filter reads what was said or not, what it finds has all that was said."""
    (found,) = [each async for each in grep(store, runs.RUN, event_question("kind:run_started"))]
    assert "Be brief.\nDo it." == found.row.text
    assert getattr(found.event, "content", None) is not None


async def test_an_unknown_run(store: MemoryStore) -> None:
    """A run that is not there is named."""
    with pytest.raises(UnknownRun):
        await anext(grep(store, "nobody", event_question("")))


async def test_a_damaged_log_is_searched_up_to_there(store: MemoryStore) -> None:
    """What stands before an event that cannot be read is found first."""
    log = await records_of(store, runs.RUN)
    broken = MemoryStore()
    await write(broken, runs.RUN, [*log[:4], msgspec.structs.replace(log[4], body=b"{"), *log[5:]])
    found = grep(broken, runs.RUN, event_question(""))
    assert [1, 2, 3, 4] == [(await anext(found)).row.seq for _ in range(4)]
    with pytest.raises(DamagedLog):
        await anext(found)


async def test_erased_words_fit_nothing(store: MemoryStore) -> None:
    """Of an event whose words were erased its body can be found still; of its words neither what they say nor
    what they do not.
    """
    log = await records_of(store, runs.RUN)
    erased = MemoryStore()
    await write(erased, runs.RUN, log)
    notice = ContentErased(at=log[-1].at, seqs=(11,), by="ann", why="a key")
    lease = await erased.lease(runs.RUN, holder="ann")
    await erased.erase(runs.RUN, len(log), lease, [11], recorded(notice, log[-1].at))
    assert [7] == [each.row.seq async for each in grep(erased, runs.RUN, event_question("paint"))]
    assert 11 not in [each.row.seq async for each in grep(erased, runs.RUN, event_question("-text:paint"))]
    assert 11 in [each.row.seq async for each in grep(erased, runs.RUN, event_question("name:act"))]


def test_every_kind_has_a_type() -> None:
    """Each kind of event is about one thing, and no other kind is listed."""
    listed = [kind for kinds in TYPES.values() for kind in kinds]
    assert sorted({*KINDS, "unknown_annotation"}) == sorted(listed)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_event_has_a_row(kind: str) -> None:
    """Whatever an event of a kind says, its row is flat: numbers, flags, words; and reads back from JSON."""

    @given(event=events(kind))
    def check(event: Event) -> None:
        stored = kept([event])[0]
        row = row_of(stored, event, advance_place(START, stored.at, event))
        plain = msgspec.json.decode(msgspec.json.encode(row))
        for name, value in plain.items():
            kinds = {"words": (str, list), "number": (int,), "flag": (bool,), "text": (str,)}[
                FIELDS[name].kind
            ]
            assert isinstance(value, kinds), name
        assert row == msgspec.json.decode(msgspec.json.encode(row), type=FlatEvent)

    check()


def test_an_annotation_of_tomorrow_has_a_row() -> None:
    """What this version does not know is found by its kind."""
    event = UnknownAnnotation(at=3, of="signed_off", body=b"{}")
    stored = Stored(run="r1", seq=1, at=3, kind="signed_off", body=b"{}", content=None, salt=b"", hash=b"")
    row = row_of(stored, event, START)
    assert ("signed_off", "note", "note") == (row.kind, row.type, row.side)


def everything_said(value: Any) -> list[str]:
    """All texts in an event's content, however deep."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for each in value for text in everything_said(each)] if isinstance(value, list) else []


@given(driver=driven())
def test_what_was_said_is_in_the_text(driver: Driver) -> None:
    """No word that a model, a tool or a person said in a run is left out of what a filter searches."""
    place = START
    for stored in kept(driver.log):
        event = codec.decode(stored.kind, stored.body, stored.content)
        place = advance_place(place, stored.at, event)
        said = everything_said(msgspec.json.decode(stored.content or b"{}"))
        if any(MARKER in text for text in said):
            assert MARKER in (row_of(stored, event, place).text or "")


@given(
    driver=driven(),
    typed=st.sampled_from(["qzv", "type:tool -name:look", "tokens>3 or side:note", "turn:2.."]),
)
def test_reading_less_finds_the_same(driver: Driver, typed: str) -> None:
    """What is found does not depend on whether contents were read for it."""
    asked = event_question(typed)
    fast, slow, sieve = list[int](), list[int](), Sieve(asked)
    other: LogPlace = START
    for stored in kept(driver.log):
        found = sieve.match(Step(stored))
        fast += [found.row.seq] if found else []
        event = codec.decode(stored.kind, stored.body, stored.content)
        other = advance_place(other, stored.at, event)
        slow += [stored.seq] if asked.matches(row_of(stored, event, other)) else []
    assert slow == fast


@pytest.mark.parametrize(
    ("typed", "text", "shown"),
    [
        pytest.param("needle", "a needle", ("a needle", 2, 8, False, False), id="a short text is whole"),
        pytest.param("NEEDLE", "a needle", ("a needle", 2, 8, False, False), id="in another case"),
        pytest.param("type:tool", "a needle", ("a needle", 0, 0, False, False), id="nothing was looked for"),
        pytest.param(
            "needle", "x" * 500 + "needle" + "y" * 500,
            ("x" * 40 + "needle" + "y" * 114, 40, 46, True, True), id="the middle of a long one",
        ),
        pytest.param("text~[0-9]+", "one\ntwo 22", ("one\ntwo 22", 8, 10, False, False), id="a pattern"),
        pytest.param("-text:needle", "a needle", ("a needle", 0, 0, False, False), id="what is not to be there"),
        pytest.param("b a", "a b", ("a b", 0, 1, False, False), id="the first of several"),
        pytest.param("type:tool", "", None, id="no text"),
        pytest.param("type:tool", " \n", None, id="nothing to see"),
    ],
)  # fmt: skip
def test_what_is_shown_of_a_text(typed: str, text: str, shown: tuple[object, ...] | None) -> None:
    """The excerpt is around the first place that was looked for, never longer than it may be."""
    found = excerpt(event_question(typed), text)
    assert shown == (found and (found.text, found.start, found.end, found.before, found.after))


@given(text=st.text(max_size=400), word=st.text(min_size=1, max_size=200))
def test_an_excerpt_lies_in_its_text(text: str, word: str) -> None:
    """Whatever was looked for: an excerpt is a bounded piece of the text, and its place lies in it."""
    found = excerpt(event_question(f'"{word}"') if word.isalnum() else event_question("x"), text)
    if found is not None:
        assert found.text in text
        assert len(found.text) <= EXCERPT
        assert 0 <= found.start <= found.end <= len(found.text)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        pytest.param('"rm -rf"', "I clean.\n\nBash  rm -rf build", id="in a call's main argument"),
        pytest.param("timeout", '{"command":"rm -rf build","timeout":5}', id="in what is not shown of it"),
        pytest.param("clean", "I clean.\n\nBash  rm -rf build", id="in the text"),
    ],
)
def test_a_call_is_shown_as_it_is_read(typed: str, text: str) -> None:
    """What is found in a call is shown with its tool, and as JSON only where a person would not see it
    else.
    """
    event = ModelResponded(
        at=1, request=1, stop=StopReason.TOOL_USE, calls=(Call(id="c1", name="Bash"),),
        content=Answer(text="I clean.", arguments=('{"command":"rm -rf build","timeout":5}',)),
    )  # fmt: skip
    stored = kept([event])[0]
    found = make_excerpt(event_question(typed), Match(stored, event, row_of(stored, event, START)))
    assert found is not None
    assert text in found.text
    assert typed.strip('"') == found.text[found.start : found.end]
