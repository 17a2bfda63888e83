"""Decisions: events that pure functions derive from the state.

An audit derives each of them again and compares.

Decisions never repeat text of a model, a tool or a user. Their texts are the harness's own, from the policy.
"""

from typing import Literal

from refold.reducers.events.parts import Content, Decision
from refold.reducers.limits import LimitHit
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.messages import Gap, Size, TextCut
from refold.reducers.vocabulary import (
    Cause,
    Count,
    FailureClass,
    Ordinal,
    Ranges,
    Refusal,
    Role,
    Value,
    Verdict,
)

Purpose = Literal["step", "grace"]


class RequestText(Value, frozen=True, kw_only=True):
    """A text that is included in one request and not kept in the window.

    `text` is its key in the policy's texts, `size` the size of the rendered text. `cause` is the reason, and
    `name` the guard that requested it; `tier` is the tier of context pressure that it reports; `escalated`:
    the model ignored this tier's text before.
    """

    role: Role
    text: str
    size: Size = Size()
    values: dict[str, str | int] = {}
    cause: Cause
    name: str = ""
    place: Literal["user", "system", "tool_result"] = "user"
    tier: str = ""
    escalated: bool = False


class Said(Content, frozen=True, kw_only=True):
    """Rendered texts of the harness, exactly as the model gets them.

    They are not secret, so their digest has no salt.
    """

    texts: tuple[str, ...]


class ModelRequested(Decision, frozen=True, kw_only=True, tag="model_requested"):
    """Ask the model. `messages` are ranges of message numbers, `view` is the digest of the prompt.

    `tools` are the names offered, None for the whole manifest; `deadline` is an instant; `input_tokens` is an
    estimate, `max_output` the upper bound for output tokens. `purpose`: `step`, or `grace` for the one
    request that a limit grants. `model` replaces the run's model, "" means the run's own. The content has one
    text for each entry of `request_only`.
    """

    step: Count
    attempt: Ordinal
    view: str
    messages: Ranges
    input_tokens: Count
    deadline: Count | None = None
    tools: tuple[str, ...] | None = None
    request_only: tuple[RequestText, ...] = ()
    max_output: Count | None = None
    purpose: Purpose = "step"
    model: str = ""
    content: Said | None = None


class ToolsDispatched(Decision, frozen=True, kw_only=True, tag="tools_dispatched"):
    """Run these calls. `deadline` is an instant."""

    calls: tuple[str, ...]
    attempt: Ordinal = 1
    deadline: Count | None = None


class CallRefused(Decision, frozen=True, kw_only=True, tag="call_refused"):
    """Do not run this call. `text` is the key of the text sent to the model, `name` the guard or limit.

    `version`, `code`, `measured` and `metadata` come from the guard: its version, the reason, what it
    measured, and data for callers. With `hidden`, the prompt has neither the call nor this result, because
    the response broke off inside the call.
    """

    call: str
    why: Refusal
    cause: Cause
    name: str = ""
    version: Count = 1
    text: str
    code: str = ""
    measured: dict[str, str | int] = {}
    metadata: dict[str, str | int | bool] = {}
    hidden: bool = False
    size: Size = Size()
    content: Said | None = None


class ApprovalRequested(Decision, frozen=True, kw_only=True, tag="approval_requested"):
    """Ask an approver about these calls, for the guard `guard`.

    `deadline` is an instant; `approver` names the link of the guard's chain.
    """

    guard: str
    calls: tuple[str, ...]
    approver: str
    deadline: Count | None = None
    version: Count = 1


class SummaryRequested(Decision, frozen=True, kw_only=True, tag="summary_requested"):
    """Ask a model to summarize these messages, for the compaction step `name`.

    The summary becomes a message of `role` right after message `after` (0: at the front), in place of these
    messages. The content is the instructions to the model, `instructions` their size.
    """

    name: str
    messages: Ranges
    input_tokens: Count = 0
    max_output: Count | None = None
    deadline: Count | None = None
    after: Count = 0
    role: Role = Role.USER
    instructions: Size = Size()
    content: Said | None = None


class HistoryPruned(Decision, frozen=True, kw_only=True, tag="history_pruned"):
    """Remove messages from the window. `kept` are the ranges that stay; `name` is the compaction step.

    `before` and `after` count messages; `tokens_before` and `tokens_after` are estimates. `over_budget`: the
    messages that must stay exceed the budget.
    """

    name: str
    reason: str
    before: Count
    after: Count
    tokens_before: Count
    tokens_after: Count
    kept: Ranges
    over_budget: bool = False


class MessageTrimmed(Decision, frozen=True, kw_only=True, tag="message_trimmed"):
    """Shorten a message in all later prompts, as `cuts` describe. Its full text stays in the log.

    `name` is the compaction step or guard, depending on `cause`. `before` is the old size in estimated
    tokens, `size` the new size. The content has one replacement text for each cut.
    """

    message: Count
    cause: Cause
    name: str
    reason: str
    before: Count
    size: Size
    cuts: tuple[TextCut, ...] = ()
    content: Said | None = None


class MessageInjected(Decision, frozen=True, kw_only=True, tag="message_injected"):
    """Add a message of the harness to the window: the policy's text `text`.

    `cause` is the reason, `name` the guard or compaction step that requested it. The message goes to the end,
    or into `gap`. The content is its one text, or the texts around a summary or digest if the gap has one.
    `continues_response`: the response to it continues the response before it.
    """

    role: Role
    text: str
    cause: Cause
    name: str = ""
    continues_response: bool = False
    gap: Gap | None = None
    size: Size
    content: Said | None = None


class GuardTripped(Decision, frozen=True, kw_only=True, tag="guard_tripped"):
    """A guard returned a verdict other than allow: what it measured and what it returned."""

    guard: str
    version: Count
    verdict: Verdict
    code: str
    measured: dict[str, str | int] = {}


class LimitReached(Decision, frozen=True, kw_only=True, tag="limit_reached"):
    """A limit was reached: it ends the run, after the batch is complete if `deferred`."""

    limit: LimitHit
    deferred: bool = False


class LimitNeared(Decision, frozen=True, kw_only=True, tag="limit_neared"):
    """Warn users that a limit is near: usage reached `threshold`, in the limit's unit.

    The model does not get this warning.
    """

    of: Literal["time", "budget"]
    limit: LimitHit
    threshold: int


class StepExempted(Decision, frozen=True, kw_only=True, tag="step_exempted"):
    """The step limit `limit` does not count this step: it exempts the tools of all its calls."""

    limit: str


class ContextOverflowed(Decision, frozen=True, kw_only=True, tag="context_overflowed"):
    """The prompt exceeded the model's context: make room and ask the model again.

    `uncounted_steps` is the number of steps that do not count.
    """

    uncounted_steps: Count


class ResponseDiscarded(Decision, frozen=True, kw_only=True, tag="response_discarded"):
    """Discard an empty response and ask again, for the time `count` in a row."""

    count: Ordinal


class SummaryAbandoned(Decision, frozen=True, kw_only=True, tag="summary_abandoned"):
    """Give up the summary for the compaction step `name`, which failed. Its messages stay."""

    name: str
    failure: FailureClass


class RetryScheduled(Decision, frozen=True, kw_only=True, tag="retry_scheduled"):
    """Ask again, as attempt number `attempt`, after `delay` nanoseconds: not before the instant `until`.

    `cause`: `retry`; `fallback` to the model `model` ("" for the run's); or `stream`: the stream broke, and a
    new step begins. `keeps`: the partial response stays as a message.
    """

    attempt: Ordinal
    delay: Count
    until: Count
    failure: FailureClass
    model: str = ""
    cause: Cause = Cause.RETRY
    keeps: bool = False


class StateChanged(
    Decision, frozen=True, kw_only=True, tag="state_changed", rename={"source": "from", "target": "to"}
):
    """Move the machine. `reason` is a sentence, `code` its stable name.

    `where` is what was in progress at a cancellation or a time-out: `model`, `tools`, `waiting` or `between`.
    `outcome` names the source of the outcome's text if that is not the last response: `grace` or `fallback`.
    """

    source: AgentState
    target: AgentState
    trigger: Trigger
    code: str
    reason: str
    where: str | None = None
    outcome: Literal["", "grace", "fallback"] = ""


class StateDigested(Decision, frozen=True, kw_only=True, tag="state_digested"):
    """Digests of the state without its guards, and of each guard, in hex: checkpoints for comparing logs."""

    state: str
    guards: dict[str, str] = {}


DECISIONS: tuple[type[Decision], ...] = (
    ModelRequested,
    ToolsDispatched,
    CallRefused,
    ApprovalRequested,
    SummaryRequested,
    SummaryAbandoned,
    HistoryPruned,
    MessageTrimmed,
    MessageInjected,
    GuardTripped,
    LimitReached,
    LimitNeared,
    StepExempted,
    ContextOverflowed,
    ResponseDiscarded,
    RetryScheduled,
    StateChanged,
    StateDigested,
)
