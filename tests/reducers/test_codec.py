"""Events to bytes and back, and every way in which bytes can be wrong."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.reducers.codec import CONTENTS, Encoded, decode, encode
from refold.reducers.errors import DamagedLog, NewerLog
from refold.reducers.events import (
    ANNOTATIONS,
    DECISIONS,
    FACTS,
    KINDS,
    CancelRequested,
    ClockRead,
    Event,
    NoteAdded,
    Reason,
    Remark,
    UnknownAnnotation,
)
from refold.reducers.meanings import MEANINGS
from refold.testing.strategies.events import events
from support.strategies import scaled

# Written out by hand: a kind is never removed or renamed.
ALL_KINDS = sorted(KINDS)


def test_every_fact_and_decision_has_a_meaning() -> None:
    """The table of meanings has each kind that can change the state, and no other."""
    assert {*FACTS, *DECISIONS} == set(MEANINGS)


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=scaled(10))
@given(data=st.data())
def test_round_trip(kind: str, data: st.DataObject) -> None:
    """Any event of any kind comes back from its bytes as it was, content included."""
    event = data.draw(events(kind))
    stored = encode(event)
    assert kind == stored.kind
    assert event == decode(stored.kind, stored.body, stored.content)
    assert stored == encode(decode(stored.kind, stored.body, stored.content))


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=scaled(10))
@given(data=st.data())
def test_the_body_can_be_read_without_the_content(kind: str, data: st.DataObject) -> None:
    """A body alone is the event without its content."""
    event = data.draw(events(kind))
    stored = encode(event)
    bare = decode(kind, stored.body)
    assert getattr(bare, "content", None) is None
    assert "content" not in json.loads(stored.body)


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=scaled(10))
@given(data=st.data())
def test_unknown_fields_are_refused(kind: str, data: st.DataObject) -> None:
    """A field that this version does not know stops the reader, in a body and in a content."""
    stored = encode(data.draw(events(kind)))
    body = json.dumps({**json.loads(stored.body), "zz_newer": 1}).encode()
    with pytest.raises(NewerLog, match="zz_newer"):
        decode(kind, body, stored.content, run="r1", seq=3)
    if stored.content is not None:
        content = json.dumps({**json.loads(stored.content), "zz_newer": 1}).encode()
        with pytest.raises(NewerLog, match="zz_newer"):
            decode(kind, stored.body, content)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_body_that_lacks_a_field(kind: str) -> None:
    """A body without a field that it needs is damaged."""
    tag = "annotation" if KINDS[kind] in ANNOTATIONS else "kind"
    with pytest.raises(DamagedLog, match="event 7"):
        decode(kind, json.dumps({tag: kind}).encode(), run="r1", seq=7)


LATE = "late_result"


def _late(more: str = "") -> str:
    return f'{{"annotation":"{LATE}","at":1,"fact":{{"kind":"tool_returned","at":1,"call":"c1"{more}}}}}'


CLOCK = '{"kind":"clock_read","at":1,"due":2}'


@pytest.mark.parametrize(
    ("kind", "body", "content", "error", "problem"),
    [
        pytest.param("clock_read", "", None, DamagedLog, "cannot be read", id="nothing"),
        pytest.param(
            LATE, _late(',"content":{"output":"x"}'), None, DamagedLog, "holds content", id="words in a fact"
        ),
        pytest.param(LATE, _late(), '{"note":"x"}', NewerLog, "note", id="words of another kind of fact"),
        pytest.param("clock_read", "{", None, DamagedLog, "cannot be read", id="no JSON"),
        pytest.param("clock_read", "[]", None, DamagedLog, "cannot be read", id="a list"),
        pytest.param(
            "clock_read", '{"kind":"clock_read","at":1.5,"due":2}', None, DamagedLog, "at", id="a float"
        ),
        pytest.param(
            "clock_read", '{"kind":"clock_read","at":"1","due":2}', None, DamagedLog, "at", id="text"
        ),
        pytest.param(
            "clock_read", '{"kind":"clock_read","at":null,"due":2}', None, DamagedLog, "at", id="null"
        ),
        pytest.param(
            "clock_read",
            '{"kind":"diagnosed","at":1,"due":2}',
            None,
            DamagedLog,
            "diagnosed",
            id="another tag",
        ),
        pytest.param("clock_read", CLOCK + "{}", None, DamagedLog, "cannot be read", id="something after it"),
        pytest.param("clock_read", CLOCK, "{}", DamagedLog, "has no content", id="content where none can be"),
        pytest.param(
            "cancel_requested",
            '{"kind":"cancel_requested","at":1,"content":{"reason":"x"}}',
            None,
            DamagedLog,
            "holds content",
            id="content in the body",
        ),
        pytest.param(
            "cancel_requested",
            '{"kind":"cancel_requested","at":1}',
            "[]",
            DamagedLog,
            "content",
            id="a content of []",
        ),
        pytest.param(
            "cancel_requested",
            '{"kind":"cancel_requested","at":1}',
            "",
            DamagedLog,
            "content",
            id="an empty content",
        ),
        pytest.param(
            "cancel_requested",
            '{"kind":"cancel_requested","at":1,"by":7}',
            None,
            DamagedLog,
            "by",
            id="a number for a name",
        ),
        pytest.param(
            "model_failed",
            '{"kind":"model_failed","at":1,"request":2,"failure":"moonstruck"}',
            None,
            NewerLog,
            "moonstruck",
            id="an unknown word of a closed vocabulary",
        ),
        pytest.param(
            "model_failed",
            '{"kind":"model_failed","at":"unknown field","request":2,"failure":"other"}',
            None,
            DamagedLog,
            "cannot be read",
            id="a value that reads like our own message",
        ),
        pytest.param(
            "child_born", '{"kind":"child_born","at":1}', None, NewerLog, "'child_born'", id="an unknown kind"
        ),
        pytest.param("child_born", "{", None, DamagedLog, "is not JSON", id="an unknown kind, broken"),
        pytest.param(
            "child_born", "[1]", None, NewerLog, "'child_born'", id="an unknown kind that is no mapping"
        ),
        pytest.param(
            "graded",
            '{"annotation":"other","at":1}',
            None,
            NewerLog,
            "'graded'",
            id="an annotation of another name",
        ),
        pytest.param(
            "graded", '{"annotation":"graded"}', None, NewerLog, "'graded'", id="an annotation without time"
        ),
        pytest.param(
            "graded",
            '{"annotation":"graded","at":true}',
            None,
            NewerLog,
            "'graded'",
            id="a time that is true",
        ),
    ],
)
def test_bad_bytes(kind: str, body: str, content: str | None, error: type[Exception], problem: str) -> None:
    """What cannot be read is an error that says where and what: damaged, or newer than this version."""
    raw = None if content is None else content.encode()
    with pytest.raises(error, match=r"run r1 event 9: ") as caught:
        decode(kind, body.encode(), raw, run="r1", seq=9)
    assert problem in str(caught.value)


def test_bytes_that_are_no_utf8() -> None:
    """A body that is no UTF-8 is damaged."""
    with pytest.raises(DamagedLog):
        decode("cancel_requested", b'{"kind":"cancel_requested","at":1,"by":"\xff"}')


def test_nesting_beyond_reason() -> None:
    """A body nested a hundred thousand deep is damaged, and no crash."""
    with pytest.raises(DamagedLog):
        decode("child_born", b"[" * 100_000)
    with pytest.raises(DamagedLog):
        decode("run_started", b'{"kind":"run_started","policy":{"guards":[' + b"[" * 100_000)


def test_an_unknown_annotation_is_kept_as_bytes() -> None:
    """A newer version's annotation is skipped, its bytes untouched."""
    body = b'{"annotation":"graded","at":5,  "score":3}'
    assert UnknownAnnotation(at=5, of="graded", body=body) == decode("graded", body)


def test_the_errors_say_what_to_do() -> None:
    """A newer log says that the newer version is to be installed, with a code of its own."""
    with pytest.raises(NewerLog, match="install that version") as caught:
        decode("child_born", b"{}", run="r1", seq=2)
    assert 125 == caught.value.exit_code
    with pytest.raises(DamagedLog) as damaged:
        decode("clock_read", b"{", run="r1", seq=2)
    assert (3, "r1", 2) == (damaged.value.exit_code, damaged.value.run, damaged.value.seq)


def old_to_new(body: dict[str, Any]) -> dict[str, Any]:
    """A clock that an older version wrote: `instant` was the name of `due`."""
    return {"kind": body["kind"], "at": body["at"], "due": body["instant"]}


def test_upcaster() -> None:
    """An old body is converted on read, today's is not touched, and a hopeless one stays damaged."""
    hooks = {"clock_read": old_to_new}
    old = b'{"kind":"clock_read","at":1,"instant":2}'
    assert ClockRead(at=1, due=2) == decode("clock_read", old, upcasters=hooks)
    assert ClockRead(at=1, due=3) == decode("clock_read", CLOCK.replace("2}", "3}").encode(), upcasters=hooks)
    for hopeless in (
        b"{",
        b"[]",
        b'{"kind":"clock_read","at":1}',
        b'{"kind":"clock_read","at":1,"instant":"x"}',
    ):
        with pytest.raises(DamagedLog):
            decode("clock_read", hopeless, upcasters=hooks)


@pytest.mark.parametrize(
    ("event", "stored"),
    [
        pytest.param(
            ClockRead(at=1, due=2), Encoded("clock_read", CLOCK.encode(), None), id="a fact without content"
        ),
        pytest.param(
            CancelRequested(at=1, by="ann", content=Reason(reason="why")),
            Encoded(
                "cancel_requested",
                b'{"kind":"cancel_requested","at":1,"by":"ann"}',
                b'{"reason":"why"}',
            ),
            id="a fact with content",
        ),
        pytest.param(
            NoteAdded(at=1, by="ann", content=Remark(text="é")),
            Encoded("note_added", b'{"annotation":"note_added","at":1,"by":"ann"}', '{"text":"é"}'.encode()),
            id="an annotation",
        ),
    ],
)
def test_bytes_by_hand(event: Event, stored: Encoded) -> None:
    """Defaults are left out, text stays UTF-8, content stands apart: the bytes on disk are for ever."""
    assert stored == encode(event)


def test_which_kinds_have_content() -> None:
    """What was said stands apart in exactly these kinds."""
    assert {
        "run_started",
        "run_forked",
        "model_responded",
        "model_failed",
        "tool_returned",
        "doubt_resolved",
        "input_received",
        "approval_answered",
        "context_observed",
        "summary_returned",
        "cancel_requested",
        "policy_amended",
        "model_requested",
        "call_refused",
        "message_injected",
        "message_trimmed",
        "summary_requested",
        "late_result",
        "note_added",
        "diagnosed",
        "source_recorded",
    } == set(CONTENTS)


@pytest.mark.parametrize(
    ("kind", "body", "content"),
    [
        pytest.param(
            "model_responded",
            '{"kind":"model_responded","at":1,"request":2,"stop":"tool_use","calls":[{"id":"c1","name":"x"}]}',
            '{"text":"hm"}',
            id="a call without arguments",
        ),
        pytest.param(
            "message_injected",
            '{"kind":"message_injected","role":"user","text":"continue","cause":"nudge","size":{"chars":1,"tokens":1}}',
            '{"texts":[]}',
            id="words that are not there",
        ),
    ],
)
def test_a_content_of_other_things_than_its_body(kind: str, body: str, content: str) -> None:
    """A content that speaks of more or fewer things than its body is damage, and breaks nothing later."""
    with pytest.raises(DamagedLog, match="does not match its body"):
        decode(kind, body.encode(), content.encode())
