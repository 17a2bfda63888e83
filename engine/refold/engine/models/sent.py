"""The digest of a request: what binds an answer to what the model saw, at the price of what is new in it.

    message = SHA-256(JSON of one message)
    head    = SHA-256(head of the messages before its last group || message || …, of each message of that group)
    offer   = SHA-256(JSON of [model, settings, tools])
    rest    = SHA-256(offer || JSON of [max_output, the messages of this request only])
    sent    = SHA-256(framed(salt) || head || rest), in hex

JSON has its keys sorted and no spaces. Messages are taken in groups of 128 from the first, the last group may be shorter, and
the head before the first group is 32 zero bytes. So where a conversation only grows, the head of its whole groups stays; and
where something leaves it, no message that stays is encoded again, and 128 of them cost one hash of 4 KiB.
"""

from hashlib import sha256

import msgspec

from refold.engine.kept_messages import Messages, digests_of, head_behind
from refold.engine.models.protocol import ModelRequest
from refold.reducers.codec import digest
from refold.reducers.messages import ToolSchema
from refold.store.chain import GENESIS

_ENCODER = msgspec.json.Encoder(order="deterministic")


class SentHash(msgspec.Struct, frozen=True):
    """A request, as far as its digest is concerned: 32 bytes for its messages, 32 for all else."""

    head: bytes
    rest: bytes

    def digest(self, salt: bytes) -> str:
        """Hex SHA-256, blinded by the salt of the answer's content."""
        return digest(salt, self.head + self.rest)


def sent_hash(request: ModelRequest, model: str, own: int, offer: bytes | None = None) -> SentHash:
    """What is digested of a request to `model`, the last `own` messages of which are of this request only; its offer, if known."""
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
