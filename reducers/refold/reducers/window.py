"""The window: which messages the next request would show, as numbers and sizes, never as texts.

A message is known by its number in the run. A reply with tool calls and all their results are one *unit*,
kept or dropped whole: providers refuse half of a pair. Appending costs the same however long the window is:
the references lie in chunks, and the totals, the ranges and the digest are carried along.

The digest is a sum of the messages' digests, each times an odd number of its own, modulo 2**256 (after the
incremental hashing of Bellare and Micciancio, 1997), so that a message can be taken out without looking at the
others again. It tells views apart; it is not what protects a log from an adversary: that is the hash chain.

Beside it stands a second sum, of the references whole: it is in the digests of a state, so that nothing of a reference that a
later decision goes by can be another without being told.
"""

from collections.abc import Iterable, Sequence, Set
from hashlib import sha256
from itertools import chain

import msgspec

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.messages import Size, TextCut
from refold.reducers.vocabulary import Role

# An append copies the last chunk and the tuple of chunks. With this, both stay short up to some 30,000 messages.
_CHUNK = 128
_MODULUS = 1 << 256
_EMPTY = bytes(32)
_ENCODER = msgspec.json.Encoder(order="deterministic")

Ranges = tuple[tuple[int, int], ...]
"""Numbers in order, as inclusive (first, last) pairs."""


class Shown(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """How a message is shown shorter: each cut part's head and tail, and between them the words of event `seq`.

    `text` is the key of these words, `whole` the size of the message as it was said.
    """

    seq: int
    text: str
    whole: Size
    cuts: tuple[TextCut, ...]


class MessageRef(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A message in the window. Its words are in the content of event `seq` (its `part`-th message, from 0).

    `unit` is the number of the reply that it belongs to, or its own. `size` is its event's own: of what is shown of
    it, if `shown` says that it is shown shorter. A marker or summary has a
    `cause` and stands for `covers` messages of `covered_tokens`; it frames the words of its `sources`, or of event `source`.
    `preview` is how much of a result a preview would show.
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
    cause: str = ""
    covers: int = 0
    covered_tokens: int = 0
    source: int = 0
    sources: tuple["MessageRef", ...] = ()

    @property
    def whole(self) -> Size:
        """The size of the message as it was said, however it is shown."""
        return self.size if self.shown is None else self.shown.whole


class Window(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """The messages of the next request. `ranges` are their numbers, as inclusive (first, last) pairs.

    Windows that look equal have equal digests; the clock, the run's id and the provider's ids are not in them. `bound` is the
    sum over the references whole. `sum` and
    `whole` are what the estimator adds up, of the window and of every message that ever was in it.
    """

    chunks: tuple[tuple[MessageRef, ...], ...] = ()
    count: int = 0
    tokens: int = 0
    ranges: Ranges = ()
    digest: bytes = _EMPTY
    bound: bytes = _EMPTY
    system_pinned: bool = False
    task_pinned: bool = False
    estimator: str = "chars4"
    sum: int = 0
    whole: int = 0
    whole_count: int = 0

    @property
    def whole_tokens(self) -> int:
        """Estimated tokens of everything that was said since the start."""
        return ESTIMATORS[self.estimator].total(self.whole, self.whole_count)


def refs(window: Window) -> list[MessageRef]:
    """The references in order."""
    return list(chain.from_iterable(window.chunks))


def append(window: Window, ref: MessageRef) -> Window:
    """The window with one message more. The first system message and the first user message are pinned."""
    return extend(window, (ref,))


def extend(window: Window, added: Iterable[MessageRef]) -> Window:
    """The window with these messages more, in order: as appending one after the other."""
    estimator = ESTIMATORS[window.estimator]
    system, task = window.system_pinned, window.task_pinned
    total, ranges = window.sum, window.ranges
    last: list[MessageRef] = []
    for new in added:
        ref = new if system and task else _pin(new, system_pinned=system, task_pinned=task)
        system, task = system or ref.role is Role.SYSTEM, task or ref.role is Role.USER
        total += estimator.part(ref.role, ref.size)
        ranges = _extend(ranges, ref.number)
        last.append(ref)
    return msgspec.structs.replace(
        window,
        chunks=_grow(window.chunks, last),
        count=window.count + len(last),
        tokens=estimator.total(total, window.count + len(last)),
        ranges=ranges,
        digest=_plus(window.digest, map(_leaf, last)),
        bound=_plus(window.bound, map(_whole, last)),
        system_pinned=system,
        task_pinned=task,
        sum=total,
        whole=window.whole + total - window.sum,
        whole_count=window.whole_count + len(last),
    )


def insert(window: Window, ref: MessageRef, after: int) -> Window:
    """The window with a message that stands right after the message numbered `after` (0, or none: in front)."""
    messages = refs(window)
    place = next((place for place, found in enumerate(messages, 1) if found.number == after), 0)
    return _changed(window, [*messages[:place], ref, *messages[place:]], (), (ref,))


def insert_all(window: Window, placed: Iterable[tuple[MessageRef, int]]) -> Window:
    """The window with each of these messages, in turn, behind the unit of the message numbered so (0, or none: in front).

    In one pass, however many there are.
    """
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
    return _changed(window, ordered, (), come)


def only(window: Window, numbers: Set[int]) -> Window:
    """The window of the messages with these numbers, in the same order. What was pinned stays pinned."""
    messages = refs(window)
    kept = [ref for ref in messages if ref.number in numbers]
    gone = [ref for ref in messages if ref.number not in numbers]
    return _changed(window, kept, gone, (), _without(window.ranges, [ref.number for ref in gone]))


def resized(window: Window, number: int, size: Size, shown: Shown | None = None) -> Window:
    """The window in which one message is shown shorter."""
    messages = refs(window)
    place = next(place for place, ref in enumerate(messages) if ref.number == number)
    before = messages[place]
    messages[place] = msgspec.structs.replace(before, size=size, shown=shown)
    return _changed(window, messages, (before,), (messages[place],))


def adds_up(window: Window) -> bool:
    """Whether the totals, the ranges and the digest that are carried along are what the references come to."""
    if window.estimator not in ESTIMATORS:
        return False
    empty = msgspec.structs.replace(window, sum=0, digest=_EMPTY, bound=_EMPTY)
    found = refs(window)
    again = _changed(empty, found, (), found)
    return msgspec.structs.replace(again, chunks=window.chunks) == window


def _changed(
    window: Window,
    messages: list[MessageRef],
    gone: Iterable[MessageRef],
    come: Iterable[MessageRef],
    ranges: Ranges | None = None,
) -> Window:
    # By difference: what a window loses or gains in one pass is mostly little.
    estimator = ESTIMATORS[window.estimator]
    gone, come = list(gone), list(come)
    added = sum([estimator.part(ref.role, ref.size) for ref in come])
    total = window.sum + added - sum([estimator.part(ref.role, ref.size) for ref in gone])
    return msgspec.structs.replace(
        window,
        chunks=_chunked(messages),
        count=len(messages),
        tokens=estimator.total(total, len(messages)),
        ranges=ranges_of([ref.number for ref in messages]) if ranges is None else ranges,
        digest=_plus(window.digest, map(_leaf, come), map(_leaf, gone)),
        bound=_plus(window.bound, map(_whole, come), map(_whole, gone)),
        sum=total,
    )


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Numbers in order as inclusive (first, last) pairs: 1, 2, 3, 7 is (1, 3), (7, 7)."""
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


def _without(ranges: Ranges, gone: Iterable[int]) -> Ranges:
    """The ranges without these numbers, which come in the same order: less work than to look at all that stays."""
    left: list[tuple[int, int]] = []
    going = iter(gone)
    number = next(going, 0)
    for first, last in ranges:
        begin = first
        while begin <= number <= last:
            if begin < number:
                left.append((begin, number - 1))
            begin, number = number + 1, next(going, 0)
        if begin <= last:
            left.append((begin, last))
    return _joined(left)


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] == first - 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def _pin(ref: MessageRef, *, system_pinned: bool, task_pinned: bool) -> MessageRef:
    if ref.cause:
        return ref
    first_system = ref.role is Role.SYSTEM and not system_pinned
    first_user = ref.role is Role.USER and not task_pinned
    return msgspec.structs.replace(ref, pinned=True) if first_system or first_user else ref


def _grow(
    chunks: tuple[tuple[MessageRef, ...], ...], added: list[MessageRef]
) -> tuple[tuple[MessageRef, ...], ...]:
    if not chunks:
        return _chunked(added)
    last = (*chunks[-1], *added)
    return (*chunks[:-1], *((last,) if len(last) <= _CHUNK else _chunked(last)))


def _chunked(messages: Sequence[MessageRef]) -> tuple[tuple[MessageRef, ...], ...]:
    return tuple(tuple(messages[start : start + _CHUNK]) for start in range(0, len(messages), _CHUNK))


def _extend(ranges: Ranges, number: int) -> Ranges:
    if ranges and ranges[-1][1] == number - 1:
        return (*ranges[:-1], (ranges[-1][0], number))
    return (*ranges, (number, number))


def _leaf(ref: MessageRef) -> int:
    try:
        digest = int(ref.size.digest or "0", 16)
    except ValueError:  # no digest at all, in a log that somebody forged
        digest = int.from_bytes(ref.size.digest.encode(errors="replace"))
    return digest * (2 * ref.number + 1)


def _whole(ref: MessageRef) -> int:
    return int.from_bytes(sha256(_ENCODER.encode(ref)).digest())


def _plus(total: bytes, come: Iterable[int], gone: Iterable[int] = ()) -> bytes:
    return ((int.from_bytes(total) + sum(come) - sum(gone)) % _MODULUS).to_bytes(32)
