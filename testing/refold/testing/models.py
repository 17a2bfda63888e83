"""A mock model that calls every tool."""

import random
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any

import anyio.lowlevel

from refold.engine.arguments import check_list, mapping, text
from refold.engine.models.protocol import Delta, ModelRequest, Reply
from refold.engine.models.script import ScriptError, calls, deltas, say
from refold.testing.tool_arguments import arguments_of


class ToolCallingModel:
    """A mock model that calls each offered tool once with valid arguments, then responds with a text.

    A response depends only on the request and on what is given here: which tools were called is read from
    the messages of the request. So one model serves several runs, and a resumed run continues where it was.
    If a policy drops calls from the prompt, the model makes them again; a step limit ends such a run.

    Args:
        seed: varies the arguments. The arguments for one tool do not depend on the other tools.
        text: the last response.
        together: make all calls in one response, not one call in each response.
        only: names of the tools to call, in this order; by default all that are offered, in their order.
        given: arguments by tool, for tools whose arguments must have a meaning; no others are generated.
        name: the recorded name of the model.
        context: its context window in tokens, None for unknown.

    Raises:
        WrongUse: an invalid argument here, or, in a run, a schema that no arguments fit.
    """

    def __init__(
        self,
        seed: int = 0,
        text: str = "done",
        *,
        together: bool = True,
        only: Collection[str] | None = None,
        given: Mapping[str, Mapping[str, Any]] | None = None,
        name: str = "tool-calling",
        context: int | None = None,
    ) -> None:
        self._seed, self._text, self._together = seed, _checked_text(text), together
        self._only = (
            None if only is None else [_checked_name(each) for each in check_list(only, "only", "['pay']")]
        )
        self._given = mapping(given, "given", "{'pay': {'cents': 30}}")
        self.requests: list[ModelRequest] = []
        self.name = name
        self.priced = True
        self.context = context

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Stream the response: deltas, then the reply."""
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        reply = self._reply(request)
        for delta in deltas(reply):
            yield delta
        yield reply

    def _reply(self, request: ModelRequest) -> Reply:
        called = {call.name for message in request.messages for call in message.calls}
        offered = {tool.name: tool.schema for tool in request.tools}
        names = [
            name
            for name in (offered if self._only is None else self._only)
            if name in offered and name not in called
        ]
        if not names:
            return say(self._text)
        made = [(name, self._arguments(name, offered[name])) for name in names]
        return calls(*(made if self._together else made[:1]))

    def _arguments(self, name: str, schema: str) -> dict[str, Any]:
        if name in self._given:
            return dict(self._given[name])
        return arguments_of(schema, random.Random(f"{self._seed} {name}"))  # noqa: S311 - no secret

    def done(self) -> None:
        """Raise `ScriptError` if a tool that was named in `only` or `given` was never called.

        The calls are those in the prompts and in the response to the last request.
        """
        last = [call.name for call in self._reply(self.requests[-1]).calls] if self.requests else []
        called = {call.name for each in self.requests for message in each.messages for call in message.calls}
        missing = [name for name in {*(self._only or ()), *self._given} if name not in called.union(last)]
        if missing:
            raise ScriptError(
                f"never called: {', '.join(sorted(missing))}; offer it as a tool, or do not name it"
            )

    async def aclose(self) -> None:
        """Do nothing."""


def _checked_text(given: object) -> str:
    return text(given, "text")


def _checked_name(given: object) -> str:
    return text(given, "only")
