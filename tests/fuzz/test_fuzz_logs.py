"""Logs that nobody's engine wrote: each is read, or refused by one of our errors, by every verb."""

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from fuzz.asking import assert_sound, error_of, examples, refold, told, within
from fuzz.mutations import EVIL, grown, logs, texts
from fuzz.recordings import recording
from refold.reducers import codec
from refold.reducers.codec import decode
from refold.reducers.errors import Damaged, Inconclusive, WrongUse
from refold.reducers.events import KINDS, Event
from refold.reducers.vocabulary import MOST_DIGITS
from refold.replay import audit, state_at, verify
from refold.store import SqliteStore
from refold.store.chain import GENESIS, CheckedPages, extend
from refold.store.checks import Pages
from refold.store.durability import Durability
from refold.store.protocol import Head, Record, Store, Stored
from support import golden
from support.forging import write

NAMES = st.sampled_from(golden.names())


class Events:
    """A store of one log, and of what no store would take."""

    def __init__(self, events: Sequence[Stored]) -> None:
        self._events = events

    async def durability(self) -> Durability:
        return Durability()

    def __repr__(self) -> str:
        return f"{len(self._events)} events"

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> AsyncIterator[Sequence[Stored]]:
        first = after - 1 if checked else after
        pages = [[one for one in self._events if first < one.seq <= (upto or one.seq)]]

        async def following() -> Sequence[Stored]:
            return pages.pop() if pages else ()

        return CheckedPages(Pages(following), after) if checked else Pages(following)

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        assert checked, "nobody asks this store for a piece of what was edited"
        return [one for one in self._events if one.seq in seqs]

    async def head(self, run: str) -> Head:
        return Head(seq=0, hash=GENESIS)

    async def check(self) -> None:
        """Nothing hides events of a list."""


def chained(log: Sequence[Record]) -> Store:
    """The log with a chain that holds: as somebody would forge it."""
    return cast("Store", Events(extend("r1", Head(seq=0, hash=GENESIS), log)))


@examples(200)
@given(data=st.data(), name=NAMES, bare=st.booleans())
def test_any_forged_log(data: st.DataObject, name: str, bare: bool) -> None:
    """A log that was changed, its chain computed anew, gives an answer or one of our errors, whatever is
    asked.
    """
    store = chained(data.draw(logs(recording(name, bare=bare))))
    with within():
        anyio.run(told, store, "r1")


@examples(60)
@given(data=st.data(), name=NAMES)
def test_any_edited_log(data: st.DataObject, name: str) -> None:
    """So does one whose chain was left as it was; and `verify` finds the first event that is another."""
    log = recording(name, bare=True)
    before = extend("r1", Head(seq=0, hash=GENESIS), log)
    after = extend("r1", Head(seq=0, hash=GENESIS), data.draw(logs(log)))
    edited = [replace(one, hash=old.hash) for one, old in zip(after, before, strict=False)]
    store = cast("Store", Events(edited))
    first = next((new.seq for new, old in zip(edited, before, strict=False) if new != old), None)
    with within():
        anyio.run(told, store, "r1")
        if first is not None:
            found = anyio.run(verify, store, "r1")
            assert found.problem is not None
            assert found.problem.seq <= first


_KINDS = st.sampled_from([*KINDS, "dreamt", ""])
_ANY = st.one_of(
    st.binary(max_size=300), st.sampled_from(EVIL).map(lambda text: text.encode(errors="surrogatepass"))
)


@examples(200)
@given(kind=_KINDS, body=_ANY, content=st.none() | _ANY)
def test_any_bytes_as_a_record(kind: str, body: bytes, content: bytes | None) -> None:
    """Whatever stands where a body and a content should, the decoder gives an event or says that the log is
    at fault.
    """
    with within():
        decoded(kind, body, content)


@examples(200)
@given(data=st.data(), name=NAMES)
def test_any_changed_record(data: st.DataObject, name: str) -> None:
    """So does one in which a value was changed for another, or bytes were flipped."""
    record = data.draw(st.sampled_from(recording(name)))
    content = data.draw(texts(record.content)) if record.content else None
    body = data.draw(st.one_of(texts(record.body), st.just(record.body)))
    with within():
        decoded(record.kind, body, content)


def decoded(kind: str, body: bytes, content: bytes | None) -> None:
    error = error_of(lambda: _encoded(kind, decode(kind, body, content, run="r1", seq=7)))
    if error is not None:
        assert isinstance(error, Damaged | Inconclusive)
        assert "run r1 event 7" in str(error)
        assert len(str(error)) < 1000


def _encoded(kind: str, event: Event) -> None:
    if kind in KINDS:
        codec.encode(event)


@pytest.mark.parametrize(
    ("digits", "readable"),
    [(MOST_DIGITS, True), (MOST_DIGITS + 1, False), (4300, False), (4301, False), (10**6, False)],
)  # fmt: skip
def test_a_number_has_so_many_digits(digits: int, readable: bool) -> None:
    """A number of `MOST_DIGITS` digits is read in any body, a longer one is damage; digits in a text are no
    number.
    """
    number = b"9" * digits
    assert "DamagedLog" == outcome("clock_read", b'{"kind":"clock_read","at":1,"due":-1%b}' % number)
    known = b'{"kind":"clock_read","at":1,"due":%b}' % number
    unknown = b'{"annotation":"dreamt","at":1,"more":[{"x":%b}]}' % number
    for kind, body in (("clock_read", known), ("dreamt", unknown)):
        assert ("" if readable else "DamagedLog") == outcome(kind, body)
    assert "" == outcome("note_added", b'{"annotation":"note_added","at":1,"by":":%b"}' % number)


def outcome(kind: str, body: bytes) -> str:
    error = error_of(lambda: decode(kind, body))
    return type(error).__name__ if error else ""


@pytest.mark.parametrize("name", golden.names())
def test_sums_of_the_longest_numbers(name: str) -> None:
    """Of a log full of the longest numbers there are, every sum can be written out, under Python's own
    settings.
    """

    async def judged(field: str) -> None:
        store = chained(grown(recording(name, bare=True), field))
        await told(store, "r1")
        json.encode(await audit(store, "r1"))
        json.encode(await verify(store, "r1"))

    for field in (
        "duration|chars|tokens|input|output|cost_nanousd",
        "until|delay|deadline",
        "(?!format)[a-z_]+",
    ):
        anyio.run(judged, field)


COMMANDS = (
    ("ls",), ("show", "r1"), ("show", "r1", "--all"), ("show", "r1", "--raw"), ("state", "r1"), ("view", "r1"),
    ("view", "r1@t2"), ("why", "r1"), ("why", "r1@e5"), ("verify", "r1"), ("audit", "r1"),
)  # fmt: skip


@examples(40)
@given(data=st.data(), name=NAMES, words=st.sampled_from(COMMANDS), form=st.sampled_from(["text", "json"]))
def test_every_command_on_any_forged_log(
    data: st.DataObject,
    name: str,
    words: tuple[str, ...],
    form: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What stands in a forged log reaches no terminal but as plain text, and ends no command by an error that
    is not ours.
    """
    path = tmp_path_factory.getbasetemp() / "forged.db"
    for each in path.parent.glob("forged.db*"):
        each.unlink()
    if anyio.run(stored, path, data.draw(logs(recording(name, bare=True)))):
        assert_sound(refold(*words, "-o", form, "--store", path))


async def stored(path: Path, log: list[Record]) -> bool:
    """Whether a store takes the log: it refuses what is no text."""
    async with await SqliteStore.open(path, durability="process") as store:
        try:
            await write(store, "r1", log)
        except WrongUse:
            return False
    return True


@pytest.mark.parametrize("ask", [verify, audit, state_at], ids=lambda ask: ask.__name__)
def test_memory_is_bounded_by_the_largest_event(
    ask: Callable[[Store, str], Awaitable[object]], tmp_path: Path
) -> None:
    """A text of 8 MB takes no more than `COPIES` times its size, whoever reads the log that holds it."""
    size, path = 8 << 20, tmp_path / "runs.db"
    log = list(recording("two_tools_then_an_answer", bare=True))
    place = next(place for place, one in enumerate(log) if one.kind == "tool_returned")
    log[place] = replace(log[place], content=json.encode({"output": "x" * size}))

    async def asked() -> None:
        async with await SqliteStore.open(path, readonly=True) as store:
            await ask(store, "r1")

    assert anyio.run(stored, path, log)
    anyio.run(asked)  # what is imported and cached on the way is not counted
    tracemalloc.start()
    try:
        anyio.run(asked)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < COPIES * size + (4 << 20), peak / size


COPIES = 6
"""How many copies of its largest event a reader has at a time, at most: docs/reference/bad-input.md."""


def test_a_clock_for_a_person_whom_nobody_waits_for() -> None:
    """A log that asks a person, and does not wait, is followed past the deadline of what was asked."""
    log = list(recording("approvals_with_a_person", bare=True))
    place = next(place for place, one in enumerate(log) if one.kind == "approval_requested")
    at = log[place].at
    asked = replace(log[place], body=log[place].body[:-1] + b',"deadline":%d}' % at)
    clock = Record(at=at, kind="clock_read", body=b'{"kind":"clock_read","at":%d,"due":%d}' % (at, at))
    found = anyio.run(audit, chained([*log[:place], asked, clock]), "r1")
    assert (place + 2, "") == (found.events, found.damaged)
