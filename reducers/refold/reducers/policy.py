"""The policy: what an agent may do, as plain data that is recorded with its run.

Everything here is a value. Guards stay as they were written until a registry that the caller passes in
resolves them (`refold.reducers.guards.resolve`), because a policy may name guards that are not installed.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from refold.reducers.history import Pass
from refold.reducers.limits import Amount, Limit, StepLimit
from refold.reducers.numbers import nano
from refold.reducers.retry import Retry
from refold.reducers.texts import TEXTS

GuardConfig = dict[str, Any]


class CallTimeout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Each model call and each batch of tools gets the time that is left of the tightest limit, at least `min` s."""

    min: Amount = 1

    @property
    def nanoseconds(self) -> int:
        """The minimum in nanoseconds."""
        return nano(self.min)


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The cap on what a tool may say, in UTF-8 bytes: its head and tail stay, the middle is cut."""

    max: Annotated[int, Meta(ge=1)] = 16384


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Limits, history, guards, retries, and what ends a turn.

    `end_of_turn`: what an answer without tool calls means. `complete` ends the run; `continue` asks the model
    to go on; `wait` waits for a person. `batch`: how the calls of one answer run. `texts` overrides what the
    harness says to the model, by key. Written without defaults left out, so that a recorded policy never
    changes its meaning when a default does.

    A key that a later version adds has here, as its default, what runs recorded without it meant; what the
    language takes for a key that was not written is filled in by `parse`.
    """

    schema: Literal["refold/v1"] = "refold/v1"
    limits: tuple[Limit, ...] = (StepLimit(value=50),)
    call_timeout: CallTimeout = CallTimeout()
    estimator: Literal["chars4"] = "chars4"
    history: tuple[Pass, ...] = ()
    guards: tuple[GuardConfig, ...] = ()
    tool_output: ToolOutput | None = ToolOutput()
    retry: Retry = Retry()
    end_of_turn: Literal["complete", "continue", "wait"] = "complete"
    batch: Literal["parallel", "in_order"] = "parallel"
    texts: dict[str, str] = {}


def text_of(policy: Policy, key: str) -> str:
    """What the harness says under this key. A policy recorded before the key was there means the built-in text."""
    return policy.texts.get(key) or TEXTS[key]
