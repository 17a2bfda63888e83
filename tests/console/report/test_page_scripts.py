"""What the page reads of a log is what the command line reads of it: its scripts are asked, without a browser."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.report.test_report_page import read
from refold.reducers.events import kind_of
from refold.replay.kinds.table import ROWS, texts_of
from refold.replay.queries.rows import FIELDS
from support import golden
from support.page_scripts import evaluated

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "replay" / "filter_cases.json").read_text(encoding="utf-8")
)


def test_the_table_of_filters_holds_in_the_page() -> None:
    """Each filter of the table means the same rows in JavaScript, and each mistake is found at the same place."""
    found = evaluated(
        """({rows, cases, mistakes, fields}) => [
            cases.map(each => {
                const asked = refold.parse(each.filter, fields);
                return [each.filter, rows.filter(row => asked.matches(row)).map(row => row.seq)];
            }),
            mistakes.map(each => {
                try { refold.parse(each.filter, fields); return [each.filter, null]; } catch (error) { return [each.filter, error.at]; }
            }),
        ]""",
        {**TABLE, "fields": msgspec.to_builtins(dict(FIELDS))},
    )
    assert [[[case["filter"], case["matches"]] for case in TABLE["cases"]]] == found[:1]
    assert [[each["filter"], each["at"]] for each in TABLE["mistakes"]] == found[1]


def test_a_page_knows_the_fields(ordinary: Path) -> None:
    """A page is given the fields that filters know, with their digits."""
    given = read(ordinary).data["fields"]
    assert {name: field.digits for name, field in FIELDS.items()} == {
        name: field["digits"] for name, field in given.items()
    }


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
