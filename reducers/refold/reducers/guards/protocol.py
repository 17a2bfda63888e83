"""What a guard is: a small frozen Struct, its configuration, with pure methods.

A guard sees events and says verdicts at the places that it names; the order of the places is fixed in
`refold.reducers.rules`, so a new guard is a new file and a line in a registry.
"""

from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Any, ClassVar, Protocol

import msgspec

from refold.reducers.events import Event
from refold.reducers.machine import Trigger
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Refusal, Role


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
    """End the run. Calls of the batch that were not started are refused: `text` with `values`. `reason` is one sentence."""

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
    """Say something to the model in the next request only: never kept, and not shown twice unless said again."""

    text: str
    values: dict[str, str | int] = {}


class Shorten(_Said, frozen=True, kw_only=True):
    """Show the result of `call` as the policy's text `text` with `values`, from now on. The log keeps the output."""

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
    of events it is shown; `reads_content` says that it needs what was said in them. A class may have `texts`, a
    mapping of keys to words for the model of its own; a policy may override them. A class with `guards_calls = True` says which
    calls may run: while it is blind, none does. A method `problems()` may yield (key, problem) of a configuration that cannot work.
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
