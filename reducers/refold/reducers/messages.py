"""Messages as a model sees them, and the numbers that come with its answers."""

from typing import Literal

from refold.reducers.vocabulary import Count, Ranges, Role, Value

Part = Literal["text", "reasoning"]
"""The parts of a message that a cap counts and a cut shortens."""


class Usage(Value, frozen=True, kw_only=True):
    """Token counts of one request, the provider's own numbers.

    `input` includes what was read from and written to the provider's cache; `output` includes reasoning.
    """

    input: Count = 0
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0


class MessageCall(Value, frozen=True):
    """A tool call inside an assistant message: our id, the tool's name, the arguments as the model wrote
    them.
    """

    id: str
    name: str
    arguments: str


class Message(Value, frozen=True, kw_only=True):
    """One message as the model sees it.

    `call` is set on a tool's result: the id of the call that it answers; `name` is then the tool's name.
    `provider_data` is opaque JSON text of the adapter that made the message, handed back to it unread.
    """

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[MessageCall, ...] = ()
    call: str | None = None
    name: str | None = None
    provider_data: str = ""


class ReplyCall(Value, frozen=True, kw_only=True):
    """A tool call as the provider gave it: its id, "" if it gave none, the name, and the arguments byte for
    byte.
    """

    name: str
    arguments: str
    provider_id: str = ""


class TextCut(Value, frozen=True, kw_only=True):
    """A part of a message (`text` or `reasoning`) of which only head and tail are shown, sizes in characters.

    `removed` is the number that the text between them reports, if there is one.
    """

    part: Part = "text"
    head: Count
    tail: Count
    removed: Count = 0


class TokenCut(Value, frozen=True, kw_only=True):
    """Where to cut a message that has more than `cap` tokens of the tokenizer `codec`.

    Only the text tells where its tokens end, and decisions read no text. So this is measured once, when the
    event that holds the message is made, for each cap in the policy that is then in force.
    """

    codec: str
    cap: Count
    cuts: tuple[TextCut, ...]


class Size(Value, frozen=True, kw_only=True):
    """What is known of a message without reading it.

    `chars`, `reasoning` and `arguments` count characters: of its text, of its reasoning, of the arguments of
    its calls. `tokens` is what the policy's estimator says of all of it. `digest` is hex SHA-256 of its
    words, behind a salt where they are not the harness's own, and tells them from others when they are gone.
    `token_cuts` has an entry for each cap of a pass `trim_messages` that counts by a tokenizer, where the
    message is above that cap.
    """

    chars: Count = 0
    reasoning: Count = 0
    arguments: Count = 0
    tokens: Count = 0
    digest: str = ""
    token_cuts: tuple[TokenCut, ...] = ()


class Gap(Value, frozen=True, kw_only=True):
    """What a message of the harness stands for: `covers` messages, which weighed `tokens`, right after
    message `after` (0: in front).

    It frames words that are not the harness's: a summary, in the content of event `source`, or beginnings of
    the messages `sources`, a line of `per_message` characters each and `total` characters in all.
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
        """What its message is: a `summary`, a `digest`, or `compacted`, no more than a number."""
        return "summary" if self.source else "digest" if self.sources else "compacted"


class ToolSchema(Value, frozen=True, kw_only=True):
    """A tool as it is offered to a model. `schema` is JSON Schema of the arguments object, as JSON text."""

    name: str
    description: str
    schema: str
