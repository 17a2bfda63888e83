"""What a preset's demo plays: runs with a task and a policy, and what must hold of their logs afterwards."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers.events import Event
from refold.reducers.machine import TERMINAL
from refold.reducers.policy import Policy
from refold.replay.timeline import Timeline

FILES: Mapping[str, str] = MappingProxyType(
    {
        "README.md": "# refold\n\nrefold runs agents on a log: every run can be replayed, audited and forked.\n",
        "log.md": "# The log\n\nA run is an append-only log of events. The state is a fold over the log.\n",
        "limits.md": "# Limits\n\nA limit that trips ends the run: steps, time, tokens, cost or messages.\n",
        "audit.md": "# Audit\n\nAn audit derives every decision again from the facts, and compares.\n",
    }
)
"""What there is to read where nothing else is: file names and texts."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was played: its timeline, its events in order, and the text of its outcome."""

    told: Timeline
    events: tuple[Event, ...]
    text: str

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.told.agent_state in TERMINAL


class Expected(msgspec.Struct, frozen=True):
    """Something that a log is to show, in words, whether it does, and under which policies it is to."""

    shown: str
    holds: Callable[[Seen], bool]
    applies: Callable[[Policy], bool] = lambda policy: True  # noqa: ARG005


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the demo: what is asked under which policy, with the reading tools or without, and what is expected."""

    title: str
    task: str
    policy: Mapping[str, Any]
    expects: tuple[Expected, ...]
    tools: bool = True
    settings: Mapping[str, Any] = {}
