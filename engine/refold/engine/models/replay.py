"""A model that answers from a log: what was said to the same request then is said again now."""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence

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
from refold.reducers.messages import Message, ReplyCall
from refold.reducers.vocabulary import FailureClass, Unknown, shared

_BEFORE, _SHOWN = 20, 60  # characters of two messages: before they part, and in all

Ended = ModelResponded | ModelFailed


class RecordedModel:
    """Answers by the digest of the request: messages, tools, settings. Several answers to one come in order.

    A request that the log does not know raises `MissingFact`; the world is never asked instead.
    """

    def __init__(self, run: str, name: str, answers: Iterable[tuple[ModelRequest, Ended]]) -> None:
        self.name, self.priced = name, True
        self._run = run
        self._answers: dict[SentHash, deque[Ended]] = {}
        self._requests: list[ModelRequest] = []
        for request, fact in answers:
            self._answers.setdefault(self._hash(request), deque()).append(fact)
            self._requests.append(request)

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
            asked = f"no recorded answer to a request of {len(request.messages)} messages"
            raise MissingFact(self._run, f"{asked}{self._unlike(request, told=known is not None)}")
        return known.popleft()

    def _unlike(self, request: ModelRequest, *, told: bool) -> str:
        """In what a request is unlike the one that was recorded and is most like it; `told`: it is one of them, once too often."""
        if told:
            return ", for all recorded ones are told already"
        nearest = max(self._requests, key=lambda each: _alike(each, request), default=None)
        return "" if nearest is None else f": {_difference(nearest, request)}"

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _hash(self, request: ModelRequest) -> SentHash:
        return sent_hash(request, self.name, 0)


def _alike(recorded: ModelRequest, request: ModelRequest) -> tuple[int, bool]:
    """How many messages are the same from the front, and whether there are as many."""
    return _same(recorded.messages, request.messages), len(recorded.messages) == len(request.messages)


def _same(was: Sequence[object], now: Sequence[object]) -> int:
    """How many are the same from the front."""
    pairs = enumerate(zip(was, now, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(was), len(now)))


def _difference(recorded: ModelRequest, request: ModelRequest) -> str:
    tools = {each.name: each for each in recorded.tools}, {each.name: each for each in request.tools}
    if other := sorted(name for name in {*tools[0], *tools[1]} if tools[0].get(name) != tools[1].get(name)):
        return f"its tools are others than were recorded: {', '.join(other)}"
    if recorded.settings != request.settings or recorded.max_output != request.max_output:
        return "its settings are others than were recorded"
    place = _same(recorded.messages, request.messages)
    if place == min(len(recorded.messages), len(request.messages)):
        return f"recorded is one of {len(recorded.messages)}"
    was, now = recorded.messages[place], request.messages[place]
    named = f"message {place + 1} ({now.role})"
    if (was.role, was.text) == (now.role, now.text):
        return f"{named} has other calls, or other words of its provider, than were recorded"
    begin = max(0, _same(was.text, now.text) - _BEFORE)
    return f"{named} was {_part(was, begin)} and is {_part(now, begin)}"


def _part(message: Message, begin: int) -> str:
    return repr("…" * bool(begin) + message.text[begin : begin + _SHOWN])


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
