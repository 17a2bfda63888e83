"""What the page reads of a log is what the command line reads of it: its scripts are asked, without a
browser.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.reducers.events import kind_of
from refold.replay.kinds.table import ROWS, texts_of
from refold.replay.queries.rows import EVENTS, FIELDS, STATES
from support import golden
from support.page_scripts import evaluated
from support.pages import read

TABLES: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "replay" / "question_cases.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(("about", "fields"), [("events", EVENTS.fields), ("states", STATES.fields)])
def test_the_table_of_questions_holds_in_the_page(about: str, fields: Any) -> None:
    """Each question of the table means the same rows in JavaScript, and each mistake is found at the same
    place.
    """
    table = TABLES[about]
    known = {
        name: {"kind": field.kind, "digits": field.digits, "values": field.values}
        for name, field in fields.items()
    }
    answers, places = evaluated(
        """({rows, cases, mistakes, fields}) => [
            cases.map(each => {
                const asked = refold.parse(each.question, fields);
                return {question: each.question, matches: rows.filter(row => asked.matches(row)).map(row => row.seq)};
            }),
            mistakes.map(({question}) => {
                try { refold.parse(question, fields); return {question}; } catch (error) { return {question, at: error.at}; }
            }),
        ]""",
        {**table, "fields": known},
    )
    assert table["cases"] == answers
    assert table["mistakes"] == places


@pytest.mark.parametrize("pattern", ["(a+)+b", "(.*)(.*)(.*)x"])
def test_a_page_refuses_what_a_browser_could_search_without_end(pattern: str) -> None:
    """A browser backtracks, so a pattern that `grep` searches in linear time may be refused in the page,
    never run.
    """
    fields = {"text": {"kind": "text", "digits": 0, "values": []}}
    said = evaluated(
        """({question, fields}) => {
            try { refold.parse(question, fields); return ""; } catch (error) { return error.message; }
        }""",
        {"question": f'text~"{pattern}"', "fields": fields},
    )
    assert "repetition" in said


def test_a_page_knows_the_fields(ordinary: Path) -> None:
    """A page is given the fields that questions about events know."""
    assert json.loads(msgspec.json.encode(dict(FIELDS))) == read(ordinary).data["fields"]


@pytest.mark.parametrize("name", golden.names())
def test_what_was_said_is_searched_alike(name: str) -> None:
    """The text of each event that a filter looks into is the same in the page as on the command line."""
    events = [
        {"kind": record.kind, "body": record.body.decode(), "content": (record.content or b"null").decode()}
        for record in golden.recorded(name)
    ]
    texts = evaluated(
        """({kinds, events}) => {
            refold.kinds = kinds;
            return events.map(event => refold.textsOf(event, JSON.parse(event.body), JSON.parse(event.content)));
        }""",
        {"events": events, "kinds": {kind_of(row.of): {"texts": row.texts} for row in ROWS}},
    )
    assert [list(texts_of(event)) for event in golden.events(name)] == texts


@given(
    data=st.one_of(st.binary(max_size=5000), st.text("ab\u00e9 ", max_size=3000).map(str.encode)),
    repeats=st.integers(1, 40),
    level=st.integers(0, 9),
)
@settings(max_examples=5, deadline=None)
def test_what_was_deflated_is_inflated(data: bytes, repeats: int, level: int) -> None:
    """A page inflates whatever zlib deflates, at any level and in any of its ways: stored, with fixed codes,
    with its own.
    """
    wanted = [data * repeats, data, b"", bytes(range(256)) * 300, b"a" * 100_000]
    ways = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY]
    packed = []
    for each in wanted:
        for way in ways:
            packer = zlib.compressobj(level, wbits=-15, strategy=way)
            packed.append(list(packer.compress(each) + packer.flush()))
    found = evaluated(
        "packed => packed.map(each => Array.from(refold.inflate(Uint8Array.from(each))))", packed
    )
    assert [each for each in wanted for _ in ways] == list(map(bytes, found))


def test_bytes_that_nobody_deflated_are_refused() -> None:
    """What ends too early, points before its beginning, or has no such code is an error, and no endless
    loop.
    """
    packer = zlib.compressobj(wbits=-15)
    whole = packer.compress(b"some words, and some words more " * 100) + packer.flush()
    cuts = [list(whole[:size]) for size in range(len(whole) - 1)]
    wild = [[byte, *([255] * 40)] for byte in range(256)]
    found = evaluated(
        "all => all.map(each => { try { return refold.inflate(Uint8Array.from(each)).length; } catch (error) { return error.message; } })",
        [*cuts, *wild],
    )
    assert {str} == {type(each) for each in found[: len(cuts)]}
    assert {
        "the packed bytes end too early",
        "no code of the packed bytes",
        "no way of packing bytes",
    } <= set(found)
