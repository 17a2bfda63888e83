"""The protocol of guards, and what guards share.

A guard observes events and returns verdicts at the places that it lists. `refold.reducers.rules` fixes the
order of the places, so a new guard is a new file and a line in a registry.
"""

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import msgspec

from refold.reducers.events import Event, InputReceived, RunForked
from refold.reducers.limits import Scope
from refold.reducers.machine import Trigger
from refold.reducers.state import CallState, RunState
from refold.reducers.vocabulary import Refusal, Replay, Role, Unknown, Value

OwnT = TypeVar("OwnT")


@unique
class Place(StrEnum):
    """A place in the order of checks. Within a place, guards run in the policy's order."""

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
    """Base of the verdicts. `measured`: the numbers and names that it is based on; recorded, never text."""

    code: str
    measured: dict[str, str | int] = {}


class Stop(_Said, frozen=True, kw_only=True):
    """Ends the run. Calls of the batch that have not started are refused: `text` with `values`.

    `reason` is one sentence.
    """

    reason: str
    trigger: Trigger = Trigger.FAIL
    text: str = "refused:guard"
    values: dict[str, str | int] = {}


class Refuse(_Said, frozen=True, kw_only=True):
    """Refuses one call. The model gets the policy's text `text`, filled with `values`."""

    call: str
    why: Refusal = Refusal.SKIPPED
    text: str = "refused:guard"
    values: dict[str, str | int] = {}
    metadata: dict[str, str | int | bool] = {}


class Warn(_Said, frozen=True, kw_only=True):
    """Continues, and records what was seen for users. The model does not see it."""


class Inject(_Said, frozen=True, kw_only=True):
    """Sends the policy's text `text`, filled with `values`, to the model; it stays in the history."""

    text: str
    role: Role = Role.USER
    values: dict[str, str | int] = {}


class Remind(_Said, frozen=True, kw_only=True):
    """Sends a text to the model in the next request only. To repeat it, return it again."""

    text: str
    values: dict[str, str | int] = {}


class Shorten(_Said, frozen=True, kw_only=True):
    """Replaces the result of `call` by the policy's text `text` with `values`, from now on.

    The log keeps the output.
    """

    call: str
    text: str
    values: dict[str, str | int] = {}


class Ask(_Said, frozen=True, kw_only=True):
    """Asks a user about these calls. `timeout`: nanoseconds; None waits without a limit."""

    calls: tuple[str, ...]
    approver: str
    timeout: int | None = None


Judgement = Stop | Refuse | Warn | Inject | Remind | Shorten | Ask


class Guard(Protocol):
    """A guard. Every method is pure and total.

    `version` is recorded with each decision, and changes when the rule does. `observes`: kinds of events that
    the guard gets. `reads_content`: it needs their payload. Optional attributes: `texts`, a mapping of keys
    to texts for the model, which a policy may override; `guards_calls = True`, if it decides which calls may
    run (while it is blind, none runs); `content_unread`, kinds of events whose payload it does not need;
    `blind`, a property that returns why it cannot judge in this process; `complete()`, which returns the
    configuration with what it depends on filled in, to be recorded; `problems()`, which yields (key, problem)
    for a configuration that cannot work; `reading`, which tells `whatif` what the rule needs (see `Reading`).
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    places: ClassVar[frozenset[Place]]
    observes: ClassVar[frozenset[type[Event]]]
    reads_content: ClassVar[bool]

    def start(self) -> Any:
        """Return the guard's state before any event: an immutable value that msgspec can encode."""
        ...

    def observe(self, own: Any, event: Event) -> Any:
        """Return its state after an event; the same object if unchanged."""
        ...

    def judge(self, own: Any, state: RunState, place: Place) -> Iterable[Judgement]:
        """Return its verdicts at this place; none means continue."""
        ...


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a guard's rule reads that a record may lack. The defaults are for a guard that declares nothing.

    `calls`: names or arguments of calls. `manifest`: which tools the model is offered, beside those that it
    calls, their sizes, and which only read. `monotone`: kinds of figures that, when higher, can only make it
    trip earlier, so the two bounds determine its verdicts between them. `warns`: between the bounds it may
    return a verdict before it trips. `tools`: keys of its configuration that name tools, by `name` or `glob`;
    `target`: the key of a tool that the model is pointed to. Each class declares its own in `reading`;
    it is not inherited.
    """

    calls: bool = True
    manifest: bool = True
    monotone: frozenset[Unknown] = frozenset()
    warns: bool = True
    tools: Mapping[str, Literal["name", "glob"]] = {}
    target: str = ""


_UNDECLARED = Reading()


def reading_of(guard: Any) -> Reading:
    """Return what a guard, or its class, declares that it reads.

    Ignores an inherited declaration, because a subclass may have another rule.
    """
    kind = guard if isinstance(guard, type) else type(guard)
    reading = getattr(kind, "reading", _UNDECLARED)
    inherited = any(getattr(base, "reading", None) is reading for base in kind.__bases__)
    return reading if isinstance(reading, Reading) and not inherited else _UNDECLARED


class Own(Value, frozen=True):
    """Base of a guard's state: small, and bounded however long the run is."""


class GuardDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of a guard without fields, for a configuration with another base.

    `fresh` is its state before any event.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    observes: ClassVar[frozenset[type[Event]]] = frozenset()
    reads_content: ClassVar[bool] = False
    fresh: ClassVar[Any] = None

    def start(self) -> Any:
        """Return the state before any event."""
        return self.fresh

    def observe(self, own: Any, event: Event) -> Any:  # noqa: ARG002
        """Return the state after an event."""
        return own


class Config(GuardDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="guard"):
    """Base of a guard's configuration. `name` identifies it among the guards; by default its kind."""

    name: str = ""

    @property
    def called(self) -> str:
        """Return its name, which its decisions record as their cause."""
        return self.name or self.kind


def same_if_equal(own: OwnT, after: OwnT) -> OwnT:
    """Return `own` if `after` is equal to it, else `after`: unchanged state stays the same object."""
    return own if after == own else after


def begins(scope: Scope, event: Event) -> bool:
    """Return whether an event restarts the scope: `turn` on a user message or fork, `run` on a fork."""
    if isinstance(event, InputReceived):
        return scope == "turn"
    return scope != "lineage" and isinstance(event, RunForked)


def open_calls(state: RunState) -> tuple[CallState, ...]:
    """Return the calls of the latest response that are not refused, in order."""
    return tuple(call for call in state.batch.calls if call.result is None) if state.batch else ()


def read_only(state: RunState) -> frozenset[str]:
    """Return the names of the tools with the replay class `read_only`."""
    return frozenset(tool.name for tool in state.setup.tools if tool.replay is Replay.READ_ONLY)


def digest(*parts: str) -> str:
    """Return the hex SHA-256 of texts; the boundaries between them count."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def known(tool: str, state: RunState) -> str:
    """Return the name of a tool, or "a tool" for an unknown one.

    An unknown name is text of the model, which no decision may hold.
    """
    return tool if any(tool == offered.name for offered in state.setup.tools) else "a tool"
