"""Facts: what happened, as the engine or an import recorded it."""

from typing import Annotated

from msgspec import Meta

from refold.reducers.events.parts import (
    Answer,
    ApprovalAnswer,
    Call,
    Edits,
    Fact,
    Failure,
    Input,
    Manifest,
    MessageHead,
    Note,
    Opening,
    Output,
    Parent,
    Reason,
    Summary,
)
from refold.reducers.machine import AgentState
from refold.reducers.messages import Size, Usage
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Count, Doubt, FailureClass, Ranges, Refuser, StopReason, ToolError

FORMAT = 1
"""The log format that this version writes, and the newest that it reads."""


class RunStarted(Fact, frozen=True, kw_only=True, tag="run_started"):
    """A run begins. `format` is its log's format, `rules` the version of the decision rules.

    `settings` maps names to JSON text. `address` is where the model is reached (scheme and host), "" for the
    default address or a model in this process. `price` is the price that the caller gave, as `0.5/1.5`
    (dollars per million input and output tokens), "" for none. `environment` lists policy keys set by
    environment variables, as `limits.time: REFOLD_TIME_LIMIT`. `guards` are the versions of the policy's
    guards, by name. `context` is the model's context in tokens, None if unknown. `task` is the index (from 0)
    of the message that is the task; None: the first user message. `worker` is the process that started the
    run, `host:pid:birth`, "" if unknown. `no_request`: the run is imported and its source records no further
    request, so no request is decided.
    """

    format: Annotated[int, Meta(ge=1, le=FORMAT)]
    run: str
    rules: Count
    policy: Policy
    model: str
    address: str = ""
    price: str = ""
    settings: dict[str, str] = {}
    tools: tuple[Manifest, ...] = ()
    messages: tuple[MessageHead, ...] = ()
    seed: Count = 0
    agent: str = ""
    labels: dict[str, str] = {}
    parent: Parent | None = None
    environment: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    guards: dict[str, Count] = {}
    context: Count | None = None
    task: Count | None = None
    worker: str = ""
    no_request: bool = False
    content: Opening | None = None


class RunForked(Fact, frozen=True, kw_only=True, tag="run_forked"):
    """A run continues a prefix of another run's log. None: as in the parent. `parent_hash` is hex.

    `context`: as in `run_started`, but 0 if unknown. `in_doubt` are calls that the parent started and whose
    outcome is unknown here. `results` are calls whose results were made up by `by`, who created the fork; the
    results follow as `tool_returned`. `downtime` is the time between the cut and the fork, in nanoseconds.
    `again`: the request in progress at the cut is made again, with these settings. `size` is the size of the
    message that `by` added, None without one. `worker`: as in `run_started`.
    """

    run: str
    rules: Count
    parent: str
    parent_seq: Count
    parent_hash: str
    policy: Policy | None = None
    model: str | None = None
    settings: dict[str, str] | None = None
    tools: tuple[Manifest, ...] | None = None
    seed: Count | None = None
    labels: dict[str, str] = {}
    versions: dict[str, str] = {}
    guards: dict[str, Count] = {}
    address: str | None = None
    price: str | None = None
    context: Count | None = None
    by: str = ""
    in_doubt: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    downtime: Count = 0
    again: bool = False
    worker: str = ""
    size: Size | None = None
    content: "Input | None" = None


class ModelResponded(Fact, frozen=True, kw_only=True, tag="model_responded"):
    """The model responded to the request made at event `request`.

    `duration` and `retry_wait` are nanoseconds (`retry_wait`: the adapter's own waits between its tries).
    `cost_nanousd` is None if no price is known. `sent` is the digest of the request as sent. `blank`: the
    text is only white space; `blank_outside_think`: it is only white space without `<think>…</think>`.
    `replaces_partial`: the model was asked to continue partial text, but repeated it from the beginning, so
    this response replaces that text.
    """

    request: Count
    stop: StopReason
    stop_raw: str = ""
    calls: tuple[Call, ...] = ()
    size: Size = Size()
    blank: bool = False
    blank_outside_think: bool = False
    replaces_partial: bool = False
    usage: Usage = Usage()
    cost_nanousd: Count | None = None
    model: str = ""
    adapter: str = ""
    adapter_version: str = ""
    response_id: str = ""
    sent: str = ""
    duration: Count = 0
    retry_wait: Count = 0
    content: Answer | None = None


class ModelFailed(Fact, frozen=True, kw_only=True, tag="model_failed"):
    """The request made at event `request`, or the summary requested there, failed.

    `retry_after` and `duration` are nanoseconds. After a broken stream, `partial` is the size of the text
    received (None: only white space) and `partial_calls` the number of calls begun. `single`: the provider
    rejected one message as too long. `replaces_partial`: the text received repeats the earlier partial
    text from its beginning and replaces it.
    """

    request: Count
    failure: FailureClass
    status: Count | None = None
    retry_after: Count | None = None
    partial: Size | None = None
    partial_calls: Count = 0
    replaces_partial: bool = False
    single: bool = False
    usage: Usage = Usage()
    cost_nanousd: Count | None = None
    duration: Count = 0
    content: Failure | None = None


class ToolReturned(Fact, frozen=True, kw_only=True, tag="tool_returned"):
    """A call ended. `output_bytes` counts UTF-8 bytes before the cap; `cut`: the cap removed some of them.

    A call without an `error` succeeded, unless `unknown` has `errors`: then its source does not record
    whether it failed. In an imported run whose source has no result, `unknown` has `result`: there is no
    `error` and no output, and neither is known. `preview` is the number of characters that the compaction
    step `preview_results` would keep, 0 for all. `no_request`: as in `run_started`. `refused_by`: the harness
    of an imported run refused the call, so it did not run; the output is the text sent to the model.
    """

    call: str
    error: ToolError | None = None
    output_bytes: Count = 0
    cut: bool = False
    size: Size = Size()
    preview: Count = 0
    duration: Count = 0
    no_request: bool = False
    refused_by: Refuser | None = None
    content: Output | None = None


class DoubtResolved(Fact, frozen=True, kw_only=True, tag="doubt_resolved"):
    """An unknown outcome was settled, by the tool itself if `reconciled`; `did_not`: the call runs again."""

    call: str
    doubt: Doubt
    by: str
    reconciled: bool = False
    content: Note | None = None


class InputReceived(Fact, frozen=True, kw_only=True, tag="input_received"):
    """A user's message, which begins a turn. `no_request`: as in `run_started`."""

    by: str = "user"
    size: Size = Size()
    no_request: bool = False
    content: Input | None = None


class ApprovalAnswered(Fact, frozen=True, kw_only=True, tag="approval_answered"):
    """An approver decided about pending calls: `answers` has at most one answer for each call.

    `digest` is the salted SHA-256 of the content in hex: edited calls run with that content.
    """

    by: str = "user"
    answers: tuple[ApprovalAnswer, ...] = ()
    digest: str = ""
    content: Edits | None = None


class ContextObserved(Fact, frozen=True, kw_only=True, tag="context_observed"):
    """The harness of an imported run changed the model's prompt by rules of its own.

    `messages` are added: each right after the message that `after` names for it and that message's results
    (0: at the front), or at the end if `after` is empty. Their `unit` is an index into `messages`. `kept` are
    the ranges of earlier messages that stayed, None for all; the policy's compaction step `observed` removes
    the others. `why` is the reason as the source names it. `continues`: the model was asked again without new
    input. `no_request`: as in `run_started`; that request was still to come.
    """

    messages: tuple[MessageHead, ...] = ()
    after: tuple[Count, ...] = ()
    kept: Ranges | None = None
    why: str = ""
    continues: bool = False
    no_request: bool = False
    content: Opening | None = None


class SummaryReturned(Fact, frozen=True, kw_only=True, tag="summary_returned"):
    """The response to the summary request of event `request`. `size` is that of the resulting message."""

    request: Count
    usage: Usage = Usage()
    cost_nanousd: Count | None = None
    model: str = ""
    size: Size = Size()
    duration: Count = 0
    content: Summary | None = None


class ChildEnded(Fact, frozen=True, kw_only=True, tag="child_ended"):
    """A run that was started by a call of this run has ended. `head_hash` is hex."""

    call: str
    run: str
    agent_state: AgentState
    head_seq: Count
    head_hash: str
    usage: Usage = Usage()
    cost_nanousd: Count | None = None


class CancelRequested(Fact, frozen=True, kw_only=True, tag="cancel_requested"):
    """A user requested that the run stop."""

    by: str = "user"
    content: Reason | None = None


class ClockRead(Fact, frozen=True, kw_only=True, tag="clock_read"):
    """The clock passed the instant `due` for which an effect waited (nanoseconds since the epoch)."""

    due: Count


class RunResumed(Fact, frozen=True, kw_only=True, tag="run_resumed"):
    """An engine resumed the run, in the process `worker`.

    `in_doubt` are ids of calls with an unknown outcome, `changed` names of tools whose code changed.
    `downtime` is the time since the log's last event in nanoseconds: an upper bound for the time without an
    engine. `unattended`: this engine only records something; no effect starts until another engine resumes
    the run.
    """

    worker: str = ""
    in_doubt: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    downtime: Count = 0
    versions: dict[str, str] = {}
    unattended: bool = False


class PolicyAmended(Fact, frozen=True, kw_only=True, tag="policy_amended"):
    """A user gave the run another policy, in force from this event on."""

    policy: Policy
    by: str = "user"
    guards: dict[str, Count] = {}
    content: Reason | None = None


FACTS: tuple[type[Fact], ...] = (
    RunStarted,
    RunForked,
    ModelResponded,
    ModelFailed,
    ToolReturned,
    DoubtResolved,
    InputReceived,
    ApprovalAnswered,
    ContextObserved,
    SummaryReturned,
    ChildEnded,
    CancelRequested,
    ClockRead,
    RunResumed,
    PolicyAmended,
)


Result = ModelResponded | ModelFailed | ToolReturned | SummaryReturned
"""The facts that something in progress waits for."""

RESULTS = (ModelResponded, ModelFailed, ToolReturned, SummaryReturned)
"""The same as a tuple, for `isinstance`: a check against the union takes ten times as long."""
