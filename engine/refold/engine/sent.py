"""The digest of a request: what binds an answer to what the model saw, at the price of what is new in it.

    message = SHA-256(JSON of one message)
    head    = SHA-256(the head of the messages before || message); 32 zero bytes before the first
    rest    = SHA-256(JSON of [model, settings, tools, max_output, the messages of this request only])
    sent    = SHA-256(framed(salt) || head || rest), in hex

JSON has its keys sorted and no spaces. A conversation only grows, mostly: so the head goes on from that of the request
before, and what stood there is not encoded again.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from refold.engine.models.protocol import ModelRequest
from refold.reducers.codec import digest
from refold.reducers.messages import Message
from refold.store.chain import GENESIS

_ENCODER = msgspec.json.Encoder(order="deterministic")


class SentHash(msgspec.Struct, frozen=True):
    """A request, as far as its digest is concerned: 32 bytes for its messages, 32 for all else."""

    head: bytes
    rest: bytes

    def digest(self, salt: bytes) -> str:
        """Hex SHA-256, blinded by the salt of the answer's content."""
        return digest(salt, self.head + self.rest)


class _Link(msgspec.Struct, frozen=True):
    message: Message
    digest: bytes
    head: bytes


class RunningHead:
    """The head of a run's messages, which goes on from request to request.

    It is right for whatever messages it is given: those of the request before are compared, and are only not encoded again.
    """

    def __init__(self) -> None:
        self._links: list[_Link] = []

    def over(self, messages: Sequence[Message]) -> bytes:
        """The head of these messages, 32 bytes."""
        links = self._links
        pairs = enumerate(zip(links, messages, strict=False))
        same = next((n for n, (link, message) in pairs if link.message != message), None)
        same = min(len(links), len(messages)) if same is None else same
        known = {link.message: link.digest for link in links[same:]}  # what leaves the front moves the others
        del links[same:]
        head = links[-1].head if links else GENESIS
        for message in messages[same:]:
            own = known.get(message) or sha256(_ENCODER.encode(message)).digest()
            head = sha256(head + own).digest()
            links.append(_Link(message, own, head))
        return head


def sent_hash(request: ModelRequest, model: str, own: int, running: RunningHead) -> SentHash:
    """What is digested of a request to `model`, the last `own` messages of which are of this request only."""
    lasting = len(request.messages) - own
    rest = model, request.settings, request.tools, request.max_output, request.messages[lasting:]
    return SentHash(running.over(request.messages[:lasting]), sha256(_ENCODER.encode(rest)).digest())
