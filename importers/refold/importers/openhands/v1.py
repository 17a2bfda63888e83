"""Events of OpenHands V1: one object an event, told apart by `kind`.

Each `ActionEvent` is one call; those of one answer share `llm_response_id`. A `Condensation` names the events that it
forgets, and puts its summary at a place of what is left: the next prompt is made from that.

Counted: responses = distinct `llm_response_id`; calls and results by `tool_call_id`; errors = `is_error`, an exit code that
is not zero, and `AgentErrorEvent`; tokens = the last `stats` update, over all of its uses.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.importers.content import agree, read_call, unread, words
from refold.importers.fields import JSON, at, instant, json_text, left, rows, table, text
from refold.importers.items import Counted, Item, Place
from refold.importers.leftovers import joined, rest, take_if, take_text, take_time, take_words
from refold.importers.openhands.events import Event, condensed
from refold.importers.openhands.rendering import REJECTED, render_observation
from refold.importers.session_rows import diagnose_apart
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import FailureClass, Refuser, Role

RESULTS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")
"""Kinds that answer a call."""

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
"""Kinds that are no turns, and what they are called among the remarks; any other is `unmapped`."""


_ACP = "ACPToolCallEvent"
"""A call by an agent that OpenHands ran over ACP. Neither the name of its tool nor, always, its arguments are recorded."""


def is_answer(event: JSON) -> bool:
    """Whether the model said it: a call, or a message of the agent."""
    kind = text(event, "kind")
    return kind == "ActionEvent" or (kind == "MessageEvent" and not is_user(event))


def is_user(event: JSON) -> bool:
    """Whether a message is on the user's side."""
    return text(event, "llm_message", "role") == "user" or text(event, "source") in (
        "user",
        "environment",
        "hook",
    )


def failed_of(event: JSON) -> bool | None:
    """Whether a result says that it failed; None: it says nothing."""
    seen = at(event, "observation")
    codes = (at(seen, "exit_code"), at(seen, "metadata", "exit_code"))
    code = next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), None)
    marks = [mark for mark in (at(seen, "is_error"), code) if isinstance(mark, int)]
    return text(event, "kind") == "AgentErrorEvent" or (any(marks) if marks else None)


def read(events: Sequence[JSON], places: Sequence[str]) -> list[Event]:
    """The events of one run; `places` has the position of each."""
    return [
        _event(event, Place(position, instant(at(event, "timestamp")), row=row))
        for row, (event, position) in enumerate(zip(events, places, strict=True))
    ]


def _event(event: JSON, place: Place) -> Event:
    kind, own = text(event, "kind"), text(event, "id")
    if is_answer(event):
        again, response = place.remarked("call", event), text(event, "llm_response_id")
        return Event(id=own, item=_answer(event, place), response=response, again=again)
    if kind in RESULTS:
        more = place.remarked("approval", event) if kind == "UserRejectObservation" else None
        return Event(id=own, item=_result(event, place), more=more)
    if kind == _ACP:
        where = Place(place.position, place.at)
        lost = next(diagnose_apart(where, "subagent", Counted(calls=1)), None)
        return Event(id=own, item=place.remarked("subagent", event), more=lost)
    if kind == "Condensation":
        return condensed(own, place.remarked("condensation", event), event)
    return Event(id=own, item=_other(event, kind, place))


def _other(event: JSON, kind: str, place: Place) -> Item:
    match kind:
        case "MessageEvent" | "SystemPromptEvent":
            return _said(event, place)
        case "InterruptEvent":
            return place.cancelled(rest=json_text(event))
        case "ConversationErrorEvent":
            said = f"{text(event, 'code')}: {text(event, 'detail')}"
            return place.failed(said, FailureClass.OTHER, rest=json_text(event))
        case _:
            what, known = REMARKS.get(kind, "unmapped"), kind in REMARKS
            return place.remarked(what, event, known=known)


def _said(event: JSON, place: Place) -> Item:
    system = text(event, "kind") == "SystemPromptEvent"
    parts = [*rows(event, "llm_message", "content"), *rows(event, "extended_content")]
    said = take_text(event, "system_prompt", "text") if system else words(parts)
    for path in () if system else (("llm_message", "content"), ("extended_content",)):
        if rows(event, *path):
            take_words(event, *path)
    role, by = Role.SYSTEM if system else Role.USER, "user" if text(event, "source") == "user" else "harness"
    take_if(event, "source", "user")
    return place.said(said, by, role=role, rest=_left_of(event))


def _answer(event: JSON, place: Place) -> Item:
    call, message = _asked(event), at(event, "llm_message")
    said = take_words(event, "thought") if call else take_words(message, "content")
    thought = take_text(event, "reasoning_content") or take_text(message, "reasoning_content")
    calls = (call,) if call else ()
    return place.answered(
        Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=calls),
        response=take_text(event, "llm_response_id"),
        rest=_left_of(event),
    )


def _result(event: JSON, place: Place) -> Item:
    rejected = text(event, "kind") == "UserRejectObservation"
    by = Refuser.HOOK if text(event, "rejection_source") == "hook" else Refuser.USER
    failed = by if rejected else failed_of(event)
    counts = Counted(tool=1, results=1, errors=int(failed_of(event) is True)) if rejected else None
    call, name = take_text(event, "tool_call_id"), take_text(event, "tool_name")
    output = _take_output(event)
    return place.counting(counts).returned(call, output, name=name, failed=failed, rest=_left_of(event))


_BESIDE_ARGUMENTS = (
    "id", "timestamp", "source", "thought", "reasoning_content", "thinking_blocks",
    "responses_reasoning_item", "action", "tool_name", "tool_call_id", "tool_call", "llm_response_id",
    "security_risk", "summary", "critic_result",
)  # fmt: skip
"""Keys of an action's event that hold no arguments, but for the action and the call that are read."""


def _asked(event: JSON) -> MessageCall | None:
    """The call that an action is: the model's own text of the arguments, else the action's fields."""
    if text(event, "kind") != "ActionEvent":
        return None
    called, action = at(event, "tool_call"), left(at(event, "action"), "kind")
    inner, given = table(called, "function"), at(called, "arguments")
    call = read_call(
        text(event, "tool_call_id"),
        text(event, "tool_name") or text(called, "name"),
        at(inner, "arguments") if given is None else given,
        called,
        inner,
        left(event, *_BESIDE_ARGUMENTS),
        beside=("arguments", "function", "origin"),
    )
    if given is None and at(inner, "arguments") is None:
        return replace(call, arguments=json_text(action))
    return call if agree(call, action) and agree(call, at(action, "data")) else unread(call)


def _take_output(event: JSON) -> str:
    kind = text(event, "kind")
    if kind == "AgentErrorEvent":
        return take_text(event, "error")
    if kind == "UserRejectObservation":
        return REJECTED + take_text(event, "rejection_reason")
    seen = at(event, "observation")
    if at(seen, "content") is not None:
        said = render_observation(seen, take_words(seen, "content"))
    else:
        own = left(seen, "kind")
        said = words(at(seen, "output")) or (json_text(own) if own else "")
    return joined(said, take_words(event, "extended_content") if rows(event, "extended_content") else "")


def _left_of(event: JSON) -> str:
    take_if(event, "kind", "ActionEvent", "MessageEvent", "SystemPromptEvent", *RESULTS)
    take_time(event, "timestamp")
    return rest(event)
