"""The base classes of all events, and the values in their bodies.

An event's *body* is all its fields but `content`: ids, names, numbers, sizes, reasons. Its `content` is the
payload: texts, arguments, outputs. Folding needs only bodies, so `content` is None where it was not read or
was erased. The body of an event that becomes a message has its `Size`, with a digest of the text, so prompts
can be compared without texts. The store's hash chain has a digest of every content.
"""

from typing import Literal

from refold.reducers.messages import Message, Size
from refold.reducers.vocabulary import Count, Replay, Role, Unknown, Value


class Event(Value, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. Kinds and fields never change their meaning; new fields have defaults."""


class Fact(Event, frozen=True, kw_only=True):
    """An event from outside that cannot be recomputed. `at` is integer nanoseconds since the Unix epoch.

    `unknown` lists what the source of an imported fact does not record; of `run_started`, what it records
    nowhere. In a live run, it lists what the engine did not know.
    """

    at: int
    unknown: tuple[Unknown, ...] = ()


class Decision(Event, frozen=True, kw_only=True):
    """An event that a pure function derived from the state and one fact. Its time is that of the fact."""


class Annotation(Event, frozen=True, kw_only=True, tag_field="annotation"):
    """An event without effect on the state. `at` as in `Fact`.

    Its body is tagged `annotation`, not `kind`. So a reader that does not know the kind still knows that it
    can skip the event.
    """

    at: int


class Content(Value, frozen=True, kw_only=True):
    """Base of payloads. Content can be erased: a decision may use it only where it declares that."""


class Manifest(Value, frozen=True, kw_only=True):
    """A tool as it was offered. `schema` is JSON text, `timeout` nanoseconds, `digest` of its code, hex.

    `agent` names the agent that a call starts as a child run, "" for any other tool.
    """

    name: str
    description: str = ""
    schema: str = "{}"
    replay: Replay = Replay.AT_MOST_ONCE
    timeout: Count | None = None
    digest: str = ""
    agent: str = ""


class MessageHead(Value, frozen=True, kw_only=True):
    """The body of a message that is not a response of this run.

    `unit` is the index (from 0) of the response whose calls this message belongs to, its own index if it is
    alone. The digest in its size covers this message alone.
    """

    role: Role
    unit: Count
    call: str | None = None
    size: Size = Size()


class Parent(Value, frozen=True, kw_only=True):
    """The run and the call that started this run."""

    run: str
    call: str


class Opening(Content, frozen=True, kw_only=True):
    """The messages that a run starts with: the system prompt, earlier messages and, last, the task."""

    messages: tuple[Message, ...]


class Call(Value, frozen=True, kw_only=True):
    """A tool call in a response. `id` is unique in the run, `provider_id` is the provider's own.

    `complete`: the arguments parse as a JSON object (empty text counts as `{}`). `refused`: the harness of an
    imported run did not run the call. Such a call is never dispatched; its `tool_returned` has the text sent
    to the model and who refused.
    """

    id: str
    name: str
    provider_id: str = ""
    complete: bool = True
    refused: bool = False


class Answer(Content, frozen=True, kw_only=True):
    """The payload of a response.

    `arguments` are JSON texts as the model wrote them, one for each call, in order.
    """

    text: str = ""
    reasoning: str = ""
    arguments: tuple[str, ...] = ()
    provider_data: str = ""


class Failure(Content, frozen=True, kw_only=True):
    """The provider's error message, and the text received before the failure."""

    message: str = ""
    partial_text: str = ""


class Output(Content, frozen=True, kw_only=True):
    """A tool's output after the cap, as the model gets it. `sha256` is of the full output, hex."""

    output: str
    sha256: str = ""


class Note(Content, frozen=True, kw_only=True):
    """A user's note about their action."""

    note: str = ""


class ApprovalAnswer(Value, frozen=True, kw_only=True):
    """An approver's decision about one call."""

    call: str
    decision: Literal["approve", "reject", "edit", "escalate", "terminate"]


class Input(Content, frozen=True, kw_only=True):
    """The text of a user's message."""

    text: str = ""


class Edits(Content, frozen=True, kw_only=True):
    """New arguments of the calls that an approver edited, as JSON text by call id, and the note."""

    arguments: dict[str, str] = {}
    note: str = ""


class Summary(Content, frozen=True, kw_only=True):
    """A text that a model wrote to replace older messages."""

    text: str


class Reason(Content, frozen=True, kw_only=True):
    """The reason that a user gave for a request."""

    reason: str = ""
