"""The window: the messages of the next request, as numbers and sizes, without texts.

A message is known by its number in the run. A response with tool calls and all their results are one *unit*,
kept or dropped as a whole, because providers refuse half of a pair. Appending takes constant time: references
are in chunks, and totals, ranges and digest are updated.

The digest is the sum of the messages' digests, each times an odd number of its own, modulo 2**256 (after the
incremental hashing of Bellare and Micciancio, 1997), so a message can be removed without reading the others.
It distinguishes prompts. It does not protect a log from an adversary: the hash chain does.

State digests include the complete references, by `digest_references`, so a change to any reference is
detected. It is computed once in many events, and unchanged chunks are not hashed again.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from hashlib import sha256

import msgspec

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.messages import Gap, Size, TextCut
from refold.reducers.vocabulary import Ranges, Role, Value

# An append copies the last chunk and the tuple of chunks. With this size, both stay short up to some 30,000
# messages.
CHUNK = 128
"""References in each chunk of a window; the last chunk may have fewer."""
_MODULUS = 1 << 256
_EMPTY = bytes(32)
_ENCODER = msgspec.json.Encoder(order="deterministic")


class Shown(Value, frozen=True, kw_only=True):
    """How a message is shortened: head and tail of each cut part, and between them the texts of event `seq`.

    `whole` is the size of the message as recorded.
    """

    seq: int
    whole: Size
    cuts: tuple[TextCut, ...]


class MessageRef(Value, frozen=True, kw_only=True):
    """A message in the window. Its text is in the content of event `seq` (its `part`-th message, from 0).

    `unit` is the number of the response that it belongs to, or its own number. `size` is its event's size, or
    that of the shortened message if `shown` is set. A marker, digest or summary has its event's `gap`;
    `sources` are the messages that it quotes, as they were then. `preview` is the number of characters of a
    result in a preview.
    """

    number: int
    role: Role
    seq: int
    part: int = 0
    unit: int
    size: Size
    call: str | None = None
    pinned: bool = False
    preview: int = 0
    shown: Shown | None = None
    gap: Gap | None = None
    sources: tuple["MessageRef", ...] = ()

    @property
    def whole(self) -> Size:
        """The size of the message as recorded, before any cut."""
        return self.size if self.shown is None else self.shown.whole


class Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Up to 128 references in a row; only the last chunk has fewer."""

    refs: tuple[MessageRef, ...]

    def __len__(self) -> int:
        return len(self.refs)

    def __iter__(self) -> Iterator[MessageRef]:
        return iter(self.refs)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the references in order. Cached, so appending does not hash old chunks again."""
        return sha256(_ENCODER.encode(self.refs)).digest()


Chunks = tuple[Chunk, ...]


class Window(Value, frozen=True, kw_only=True):
    """The messages of the next request. `ranges` are their numbers, as inclusive (first, last) pairs.

    Windows with equal messages have equal digests: clock, run id and provider ids are not included. `sum` and
    `whole` are the estimator's sums over the window and over every message that was ever in it.
    """

    chunks: Chunks = ()
    count: int = 0
    tokens: int = 0
    ranges: Ranges = ()
    digest: bytes = _EMPTY
    system_pinned: bool = False
    task_pinned: bool = False
    estimator: str = "chars4"
    sum: int = 0
    whole: int = 0
    whole_count: int = 0

    @property
    def whole_tokens(self) -> int:
        """Estimated tokens of all messages since the start."""
        return ESTIMATORS[self.estimator].total(self.whole, self.whole_count)


def refs(window: Window) -> list[MessageRef]:
    """Return the references in order."""
    found: list[MessageRef] = []
    for chunk in window.chunks:
        found += chunk.refs
    return found


def digest_references(window: Window) -> bytes:
    """Return SHA-256 of the complete references, in order.

    For a window that only grew, the cost does not depend on its length.
    """
    return sha256(b"".join([chunk.digest for chunk in window.chunks])).digest()


def numbers(messages: Iterable[MessageRef]) -> frozenset[int]:
    """Return the numbers of these messages."""
    return frozenset([ref.number for ref in messages])


def refs_within(window: Window, ranges: Ranges) -> list[MessageRef]:
    """Return the references whose numbers are in these ranges, in order."""
    return [ref for ref in refs(window) if any(first <= ref.number <= last for first, last in ranges)]


def quoted_refs(window: Window, ranges: Ranges) -> tuple[MessageRef, ...]:
    """Return the messages with these numbers as recorded, not as shortened in the window."""
    known = {old.number: old for ref in refs(window) for old in (*ref.sources, ref)}
    numbers = (number for first, last in ranges for number in range(first, last + 1))
    return tuple([known[number] for number in numbers if number in known])


def append(window: Window, ref: MessageRef) -> Window:
    """Append one message. The first system message and the first user message are pinned."""
    return extend(window, (ref,))


def extend(window: Window, added: Sequence[MessageRef]) -> Window:
    """Append messages in order. The result equals appending them one by one."""
    estimator = ESTIMATORS[window.estimator]
    system, task = window.system_pinned, window.task_pinned
    if not (system and task):
        added, system, task = _pin_first(added, system=system, task=task)
    total, ranges, digest = window.sum, window.ranges, int.from_bytes(window.digest)
    for ref in added:
        total += estimator.part(ref.role, ref.size)
        ranges = _extend_ranges(ranges, ref.number)
        digest += _leaf(ref)
    count = window.count + len(added)
    return msgspec.structs.replace(
        window,
        chunks=_extend_chunks(window.chunks, added),
        count=count,
        tokens=estimator.total(total, count),
        ranges=ranges,
        digest=(digest % _MODULUS).to_bytes(32),
        system_pinned=system,
        task_pinned=task,
        sum=total,
        whole=window.whole + total - window.sum,
        whole_count=window.whole_count + len(added),
    )


def insert(window: Window, ref: MessageRef, after: int) -> Window:
    """Insert a message right after the unit of message `after` (0 or unknown: at the front)."""
    messages = refs(window)
    place = next((place for place, found in enumerate(messages, 1) if found.number == after), 0)
    while 0 < place < len(messages) and messages[place].unit == messages[place - 1].unit:
        place += 1
    return _update(window, [*messages[:place], ref, *messages[place:]], (), (ref,))


def insert_results(window: Window, reply: int, results: Sequence[MessageRef]) -> Window:
    """Insert the results of the calls of message `reply` right after it."""
    if not window.count or window.chunks[-1].refs[-1].number == reply:
        return extend(window, results)
    return insert_all(window, [(ref, reply) for ref in results])


def insert_all(window: Window, placed: Iterable[tuple[MessageRef, int]]) -> Window:
    """Insert each message in turn after the unit of the message with that number (0: at the front)."""
    messages, come = refs(window), list[MessageRef]()
    known = {ref.number: ref for ref in messages}
    last = {ref.unit: ref.number for ref in messages}
    following = dict(zip([0, *known], [*known, 0], strict=True))
    for ref, number in placed:
        before = last[known[number].unit] if number in known else 0
        following[ref.number], following[before] = following[before], ref.number
        known[ref.number] = ref
        if ref.unit not in last or last[ref.unit] == before:
            last[ref.unit] = ref.number
        come.append(ref)
    ordered, number = list[MessageRef](), following[0]
    while number:
        ordered.append(known[number])
        number = following[number]
    return _update(window, ordered, (), come)


def without(window: Window, numbers: Set[int]) -> Window:
    """Remove the messages with these numbers."""
    if not numbers:
        return window
    messages = refs(window)
    kept: list[MessageRef] = []
    gone: list[MessageRef] = []
    # Removed messages are mostly at the front: stop looking after the last of them.
    for place, ref in enumerate(messages):
        if ref.number not in numbers:
            kept.append(ref)
            continue
        gone.append(ref)
        if len(gone) == len(numbers):
            kept += messages[place + 1 :]
            break
    return _update(window, kept, gone, (), subtract(window.ranges, [ref.number for ref in gone]))


def tokens_without(window: Window, gone: Sequence[MessageRef]) -> int:
    """Estimate the tokens of the window without these messages."""
    estimator = ESTIMATORS[window.estimator]
    parts = sum([estimator.part(ref.role, ref.size) for ref in gone])
    return estimator.total(window.sum - parts, window.count - len(gone))


def resize(window: Window, number: int, size: Size, shown: Shown | None = None) -> Window:
    """Replace one message by a shortened one."""
    messages = refs(window)
    place = next(place for place, ref in enumerate(messages) if ref.number == number)
    before = messages[place]
    messages[place] = msgspec.structs.replace(before, size=size, shown=shown)
    return _update(window, messages, (before,), (messages[place],), window.ranges)


def adds_up(window: Window) -> bool:
    """Return whether the carried totals, ranges and digest match the references."""
    if window.estimator not in ESTIMATORS:
        return False
    found = refs(window)
    return _update(msgspec.structs.replace(window, sum=0, digest=_EMPTY), found, (), found) == window


def _update(
    window: Window,
    messages: Sequence[MessageRef],
    gone: Sequence[MessageRef],
    come: Sequence[MessageRef],
    ranges: Ranges | None = None,
) -> Window:
    # By difference: a compaction step usually changes little of a window.
    estimator = ESTIMATORS[window.estimator]
    total, digest = window.sum, int.from_bytes(window.digest)
    for ref in come:
        total += estimator.part(ref.role, ref.size)
        digest += _leaf(ref)
    for ref in gone:
        total -= estimator.part(ref.role, ref.size)
        digest -= _leaf(ref)
    return msgspec.structs.replace(
        window,
        chunks=_make_chunks(messages),
        count=len(messages),
        tokens=estimator.total(total, len(messages)),
        ranges=ranges_of([ref.number for ref in messages]) if ranges is None else ranges,
        digest=(digest % _MODULUS).to_bytes(32),
        sum=total,
    )


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return ascending numbers as inclusive (first, last) pairs: 1, 2, 3, 7 becomes (1, 3), (7, 7)."""
    firsts: list[int] = []
    lasts: list[int] = []
    following = None
    for number in numbers:
        if number != following:
            firsts.append(number)
            if following is not None:
                lasts.append(following - 1)
        following = number + 1
    if following is not None:
        lasts.append(following - 1)
    return tuple(zip(firsts, lasts, strict=True))


def numbers_outside(ranges: Ranges, kept: Ranges) -> set[int]:
    """Return the numbers in `ranges` that are not in `kept`. Neither may have overlapping ranges."""
    found: set[int] = set()
    beyond = 1 + max([last for _, last in ranges], default=0)
    staying = iter((*sorted(kept), (beyond, beyond)))
    low, high = next(staying)
    for first, last in sorted(ranges):
        begin = first
        while begin <= last:
            if high < begin:
                low, high = next(staying)
            elif low <= begin:
                begin = high + 1
            else:
                end = min(last, low - 1)
                found.update(range(begin, end + 1))
                begin = end + 1
    return found


def subtract(ranges: Ranges, gone: Iterable[int]) -> Ranges:
    """Return the ranges without these numbers, which must be in the same order."""
    staying: list[tuple[int, int]] = []
    going = iter(gone)
    number = next(going, 0)
    for first, last in ranges:
        begin = first
        while begin <= number <= last:
            if begin < number:
                staying.append((begin, number - 1))
            begin, number = number + 1, next(going, 0)
        if begin <= last:
            staying.append((begin, last))
    return _merge_ranges(staying)


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] == first - 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def _pin_first(
    added: Sequence[MessageRef], *, system: bool, task: bool
) -> tuple[Sequence[MessageRef], bool, bool]:
    made: list[MessageRef] = []
    for ref in added:
        first = (ref.role is Role.SYSTEM and not system) or (ref.role is Role.USER and not task)
        made.append(msgspec.structs.replace(ref, pinned=True) if first and not ref.gap else ref)
        system, task = system or ref.role is Role.SYSTEM, task or ref.role is Role.USER
    return made, system, task


def _extend_chunks(chunks: Chunks, added: Sequence[MessageRef]) -> Chunks:
    if not chunks:
        return _make_chunks(added)
    last = chunks[-1].refs + tuple(added)
    return chunks[:-1] + _make_chunks(last)


def _make_chunks(messages: Sequence[MessageRef]) -> Chunks:
    if 0 < len(messages) <= CHUNK:  # true for most windows that get pruned: takes a third of the time
        return (Chunk(tuple(messages)),)
    starts = range(0, len(messages), CHUNK)
    return tuple([Chunk(tuple(messages[start : start + CHUNK])) for start in starts])


def _extend_ranges(ranges: Ranges, number: int) -> Ranges:
    if ranges and ranges[-1][1] == number - 1:
        return (*ranges[:-1], (ranges[-1][0], number))
    return (*ranges, (number, number))


def _leaf(ref: MessageRef) -> int:
    try:
        digest = int(ref.size.digest or "0", 16)
    except ValueError:  # a forged log without a valid digest
        digest = int.from_bytes(ref.size.digest.encode(errors="replace"))
    return digest * (2 * ref.number + 1)
