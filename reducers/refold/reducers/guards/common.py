"""What guards share: the form of their configuration and of what they remember, scopes, and the open batch."""

import hashlib
from typing import Any, ClassVar

import msgspec

from refold.reducers.events import Event, InputReceived, RunForked
from refold.reducers.limits import Scope
from refold.reducers.state import CallState, RunState
from refold.reducers.values import Value
from refold.reducers.vocabulary import Replay


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
    """Whether the scope begins anew: `turn` with a person's message or a fork, `run` with a fork, `lineage` never."""
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
    """The name of a tool that there is. One that no tool has is a text of the model's: it stands in no decision."""
    return tool if any(tool == offered.name for offered in state.setup.tools) else "a tool"
