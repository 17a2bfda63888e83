"""The hash chain, which makes edits of stored events evident.

Every event has a hash over itself and the hash before it:

    hash   = sha256(previous || header || sha256(body) || digest)
    header = framed("sha256") || framed(run) || framed(seq) || framed(at) || framed(kind)
    digest = sha256(framed(salt) || content), and no bytes at all for an event without content
    framed(x) = the length of x in bytes, in decimal, then ":", then x

`||` joins bytes. Text is UTF-8, integers are decimal without leading zeros, hashes are their 32 raw bytes,
and salt, body and content are the bytes as stored. The hash before a run's first event is `GENESIS`, 32 zero
bytes. The header names the run, so two runs with equal events have different hashes.

Framing makes the input unambiguous: no byte can move from one field to the next without changing the hash. An
event without content hashes 32 bytes less than one with empty content, so these two differ.

The digest of the content is stored beside it. Erasing removes content and salt and leaves the digest, so the
chain remains valid. Without the salt, a short erased text cannot be found by hashing guesses.

A chain without a key proves the absence of accidents and careless edits only. A writer of the file can
compute the chain again, and no chain shows that events were removed at the end: that requires signed or
separately stored heads.

A store yields the events of a log up to the first damaged one and then raises, because readers would trust
edited text. Code that verifies logs itself reads with `checked=False`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

from refold.reducers.errors import DamagedLog
from refold.store.protocol import Head, Record, Stored

ALGORITHM = "sha256"
DIGEST = 32
"""Length in bytes of a digest or hash."""
GENESIS = bytes(DIGEST)
"""The hash before the first event of every run."""
START = Head(seq=0, hash=GENESIS)
"""The head of a run without events, before event 1."""


SALT = 16
"""Length in bytes of a salt."""


def seeded_salt(seed: int, seq: int) -> bytes:
    """Return the salt of event `seq` of a run with a chosen seed; erased payloads of it can be guessed."""
    return sha256(f"{seed}|{seq}".encode()).digest()[:SALT]


def header(run: str, seq: int, at: int, kind: str) -> bytes:
    """Return the bytes of an event's header as they are hashed, including the algorithm."""
    return b"%b%b%b%b%b" % (_ALGORITHM, _framed(run), _framed_number(seq), _framed_number(at), _framed(kind))


def _framed_number(number: int) -> bytes:
    data = b"%d" % number
    return b"%d:%b" % (len(data), data)


@lru_cache(maxsize=1024)  # few different ids and kinds
def _framed(text: str) -> bytes:
    data = text.encode()
    return b"%d:%b" % (len(data), data)


_ALGORITHM = _framed(ALGORITHM)


def digest(salt: bytes, content: bytes) -> bytes:
    """Return the digest of a content, 32 bytes, which stays when the content is erased."""
    return sha256(b"%d:%b%b" % (len(salt), salt, content)).digest()


def link(previous: bytes, head: bytes, body: bytes, content_digest: bytes | None) -> bytes:
    """Return the hash, 32 bytes, of the event after `previous`; `head` is the result of `header`."""
    return sha256(previous + head + sha256(body).digest() + (content_digest or b"")).digest()


Link = tuple[int, int, str, bytes, bytes | None, bytes | None, bytes, bytes | None]
"""Place, time, kind, hash, content digest, salt, body and content of an event to be appended."""


def links(run: str, head: Head, records: Sequence[Record], before: int = 0) -> list[Link]:
    """Number and chain the records as events after `head`. The place of an event is its number plus `before`.

    A salt without content is dropped.
    """
    # `digest`, `header` and `link` in one loop, for speed: every written event passes here.
    previous, begin = head.hash, _ALGORITHM + _framed(run)
    made: list[Link] = []
    seq, now, stamp = head.seq, None, b""
    for record in records:
        at, body, content, salt = record.at, record.body, record.content, record.salt
        said, kept = record.content_digest, None
        if content is not None:
            said, kept = digest(salt, content), salt or None
        if at != now:
            now, stamp = at, _framed_number(at)
        seq += 1
        parts = (
            previous,
            begin,
            _framed_number(seq),
            stamp,
            _framed(record.kind),
            sha256(body).digest(),
            said or b"",
        )
        previous = sha256(b"".join(parts)).digest()
        made.append((before + seq, at, record.kind, previous, said, kept, body, content))
    return made


def extend(run: str, head: Head, records: Sequence[Record]) -> list[Stored]:
    """Number and chain the records as events after `head`. A salt without content is dropped."""
    return [
        Stored(
            run=run,
            seq=seq,
            at=at,
            kind=kind,
            body=body,
            content=content,
            salt=salt or b"",
            hash=hash_,
            content_digest=content_digest,
        )
        for seq, at, kind, hash_, content_digest, salt, body, content in links(run, head, records)
    ]


def count_intact(events: Sequence[Stored], previous: Head) -> int:
    """Return how many of the first events after `previous` are intact: see `check`."""
    # `check` in one loop, for speed: every event that is read passes here.
    seq, last, begin, run, now, stamp = previous.seq, previous.hash, b"", None, None, b""
    for place, event in enumerate(events):
        seq += 1
        said, content, salt = event.content_digest, event.content, event.salt
        if event.run != run:
            run = event.run
            begin = _ALGORITHM + _framed(run)
        if event.at != now:
            now = event.at
            stamp = _framed_number(now)
        if content is not None:
            words = sha256(b"%d:%b" % (len(salt), salt))
            words.update(content)
            whole = words.digest() == said
        else:
            whole = not salt and (said is None or len(said) == DIGEST)
        parts = (
            last,
            begin,
            _framed_number(seq),
            stamp,
            _framed(event.kind),
            sha256(event.body).digest(),
            said or b"",
        )
        last = event.hash
        if not whole or event.seq != seq or sha256(b"".join(parts)).digest() != last:
            return place
    return len(events)


def check(stored: Stored, previous: Head) -> str | None:
    """Return what is wrong with an event after `previous`, in one sentence; None if it is intact.

    The previous hash is trusted, so a problem is always in the event's own bytes. To check a run, check its
    events in order, each after the *stored* hash of the one before. Erased content is not a problem, and the
    removal of events at the end cannot be detected.
    """
    return (
        _position_problem(stored.seq, previous.seq)
        or _digest_problem(stored)
        or _payload_problem(stored)
        or _hash_problem(stored, previous)
    )


def _position_problem(seq: int, after: int) -> str | None:
    if seq < 1:
        return f"event {seq} is not valid: events are numbered from 1"
    if seq == after + 1:
        return None
    if seq <= after:
        return f"event {seq} follows event {after}: it is a duplicate or out of order"
    missing = f"event {after + 1} is" if seq == after + 2 else f"events {after + 1} to {seq - 1} are"
    return f"{missing} missing before it"


def _digest_problem(stored: Stored) -> str | None:
    # An empty digest hashes like a missing one: an event recorded without content would pass for erased.
    size = DIGEST if stored.content_digest is None else len(stored.content_digest)
    return (
        None if size == DIGEST else f"its content digest is {size} bytes long, not {DIGEST}: it was changed"
    )


def _payload_problem(stored: Stored) -> str | None:
    if stored.content is None:
        return "it has a salt but no payload" if stored.salt else None
    if stored.content_digest is None:
        return "it has a payload, but was recorded without one: the payload was added later"
    if digest(stored.salt, stored.content) != stored.content_digest:
        return "its payload, salt or digest was changed: the digest does not match"
    return None


def _hash_problem(stored: Stored, previous: Head) -> str | None:
    head = header(stored.run, stored.seq, stored.at, stored.kind)
    derived = link(previous.hash, head, stored.body, stored.content_digest)
    if derived == stored.hash:
        return None
    return (
        f"its hash is {stored.hash.hex()[:16] or 'empty'}, expected {derived.hex()[:16]}: "
        "its header, body, digest or the previous hash was changed"
    )


class Checker:
    """Checks the events of one log after `head`, in order, and returns the intact ones."""

    def __init__(self, head: Head = START) -> None:
        self._head = head
        self._problem: DamagedLog | None = None

    def held(self, events: Sequence[Stored]) -> Sequence[Stored]:
        """Return these events up to the first damaged one.

        Raises `DamagedLog` if that is the first of them or came before them.
        """
        self.go_on()
        whole = count_intact(events, self._head)
        self._head = events[whole - 1] if whole else self._head
        if whole < len(events):
            self._problem = find_damage(events[whole], self._head)
        if not whole and events:
            self.go_on()
        return events[:whole]

    def go_on(self) -> None:
        """Raise `DamagedLog` if a damaged event was found."""
        if self._problem is not None:
            raise self._problem


class CheckedPages(AsyncIterator[Sequence[Stored]]):
    """Checked pages of events after event `after`. The source pages begin with that event, because its hash
    is needed to check the next one.
    """

    def __init__(self, pages: AsyncIterator[Sequence[Stored]], after: int) -> None:
        self._pages, self._after = pages, max(after, 0)
        # If that event is missing, the next one cannot be checked: it is reported as following a gap.
        self._checker = Checker(Head(seq=self._after - 1, hash=b"") if self._after else START)

    async def __anext__(self) -> Sequence[Stored]:
        self._checker.go_on()
        page = await anext(self._pages)
        if self._after and page[0].seq == self._after:
            self._checker, self._after, page = Checker(page[0]), 0, page[1:]
        return self._checker.held(page) if page else await anext(self)


def check_each(events: Sequence[Stored], hashes: Mapping[int, bytes]) -> Sequence[Stored]:
    """Check single events of a log, given the hashes of the events before them. Raises `DamagedLog`."""
    for stored in events:
        before = stored.seq - 1
        previous = Head(seq=before, hash=hashes.get(before, b"")) if before else START
        if (problem := find_damage(stored, previous)) is not None:
            raise problem
    return events


def find_damage(stored: Stored, previous: Head) -> DamagedLog | None:
    """Return the error for a damaged event after `previous`; None if it is intact."""
    problem = check(stored, previous)
    if problem is None:
        return None
    if stored.seq == previous.seq + 1:
        problem = f"it is damaged: {problem}; see `refold verify`"
    return DamagedLog(stored.run, stored.seq, problem)
