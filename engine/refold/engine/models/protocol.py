"""The model interface, and the digest of a request.

    message = SHA-256(JSON of one message)
    head    = SHA-256(head of the messages before the last group || each message of that group)
    offer   = SHA-256(JSON of [model, settings, tools])
    rest    = SHA-256(offer || JSON of [max_output, the messages of this request only])
    sent    = SHA-256(framed(salt) || head || rest), in hex

JSON has sorted keys and no spaces. Messages are grouped by 128 from the first; the last group may be shorter.
The head before the first group is 32 zero bytes. While a conversation only grows, the head of its full groups
does not change. After a compaction step, remaining messages are not encoded again: 128 of them cost one hash
of 4 KiB.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from typing import Protocol, overload

import msgspec

from refold.reducers.codec import digest
from refold.reducers.errors import ExternalFailure, WrongUse
from refold.reducers.messages import Message, ReplyCall, ToolSchema, Usage
from refold.reducers.vocabulary import Count, FailureClass, StopReason
from refold.store.chain import GENESIS


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request: the exact prompt and its settings.

    `messages` never changes; it may be indexed and stored. `settings` are the sampling settings of the run,
    name to JSON text (`{"temperature": "0.2"}`). `max_output` is the maximum of output tokens, None for the
    model's own limit.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...] = ()
    settings: dict[str, str] = {}
    max_output: int | None = None


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the response's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning"):
    """A piece of the model's reasoning before its response."""

    text: str


class CallDelta(msgspec.Struct, frozen=True, tag="call"):
    """A piece of a tool call. `index` numbers the response's calls from 0; pieces of one index are joined."""

    index: int
    name: str = ""
    arguments: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The complete response, the last item of every stream that did not fail.

    `stop_raw` is the provider's stop reason, "" if it sent none. `usage` is None without token counts,
    `cost_nanousd` without a known price. `model` is the model that answered. `provider_data` is opaque JSON
    text for this adapter alone.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ReplyCall, ...] = ()
    stop: StopReason
    stop_raw: str = ""
    usage: Usage | None = None
    cost_nanousd: Count | None = None
    model: str
    adapter: str
    adapter_version: str = ""
    response_id: str = ""
    provider_data: str = ""


Delta = TextDelta | ReasoningDelta | CallDelta


class ModelError(ExternalFailure):
    """A request without a complete response. `Model.stream` raises no other exception except cancellation.

    `status` is the HTTP status if there was one, `retry_after` the wait requested by the provider in
    nanoseconds, `partial_text` the text received before the failure.
    """

    def __init__(
        self,
        failure: FailureClass,
        message: str,
        *,
        status: int | None = None,
        retry_after: int | None = None,
        partial_text: str = "",
    ) -> None:
        super().__init__(failure, message)
        self.failure, self.message, self.status = failure, message, status
        self.retry_after, self.partial_text = retry_after, partial_text

    def __str__(self) -> str:
        return f"the model failed ({self.failure}): {self.message}"


class ModelUnavailable(WrongUse):
    """A model that this machine cannot ask: its key, its weights or the extra for it is missing."""


class Model(Protocol):
    """A language model.

    `name` is the name that the user typed (`openai:gpt-5-mini`, `local:smollm2-135m`); it is recorded.
    `priced` is whether the cost of its responses is known: a cost limit without a price is refused. These
    attributes are optional:

    - `address`: scheme and host, if not the default for the name. It is recorded, and a resumed run must use
      the same address.
    - `price`: a price set by the user, `0.5/1.5`. A resumed run keeps it.
    - `context`: the context window in tokens, or None if unknown, for policies that use fractions of it.
    """

    @property
    def name(self) -> str:
        """The model's recorded name."""
        ...

    @property
    def priced(self) -> bool:
        """Return whether `Reply.cost_nanousd` will be known."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Send the request; yield deltas as they arrive and, last, exactly one `Reply`.

        Raises `ModelError` for every external failure. When cancelled or closed early, it closes the
        connection and propagates the cancellation.
        """
        ...

    async def aclose(self) -> None:
        """Close connections, processes and threads. May be called twice."""
        ...


_DIGEST = 32
_GROUP = 128 * _DIGEST  # bytes of the digests of one group of messages
_ENCODER = msgspec.json.Encoder(order="deterministic")


def message_digest(message: Message) -> bytes:
    """Return the SHA-256 of the JSON of a message with sorted keys."""
    return sha256(_ENCODER.encode(message)).digest()


def digests_of(messages: Sequence[Message]) -> bytes:
    """Concatenate the digests of messages."""
    return b"".join([message_digest(message) for message in messages])


def head_behind(head: bytes, digests: bytes) -> bytes:
    """Extend the head of full groups by messages with these digests, 32 bytes each."""
    for begin in range(0, len(digests), _GROUP):
        head = sha256(head + digests[begin : begin + _GROUP]).digest()
    return head


class KeptMessages:
    """An append-only list of messages with their digests and the heads of full groups."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._digests = bytearray()
        self._heads = [GENESIS]

    def add(self, message: Message, digest: bytes | None = None) -> None:
        """Append a message; pass its digest if known."""
        self.messages.append(message)
        self._digests += digest or message_digest(message)

    def digest(self, place: int) -> bytes:
        """Return the digest of the message at this index."""
        return bytes(self._digests[place * _DIGEST : (place + 1) * _DIGEST])

    def without(self, begin: int, end: int) -> "KeptMessages":
        """Return a copy without the messages in `[begin, end)`."""
        left = KeptMessages()
        left.messages = self.messages[:begin] + self.messages[end:]
        left._digests = self._digests[: begin * _DIGEST] + self._digests[end * _DIGEST :]
        left._heads = self._heads[: begin * _DIGEST // _GROUP + 1]
        return left

    def head(self, count: int, behind: bytes = b"") -> bytes:
        """Return the head of the first `count` messages followed by messages with digests `behind`."""
        upto = count * _DIGEST
        groups = upto // _GROUP
        while len(self._heads) <= groups:
            begin = (len(self._heads) - 1) * _GROUP
            self._heads.append(head_behind(self._heads[-1], bytes(self._digests[begin : begin + _GROUP])))
        return head_behind(self._heads[groups], bytes(self._digests[groups * _GROUP : upto]) + behind)


class Messages(Sequence[Message]):
    """The messages of one request: the current messages of a list, and `own`, which only this request has.

    They never change. Later requests share the list, so storing all requests of a run stores each message
    once. `tuple(messages)` copies them. They equal a tuple of the same messages.
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
        """Return the head of the first `count` messages."""
        behind = self._own[: max(0, count - self._lasting)]
        return self._kept.head(min(count, self._lasting), digests_of(behind))


class SentHash(msgspec.Struct, frozen=True):
    """The hashed parts of a request: 32 bytes for its messages, 32 for the rest."""

    head: bytes
    rest: bytes

    def digest(self, salt: bytes) -> str:
        """Return the hex SHA-256, blinded with the salt of the response's content."""
        return digest(salt, self.head + self.rest)


def sent_hash(request: ModelRequest, model: str, own: int, offer: bytes | None = None) -> SentHash:
    """Hash a request to `model`. The last `own` messages belong to this request only.

    Pass `offer` (see `offer_hash`) if it is known.
    """
    messages = request.messages
    lasting = len(messages) - own
    if type(messages) is Messages:  # not `isinstance`: that of a Sequence is ten times as slow
        head = messages.head(lasting)
    else:
        head = head_behind(GENESIS, digests_of(messages[:lasting]))
    offer = offer or offer_hash(model, request.settings, request.tools)
    rest = _ENCODER.encode((request.max_output, messages[lasting:] if own else ()))
    return SentHash(head, sha256(offer + rest).digest())


def offer_hash(model: str, settings: dict[str, str], tools: tuple[ToolSchema, ...]) -> bytes:
    """Hash model, settings and tools (32 bytes), which rarely change within a run."""
    return sha256(_ENCODER.encode((model, settings, tools))).digest()
