"""Messages in a list that only grows, for requests that share it: none of them copies it, and none of them changes."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from typing import overload

import msgspec

from refold.reducers.messages import Message
from refold.store.chain import GENESIS

_DIGEST = 32
_GROUP = 128 * _DIGEST  # of so many messages in a row the digests go into a head at once
_ENCODER = msgspec.json.Encoder(order="deterministic")


def message_digest(message: Message) -> bytes:
    """SHA-256 of the JSON of a message, its keys sorted."""
    return sha256(_ENCODER.encode(message)).digest()


def digests_of(messages: Sequence[Message]) -> bytes:
    """Their digests, one behind the other."""
    return b"".join([message_digest(message) for message in messages])


def head_behind(head: bytes, digests: bytes) -> bytes:
    """The head of messages with these digests, 32 bytes each, behind whole groups with this head."""
    for begin in range(0, len(digests), _GROUP):
        head = sha256(head + digests[begin : begin + _GROUP]).digest()
    return head


class KeptMessages:
    """Messages with their digests, and the heads of their whole groups. It grows; what stands in it never changes."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._digests = bytearray()
        self._heads = [GENESIS]

    def add(self, message: Message, digest: bytes | None = None) -> None:
        """One message more; its digest, if it is known."""
        self.messages.append(message)
        self._digests += digest or message_digest(message)

    def digest(self, place: int) -> bytes:
        """The digest of the message at this place."""
        return bytes(self._digests[place * _DIGEST : (place + 1) * _DIGEST])

    def without(self, begin: int, end: int) -> "KeptMessages":
        """Another list, without the messages from place `begin` to before `end`."""
        left = KeptMessages()
        left.messages = self.messages[:begin] + self.messages[end:]
        left._digests = self._digests[: begin * _DIGEST] + self._digests[end * _DIGEST :]
        left._heads = self._heads[: begin * _DIGEST // _GROUP + 1]
        return left

    def head(self, count: int, behind: bytes = b"") -> bytes:
        """The head of the first `count` messages, and of others with the digests `behind` them."""
        upto = count * _DIGEST
        groups = upto // _GROUP
        while len(self._heads) <= groups:
            begin = (len(self._heads) - 1) * _GROUP
            self._heads.append(head_behind(self._heads[-1], bytes(self._digests[begin : begin + _GROUP])))
        return head_behind(self._heads[groups], bytes(self._digests[groups * _GROUP : upto]) + behind)


class Messages(Sequence[Message]):
    """The messages of one request: those that a list has by now, and `own`, which stand in this request only.

    They never change, however the run goes on: later requests go on with the same list, so whoever keeps all requests of
    a run keeps each message once. `tuple(messages)` copies them. They equal a tuple of the same messages.
    """

    __slots__ = ("_kept", "_lasting", "_own")

    def __init__(self, kept: KeptMessages, own: tuple[Message, ...] = ()) -> None:
        self._kept, self._lasting, self._own = kept, len(kept.messages), own

    def __len__(self) -> int:
        return self._lasting + len(self._own)

    def __iter__(self) -> Iterator[Message]:
        return chain(islice(self._kept.messages, self._lasting), self._own)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(place, slice):
            return tuple([self[each] for each in range(*place.indices(len(self)))])
        found = range(len(self))[place]
        return self._kept.messages[found] if found < self._lasting else self._own[found - self._lasting]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Messages) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def head(self, count: int) -> bytes:
        """The head of the first `count` of these messages."""
        behind = self._own[: max(0, count - self._lasting)]
        return self._kept.head(min(count, self._lasting), digests_of(behind))
