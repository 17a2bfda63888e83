"""Messages of a prompt, and the numbers that a provider returns with a response."""

from typing import Literal

from refold.reducers.vocabulary import Count, Ranges, Role, Value

Part = Literal["text", "reasoning"]
"""The parts of a message that a cap counts and a cut shortens."""


class Usage(Value, frozen=True, kw_only=True):
    """Token counts of one request, as the provider reports them.

    `input` includes tokens read from and written to the provider's cache; `output` includes reasoning.
    """

    input: Count = 0
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0


class MessageCall(Value, frozen=True):
    """A tool call in an assistant message, with refold's id and the arguments as the model wrote them."""

    id: str
    name: str
    arguments: str


class Message(Value, frozen=True, kw_only=True):
    """One message of a prompt.

    `call` is set on a tool's result: the id of its call; `name` is then the tool's name. `provider_data` is
    opaque JSON text of the adapter that made the message; the adapter gets it back unchanged.
    """

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[MessageCall, ...] = ()
    call: str | None = None
    name: str | None = None
    provider_data: str = ""


class ReplyCall(Value, frozen=True, kw_only=True):
    """A tool call as the provider returned it.

    `provider_id` is "" if the provider gave none; `arguments` are the provider's bytes, unchanged.
    """

    name: str
    arguments: str
    provider_id: str = ""


class TextCut(Value, frozen=True, kw_only=True):
    """A cut in one part of a message (`text` or `reasoning`): only head and tail stay, sizes in characters.

    `removed` is the number that the replacement text between them reports, if it reports one.
    """

    part: Part = "text"
    head: Count
    tail: Count
    removed: Count = 0


class TokenCut(Value, frozen=True, kw_only=True):
    """Where to cut a message that has more than `cap` tokens of the tokenizer `codec`.

    Token boundaries depend on the text, and decisions read no text. So they are measured once, when the event
    that holds the message is made, for each cap in the policy then in force.
    """

    codec: str
    cap: Count
    cuts: tuple[TextCut, ...]


class Size(Value, frozen=True, kw_only=True):
    """The measurements of a message, used in place of its text.

    `chars`, `reasoning` and `arguments` count the characters of its text, its reasoning and its calls'
    arguments. `tokens` is the estimate of the policy's estimator for the whole message. `digest` is hex
    SHA-256 of its text, salted unless the text is the harness's own; it identifies the text after erasure.
    `token_cuts` has an entry for each cap of a compaction step `trim_messages` that counts by a tokenizer and
    that the message exceeds.
    """

    chars: Count = 0
    reasoning: Count = 0
    arguments: Count = 0
    tokens: Count = 0
    digest: str = ""
    token_cuts: tuple[TokenCut, ...] = ()


class Gap(Value, frozen=True, kw_only=True):
    """The place of a message that stands in for others:

    `covers` messages of `tokens` tokens after message `after`.

    `after` 0 is the front. The message wraps text that is not the harness's: a summary, in the content of
    event `source`, or the first characters of the messages `sources`: one line each, of at most `per_message`
    characters, and at most `total` characters in all.
    """

    after: Count = 0
    covers: Count = 0
    tokens: Count = 0
    source: Count = 0
    sources: Ranges = ()
    per_message: Count = 0
    total: Count = 0

    @property
    def filling(self) -> str:
        """Return the type of its message: `summary`, `digest`, or `compacted` (only a number)."""
        return "summary" if self.source else "digest" if self.sources else "compacted"


class ToolSchema(Value, frozen=True, kw_only=True):
    """A tool as it is offered to a model. `schema` is JSON Schema of the arguments object, as JSON text."""

    name: str
    description: str
    schema: str
