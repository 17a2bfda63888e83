"""A model that answers from a log: what was said to the same request then is said again now."""

from collections import deque
from collections.abc import AsyncGenerator, Iterable

import anyio
import anyio.lowlevel

from refold.engine.models.protocol import (
    FAILED,
    REPLIED,
    Delta,
    ModelError,
    ModelRequest,
    Reply,
    TextDelta,
)
from refold.engine.models.script import deltas
from refold.engine.models.sent import SentHash, sent_hash
from refold.reducers.errors import MissingFact
from refold.reducers.events import Failure, ModelFailed, ModelResponded
from refold.reducers.fields import shared
from refold.reducers.messages import ReplyCall
from refold.reducers.vocabulary import FailureClass, Unknown

Ended = ModelResponded | ModelFailed


class RecordedModel:
    """Answers by the digest of the request: messages, tools, settings. Several answers to one come in order.

    A request that the log does not know raises `MissingFact`; the world is never asked instead.
    """

    def __init__(self, run: str, name: str, answers: Iterable[tuple[ModelRequest, Ended]]) -> None:
        self.name, self.priced = name, True
        self._run = run
        self._answers: dict[SentHash, deque[Ended]] = {}
        for request, fact in answers:
            self._answers.setdefault(self._hash(request), deque()).append(fact)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """What was recorded for this request, as one stream. Raises `MissingFact`, or the recorded failure."""
        with anyio.CancelScope(shield=True):  # a cancellation must find the words that had arrived by then
            await anyio.lowlevel.checkpoint()
        fact = self.answer_to(request)
        if isinstance(fact, ModelFailed) and fact.failure is FailureClass.CANCELLED:
            if fact.content is not None and fact.content.partial_text:
                yield TextDelta(fact.content.partial_text)
            await anyio.sleep_forever()
        if isinstance(fact, ModelFailed):
            raise _failure(fact)
        reply = _reply(self._run, fact)
        for delta in deltas(reply):
            yield delta
        yield reply

    def answer_to(self, request: ModelRequest) -> Ended:
        """What was recorded for this request, and not told yet. Raises `MissingFact`."""
        known = self._answers.get(self._hash(request))
        if not known:
            raise MissingFact(
                self._run, f"no recorded answer to a request of {len(request.messages)} messages"
            )
        return known.popleft()

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _hash(self, request: ModelRequest) -> SentHash:
        return sent_hash(request, self.name, 0)


def _failure(fact: ModelFailed) -> ModelError:
    said = fact.content or Failure()
    return ModelError(message=said.message, partial_text=said.partial_text, **shared(fact, *FAILED))


def _reply(run: str, fact: ModelResponded) -> Reply:
    said = fact.content
    if said is None:
        raise MissingFact(run, "the content of a recorded answer was erased")
    made = zip(fact.calls, said.arguments, strict=True)
    calls = tuple(ReplyCall(arguments=text, **shared(call, "name", "provider_id")) for call, text in made)
    words = shared(said, "text", "reasoning", "provider_data")
    usage = None if Unknown.UNCOUNTED in fact.unknown else fact.usage
    return Reply(calls=calls, usage=usage, **words, **shared(fact, *REPLIED))
