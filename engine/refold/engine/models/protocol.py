"""What a model is to the engine, and the digest of a request.

    message = SHA-256(JSON of one message)
    head    = SHA-256(head of the messages before the last group || each message of that group)
    offer   = SHA-256(JSON of [model, settings, tools])
    rest    = SHA-256(offer || JSON of [max_output, the messages of this request only])
    sent    = SHA-256(framed(salt) || head || rest), in hex

JSON has its keys sorted and no spaces. Messages are taken in groups of 128 from the first, the last group may
be shorter, and the head before the first group is 32 zero bytes. So where a conversation only grows, the head
of its whole groups stays; and where something leaves it, no message that stays is encoded again, and 128 of
them cost one hash of 4 KiB.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from typing import Protocol, overload

import msgspec

from refold.reducers.codec import digest
from refold.reducers.errors import WorldFailed
from refold.reducers.messages import Message, ReplyCall, ToolSchema, Usage
from refold.reducers.vocabulary import Count, FailureClass, StopReason
from refold.store.chain import GENESIS


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request: exactly what the model is to see.

    `messages` may be read, indexed and kept, and never change; whoever wants a tuple makes one. `settings`
    are the sampling settings of the run, name to JSON text (`{"temperature": "0.2"}`). `max_output` is the
    most output tokens wanted, or None for the model's own bound.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...] = ()
    settings: dict[str, str] = {}
    max_output: int | None = None


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning"):
    """A piece of what the model thought before it answered."""

    text: str


class CallDelta(msgspec.Struct, frozen=True, tag="call"):
    """A piece of a tool call. `index` counts the calls of this answer from 0; pieces of one index are
    joined.
    """

    index: int
    name: str = ""
    arguments: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The whole answer, the last item of every stream that did not fail.

    `stop_raw` is the provider's own word, "" if it gave none. `usage` is None where nobody counted,
    `cost_nanousd` where no price is known. `model` is the model that answered. `provider_data` is opaque JSON
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


class ModelError(WorldFailed):
    """A request that gave no answer. The only exception that `Model.stream` raises, cancellation aside.

    `status` is the HTTP status if there was one, `retry_after` nanoseconds that the provider asked to
    wait, `partial_text` what had arrived of the answer's text.
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


class Model(Protocol):
    """A language model.

    `name` is what a person typed to get it (`openai:gpt-5-mini`, `local:smollm2-135m`); it is recorded.
    `priced` says whether a cost is known for its answers: a cost limit without a price is refused. A model
    that is not asked where its name says may have an `address`, scheme and host: it is recorded, and a
    resumed run must be asked at the same. So may it have a `price` that somebody gave, `0.5/1.5`, by which a
    resumed run goes on. It may have a `context` too: the tokens that it holds, or None where that is unknown,
    for policies that count in shares of it.
    """

    @property
    def name(self) -> str:
        """The model's recorded name."""
        ...

    @property
    def priced(self) -> bool:
        """Whether `Reply.cost_nanousd` will be known."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Ask the model; yield deltas as they arrive and, last, exactly one `Reply`.

        Raises `ModelError` for every failure of the world or the provider. When cancelled or closed
        half-way it lets go of the connection and lets the cancellation through.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections, processes and threads. May be called twice."""
        ...


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
    """Messages with their digests, and the heads of their whole groups.

    It grows; what stands in it never changes.
    """

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

    They never change, however the run goes on: later requests go on with the same list, so whoever keeps all
    requests of a run keeps each message once. `tuple(messages)` copies them. They equal a tuple of the same
    messages.
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


class SentHash(msgspec.Struct, frozen=True):
    """A request, as far as its digest is concerned: 32 bytes for its messages, 32 for all else."""

    head: bytes
    rest: bytes

    def digest(self, salt: bytes) -> str:
        """Hex SHA-256, blinded by the salt of the answer's content."""
        return digest(salt, self.head + self.rest)


def sent_hash(request: ModelRequest, model: str, own: int, offer: bytes | None = None) -> SentHash:
    """What is digested of a request to `model`, the last `own` messages of which are of this request only;
    its offer, if known.
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
    """32 bytes for what mostly is the same in all requests of a run."""
    return sha256(_ENCODER.encode((model, settings, tools))).digest()
