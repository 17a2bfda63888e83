"""What a model is to the engine: one streaming method, one final `Reply`, one kind of failure."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from refold.reducers.errors import WorldFailed
from refold.reducers.messages import Message, ReplyCall, ToolSchema, Usage
from refold.reducers.vocabulary import Count, FailureClass, StopReason


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request: exactly what the model is to see.

    `messages` may be read, indexed and kept, and never change; whoever wants a tuple makes one. `settings` are the sampling settings of the run, name to JSON text (`{"temperature": "0.2"}`).
    `max_output` is the most output tokens wanted, or None for the model's own bound.
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
    """A piece of a tool call. `index` counts the calls of this answer from 0; pieces of one index are joined."""

    index: int
    name: str = ""
    arguments: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The whole answer, the last item of every stream that did not fail.

    `stop_raw` is the provider's own word, "" if it gave none. `usage` is None where nobody counted, `cost_nanousd` where no price is known.
    `model` is the model that answered. `provider_data` is opaque JSON text for this adapter alone.
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


SPENT = ("cost_nanousd", "model")
REPLIED = ("stop", "stop_raw", *SPENT, "adapter", "adapter_version", "response_id")
FAILED = ("failure", "status", "retry_after")
"""What a log says of an answer, and of a failure, under the same names; `SPENT` of a summary, too."""


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
    `priced` says whether a cost is known for its answers: a cost limit without a price is refused. A model that is
    not asked where its name says may have an `address`, scheme and host: it is recorded, and a resumed run must
    be asked at the same. So may it have a `price` that somebody gave, `0.5/1.5`, by which a resumed run goes on. It may have a `context` too: the tokens that it holds, or None where that is unknown, for
    policies that count in shares of it.
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
