"""Events in words, one line each: for `show --all`, and for watching a run."""

from refold.console import figures, hostile
from refold.reducers.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    CancelRequested,
    ClockRead,
    ContentErased,
    Diagnosed,
    DoubtResolved,
    Event,
    InputReceived,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    RetryScheduled,
    RunStarted,
    SourceRecorded,
    StateChanged,
    StateDigested,
    ToolReturned,
    ToolsDispatched,
    kind_of,
)
from refold.reducers.limits import Limit, name_of, threshold, type_of
from refold.reducers.policy import Policy
from refold.replay import known
from refold.replay.causes import by
from refold.replay.timeline import remark

_SHOWN = 160


def short(text: str | None, most: int = _SHOWN) -> str:
    """A text as one line, white space made single, cut; `(erased)` where it is not there any more."""
    return "(erased)" if text is None else hostile.line(" ".join(text[: 4 * most].split()), most)


def task(text: str | None, most: int = _SHOWN) -> str:
    """What a run was asked, as `short`; `-` where it began without a message."""
    return short(text, most) or "-"


def described(event: Event) -> str:  # noqa: PLR0912 - one line a kind
    """What an event says, in one line, without its kind."""
    match event:
        case RunStarted():
            return f"{event.model}, {len(event.tools)} tools, {len(event.messages)} messages; {limits(event.policy)}"
        case ModelRequested():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"turn {event.step}{again}: {_ranges(event.messages)}, about {figures.count(event.input_tokens)} tokens"
        case ModelResponded():
            return f"{spent(event)}: {_said(event)}"
        case ModelFailed():
            said = event.content.message if event.content else None
            return f"{event.failure}{f' {event.status}' if event.status else ''}: {short(said)}"
        case ToolReturned():
            return result(event)
        case ToolsDispatched(calls=calls) | ApprovalRequested(calls=calls):
            return ", ".join(calls)
        case CallRefused():
            return f"{event.call}: {event.why} by {by(event.cause, event.name)}"
        case ApprovalAnswered(answers=answers):
            said = event.content.note if event.content else None
            told = ", ".join(f"{each.decision} {each.call}" for each in answers)
            return f"{event.by}: {told}{f': {short(said)}' if said != '' else ''}"
        case InputReceived():
            return f"{event.by}: {short(event.content.text if event.content else None)}"
        case DoubtResolved():
            said = event.content.note if event.content else None
            return f"{remark(event)}{f': {short(said)}' if said != '' else ''}"
        case CancelRequested():
            said = event.content.reason if event.content else ""
            return f"by {event.by}{f': {short(said)}' if said else ''}"
        case StateChanged():
            return f"{event.source} to {event.target}, {event.code}: {event.reason}"
        case RetryScheduled():
            return f"attempt {event.attempt} after {event.failure}, in {figures.seconds(event.delay)}"
        case StateDigested():
            return event.state[:16]
        case ClockRead():
            return figures.clock(event.due)
        case ContentErased():
            seqs = ", ".join(f"e{seq}" for seq in event.seqs)
            return f"{seqs}, by {event.by}: {short(event.why)}"
        case NoteAdded():
            return f"{event.by}: {short(event.content.text if event.content else None)}"
        case SourceRecorded():
            of = f"of event {event.seq} " if event.seq else ""
            return f"{short(event.what)}{': ' if event.what else ''}{of}at {short(event.position)}"
        case Diagnosed():
            return f"{short(event.code)}: {short(event.problem)}"
        case _:
            return hostile.line(remark(event))


def standing(state: str, code: str | None) -> str:
    """How a run stands: `MAX_STEPS (step_limit)`."""
    return hostile.line(f"{state} ({code})") if code else state


def result(event: ToolReturned, most: int = _SHOWN) -> str:
    """How a call ended: `c2 ok, 1.2 KiB, 0.01 s: the first words`."""
    size = f"{figures.size(event.output_bytes)}{' (cut)' if event.cut else ''}"
    said = event.content.output if event.content else None
    return f"{event.call} {event.error or 'ok'}, {size}, {figures.seconds(known.took(event.duration))}: {short(said, most)}"


def spent(event: ModelResponded) -> str:
    """What an answer cost: `812 in, 40 out, $0.0012, 2.1 s (end_turn)`."""
    usage = event.usage
    cached = f" ({figures.count(usage.cache_read)} cached)" if usage.cache_read else ""
    counts = f"{figures.count(usage.input)} in{cached}, {figures.count(usage.output)} out"
    counts = counts if known.counted(usage) else "tokens unknown"
    took = figures.seconds(known.took(event.duration))
    return f"{counts}, {figures.dollars(event.cost_nanousd)}, {took} ({event.stop})"


def called(event: ModelResponded, most: int = _SHOWN) -> list[str]:
    """The calls of an answer: `c2 read_file {"path": "a.md"}`."""
    texts = event.content.arguments if event.content else ()
    return [
        f"{call.id} {hostile.line(call.name, 64)} {short(texts[place] if place < len(texts) else None, most)}"
        for place, call in enumerate(event.calls)
    ]


def limits(policy: Policy) -> str:
    """A policy's limits in a few words."""
    told = [
        _named(limit) + figures.amount(value, limit.unit)
        for limit in policy.limits
        if (value := threshold(limit)) is not None
    ]
    return f"limits: {', '.join(told)}" if told else "no limits"


def _named(limit: Limit) -> str:
    return "" if name_of(limit) == type_of(limit) else f"{name_of(limit)} "


def kind(event: Event) -> str:
    """The event's kind; that of an annotation which this version does not know is what it says."""
    return hostile.line(
        getattr(event, "of", "") if kind_of(event) == "unknown_annotation" else kind_of(event), 40
    )


def _said(event: ModelResponded) -> str:
    text = short(event.content.text if event.content else None)
    return "; ".join([*([text] if text else []), *called(event)]) or "nothing"


def _ranges(messages: tuple[tuple[int, int], ...]) -> str:
    told = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in messages)
    return f"messages {told or 'none'}"
