"""Facts and annotations."""

from typing import Annotated

from msgspec import Meta

from refold.reducers.events.parts import (
    Annotation,
    Answer,
    ApprovalAnswer,
    Call,
    Content,
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
"""The format of logs that this version writes, and the newest that it reads."""


class RunStarted(Fact, frozen=True, kw_only=True, tag="run_started"):
    """A run begins. `format` is that of its log, `rules` the version of the decision rules; `settings` are
    names to JSON text.

    `address` is where the model is asked (scheme and host), "" where it is always asked, or in this process.
    `price` is what somebody said that it costs, `0.5/1.5` dollars per million tokens read and written, ""
    where nobody did.

    `environment` names what was set by environment variables, as `limits.time: REFOLD_TIME_LIMIT`; `guards`
    are the versions of the policy's guards, by name. `context` is the model's context in tokens, where it is
    known. `task` is the index (from 0) of the message that is the task; None: of the first user message.
    `worker` is the process that began it, `host:pid:birth`, "" where nobody says. `unasked`: the source of an
    imported run shows no request after this, so none is decided.
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
    unasked: bool = False
    content: Opening | None = None


class RunForked(Fact, frozen=True, kw_only=True, tag="run_forked"):
    """A run goes on from a prefix of another's log. None: as it was in the parent. `parent_hash` is hex.

    `context`: as in `run_started`, 0 where nobody knows it. `in_doubt` are calls that the parent had begun,
    and of which nobody here knows how they ended. `results` are those that get results made up by `by`, who
    forked it: they follow as `tool_returned`. `downtime` is how much later than the cut it is, nanoseconds.
    `again`: the request that was under way is made anew, by these settings. `size` is of the message that
    `by` added, None if there is none. `worker` as in `run_started`.
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
    """The model answered the request made at event `request`.

    `duration` and `retry_wait` are nanoseconds (the wait is what the adapter itself waited between tries of
    its own), `cost_nanousd` None where no price is known, `sent` the digest of the request as sent. `blank`:
    the text holds nothing but white space; `hollow`: nor does it once `<think>…</think>` is taken out.
    `starts_over`: it was to go on from what had arrived before, and repeats that from the beginning: it
    stands in its place.
    """

    request: Count
    stop: StopReason
    stop_raw: str = ""
    calls: tuple[Call, ...] = ()
    size: Size = Size()
    blank: bool = False
    hollow: bool = False
    starts_over: bool = False
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
    """The request made at event `request`, or the summary asked for there, gave no answer.

    `retry_after` and `duration` are nanoseconds. Of a stream that broke: the size of the text that had
    arrived (None: no more than white space), and how many calls had begun. `single`: the provider complained
    about one message that is too long. `starts_over`: what had arrived repeats from the beginning what had
    arrived before: it stands in its place.
    """

    request: Count
    failure: FailureClass
    status: Count | None = None
    retry_after: Count | None = None
    partial: Size | None = None
    partial_calls: Count = 0
    starts_over: bool = False
    single: bool = False
    usage: Usage = Usage()
    cost_nanousd: Count | None = None
    duration: Count = 0
    content: Failure | None = None


class ToolReturned(Fact, frozen=True, kw_only=True, tag="tool_returned"):
    """A call ended. `output_bytes` counts UTF-8 bytes before the cap; `cut` says that the cap took something
    away.

    Without an `error` it went well, unless its `unknown` has `errors`: then its source would not say if it
    had failed. `preview` is how many characters of the output a pass `preview_results` would show, 0 if all
    of them. `unasked`: as in `run_started`. An imported run whose source has no result has `unknown`
    `result`: no `error`, no output, and neither is said. `refused_by`: the call did not run, because the
    harness of an imported run refused it; the output is its words for the model.
    """

    call: str
    error: ToolError | None = None
    output_bytes: Count = 0
    cut: bool = False
    size: Size = Size()
    preview: Count = 0
    duration: Count = 0
    unasked: bool = False
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
    """A person's message, which begins a turn. `unasked`: as in `run_started`."""

    by: str = "user"
    size: Size = Size()
    unasked: bool = False
    content: Input | None = None


class ApprovalAnswered(Fact, frozen=True, kw_only=True, tag="approval_answered"):
    """A person decided about calls that wait for approval: `answers`, at most one a call.

    `digest` is hex SHA-256 of what was said, behind a salt: edited calls run with it.
    """

    by: str = "user"
    answers: tuple[ApprovalAnswer, ...] = ()
    digest: str = ""
    content: Edits | None = None


class ContextObserved(Fact, frozen=True, kw_only=True, tag="context_observed"):
    """The harness of an imported run changed what its model is shown, outside of what is decided here.

    `messages` join: each right behind the message that `after` names for it, and its results (0: in front),
    or, without `after`, at the end; their `unit` is an index into them. `kept` are the earlier messages that
    stayed, None: all of them; what left does so where the policy's pass `observed` carries it out. `why` is
    the source's word for it; `goes_on`: the model was asked again though nobody had said anything; `unasked`,
    as in `run_started`: it was going to be.
    """

    messages: tuple[MessageHead, ...] = ()
    after: tuple[Count, ...] = ()
    kept: Ranges | None = None
    why: str = ""
    goes_on: bool = False
    unasked: bool = False
    content: Opening | None = None


class SummaryReturned(Fact, frozen=True, kw_only=True, tag="summary_returned"):
    """The response to the summary request of event `request`. `size` is of the resulting message."""

    request: Count
    usage: Usage = Usage()
    cost_nanousd: Count | None = None
    model: str = ""
    size: Size = Size()
    duration: Count = 0
    content: Summary | None = None


class ChildEnded(Fact, frozen=True, kw_only=True, tag="child_ended"):
    """A run that a call of this one started has ended. `head_hash` is hex."""

    call: str
    run: str
    agent_state: AgentState
    head_seq: Count
    head_hash: str
    usage: Usage = Usage()
    cost_nanousd: Count | None = None


class CancelRequested(Fact, frozen=True, kw_only=True, tag="cancel_requested"):
    """Somebody wants the run to stop."""

    by: str = "user"
    content: Reason | None = None


class ClockRead(Fact, frozen=True, kw_only=True, tag="clock_read"):
    """The clock passed the instant `due` for which an effect waited (nanoseconds since the epoch)."""

    due: Count


class RunResumed(Fact, frozen=True, kw_only=True, tag="run_resumed"):
    """An engine took the run up again, in the process `worker`. `in_doubt` are call ids, `changed` the tools
    whose code is another now.

    `downtime` is the time since the log's last event, nanoseconds: at most that long no engine had the run.
    `unattended`: it only writes something down. Nothing is begun until an engine resumes the run that attends
    to it.
    """

    worker: str = ""
    in_doubt: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    downtime: Count = 0
    versions: dict[str, str] = {}
    unattended: bool = False


class PolicyAmended(Fact, frozen=True, kw_only=True, tag="policy_amended"):
    """Somebody gave the run another policy, in force from here on."""

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
"""The facts that something under way waits for."""

RESULTS = (ModelResponded, ModelFailed, ToolReturned, SummaryReturned)
"""The same, to ask what a fact is: a union takes ten times as long."""


class LateResult(Annotation, frozen=True, kw_only=True, tag="late_result"):
    """A result for which nothing waited any more: the fact that it would have been.

    What was said is the content, in the shape that the fact's own would have; the fact's is None.
    """

    fact: Result
    content: Content | None = None


class Remark(Content, frozen=True, kw_only=True):
    """What somebody wrote beside the log."""

    text: str


class NoteAdded(Annotation, frozen=True, kw_only=True, tag="note_added"):
    """A person's note about event `seq`, or about the run."""

    by: str
    seq: int | None = None
    content: Remark | None = None


class ContentErased(Annotation, frozen=True, kw_only=True, tag="content_erased"):
    """The content of these events was erased."""

    seqs: tuple[int, ...]
    by: str
    why: str


class Diagnosed(Annotation, frozen=True, kw_only=True, tag="diagnosed"):
    """Something found wrong while reading: `code`, and where; what could not be used is the content."""

    code: str
    problem: str
    seq: int | None = None
    content: Remark | None = None


class SourceRecorded(Annotation, frozen=True, kw_only=True, tag="source_recorded"):
    """Where an imported event came from: the format, the file's SHA-256, the line or position in it.

    `what` names something that the source recorded and that is no fact here, its own decisions among it:
    `compaction`, `limit:steps`, `guardrail`, `end:finished`. "" for the origin of the fact `seq`.
    """

    format: str
    source: str
    position: str
    seq: int | None = None
    what: str = ""
    content: Remark | None = None


class UnknownAnnotation(Annotation, frozen=True, kw_only=True, tag="unknown_annotation"):
    """An annotation of a kind that this version does not know: kept as bytes, skipped. Never written."""

    of: str
    body: bytes


ANNOTATIONS: tuple[type[Annotation], ...] = (
    LateResult,
    NoteAdded,
    ContentErased,
    Diagnosed,
    SourceRecorded,
)
