"""Events of OpenHands V1, the text that its SDK sends for a result, and the conversation of both versions.

Source: `to_llm_content` of its observations, and `maybe_truncate`, in openhands-sdk 1.58.

The prompt is a list of events. A `Condensation` names events to remove from it, and the index in the
remaining list at which its summary is inserted; the next prompt follows from that.

Each `ActionEvent` is one call; those of one response share `llm_response_id`.

Counts: responses = distinct `llm_response_id`; calls and results by `tool_call_id`; errors = `is_error`, an
exit code other than 0, and `AgentErrorEvent`; tokens = the last `stats` update, summed over all of its uses.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from refold.importers.content import agree, mark_unread, read_call, words
from refold.importers.fields import (
    JSON,
    at,
    instant,
    join_rests,
    json_text,
    omit_keys,
    rest,
    rows,
    table,
    take_if,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.items import Answered, Counted, Item, Place, Remarked, Returned, Said, message_of
from refold.importers.session_rows import BEGINNING, Cut, diagnose_apart, list_ranges
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import FailureClass, Refuser, Role

ERROR = "[An error occurred during execution.]\n"
REJECTED = "Action rejected: "

MOST_SHOWN = 30_000
"""Maximum characters of a command's output that are sent to the model; the middle of longer ones is cut."""

_CLIPPED = "<response clipped><NOTE>Due to the max output limit, only part of the full response has been shown to you."
_SAVED = " The complete output has been saved to {path} - you can use other tools to view the full content (truncated part starts around line {line})."
_NOTE_ENDS = "</NOTE>"


def render_observation(seen: JSON, content: str) -> str:
    """Return the text that is sent for an observation with the text `content`.

    An error has a heading; a command is followed by its folder and exit code.
    """
    if isinstance(at(seen, "metadata"), dict) and "exit_code" in table(seen, "metadata"):
        content = _render_command(seen, content)
    return f"{ERROR}\n{content}" if at(seen, "is_error") is True else content


def _render_command(seen: JSON, content: str) -> str:
    how = at(seen, "metadata")
    rendered = f"{text(how, 'prefix')}{content}{text(how, 'suffix')}"
    if folder := text(how, "working_dir"):
        rendered += f"\n[Current working directory: {folder}]"
    if interpreter := text(how, "py_interpreter_path"):
        rendered += f"\n[Python interpreter: {interpreter}]"
    if (code := at(how, "exit_code")) != -1:
        rendered += f"\n[Command finished with exit code {code}]"
    return _clip(rendered, text(seen, "full_output_save_dir"))


def _clip(rendered: str, folder: str) -> str:
    """Return head and tail of a text that is too long, with a note between them.

    The note names the file with the complete text if one was saved in `folder`.
    """
    if len(rendered) <= MOST_SHOWN:
        return rendered
    head = (MOST_SHOWN - len(_CLIPPED + _NOTE_ENDS) + 1) // 2
    note = _CLIPPED
    if folder:
        digest = hashlib.sha256(rendered.encode(errors="replace")).hexdigest()[:8]
        path = f"{folder}/terminal_output_{digest}.txt"
        note += _SAVED.format(path=path, line=len(rendered[:head].splitlines()) + 1)
    note += _NOTE_ENDS
    left = max(0, MOST_SHOWN - len(note))
    head = min(head, left)
    return rendered[:head] + note + (rendered[-(left - head) :] if left > head else "")


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event with its item.

    Events of one response share `response`; all except the first yield `again` instead of `item`. `placed`:
    it is not a message, but counts as an element of the list that makes the prompt. For a condensation, `cut`
    are the ids of the removed events, `between` a range of removed ids, and `offset` the index of `summary`.
    """

    id: str
    item: Item
    response: str = ""
    again: Remarked | None = None
    more: Item | None = None
    placed: bool = False
    cut: frozenset[str] | None = None
    between: tuple[int, int] = (0, -1)
    summary: str = ""
    offset: int | None = None


def read_condensation(
    id_: str, item: Remarked, data: JSON, *, between: tuple[int, int] = (0, -1)
) -> RecordedEvent:
    """Return a condensation; both versions use the same keys for the removed events."""
    offset, ids = at(data, "summary_offset"), frozenset(map(str, rows(data, "forgotten_event_ids")))
    place = offset if isinstance(offset, int) else None
    return RecordedEvent(
        id=id_, item=item, cut=ids, between=between, summary=text(data, "summary"), offset=place
    )


class EventConversation:
    """Yields the items of a run's events in order.

    Their row number is the index of the event; for a response with several events, that of the first.
    """

    def __init__(self, events: Sequence[RecordedEvent]) -> None:
        self._events = events
        self._calls: defaultdict[str, list[MessageCall]] = defaultdict(list)
        for event in events:
            if isinstance(event.item, Answered) and event.response:
                self._calls[event.response] += event.item.calls
        self._answered: dict[str, int] = {}
        self._shown: list[int] = []

    def begin(self) -> tuple[Message, ...]:
        """Return the initial message, the system prompt of the first event."""
        first = self._events[0].item
        self._shown.append(BEGINNING)
        return (message_of(first) if isinstance(first, Said) else Message(role=Role.SYSTEM),)

    def items(self, begin: int) -> Iterator[Item]:
        """Yield the items in order, from event `begin` on."""
        for place, event in enumerate(self._events[begin:], begin):
            yield from self._items(event, place)

    def _items(self, event: RecordedEvent, place: int) -> Iterator[Item]:
        item = event.item
        if event.placed or isinstance(item, Said | Answered | Returned):
            self._shown.append(place)
        if isinstance(item, Answered) and event.response:
            again = event.again if event.response in self._answered else None
            self._answered.setdefault(event.response, place)
            item = again or msgspec.structs.replace(item, calls=tuple(self._calls[event.response]))
        yield item
        if event.cut is not None:
            yield self._cut_condensation(event, event.cut, place)
        if event.more:
            yield event.more

    def _cut_condensation(self, event: RecordedEvent, ids: frozenset[str], place: int) -> Item:
        """Return the cut of a condensation, which inserts its summary as a user message."""
        first, last = event.between
        named = ((number, self._events[number].id) for number in self._shown)
        self._shown = [
            number for number, id_ in named if id_ not in ids and not first <= _number(id_) <= last
        ]
        offset = event.offset or 0
        head, tail = self._rows(self._shown[:offset]), self._rows(self._shown[offset:])
        where = Place(event.item.position, event.item.at, row=place)
        joins = (
            (where.message(event.summary, "harness"),) if event.summary and event.offset is not None else ()
        )
        self._shown[offset:offset] = [place] if joins else []
        return Cut(
            *where.common(),
            why="condensation",
            head=list_ranges(head),
            joins=joins,
            tail=list_ranges(tail - head),
        )

    def _rows(self, shown: Sequence[int]) -> set[int]:
        """Return the row numbers of events; those of one response have the same."""
        return {self._answered.get(self._events[number].response, number) for number in shown}


def _number(event: str) -> int:
    return int(event) if event.isdecimal() and len(event) < 19 else -1


RESULTS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")
"""Kinds of events that are results."""

REMARKS = {
    "ConversationStateUpdateEvent": "state",
    "CondensationRequest": "condensation_request",
    "PauseEvent": "pause",
    "HookExecutionEvent": "hook",
    "CondensationSummaryEvent": "unmapped",
    "LLMCompletionLogEvent": "unmapped",
    "SecurityAnalysisEvent": "unmapped",
    "StreamingDeltaEvent": "unmapped",
    "TokenEvent": "unmapped",
}
"""Kinds of events that are not turns, with the name of their remark; others are `unmapped`."""


_ACP = "ACPToolCallEvent"
"""A call by an agent that OpenHands ran over ACP.

The tool's name is not recorded, and the arguments may be missing.
"""


def is_answer(event: JSON) -> bool:
    """Return whether an event is by the model: a call, or a message of the agent."""
    kind = text(event, "kind")
    return kind == "ActionEvent" or (kind == "MessageEvent" and not is_user(event))


def is_user(event: JSON) -> bool:
    """Return whether a message has the user's role."""
    return text(event, "llm_message", "role") == "user" or text(event, "source") in (
        "user",
        "environment",
        "hook",
    )


def find_failure(event: JSON) -> bool | None:
    """Return whether a result failed; None if not recorded."""
    seen = at(event, "observation")
    codes = (at(seen, "exit_code"), at(seen, "metadata", "exit_code"))
    code = next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), None)
    marks = [mark for mark in (at(seen, "is_error"), code) if isinstance(mark, int)]
    return text(event, "kind") == "AgentErrorEvent" or (any(marks) if marks else None)


def read(events: Sequence[JSON], places: Sequence[str]) -> list[RecordedEvent]:
    """Return the events of one run; `places` has the position of each."""
    return [
        _event(event, Place(position, instant(at(event, "timestamp")), row=row))
        for row, (event, position) in enumerate(zip(events, places, strict=True))
    ]


def _event(event: JSON, place: Place) -> RecordedEvent:
    kind, own = text(event, "kind"), text(event, "id")
    if is_answer(event):
        again, response = place.remark("call", event), text(event, "llm_response_id")
        return RecordedEvent(id=own, item=_make_response(event, place), response=response, again=again)
    if kind in RESULTS:
        more = place.remark("approval", event) if kind == "UserRejectObservation" else None
        return RecordedEvent(id=own, item=_make_result(event, place), more=more)
    if kind == _ACP:
        where = Place(place.position, place.at)
        lost = next(diagnose_apart(where, "subagent", Counted(calls=1)), None)
        return RecordedEvent(id=own, item=place.remark("subagent", event), more=lost)
    if kind == "Condensation":
        return read_condensation(own, place.remark("condensation", event), event)
    return RecordedEvent(id=own, item=_other(event, kind, place))


def _other(event: JSON, kind: str, place: Place) -> Item:
    match kind:
        case "MessageEvent" | "SystemPromptEvent":
            return _make_message(event, place)
        case "InterruptEvent":
            return place.cancellation(rest=json_text(event))
        case "ConversationErrorEvent":
            content = f"{text(event, 'code')}: {text(event, 'detail')}"
            return place.failure(content, FailureClass.OTHER, rest=json_text(event))
        case _:
            what, known = REMARKS.get(kind, "unmapped"), kind in REMARKS
            return place.remark(what, event, known=known)


def _make_message(event: JSON, place: Place) -> Item:
    system = text(event, "kind") == "SystemPromptEvent"
    parts = [*rows(event, "llm_message", "content"), *rows(event, "extended_content")]
    content = take_text(event, "system_prompt", "text") if system else words(parts)
    for path in () if system else (("llm_message", "content"), ("extended_content",)):
        if rows(event, *path):
            take_words(event, *path)
    role, by = Role.SYSTEM if system else Role.USER, "user" if text(event, "source") == "user" else "harness"
    take_if(event, "source", "user")
    return place.message(content, by, role=role, rest=_encode_rest(event))


def _make_response(event: JSON, place: Place) -> Item:
    call, message = _read_call(event), at(event, "llm_message")
    content = take_words(event, "thought") if call else take_words(message, "content")
    thought = take_text(event, "reasoning_content") or take_text(message, "reasoning_content")
    calls = (call,) if call else ()
    return place.reply(
        Message(role=Role.ASSISTANT, text=content, reasoning=thought, calls=calls),
        response=take_text(event, "llm_response_id"),
        rest=_encode_rest(event),
    )


def _make_result(event: JSON, place: Place) -> Item:
    rejected = text(event, "kind") == "UserRejectObservation"
    by = Refuser.HOOK if text(event, "rejection_source") == "hook" else Refuser.USER
    failed = by if rejected else find_failure(event)
    counts = Counted(tool=1, results=1, errors=int(find_failure(event) is True)) if rejected else None
    call, name = take_text(event, "tool_call_id"), take_text(event, "tool_name")
    output = _take_output(event)
    return place.with_counts(counts).result(call, output, name=name, failed=failed, rest=_encode_rest(event))


_BESIDE_ARGUMENTS = (
    "id", "timestamp", "source", "thought", "reasoning_content", "thinking_blocks",
    "responses_reasoning_item", "action", "tool_name", "tool_call_id", "tool_call", "llm_response_id",
    "security_risk", "summary", "critic_result",
)  # fmt: skip
"""Keys of an action event that hold no arguments; `action` and `tool_call` are read separately."""


def _read_call(event: JSON) -> MessageCall | None:
    """Return the call of an action, with the arguments as the model wrote them, else the action's fields."""
    if text(event, "kind") != "ActionEvent":
        return None
    called, action = at(event, "tool_call"), omit_keys(at(event, "action"), "kind")
    inner, given = table(called, "function"), at(called, "arguments")
    call = read_call(
        text(event, "tool_call_id"),
        text(event, "tool_name") or text(called, "name"),
        at(inner, "arguments") if given is None else given,
        called,
        inner,
        omit_keys(event, *_BESIDE_ARGUMENTS),
        beside=("arguments", "function", "origin"),
    )
    if given is None and at(inner, "arguments") is None:
        return replace(call, arguments=json_text(action))
    return call if agree(call, action) and agree(call, at(action, "data")) else mark_unread(call)


def _take_output(event: JSON) -> str:
    kind = text(event, "kind")
    if kind == "AgentErrorEvent":
        return take_text(event, "error")
    if kind == "UserRejectObservation":
        return REJECTED + take_text(event, "rejection_reason")
    seen = at(event, "observation")
    if at(seen, "content") is not None:
        content = render_observation(seen, take_words(seen, "content"))
    else:
        own = omit_keys(seen, "kind")
        content = words(at(seen, "output")) or (json_text(own) if own else "")
    return join_rests(
        content, take_words(event, "extended_content") if rows(event, "extended_content") else ""
    )


def _encode_rest(event: JSON) -> str:
    take_if(event, "kind", "ActionEvent", "MessageEvent", "SystemPromptEvent", *RESULTS)
    take_time(event, "timestamp")
    return rest(event)
