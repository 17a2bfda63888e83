"""The table of kinds: one row each, and whatever an event says, each column of its row holds."""

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from refold.reducers.events import ANNOTATIONS, KINDS, Event, StateDigested, UnknownAnnotation, kind_of
from refold.replay.kinds.table import ROWS, TABLE, kind_for, remark, sentence, texts_of
from refold.replay.queries.stats import Stats
from refold.testing.strategies.events import events
from support import golden


def test_every_kind_has_one_row() -> None:
    """A new kind of event without a row is found here, before a listing meets one."""
    assert sorted([*KINDS, "unknown_annotation"]) == sorted(kind_of(row.of) for row in ROWS)


def test_what_is_not_compared() -> None:
    """What has no effect is not compared between two runs, and everything else is."""
    passed = {row.of for row in ROWS if not row.compared}
    assert {*ANNOTATIONS, UnknownAnnotation, StateDigested} == passed


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_event_is_told(kind: str) -> None:
    """Whatever an event of a kind holds, it has a sentence, and counts under a word of a count that there
    is.
    """
    row = TABLE[KINDS[kind]]

    @given(event=events(kind))
    def check(event: Event) -> None:
        assert row is kind_for(event)
        assert sentence(event).startswith(row.says(event))
        assert bool(row.marks) or not remark(event)
        assert row.weight(event) in ("routine", "plain", "decisive")
        if row.counts is not None:
            assert isinstance(getattr(Stats(), row.counts[0]), dict)
            assert isinstance(row.counts[1](event), str | None)

    check()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_texts_lead_somewhere(kind: str) -> None:
    """Each way of a row leads through fields that the kind has, and its content as well."""
    event = KINDS[kind]
    for way in TABLE[event].texts:
        first, *rest = way.split(".")
        fields = {field.name: field.type for field in msgspec.structs.fields(event)}
        assert first in fields
        contents = getattr(fields[first], "__args__", (fields[first],))
        for name in rest:
            assert any(name in getattr(content, "__struct_fields__", ()) for content in contents), way


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_ours_repeats_nobody(kind: str) -> None:
    """An export without content says of an event what it would say if nobody had said anything."""

    @given(event=events(kind))
    def check(event: Event) -> None:
        if hasattr(event, "content"):
            assert kind_for(event).says(replace(event, content=None)) == kind_for(event).says(event)

    check()


@pytest.mark.parametrize("name", golden.names())
def test_what_a_golden_log_says(name: str) -> None:
    """No event of an old log is told by what only a program reads: no braces of arguments, no line end."""
    for event in golden.events(name):
        assert '{"' not in remark(event)
        assert "\n" not in sentence(event)
        assert all(texts_of(event))
