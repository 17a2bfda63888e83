"""What a guard is, and what guards share.

A guard sees events and says verdicts at the places that it names; the order of the places is fixed in
`refold.reducers.rules`, so a new guard is a new file and a line in a registry.
"""

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from refold.reducers.events import Event, InputReceived, RunForked
from refold.reducers.limits import Scope
from refold.reducers.machine import Trigger
from refold.reducers.state import CallState, RunState
from refold.reducers.vocabulary import Refusal, Replay, Role, Unknown, Value


@unique
class Place(StrEnum):
    """Where in the order of checks a guard speaks. Within a place the policy's order holds."""

    BEFORE_REQUEST = "before_request"
    ON_RESPONSE = "on_response"
    ON_REPETITION = "on_repetition"
    ON_CALLS = "on_calls"
    ON_BATCH = "on_batch"
    ON_APPROVAL = "on_approval"
    ON_FINISHED = "on_finished"
    ON_RESULTS = "on_results"
    AFTER_TOOLS = "after_tools"
    ON_NUDGE = "on_nudge"


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what a guard says. `saw` are the numbers and names that it judged by: recorded, never text."""

    code: str
    saw: dict[str, str | int] = {}


class Stop(_Said, frozen=True, kw_only=True):
    """End the run. Calls of the batch that were not started are refused: `text` with `values`.

    `reason` is one sentence.
    """

    reason: str
    trigger: Trigger = Trigger.FAIL
    text: str = "refused:guard"
    values: dict[str, str | int] = {}


class Refuse(_Said, frozen=True, kw_only=True):
    """Do not run one call. The model is told the policy's text `text`, filled with `values`."""

    call: str
    why: Refusal = Refusal.SKIPPED
    text: str = "refused:guard"
    values: dict[str, str | int] = {}
    metadata: dict[str, str | int | bool] = {}


class Warn(_Said, frozen=True, kw_only=True):
    """Let it go on, and record what was seen. For people; the model is not told."""


class Inject(_Said, frozen=True, kw_only=True):
    """Say something to the model, kept: the policy's text `text` with `values`."""

    text: str
    role: Role = Role.USER
    values: dict[str, str | int] = {}


class Remind(_Said, frozen=True, kw_only=True):
    """Say something to the model in the next request only: never kept, and not shown twice unless said
    again.
    """

    text: str
    values: dict[str, str | int] = {}


class Shorten(_Said, frozen=True, kw_only=True):
    """Show the result of `call` as the policy's text `text` with `values`, from now on.

    The log keeps the output.
    """

    call: str
    text: str
    values: dict[str, str | int] = {}


class Ask(_Said, frozen=True, kw_only=True):
    """Ask a person about these calls. `timeout` is nanoseconds; None waits for as long as it takes."""

    calls: tuple[str, ...]
    approver: str
    timeout: int | None = None


Judgement = Stop | Refuse | Warn | Inject | Remind | Shorten | Ask


class Guard(Protocol):
    """A guard. Every method is pure and total.

    `version` is recorded with each of its decisions, and changes when its rule does. `observes` are the kinds
    of events it is shown; `reads_content` says that it needs what was said in them. A class may have `texts`,
    a mapping of keys to words for the model of its own; a policy may override them. A class with
    `guards_calls = True` says which calls may run: while it is blind, none does. A method `problems()` may
    yield (key, problem) of a configuration that cannot work.

    A class may declare what `whatif` has to know of its rule; see `Reading`.
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    places: ClassVar[frozenset[Place]]
    observes: ClassVar[frozenset[type[Event]]]
    reads_content: ClassVar[bool]

    def start(self) -> Any:
        """The guard's own state before any event: an immutable value that msgspec can encode."""
        ...

    def observe(self, own: Any, event: Event) -> Any:
        """Its own state after an event. Unchanged is the same object."""
        ...

    def judge(self, own: Any, state: RunState, place: Place) -> Iterable[Judgement]:
        """What it says at this place; nothing is: go on."""
        ...


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a guard's rule reads of a record that may lack it. The defaults are those of a guard that declares
    nothing.

    `calls`: names or arguments of calls. `monotone`: kinds of which more can only make it trip earlier, so
    that the two bounds decide what it does between them. `warns`: between the bounds it may say something
    before it trips. `tools`: keys of its configuration that name tools, each by a `name` or a `glob`;
    `target`: the key of a tool that the model is pointed to. A class declares its own in `reading`, and
    inherits none.
    """

    calls: bool = True
    monotone: frozenset[Unknown] = frozenset()
    warns: bool = True
    tools: Mapping[str, Literal["name", "glob"]] = {}
    target: str = ""


_UNDECLARED = Reading()


def reading_of(guard: Any) -> Reading:
    """What a guard, or its class, declares that it reads.

    A subclass may have another rule: it declares its own.
    """
    kind = guard if isinstance(guard, type) else type(guard)
    reading = getattr(kind, "reading", _UNDECLARED)
    inherited = any(getattr(base, "reading", None) is reading for base in kind.__bases__)
    return reading if isinstance(reading, Reading) and not inherited else _UNDECLARED


class Own(Value, frozen=True):
    """Base of what a guard remembers: small, and bounded however long the run is."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="guard"):
    """Base of a guard's configuration. `name` is its name among the policy's guards, by default its kind.

    `fresh` is what it remembers before any event.
    """

    name: str = ""

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    observes: ClassVar[frozenset[type[Event]]] = frozenset()
    reads_content: ClassVar[bool] = False
    fresh: ClassVar[Any] = None

    def start(self) -> Any:
        """Nothing seen yet."""
        return self.fresh

    def observe(self, own: Any, event: Event) -> Any:  # noqa: ARG002
        """What it remembers after an event."""
        return own

    @property
    def called(self) -> str:
        """The cause of what it has said."""
        return self.name or self.kind


def begins(scope: Scope, event: Event) -> bool:
    """Whether the scope begins anew: `turn` with a person's message or a fork, `run` with a fork, `lineage`
    never.
    """
    if isinstance(event, InputReceived):
        return scope == "turn"
    return scope != "lineage" and isinstance(event, RunForked)


def open_calls(state: RunState) -> tuple[CallState, ...]:
    """The calls of the latest answer that nothing has refused yet, in order."""
    return tuple(call for call in state.batch.calls if call.result is None) if state.batch else ()


def read_only(state: RunState) -> frozenset[str]:
    """The names of the tools whose replay class says that they change nothing."""
    return frozenset(tool.name for tool in state.setup.tools if tool.replay is Replay.READ_ONLY)


def digest(*parts: str) -> str:
    """Hex SHA-256 of texts, told apart."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def known(tool: str, state: RunState) -> str:
    """The name of a tool that there is.

    One that no tool has is a text of the model's: it stands in no decision.
    """
    return tool if any(tool == offered.name for offered in state.setup.tools) else "a tool"
