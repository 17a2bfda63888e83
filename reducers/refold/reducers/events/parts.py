"""The base of all events, and what stands in their bodies.

An event's *body* is all its fields but `content`: ids, names, numbers, sizes, reasons. Its `content` is what
was said: texts, arguments, outputs. Folding needs bodies only, so `content` is None where it was not read,
and for ever where it was erased. What became a message has its `Size` in the body, with a digest of the
words, so that what a model saw can be told apart without them; of every content the store's chain has the
digest.
"""

from typing import Literal

from refold.reducers.messages import Message, Size
from refold.reducers.vocabulary import Count, Replay, Role, Unknown, Value


class Event(Value, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. Kinds and fields never change their meaning; new fields have defaults."""


class Fact(Event, frozen=True, kw_only=True):
    """Something from outside that cannot be recomputed. `at` is integer nanoseconds since the Unix epoch.

    `unknown` is what its source does not say of it: of `run_started` what it says nowhere. Of a run of ours,
    what nobody knew.
    """

    at: int
    unknown: tuple[Unknown, ...] = ()


class Decision(Event, frozen=True, kw_only=True):
    """Something that a pure function derived from the state and one fact; it happened when its fact did."""


class Annotation(Event, frozen=True, kw_only=True, tag_field="annotation"):
    """Something worth keeping that has no effect on the state. `at` as in `Fact`.

    Its body is tagged `annotation`, not `kind`: so a reader knows of an annotation that it does not know
    that it may be skipped.
    """

    at: int


class Content(Value, frozen=True, kw_only=True):
    """Base of what was said. It can be erased; nothing that decides may need it without saying so."""


class Manifest(Value, frozen=True, kw_only=True):
    """A tool as it was offered. `schema` is JSON text, `timeout` nanoseconds, `digest` of its code, hex.

    `agent` names the agent of whom a call starts a child run, "" for any other tool.
    """

    name: str
    description: str = ""
    schema: str = "{}"
    replay: Replay = Replay.AT_MOST_ONCE
    timeout: Count | None = None
    digest: str = ""
    agent: str = ""


class MessageHead(Value, frozen=True, kw_only=True):
    """What the machine needs to know of a message that no answer of this run made.

    `unit` is the index (from 0) of the reply whose calls this message belongs to, itself if it is alone. The
    digest in its size is of this message alone.
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
    """What the run began with: the system prompt, earlier messages and, last, the task."""

    messages: tuple[Message, ...]


class Call(Value, frozen=True, kw_only=True):
    """A tool call in a model's answer. `id` is unique in the run, `provider_id` the provider's own.

    `complete`: the arguments parse as a JSON object (empty text counts as `{}`). `refused`: the harness of an
    imported run kept it from running. It is never dispatched; its `tool_returned` has the words that the
    model was given, and who refused.
    """

    id: str
    name: str
    provider_id: str = ""
    complete: bool = True
    refused: bool = False


class Answer(Content, frozen=True, kw_only=True):
    """What the model said. `arguments` are JSON texts as it wrote them, one a call, in order."""

    text: str = ""
    reasoning: str = ""
    arguments: tuple[str, ...] = ()
    provider_data: str = ""


class Failure(Content, frozen=True, kw_only=True):
    """What the provider said went wrong, and what had arrived of an answer."""

    message: str = ""
    partial_text: str = ""


class Output(Content, frozen=True, kw_only=True):
    """What the tool said, as the model sees it: after the cap. `sha256` is of the uncut output, hex."""

    output: str
    sha256: str = ""


class Note(Content, frozen=True, kw_only=True):
    """What a person wrote about what they did."""

    note: str = ""


class ApprovalAnswer(Value, frozen=True, kw_only=True):
    """What a person decided about one call."""

    call: str
    decision: Literal["approve", "reject", "edit", "escalate", "terminate"]


class Input(Content, frozen=True, kw_only=True):
    """What a person said."""

    text: str = ""


class Edits(Content, frozen=True, kw_only=True):
    """The new arguments of the calls that a person edited, JSON text by call id, and what they wrote about
    it.
    """

    arguments: dict[str, str] = {}
    note: str = ""


class Summary(Content, frozen=True, kw_only=True):
    """A text that a model wrote to replace older messages."""

    text: str


class Reason(Content, frozen=True, kw_only=True):
    """Why somebody asked for this."""

    reason: str = ""
