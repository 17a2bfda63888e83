"""Summaries of events in one line, for rows without space for them."""

from collections.abc import Iterable, Iterator

from refold.reducers import events as ev
from refold.reducers.limits import Limit, is_bounded, name_of, needs, refuses_unknown, threshold, type_of
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import SOURCE_LABEL, Ranges, Unknown
from refold.replay import figures, known
from refold.replay.environment import read_source_row
from refold.replay.kinds.arguments import brief, format_call, main_argument
from refold.replay.source_words import context_remark, context_words, quote

SHOWN = 160
"""Maximum characters of quoted text in a line."""


def describe_start(event: ev.RunStarted) -> str:
    """Summarize a start: `openai:gpt-5, 3 tools, 2 messages; limits: 12 steps`."""
    untold = not event.tools and Unknown.TOOLS in event.unknown
    tools = "tools not recorded" if untold else figures.quantity(len(event.tools), "tool")
    messages = figures.quantity(len(event.messages), "message")
    held = "limits not recorded" if SOURCE_LABEL in event.labels else describe_limits(event.policy)
    return f"{event.model or 'model not recorded'}, {tools}, {messages}; {held}"


def describe_fork(event: ev.RunForked) -> str:
    """Summarize a fork: its origin, made-up results, a new message, and unknown outcomes."""
    made_up = f", results of {', '.join(event.results)} supplied by {event.by}" if event.results else ""
    told = f", with a message by {event.by}" if event.size else ""
    return f"from event {event.parent_seq} of run {event.parent}{made_up}{told}{_list_doubts(event.in_doubt)}"


def describe_resumption(event: ev.RunResumed) -> str:
    """Summarize a resumption, with the calls whose outcome is unknown."""
    return f"resumed{_list_doubts(event.in_doubt)}"


def describe_request(event: ev.ModelRequested) -> str:
    """Summarize a request: `turn 3, attempt 2: messages 1-7, about 812 tokens`."""
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    tokens = figures.quantity(event.input_tokens, "token")
    return f"turn {event.step}{again}: {format_ranges(event.messages)}, about {tokens}"


def describe_cost(event: ev.ModelResponded | ev.SummaryReturned) -> str:
    """Summarize the cost of a response: `812 in, 40 out, $0.0012, 2.1 s`."""
    usage = event.usage
    cached = f" ({figures.count(usage.cache_read)} cached)" if usage.cache_read else ""
    counts = f"{figures.count(known.sent(usage))} in{cached}, {figures.count(known.got(usage))} out"
    counts = counts if known.counted(usage) else "tokens unknown"
    return f"{counts}, {figures.dollars(event.cost_nanousd)}, {figures.seconds(known.took(event.duration))}"


def describe_response(event: ev.ModelResponded) -> str:
    """Summarize a response: `812 in, 40 out, $0.0012, 2.1 s (end_turn)`."""
    return f"{describe_cost(event)} ({known.stopped(event)}){_describe_restart(event)}"


def quote_response(event: ev.ModelResponded) -> str:
    """Return the start of a response, and its calls."""
    text = brief(event.content.text if event.content else None, SHOWN)
    return "; ".join([*([text] if text else []), *list_calls(event)]) or "nothing"


def list_calls(event: ev.ModelResponded, most: int = SHOWN) -> Iterator[str]:
    """Yield the calls of a response: `c2 read_file notes.md`."""
    texts = event.content.arguments if event.content else ()
    for place, call in enumerate(event.calls):
        said = f"{call.id} {format_call(call.name, texts[place] if place < len(texts) else None, most)}"
        yield f"{said} ({known.REFUSED})" if call.refused else said


def list_texts(event: ev.ModelResponded) -> Iterator[str]:
    """Yield the whole response for display: text, reasoning, and each call with its main argument."""
    if (content := event.content) is not None:
        yield from (content.text, content.reasoning)
        for call, arguments in zip(event.calls, content.arguments, strict=False):
            yield f"{call.name}  {main_argument(arguments)}"


def describe_failure(event: ev.ModelFailed) -> str:
    """Summarize a failed request: `rate_limit 429`."""
    return f"{event.failure}{f' {event.status}' if event.status else ''}{_describe_restart(event)}"


def _describe_restart(event: ev.ModelResponded | ev.ModelFailed) -> str:
    return ", starts over, repeating received text" if event.replaces_partial else ""


def describe_result(event: ev.ToolReturned) -> str:
    """Summarize a result: `c2 ok, 1.2 KiB, 0.01 s`, or `c2 not_recorded`."""
    if not known.recorded(event):
        return f"{event.call} {known.outcome(event)}"
    size = f"{figures.size(event.output_bytes)}{' (cut)' if event.cut else ''}"
    if refused := describe_refusal(event):
        return f"{refused}, {size}"
    return f"{event.call} {known.outcome(event)}, {size}, {figures.seconds(known.took(event.duration))}"


def describe_refusal(event: ev.ToolReturned) -> str:
    """Describe who refused a call: `c2 refused by its harness (hook)`; "" for any other call."""
    return (
        ""
        if event.refused_by is None
        else f"{event.call} {known.REFUSED} by its harness ({event.refused_by})"
    )


def quote_output(event: ev.ToolReturned, most: int = SHOWN) -> str:
    """Return the start of a tool's output."""
    return brief(event.content.output if event.content else None, most)


def describe_approval(event: ev.ApprovalAnswered) -> str:
    """Summarize an approver's decisions: `user: approve c2, reject c3`."""
    return f"{event.by}: {', '.join(f'{answer.decision} {answer.call}' for answer in event.answers)}"


def describe_approval_request(event: ev.ApprovalRequested) -> str:
    """Summarize a request for approval."""
    return f"approval requested for {', '.join(event.calls)}"


def describe_summary_request(event: ev.SummaryRequested) -> str:
    """Summarize a request for a summary: the number of messages and the compaction step."""
    count = sum(last - first + 1 for first, last in event.messages)
    return f"summary requested of {figures.quantity(count, 'message')} ({event.name})"


def describe_retry(event: ev.RetryScheduled) -> str:
    """Summarize a retry: `retry 2 after rate_limit, 1 s later`."""
    return f"retry {event.attempt} after {event.failure}, {figures.seconds(event.delay)} later"


def describe_transition(event: ev.StateChanged) -> str:
    """Summarize a change of state: `RUNNING to COMPLETED, end_turn: the model finished`."""
    return f"{event.source} to {event.target}, {event.code}: {event.reason}"


def describe_context(event: ev.ContextObserved) -> str:
    """Summarize an observed prompt change: `context: 2 messages (user): "Stop."`."""
    return ": ".join(filter(None, (context_remark(event), context_words(event))))


def describe_input(event: ev.InputReceived) -> str:
    """Summarize a user message: `message from user: "Stop."`."""
    said = quote(event.content.text) if event.content else ""
    return ": ".join(filter(None, (f"message from {event.by}", said)))


def describe_late_result(event: ev.LateResult) -> str:
    """Summarize a late result: `late tool_returned`."""
    return f"late {ev.kind_of(event.fact)}"


def describe_note(event: ev.NoteAdded) -> str:
    """Summarize a note: its author, event and text, such as a finding about an unknown outcome."""
    about = f" about e{event.seq}" if event.seq else ""
    return f"note{about} by {event.by}: {brief(event.content.text if event.content else None, 40)}"


def describe_erasure(event: ev.ContentErased) -> str:
    """Summarize an erasure: `e3, e7, by user`."""
    return f"{', '.join(f'e{seq}' for seq in event.seqs)}, by {event.by}"


def describe_source_record(event: ev.SourceRecorded) -> str:
    """Summarize a record of the source: `compaction: of event 3 at line 12`."""
    of = f"of event {event.seq} " if event.seq else ""
    if event.what and (mode := read_source_row(event).get("permission_mode")):
        return (
            f"{brief(event.what, SHOWN)} {quote(brief(mode, SHOWN))}: {of}at {brief(event.position, SHOWN)}"
        )
    return f"{brief(event.what, SHOWN)}{': ' if event.what else ''}{of}at {brief(event.position, SHOWN)}"


def describe_limits(policy: Policy) -> str:
    """Summarize a policy's limits."""
    told = [
        _limit_name(limit) + figures.amount(value, limit.unit) + _describe_unknowns(limit)
        for limit in policy.limits
        if (value := threshold(limit)) is not None
    ]
    more = "" if is_bounded(policy.limits) else "; no limit of steps or time"
    return f"limits: {', '.join(told)}{more}" if told else "no limits"


def _describe_unknowns(limit: Limit) -> str:
    return " (unknown counts as 0)" if needs(limit) and not refuses_unknown(limit) else ""


def format_ranges(messages: Ranges) -> str:
    """Format message numbers as ranges."""
    told = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in messages)
    return f"messages {told or 'none'}"


def _limit_name(limit: Limit) -> str:
    return "" if name_of(limit) == type_of(limit) else f"{name_of(limit)} "


def _list_doubts(calls: Iterable[str]) -> str:
    told = ", ".join(calls)
    return f", outcome unknown: {told}" if told else ""
