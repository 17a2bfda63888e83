"""The policy: what an agent may do, as plain data that is recorded with its run.

Everything here is a value. Guards stay as they were written until a registry that the caller passes in
resolves them (`refold.reducers.guards.resolve`), because a policy may name guards that are not installed.
"""

from typing import Any, Literal

import msgspec

from refold.reducers.approvals import Approvals
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.history import Pass
from refold.reducers.knobs import (
    CallTimeout,
    Empty,
    Grace,
    Near,
    Overflow,
    Pressure,
    Progress,
    Stream,
    ToolOutput,
    Truncation,
)
from refold.reducers.limits import Limit, StepLimit
from refold.reducers.retry import Retry
from refold.reducers.texts import TEXTS

GuardConfig = dict[str, Any]
EstimatorName = Literal["chars4", "chars4_total", "chars4_joined", "cjk", "bytes4"]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Limits, history, recoveries, guards, approvals, retries, and what ends a turn.

    `end_of_turn`: what an answer without tool calls means. `complete` ends the run; `continue` asks the model
    to go on; `wait` waits for a person. `refusal`: what an answer that the provider's filter stopped means.
    `fallback`: the text of the outcome when a limit leaves none. `nudge`: whether every request ends with one.
    `batch`: how the calls of one answer run. `doubt`: whether the model is told of a call whose end nobody saw, or a
    person is asked first. `redact`: regular expressions, looked for in each line of what is recorded, and hidden. `texts` overrides what the harness says to the model, by key. Written without defaults left out, so that a recorded policy never
    changes its meaning when a default does.

    A key that a later version adds has here, as its default, what runs recorded without it meant; what the
    language takes for a key that was not written is filled in by `parse`.
    """

    schema: Literal["refold/v1"] = "refold/v1"
    limits: tuple[Limit, ...] = (StepLimit(value=50),)
    call_timeout: CallTimeout = CallTimeout()
    near: Near | None = None
    grace: Grace | None = None
    fallback: str | None = None
    estimator: EstimatorName = "chars4"
    history: tuple[Pass, ...] = ()
    overflow: Overflow | None = None
    tool_output: ToolOutput | None = ToolOutput()
    truncation: Truncation | None = None
    stream: Stream | None = None
    premature_end: GuardConfig | None = None
    empty: Empty | None = None
    refusal: Literal["fail", "complete", "wait"] = "fail"
    end_of_turn: Literal["complete", "continue", "wait"] = "complete"
    nudge: bool = False
    progress: Progress | None = None
    guards: tuple[GuardConfig, ...] = ()
    pressure: Pressure | None = None
    retry: Retry = Retry()
    approvals: Approvals | None = None
    batch: Literal["parallel", "in_order"] = "parallel"
    doubt: Literal["tell", "ask"] = "tell"
    redact: tuple[str, ...] = ()
    texts: dict[str, str] = {}


def text_of(policy: Policy, key: str) -> str:
    """What the harness says under this key. A policy recorded before the key was there means the built-in text.

    Raises `UnexpectedEvent` for a key that nobody has: only a forged log names one.
    """
    text = _text(policy, key)
    if text is None:
        raise UnexpectedEvent("text", f"the policy has none under {key!r}")
    return text


def has_text(policy: Policy, key: str) -> bool:
    """Whether the harness has something to say under this key."""
    return _text(policy, key) is not None


def _text(policy: Policy, key: str) -> str | None:
    return policy.texts.get(key) or TEXTS.get(key)
