"""Decisions: what pure functions derived. An audit derives each of them again and compares.

No text that a model, a tool or a person wrote is ever repeated in one. The texts that are here are the
harness's own, from the policy.
"""

from refold.reducers.events.base import Content, Decision, Part
from refold.reducers.limits import LimitHit
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.numbers import Count, Ordinal
from refold.reducers.vocabulary import FailureClass, Refusal, Role, Verdict


class RequestText(Part, frozen=True, kw_only=True):
    """A text that is shown in one request and never kept. `text` is its key in the policy's texts."""

    role: Role
    text: str
    tokens: Count


class Said(Content, frozen=True, kw_only=True):
    """Texts of the harness, rendered: exactly what the model sees. Their digest needs no salt: they are no secret."""

    texts: tuple[str, ...]


class ModelRequested(Decision, frozen=True, kw_only=True, tag="model_requested"):
    """Ask the model. `messages` are ranges of message numbers, `view` the digest of all that it will see.

    `tools` are the names offered, None for the whole manifest; `deadline` is an instant; `input_tokens` is
    the estimate, `max_output` the most output tokens wanted.
    """

    step: Count
    attempt: Ordinal
    view: str
    messages: tuple[tuple[int, int], ...]
    input_tokens: Count
    deadline: Count | None = None
    tools: tuple[str, ...] | None = None
    request_only: tuple[RequestText, ...] = ()
    max_output: Count | None = None
    purpose: str = "step"
    content: Said | None = None


class ToolsDispatched(Decision, frozen=True, kw_only=True, tag="tools_dispatched"):
    """Run these calls. `deadline` is an instant."""

    calls: tuple[str, ...]
    attempt: Ordinal = 1
    deadline: Count | None = None


class CallRefused(Decision, frozen=True, kw_only=True, tag="call_refused"):
    """Do not run this call. `text` is the key of what the model is told.

    `code`, `saw` and `metadata` are the guard's own: why, by what it judged, and for whom it may concern.
    """

    call: str
    why: Refusal
    guard: str
    version: Count
    text: str
    code: str = ""
    saw: dict[str, str | int] = {}
    metadata: dict[str, str | int | bool] = {}
    chars: Count = 0
    tokens: Count = 0
    digest: str = ""
    content: Said | None = None


class ApprovalRequested(Decision, frozen=True, kw_only=True, tag="approval_requested"):
    """Ask a person about these calls. `deadline` is an instant."""

    calls: tuple[str, ...]
    approver: str
    deadline: Count | None = None


class SummaryRequested(Decision, frozen=True, kw_only=True, tag="summary_requested"):
    """Ask a model to sum up these messages."""

    name: str
    messages: tuple[tuple[int, int], ...]
    input_tokens: Count = 0
    max_output: Count | None = None
    deadline: Count | None = None


class HistoryPruned(Decision, frozen=True, kw_only=True, tag="history_pruned"):
    """Messages left the window. `kept` are the ranges that stay; `name` is the pass that asked.

    `before` and `after` count messages, the `tokens_` estimates. `over_budget`: what had to stay does not fit.
    """

    name: str
    reason: str
    before: Count
    after: Count
    tokens_before: Count
    tokens_after: Count
    kept: tuple[tuple[int, int], ...]
    over_budget: bool = False


class MessageTrimmed(Decision, frozen=True, kw_only=True, tag="message_trimmed"):
    """A message is shown shorter from here on. Sizes are estimated tokens; the text stays in the log."""

    message: Count
    name: str
    reason: str
    before: Count
    after: Count
    chars: Count
    digest: str


class MessageInjected(Decision, frozen=True, kw_only=True, tag="message_injected"):
    """The harness says something to the model: the policy's text `text` with `values`, kept in the window."""

    role: Role
    text: str
    values: dict[str, str | int] = {}
    cause: str
    visibility: str = "internal"
    chars: Count
    tokens: Count
    digest: str = ""
    content: Said | None = None


class GuardTripped(Decision, frozen=True, kw_only=True, tag="guard_tripped"):
    """A guard or a limit did not simply allow: what it saw, and what it said."""

    guard: str
    version: Count
    verdict: Verdict
    code: str
    saw: dict[str, str | int] = {}
    limit: LimitHit | None = None


class RetryScheduled(Decision, frozen=True, kw_only=True, tag="retry_scheduled"):
    """Ask again, as attempt number `attempt`, after `delay` nanoseconds: not before the instant `until`."""

    attempt: Ordinal
    delay: Count
    until: Count
    failure: FailureClass


class StateChanged(
    Decision, frozen=True, kw_only=True, tag="state_changed", rename={"source": "from", "target": "to"}
):
    """The machine moved. `reason` is a sentence, `code` its stable name, `where` what was going on.

    `where` is `model`, `tools`, `waiting` or `between`, for a cancellation and a time-out.
    """

    source: AgentState
    target: AgentState
    trigger: Trigger
    code: str
    reason: str
    where: str | None = None


class StateDigested(Decision, frozen=True, kw_only=True, tag="state_digested"):
    """A digest of the state without its guards, and one for each guard, hex: checkpoints for comparing logs."""

    state: str
    guards: dict[str, str] = {}
