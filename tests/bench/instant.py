"""A model that answers at once and a tool that returns at once: what is left of a step is the engine's own.

A step is an answer with one call, and the call's result. `ScriptedModel` would not do: it keeps every
request.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from bench.serving import TEXTS
from refold.engine import Agent, tool
from refold.engine.models.protocol import ModelRequest, Reply
from refold.engine.tools.protocol import Tool
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.vocabulary import StopReason
from refold.store.protocol import Store

_STEPS: Mapping[str, Any] = {"type": "step", "value": 10**6}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "unpruned": {"limits": [_STEPS]},
    "tail of 100": {"limits": [_STEPS], "history": [{"do": "tail", "last": 100}]},
}

Watch = Callable[[int, ModelRequest], Awaitable[None] | None]
"""Is told of each request, and after how many steps; what it returns is awaited before the answer."""


class Instant:
    """Answers with a call as often as there are steps, and then ends the run. For one run at a time."""

    name = "instant"
    priced = True
    context = None

    def __init__(self, steps: int, watch: Watch, texts: str = "short") -> None:
        self.steps = steps
        self._watch = watch
        self._answers = TEXTS[texts][0]
        self._step = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Reply]:
        """See `Model.stream`."""
        step = self._step
        self._step += 1
        if (wait := self._watch(step, request)) is not None:
            await wait
        if step >= self.steps:
            self._step = 0
            yield _reply("done", StopReason.END_TURN)
            return
        call = ReplyCall(provider_id=f"call_{step}", name="read", arguments=f'{{"path": "src/{step}.py"}}')
        yield _reply(self._answers[step % len(self._answers)], StopReason.TOOL_USE, call)

    async def aclose(self) -> None:
        """See `Model.aclose`."""


def _reply(text: str, stop: StopReason, *calls: ReplyCall) -> Reply:
    return Reply(
        text=text,
        calls=calls,
        stop=stop,
        usage=Usage(input=1_000, output=50),
        cost_nanousd=1_000,
        model="instant",
        adapter="bench",
    )


def agent_of(model: Instant, policy: str, store: Store, texts: str = "short") -> Agent:
    """An agent with this model, and a tool to read with."""
    return Agent(model=model, tools=[_read(TEXTS[texts][1])], policy=POLICIES[policy], store=store)


def _read(results: list[str]) -> Tool:
    @tool(replay="read_only")
    async def read(path: str) -> str:
        """Read a file."""
        return results[len(path) % len(results)]

    return read
