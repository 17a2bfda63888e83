"""The hash chain: its bytes, by hand, and what it finds."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.store import GENESIS, Head, Record, Stored, check
from refold.store.chain import digest, extend, header

START = Head(seq=0, hash=GENESIS)
FIRST = Record(at=1700000000000000000, kind="run_started", body=b'{"task":1}')
SECOND = Record(
    at=1700000000000000001, kind="note_added", body=b"{}", content='"ß"'.encode(), salt=b"0123456789abcdef"
)

records = st.builds(
    Record,
    at=st.integers(0, 2**63 - 1),
    kind=st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
    body=st.text(min_size=1).map(str.encode),
    content=st.none() | st.text().map(str.encode),
    salt=st.binary(min_size=16, max_size=16),
)
chains = st.lists(records, min_size=1, max_size=4).map(lambda new: extend("r", START, new))


def test_the_bytes_of_the_chain() -> None:
    """The hashes of two events are the ones that the documented format gives by hand."""
    one = sha256(
        bytes(32)
        + b"6:sha2566:run-\xc3\xa41:119:170000000000000000011:run_started"
        + sha256(b'{"task":1}').digest()
    ).digest()
    content_digest = sha256(b'16:0123456789abcdef"\xc3\x9f"').digest()
    two = sha256(
        one
        + b"6:sha2566:run-\xc3\xa41:219:170000000000000000110:note_added"
        + sha256(b"{}").digest()
        + content_digest
    ).digest()
    got = extend("run-ä", START, [FIRST, SECOND])
    assert [(1, one, None), (2, two, content_digest)] == [(e.seq, e.hash, e.content_digest) for e in got]


def test_the_hashes_never_change() -> None:
    """A log written by the first version still verifies: these hashes are in files out there."""
    got = extend("r", START, [FIRST, SECOND])
    assert [
        "d954ed6740639740e05c784d9d72ea1401659f30b557f6125d06b21ee9a54fde",
        "87847ecbeb92ed0ec697eda959acb1e0a6344751399e4d3cc395c181b80a4e03",
    ] == [event.hash.hex() for event in got]


@given(chains)
def test_what_was_chained_checks(events: list[Stored]) -> None:
    """Every event that `extend` made passes `check` after the one before it."""
    heads = [START, *(Head(seq=e.seq, hash=e.hash) for e in events)]
    assert [None] * len(events) == [check(e, head) for e, head in zip(events, heads, strict=False)]


@given(events=chains, cut=st.integers(0, 4))
def test_prefix_and_rest_are_the_whole(events: list[Stored], cut: int) -> None:
    """Appending in two goes gives the hashes of appending at once."""
    new = [Record(at=e.at, kind=e.kind, body=e.body, content=e.content, salt=e.salt) for e in events]
    first = extend("r", START, new[:cut])
    head = Head(seq=first[-1].seq, hash=first[-1].hash) if first else START
    assert events == first + extend("r", head, new[cut:])


@given(event=chains.map(lambda events: events[0]), data=st.data())
def test_any_change_of_one_byte_is_found(event: Stored, data: st.DataObject) -> None:
    """No byte of body, content, salt, digest, hash, kind or run can change, nor a bit of `at`, unseen."""
    field = data.draw(st.sampled_from([name for name in event.__struct_fields__ if getattr(event, name)]))
    changed = msgspec.structs.replace(event, **{field: _other(getattr(event, field), data)})
    assert check(changed, START) is not None


def _other(value: bytes | str | int, data: st.DataObject) -> bytes | str | int:
    """The value with one byte, character or bit changed."""
    if isinstance(value, int):
        return value ^ (1 << data.draw(st.integers(0, 62)))
    index = data.draw(st.integers(0, len(value) - 1))
    if isinstance(value, str):
        char = data.draw(st.characters(codec="utf-8").filter(lambda c: c != value[index]))
        return value[:index] + char + value[index + 1 :]
    byte = value[index] ^ data.draw(st.integers(1, 255))
    return value[:index] + bytes([byte]) + value[index + 1 :]


@given(events=st.lists(records, min_size=3, max_size=3), data=st.data())
def test_a_change_is_found_at_its_event_or_the_next(events: list[Record], data: st.DataObject) -> None:
    """A changed hash is found where it stands, and only there: later events are not blamed."""
    one, two, three = extend("r", START, events)
    changed = msgspec.structs.replace(two, hash=_other(two.hash, data))
    assert check(changed, Head(seq=1, hash=one.hash)) is not None
    assert check(three, Head(seq=2, hash=two.hash)) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"body": b"{ }"}, "its hash is", id="body"),
        pytest.param({"kind": "note_edited"}, "its hash is", id="kind"),
        pytest.param({"at": 1}, "its hash is", id="at"),
        pytest.param({"run": "q"}, "its hash is", id="moved to another run"),
        pytest.param({"hash": b""}, "its hash is empty", id="no hash"),
        pytest.param({"content": b'"x"'}, "its payload, salt or digest", id="content"),
        pytest.param({"content": b""}, "its payload, salt or digest", id="emptied content"),
        pytest.param({"salt": b""}, "its payload, salt or digest", id="salt"),
        pytest.param({"content_digest": None}, "the payload was added later", id="digest taken away"),
        pytest.param({"content_digest": bytes(32)}, "its payload, salt or digest", id="digest"),
        pytest.param({"content_digest": b""}, "its content digest is 0 bytes", id="digest emptied"),
        pytest.param(
            {"content": None, "salt": b"", "content_digest": bytes(31)},
            "its content digest is 31 bytes",
            id="digest cut",
        ),
        pytest.param({"hash": bytes(31)}, "its hash is", id="hash cut"),
        pytest.param({"content": None}, "a salt but no payload", id="content gone, salt left"),
        pytest.param(
            {"content": None, "salt": b"", "content_digest": None},
            "its hash is",
            id="all of the content gone",
        ),
        pytest.param(
            {"salt": SECOND.salt + b'"', "content": b'\xc3\x9f"'},
            "its payload, salt or digest",
            id="byte moved to salt",
        ),
        pytest.param({"seq": 3}, "event 2 is missing", id="one missing"),
        pytest.param({"seq": 9}, "events 2 to 8 are missing", id="many missing"),
        pytest.param({"seq": 1}, "a duplicate or out of order", id="doubled"),
        pytest.param({"seq": 0}, "events are numbered from 1", id="before the first"),
    ],
)
def test_check_names_what_differs(change: dict[str, object], problem: str) -> None:
    """The sentence says what was changed, as far as it can be known."""
    one, two = extend("r", START, [FIRST, SECOND])
    said = check(msgspec.structs.replace(two, **change), Head(seq=1, hash=one.hash))
    assert said is not None
    assert problem in said


def test_no_content_cannot_become_erased_content() -> None:
    """An empty digest, which hashes like none, does not make an event look like one with its content
    erased.
    """
    (one,) = extend("r", START, [FIRST])
    said = check(msgspec.structs.replace(one, content_digest=b""), START)
    assert said == "its content digest is 0 bytes long, not 32: it was changed"


def test_a_swap_is_found() -> None:
    """Two events that changed places, numbers included, are found at the first of them."""
    one, two, three = extend("r", START, [FIRST, SECOND, FIRST])
    swapped = msgspec.structs.replace(three, seq=2)
    assert "its hash is" in (check(swapped, Head(seq=1, hash=one.hash)) or "")
    assert check(two, Head(seq=1, hash=one.hash)) is None


def test_content_may_be_erased() -> None:
    """The chain holds when content and salt are gone and the digest is left."""
    one, two = extend("r", START, [FIRST, SECOND])
    assert check(msgspec.structs.replace(two, content=None, salt=b""), Head(seq=1, hash=one.hash)) is None


def test_no_content_is_not_empty_content() -> None:
    """An event without content has another hash than one whose content is empty."""
    none, empty = (Record(at=0, kind="k", body=b"{}", content=content) for content in (None, b""))
    assert extend("r", START, [none])[0].hash != extend("r", START, [empty])[0].hash


text = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(["1:", "1:1", "11"])
headers = st.tuples(text, st.integers(0, 200), st.integers(-5, 200), text)


@given(headers, headers)
def test_headers_are_read_in_one_way(
    one: tuple[str, int, int, str], other: tuple[str, int, int, str]
) -> None:
    """Different headers have different bytes, and none begins another."""
    if one != other:
        assert not header(*one).startswith(header(*other))


@given(*[st.binary(max_size=20)] * 4)
def test_salt_and_content_do_not_mix(salt: bytes, content: bytes, salt2: bytes, content2: bytes) -> None:
    """No other split of the same bytes into salt and content has the same digest."""
    assert ((salt, content) == (salt2, content2)) == (digest(salt, content) == digest(salt2, content2))
    joined = salt + content
    for cut in range(len(joined) + 1):
        assert (cut == len(salt)) == (digest(joined[:cut], joined[cut:]) == digest(salt, content))
