"""Checks of arguments that all stores share, the lineage of forks, and pages of results.

A fork's log begins right after an event of its parent: its first event is number N + 1, names the parent, N
and the hash of event N, and is chained to that hash. So the prefix is stored once, and verifying the fork
verifies its prefix. The lineage is recorded only in these events: there is no table that could be lost or
could contradict them.

The parent is the run whose own log contains event N. So the event number falls with each step of a lineage,
and even a forged lineage ends.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from math import ceil
from typing import Generic, NamedTuple, TypeVar

import msgspec

from refold.reducers.errors import DamagedLog, WrongUse
from refold.store.chain import DIGEST
from refold.store.protocol import Lease, Origin, Record, Seal, SealedHead
from refold.store.verify_bundle import NEWEST

MAX_SEQ = 2**32 - 1
"""Maximum number of events in a run: a stored key has 32 bits for the event's number."""

# Ids are printed in lines and messages: line breaks and terminal control characters are not allowed.
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_MIN_AT, _MAX_AT = -(2**63), 2**63 - 1
_MAX_SECONDS = 1e9


def check_append(run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> None:
    """Check the arguments of an append. Raises `WrongUse`."""
    check_run(run)
    if lease.run != run:
        raise WrongUse(f"run {run}: the lease is for run {lease.run!r}; take one with `lease({run!r})`")
    if not records:
        raise WrongUse(f"run {run}: an append needs at least one record")
    if expected_seq < 0 or expected_seq + len(records) > MAX_SEQ:
        raise WrongUse(
            f"run {run}: expected_seq {expected_seq} is not between 0 and {MAX_SEQ - len(records)}"
        )
    for index, record in enumerate(records):
        if problem := _problem(record):
            raise WrongUse(f"run {run}: record {index} of the append ({record.kind!r}): {problem}")


def check_erasure(run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record) -> None:
    """Check the arguments of an erasure. Raises `WrongUse`."""
    check_append(run, expected_seq, lease, [notice])
    if not seqs:
        raise WrongUse(f"run {run}: no events to erase; name at least one")


def check_run(run: str) -> None:
    """Check the id of a run. Raises `WrongUse`."""
    if not can_name(run):
        raise WrongUse(
            f"run id {run!r}: expected non-empty text without control characters, line breaks and lone surrogates"
        )


def check_new_run(run: str) -> None:
    """Check the id of a new run. Raises `WrongUse` if the commands would read it as something else.

    Readers accept every id that passes `check_run`: the log may be older or written by another program.
    """
    odd = not run.isprintable() or any(map(str.isspace, run)) or "@" in run
    if not run or odd or run == NEWEST or run.startswith("-") or run.endswith(".zip"):
        problem = (
            "expected printable text without spaces and @, not *, not beginning with -, not ending in .zip"
        )
        raise WrongUse(f"run id {run!a}: {problem}; the command line cannot address such a run")


def check_holder(holder: str) -> None:
    """Check the name of a lease's holder. Raises `WrongUse`."""
    if not can_name(holder):
        raise WrongUse(f"holder {holder!r}: expected one line of non-empty text")


def milliseconds(seconds: float) -> int:
    """Convert seconds to whole milliseconds, rounded up. Raises `WrongUse` if negative or too large."""
    if not 0 <= seconds <= _MAX_SECONDS:  # false for nan, too
        raise WrongUse(f"{seconds} seconds are not between 0 and {_MAX_SECONDS:.0f}")
    return ceil(seconds * 1000)


def check_erase(run: str, head: int, seq: int, digest: bytes | None) -> None:
    """Check that event `seq` exists and had content; `head` is the last event's number. Raises `WrongUse`."""
    if not 0 < seq <= head:
        raise WrongUse(f"run {run} has no event {seq}: its last is {head}")
    if digest is None:
        raise WrongUse(f"event {seq} of run {run} was recorded without a payload: there is nothing to erase")


def check_seal(heads: Sequence[SealedHead], seal: Seal) -> None:
    """Check a seal and its new entries of the log of heads. Raises `WrongUse`."""
    wanted = range(seal.size - len(heads) + 1, seal.size + 1)
    if [each.place for each in heads] != [*wanted] or wanted.start < 1:
        raise WrongUse(f"the places of the entries do not count up to the seal's size, {seal.size}")
    for each in heads:
        check_run(each.run)
        if not 0 < each.seq <= MAX_SEQ or len(each.hash) != DIGEST:
            raise WrongUse(f"entry {each.place}: an event has a number from 1 and a hash of {DIGEST} bytes")
    if (len(seal.root), len(seal.key), len(seal.signature)) != (DIGEST, 32, 64):
        raise WrongUse("a seal has a root of 32 bytes, a key of 32 and a signature of 64")
    if not _MIN_AT <= seal.at <= _MAX_AT:
        raise WrongUse(f"the seal's time is {seal.at}, beyond 64 bits")


def can_name(run: str) -> bool:
    """Return whether a run may have this id."""
    return bool(run) and not _UNNAMEABLE.search(run) and _is_utf8(run)


def check_prefix(prefix: str) -> None:
    """Check the prefix of a run's id. Raises `WrongUse`."""
    if prefix:
        check_run(prefix)


def _problem(record: Record) -> str | None:
    # A kind is an identifier, so that a damaged one (read with escapes) cannot look valid.
    if not (record.kind.isascii() and record.kind.isidentifier()):
        return "a kind has letters, digits and underscores only"
    if not _MIN_AT <= record.at <= _MAX_AT:
        return f"at is {record.at}, beyond 64 bits"
    content = record.content or b""
    both = record.body + content
    if record.content_digest is not None and (problem := _digest_problem(record, record.content_digest)):
        return problem
    if 0 not in both and both.isascii():  # almost always
        return None
    return _text_problem("body", record.body) or _text_problem("content", content)


def _digest_problem(record: Record, digest: bytes) -> str | None:
    if record.content is not None or record.salt:
        return "it has both the digest of an erased payload and a payload or salt"
    return None if len(digest) == DIGEST else f"a digest is {DIGEST} bytes long, not {len(digest)}"


def _text_problem(name: str, value: bytes) -> str | None:
    # NUL would hide the rest of the text from SQLite's text functions and its shell. JSON has no NUL.
    if 0 in value:
        return f"the {name} has a NUL byte at {value.index(0)}; JSON writes it as \\u0000"
    if value.isascii():
        return None
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"the {name} is not UTF-8 at byte {error.start}"
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


FORKED = "run_forked"
"""The kind of a fork's first event. A store reads only this event's body."""

MOST_ANCESTORS = 64
"""Maximum number of ancestors of a fork."""


class OwnLog(NamedTuple):
    """A run's own log: numbers of its first and last event, and for a fork its origin."""

    first: int
    last: int
    origin: Origin | None


class LogPart(NamedTuple):
    """A part of a log, in the own log of `run`: the events with `after < seq <= upto`."""

    run: str
    after: int
    upto: int


class _Forked(msgspec.Struct, frozen=True):
    parent: str
    parent_seq: int
    parent_hash: str


_DECODER = msgspec.json.Decoder(_Forked)


def origin_of(first: int, kind: str, body: bytes) -> Origin | None:
    """Return the origin that the first event of a log, number `first`, names; None if it is not a fork.

    Also None for an invalid body; readers of the log then report the missing events.
    """
    if first <= 1 or kind != FORKED:
        return None
    try:
        said = _DECODER.decode(body)
        hashed = bytes.fromhex(said.parent_hash)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    there = said.parent_seq == first - 1 and can_name(said.parent)
    return Origin(run=said.parent, seq=said.parent_seq, hash=hashed) if there else None


def trace_lineage(run: str, own: Callable[[str], OwnLog | None]) -> list[Origin]:
    """Return the fork points of the ancestors of `run`, oldest first; empty if it is not a fork.

    `own` looks up a run's own log and returns None if it has no events. Raises `DamagedLog` for a lineage
    with a missing ancestor.
    """
    found, at = list[Origin](), own(run)
    while at is not None and at.origin is not None:
        origin, parent = at.origin, own(at.origin.run)
        if parent is None or not parent.first <= origin.seq <= parent.last:
            raise DamagedLog(run, at.first, f"{_describe(origin)}, which is not in this store")
        if len(found) == MOST_ANCESTORS:
            raise DamagedLog(run, at.first, f"it has more than {MOST_ANCESTORS} ancestors")
        found.append(origin)
        at = parent
    return found[::-1]


def pieces(run: str, last: int, lineage: Sequence[Origin]) -> list[LogPart]:
    """Return the parts of the run's complete log in order, up to event `last`."""
    found, after = list[LogPart](), 0
    for origin in lineage:
        found.append(LogPart(origin.run, after, origin.seq))
        after = origin.seq
    return [*found, LogPart(run, after, last)]


def check_origin(run: str, origin: Origin, hashed: bytes | None, depth: int) -> None:
    """Check the origin of a new fork. Raises `WrongUse`.

    `hashed` is the hash of that event in the parent's own log, None if it is missing; `depth` is the number
    of ancestors that the fork would have.
    """
    if hashed is None:
        raise WrongUse(
            f"run {run}: {_describe(origin)}, which this store does not have in that run's own log"
        )
    if hashed != origin.hash:
        raise WrongUse(
            f"run {run}: {_describe(origin)}, which has the hash {hashed.hex()}, not the one given"
        )
    if depth > MOST_ANCESTORS:
        raise WrongUse(
            f"run {run}: run {origin.run} has {MOST_ANCESTORS} ancestors already; fork an earlier run"
        )


def check_link(run: str, origin: Origin, hashed: object) -> None:
    """Raise `DamagedLog` unless the fork's origin exists and has the hash that the fork recorded."""
    if hashed != origin.hash:
        has = (
            f"has the hash {hashed.hex()}, not the recorded one"
            if isinstance(hashed, bytes)
            else "is missing"
        )
        raise DamagedLog(run, origin.seq + 1, f"{_describe(origin)}, which {has}")


def inherited_error(run: str, seq: int, owner: str) -> WrongUse:
    """Return the error for erasing, through a fork, an event of its ancestor `owner`."""
    return WrongUse(f"event {seq} of run {run} belongs to run {owner}, of which it is a fork: erase it there")


def _describe(origin: Origin) -> str:
    return f"it is a fork after event {origin.seq} of run {origin.run}"


ROWS = 512
"""Maximum rows of a chunk."""

BYTES = 2**20
"""Size in bytes at which a chunk ends. It may be larger by one row, because rows are not split."""

T = TypeVar("T")


class Pages(Generic[T], AsyncIterator[Sequence[T]]):
    """Chunks from a function that returns the next one, or an empty one at the end.

    This is not an async generator, because the event loop would have to finalise a generator that a reader
    leaves early (trio warns about that). Nothing is open between two chunks, so a slow reader does not block
    checkpoints.
    """

    def __init__(self, following: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._following = following

    async def __anext__(self) -> Sequence[T]:
        page = await self._following()
        if not page:
            raise StopAsyncIteration
        return page
