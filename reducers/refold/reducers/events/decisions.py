"""Decisions: what pure functions derived. An audit derives each of them again and compares.

No text that a model, a tool or a person wrote is ever repeated in one. The texts that are here are the
harness's own, from the policy.
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
    """A text that is shown in one request and never kept. `text` is its key in the policy's texts, `size` of
    its words.

    `cause` says why, and `name` which guard asked for it; `tier` is the degree of pressure that it tells of;
    `escalated`: the tier's own words were ignored before.
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
    """Texts of the harness, rendered: exactly what the model sees.

    Their digest needs no salt: they are no secret.
    """

    texts: tuple[str, ...]


class ModelRequested(Decision, frozen=True, kw_only=True, tag="model_requested"):
    """Ask the model. `messages` are ranges of message numbers, `view` the digest of all that it will see.

    `tools` are the names offered, None for the whole manifest; `deadline` is an instant; `input_tokens` is
    the estimate, `max_output` the most output tokens wanted. `purpose`: `step`, or `grace` for the one
    request that a limit grants. `model` is asked instead of the run's, "" if it is that one. The content has
    the words of `request_only`, a text each.
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
    """Do not run this call. `text` is the key of what the model is told; `cause` says why, `name` which guard
    or limit it was.

    `version`, `code`, `saw` and `metadata` are the guard's own: why, by what it judged, and for whom it may
    concern. With `hidden` neither the call nor this result is shown to the model: the call was never
    finished.
    """

    call: str
    why: Refusal
    cause: Cause
    name: str = ""
    version: Count = 1
    text: str
    code: str = ""
    saw: dict[str, str | int] = {}
    metadata: dict[str, str | int | bool] = {}
    hidden: bool = False
    size: Size = Size()
    content: Said | None = None


class ApprovalRequested(Decision, frozen=True, kw_only=True, tag="approval_requested"):
    """Ask a person about these calls, for the guard `guard`.

    `deadline` is an instant; `approver` names the link of its chain.
    """

    guard: str
    calls: tuple[str, ...]
    approver: str
    deadline: Count | None = None
    version: Count = 1


class SummaryRequested(Decision, frozen=True, kw_only=True, tag="summary_requested"):
    """Ask a model to sum up these messages, for the pass `name`.

    The summary, as a message of `role`, is to stand for them right after message `after` (0: in front). The
    content has what the model is told to do; `instructions` is the size of that.
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
    """Messages left the window. `kept` are the ranges that stay; `name` is the pass that asked.

    `before` and `after` count messages, the `tokens_` estimates. `over_budget`: what had to stay does not
    fit.
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
    """A message is shown shorter from here on: `cuts` say what of it. Its text stays in the log.

    `name` is the pass that asked, or the guard, as `cause` says. `before` is what it weighed, in estimated
    tokens, `size` what is shown of it from here on. The content has what stands where something was cut, a
    text a cut.
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
    """The harness says something to the model: the policy's text `text`, kept in the window.

    `cause` says why, and `name` which guard or pass asked for it. It stands at the end, or in a `gap`. The
    content has its one text, or, where the gap has words of its own, the texts around them. `stitches`: the
    answer to it goes on with the one before.
    """

    role: Role
    text: str
    cause: Cause
    name: str = ""
    stitches: bool = False
    gap: Gap | None = None
    size: Size
    content: Said | None = None


class GuardTripped(Decision, frozen=True, kw_only=True, tag="guard_tripped"):
    """A guard did not simply allow: what it saw, and what it said."""

    guard: str
    version: Count
    verdict: Verdict
    code: str
    saw: dict[str, str | int] = {}


class LimitReached(Decision, frozen=True, kw_only=True, tag="limit_reached"):
    """A limit was reached: it ends the run, once the batch is done if it is `deferred`."""

    limit: LimitHit
    deferred: bool = False


class LimitNeared(Decision, frozen=True, kw_only=True, tag="limit_neared"):
    """People are warned that a limit is near: `threshold`, in its unit, was reached. The model is not
    told.
    """

    of: Literal["time", "budget"]
    limit: LimitHit
    threshold: int


class StepFreed(Decision, frozen=True, kw_only=True, tag="step_freed"):
    """The step limit `limit` does not count this step: all its calls are to tools that it leaves free."""

    limit: str


class ContextOverflowed(Decision, frozen=True, kw_only=True, tag="context_overflowed"):
    """The context was too long: room is made, and the model asked again.

    `gives_back` are steps that do not count.
    """

    gives_back: Count


class AnswerDiscarded(Decision, frozen=True, kw_only=True, tag="answer_discarded"):
    """An answer of nothing is asked for again, for the time `count` in a row. Nothing of it is kept."""

    count: Ordinal


class SummaryAbandoned(Decision, frozen=True, kw_only=True, tag="summary_abandoned"):
    """The summary for the pass `name` failed, and is not asked for again: what it was to stand for stays."""

    name: str
    failure: FailureClass


class RetryScheduled(Decision, frozen=True, kw_only=True, tag="retry_scheduled"):
    """Ask again, as attempt number `attempt`, after `delay` nanoseconds: not before the instant `until`.

    `cause`: `retry`, of `model` ("" for the run's), `fallback` to another one, or `stream`: the stream broke,
    and a new step is made. What had arrived of an answer is then kept as a message if `keeps` says so.
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
    """The machine moved. `reason` is a sentence, `code` its stable name, `where` what was going on.

    `where` is `model`, `tools`, `waiting` or `between`, for a cancellation and a time-out. `outcome` is where
    the outcome's text is from, if it is neither the last answer nor nothing: `grace` or `fallback`.
    """

    source: AgentState
    target: AgentState
    trigger: Trigger
    code: str
    reason: str
    where: str | None = None
    outcome: Literal["", "grace", "fallback"] = ""


class StateDigested(Decision, frozen=True, kw_only=True, tag="state_digested"):
    """A digest of the state without its guards, and one for each guard, hex: checkpoints for comparing
    logs.
    """

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
    StepFreed,
    ContextOverflowed,
    AnswerDiscarded,
    RetryScheduled,
    StateChanged,
    StateDigested,
)
