"""Models that take their responses from a script or a log."""

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec

from refold.engine import arguments
from refold.engine.arguments import check_list, describe_value, wrong_value
from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    Reply,
    SentHash,
    TextDelta,
    sent_hash,
)
from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import Failure, ModelFailed, ModelResponded, SummaryReturned
from refold.reducers.messages import Message, ReplyCall, Usage
from refold.reducers.vocabulary import FailureClass, StopReason, Unknown

Line = Reply | ModelError | Callable[[ModelRequest], "Reply | ModelError"]


class ScriptError(WrongUse):
    """A script that does not fit the run: it has too few lines, or unused ones."""


def say(
    text: str,
    *,
    stop: StopReason = StopReason.END_TURN,
    reasoning: str = "",
    usage: Usage | None = None,
    cost_nanousd: int | None = 0,
) -> Reply:
    """Make a line of a script: a response without calls. The default `usage` is a token per 4 characters."""
    return Reply(
        text=arguments.text(text, "say"),
        reasoning=reasoning,
        stop=stop,
        usage=usage or Usage(output=-(-len(text) // 4)),
        cost_nanousd=cost_nanousd,
        model="scripted",
        adapter="scripted",
    )


def call(tool: str, /, **arguments: Any) -> Reply:
    """Make a line of a script: one call, its arguments by name. Use `calls` for several."""
    return calls((tool, arguments))


def calls(*made: tuple[str, dict[str, Any] | str], text: str = "", usage: Usage | None = None) -> Reply:
    """Make a line of a script: calls as (tool, arguments); arguments given as text are used byte for byte."""
    written = tuple(_call(place, one) for place, one in enumerate(made))
    return msgspec.structs.replace(say(text, stop=StopReason.TOOL_USE, usage=usage), calls=written)


def _call(place: int, made: object) -> ReplyCall:
    match made:
        case (str(tool), str(arguments)):
            pass
        case (str(tool), dict()):
            try:
                arguments = json.dumps(made[1], ensure_ascii=False)
            except (TypeError, ValueError) as error:
                raise WrongUse(
                    f"calls[{place}]: expected arguments of {tool} that can be serialized as JSON: {error}"
                ) from error
        case _:
            raise wrong_value(
                f"calls[{place}]", "a tool's name and its arguments, as in ('add', {'a': 1})", made
            )
    return ReplyCall(provider_id=f"call_{place}", name=tool, arguments=arguments)


def fail(
    failure: FailureClass = FailureClass.OVERLOADED, message: str = "scripted failure", **more: Any
) -> ModelError:
    """Make a line of a script: the request fails."""
    return ModelError(failure, message, **more)


class ScriptedModel:
    """A mock model that responds with the lines of its script, in order; a line may be a function of the
    request.

    `requests` has the requests so far; `context` is its context window in tokens. Raises `WrongUse` for an
    invalid script, and `ScriptError` if the script runs out, or from `done()` for unused lines.
    """

    def __init__(self, script: Sequence[Line], *, name: str = "scripted", context: int | None = None) -> None:
        example = "[call('add', a=1), say('done')]"
        self._script = [
            each if callable(each) else _check_line(each, f"script[{place}]")
            for place, each in enumerate(check_list(script, "script", example))
        ]
        self.requests: list[ModelRequest] = []
        self.name = name
        self.priced = True
        self.context = context

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return the lines of the script."""
        return cast("tuple[Line, ...]", tuple(self._script))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream the next line: reasoning, text and calls as deltas, then the reply."""
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        if len(self.requests) > len(self._script):
            raise ScriptError(
                f"the script has {len(self._script)} lines, and request {len(self.requests)} needs another; add a line"
            )
        line = self._script[len(self.requests) - 1]
        spoken = (
            line
            if not callable(line)
            else _check_line(line(request), f"{describe_value(line)} of the script")
        )
        if isinstance(spoken, ModelError):
            if spoken.partial_text:
                yield TextDelta(spoken.partial_text)
            raise spoken
        for delta in deltas(spoken):
            yield delta
        yield spoken

    def done(self) -> None:
        """Raise `ScriptError` if lines were not used."""
        left = len(self._script) - len(self.requests)
        if left > 0:
            raise ScriptError(f"{left} of {len(self._script)} lines of the script were not used")

    async def aclose(self) -> None:
        """Do nothing."""


def _check_line(line: object, place: str) -> Reply | ModelError:
    if isinstance(line, Reply | ModelError):
        return line
    way_out = f"write say({line!r})" if isinstance(line, str) else ""
    raise wrong_value(place, "a response, made by say, call, calls or fail", line, way_out)


def deltas(reply: Reply) -> list[Delta]:
    """Split a reply into deltas, as a provider might stream it."""
    pieces: list[Delta] = []
    if reply.reasoning:
        pieces.append(ReasoningDelta(reply.reasoning))
    if reply.text:
        pieces += [TextDelta(piece) for piece in reply.text.splitlines(keepends=True)]
    pieces += [CallDelta(place, made.name, made.arguments) for place, made in enumerate(reply.calls)]
    return pieces


_BEFORE, _SHOWN = 20, 60  # characters of two messages in an error: before the difference, and in total

Ended = ModelResponded | ModelFailed | SummaryReturned
"""The facts that end a request."""


class RecordedModel:
    """A model that returns recorded responses by the digest of the request: messages, tools, settings.

    Several responses to equal requests are returned in order. A request that is not in the log raises
    `MissingFact`; no other model is called.
    """

    def __init__(self, run: str, name: str, answers: Iterable[tuple[ModelRequest, Ended]]) -> None:
        self.name, self.priced = name, True
        self._run = run
        self._answers: dict[SentHash, deque[Ended]] = {}
        self._requests: list[ModelRequest] = []
        self._facts: list[Ended] = []
        for request, fact in answers:
            self._answers.setdefault(self._hash(request), deque()).append(fact)
            self._requests.append(request)
            self._facts.append(fact)

    @property
    def lines(self) -> tuple[Reply | ModelError, ...]:
        """Return all recorded responses in their order, as lines of a script. Raises `MissingFact` for erased
        ones.
        """
        return tuple(
            _failure(fact) if isinstance(fact, ModelFailed) else _reply_of(self._run, fact)
            for fact in self._facts
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream the recorded response to this request. Raises `MissingFact`, or the recorded failure."""
        with anyio.CancelScope(shield=True):  # a cancellation must come after the recorded partial text
            await anyio.lowlevel.checkpoint()
        fact = self.answer_to(request)
        if isinstance(fact, ModelFailed) and fact.failure is FailureClass.CANCELLED:
            if fact.content is not None and fact.content.partial_text:
                yield TextDelta(fact.content.partial_text)
            await anyio.sleep_forever()
        if isinstance(fact, ModelFailed):
            raise _failure(fact)
        reply = _reply_of(self._run, fact)
        for delta in deltas(reply):
            yield delta
        yield reply

    def answer_to(self, request: ModelRequest) -> Ended:
        """Return the next recorded response to this request. Raises `MissingFact`."""
        known = self._answers.get(self._hash(request))
        if not known:
            asked = f"no recorded response to a request of {len(request.messages)} messages"
            raise MissingFact(self._run, f"{asked}{self._describe(request, used=known is not None)}")
        return known.popleft()

    def _describe(self, request: ModelRequest, *, used: bool) -> str:
        """Describe how a request differs from the most similar recorded one; `used`: all responses to equal
        requests were used.
        """
        if used:
            return "; all recorded ones were used"
        nearest = max(self._requests, key=lambda each: _similarity(each, request), default=None)
        return "" if nearest is None else f": {_difference(nearest, request)}"

    async def aclose(self) -> None:
        """Do nothing."""

    def _hash(self, request: ModelRequest) -> SentHash:
        return sent_hash(request, self.name, 0)


def _similarity(recorded: ModelRequest, request: ModelRequest) -> tuple[int, bool]:
    """Return the number of equal messages from the start, and whether both have the same number."""
    return _common_prefix(recorded.messages, request.messages), len(recorded.messages) == len(
        request.messages
    )


def _common_prefix(was: Sequence[object], now: Sequence[object]) -> int:
    """Return the number of equal items from the start."""
    pairs = enumerate(zip(was, now, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(was), len(now)))


def _difference(recorded: ModelRequest, request: ModelRequest) -> str:
    tools = {each.name: each for each in recorded.tools}, {each.name: each for each in request.tools}
    if other := sorted(name for name in {*tools[0], *tools[1]} if tools[0].get(name) != tools[1].get(name)):
        return f"its tools differ from the recorded ones: {', '.join(other)}"
    if recorded.settings != request.settings or recorded.max_output != request.max_output:
        return "its settings differ from the recorded ones"
    place = _common_prefix(recorded.messages, request.messages)
    if place == min(len(recorded.messages), len(request.messages)):
        return f"the recorded one has {len(recorded.messages)}"
    was, now = recorded.messages[place], request.messages[place]
    named = f"message {place + 1} ({now.role})"
    if (was.role, was.text) == (now.role, now.text):
        return f"{named} has other calls, or other provider data, than recorded"
    begin = max(0, _common_prefix(was.text, now.text) - _BEFORE)
    return f"{named} was {_part(was, begin)} and is {_part(now, begin)}"


def _part(message: Message, begin: int) -> str:
    return repr("…" * bool(begin) + message.text[begin : begin + _SHOWN])


def _failure(fact: ModelFailed) -> ModelError:
    said = fact.content or Failure()
    return ModelError(
        fact.failure,
        said.message,
        status=fact.status,
        retry_after=fact.retry_after,
        partial_text=said.partial_text,
    )


def _reply_of(run: str, fact: ModelResponded | SummaryReturned) -> Reply:
    return _summary(run, fact) if isinstance(fact, SummaryReturned) else _reply(run, fact)


def _reply(run: str, fact: ModelResponded) -> Reply:
    said = fact.content
    if said is None:
        raise MissingFact(run, "the payload of a recorded response was erased")
    made = zip(fact.calls, said.arguments, strict=True)
    return Reply(
        text=said.text,
        reasoning=said.reasoning,
        calls=tuple(
            ReplyCall(name=call.name, arguments=text, provider_id=call.provider_id) for call, text in made
        ),
        stop=fact.stop,
        stop_raw=fact.stop_raw,
        usage=None if Unknown.UNCOUNTED in fact.unknown else fact.usage,
        cost_nanousd=fact.cost_nanousd,
        model=fact.model,
        adapter=fact.adapter,
        adapter_version=fact.adapter_version,
        response_id=fact.response_id,
        provider_data=said.provider_data,
    )


def _summary(run: str, fact: SummaryReturned) -> Reply:
    if fact.content is None:
        raise MissingFact(run, "the payload of a recorded summary was erased")
    return Reply(
        text=fact.content.text,
        stop=StopReason.END_TURN,
        usage=None if Unknown.UNCOUNTED in fact.unknown else fact.usage,
        cost_nanousd=fact.cost_nanousd,
        model=fact.model,
        adapter="recorded",
    )
