"""A model that says what a test wrote down. Unused and missing lines are errors, never silence."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio.lowlevel
import msgspec

from refold.engine import expected
from refold.engine.expected import listed, named, wrong
from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from refold.reducers.errors import WrongUse
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.vocabulary import FailureClass, StopReason

Line = Reply | ModelError | Callable[[ModelRequest], "Reply | ModelError"]


class ScriptError(WrongUse):
    """A script that does not fit the run: it was asked for more than it has, or has lines left."""


def say(
    text: str,
    *,
    stop: StopReason = StopReason.END_TURN,
    reasoning: str = "",
    usage: Usage | None = None,
    cost_nanousd: int | None = 0,
) -> Reply:
    """A line of a script: an answer without calls. Without `usage`, a quarter of the characters count."""
    return Reply(
        text=expected.text(text, "say"),
        reasoning=reasoning,
        stop=stop,
        usage=usage or Usage(output=-(-len(text) // 4)),
        cost_nanousd=cost_nanousd,
        model="scripted",
        adapter="scripted",
    )


def call(tool: str, /, **arguments: Any) -> Reply:
    """A line of a script: one call, its arguments by name. `calls` makes several."""
    return calls((tool, arguments))


def calls(*made: tuple[str, dict[str, Any] | str], text: str = "", usage: Usage | None = None) -> Reply:
    """A line of a script: calls as (tool, arguments); arguments that are text stand byte for byte."""
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
                    f"calls[{place}]: the arguments of {tool} are not what JSON can write: {error}"
                ) from error
        case _:
            raise wrong(f"calls[{place}]", "a tool's name and its arguments, as in ('add', {'a': 1})", made)
    return ReplyCall(provider_id=f"call_{place}", name=tool, arguments=arguments)


def fail(
    failure: FailureClass = FailureClass.OVERLOADED, message: str = "scripted failure", **more: Any
) -> ModelError:
    """A line of a script: the request fails."""
    return ModelError(failure, message, **more)


class ScriptedModel:
    """Answers with the lines of its script, in order; a line may be a function of the request.

    Keeps the requests it was given in `requests`; `context` is the tokens that it claims to hold. Raises
    `WrongUse` for what is no script, `ScriptError` when asked for a line too many, and from `done()` when lines are left.
    """

    def __init__(self, script: Sequence[Line], *, name: str = "scripted", context: int | None = None) -> None:
        example = "[call('add', a=1), say('done')]"
        self._script = [
            each if callable(each) else _spoken(each, f"script[{place}]")
            for place, each in enumerate(listed(script, "script", example))
        ]
        self.requests: list[ModelRequest] = []
        self.name = name
        self.priced = True
        self.context = context

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream the next line: reasoning, text and calls as deltas, then the reply."""
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        if len(self.requests) > len(self._script):
            raise ScriptError(
                f"the script has {len(self._script)} lines and was asked for number {len(self.requests)}; add a line"
            )
        line = self._script[len(self.requests) - 1]
        spoken = line if not callable(line) else _spoken(line(request), f"{named(line)} of the script")
        if isinstance(spoken, ModelError):
            if spoken.partial_text:
                yield TextDelta(spoken.partial_text)
            raise spoken
        for delta in deltas(spoken):
            yield delta
        yield spoken

    def done(self) -> None:
        """Raise `ScriptError` if lines were never asked for."""
        left = len(self._script) - len(self.requests)
        if left > 0:
            raise ScriptError(f"{left} of {len(self._script)} lines of the script were never asked for")

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _spoken(line: object, place: str) -> Reply | ModelError:
    if isinstance(line, Reply | ModelError):
        return line
    way_out = f"write say({line!r})" if isinstance(line, str) else ""
    raise wrong(place, "an answer, made by say, call, calls or fail", line, way_out)


def deltas(reply: Reply) -> list[Delta]:
    """A reply in pieces, as a provider might have streamed it."""
    pieces: list[Delta] = []
    if reply.reasoning:
        pieces.append(ReasoningDelta(reply.reasoning))
    if reply.text:
        pieces += [TextDelta(piece) for piece in reply.text.splitlines(keepends=True)]
    pieces += [CallDelta(place, made.name, made.arguments) for place, made in enumerate(reply.calls)]
    return pieces
