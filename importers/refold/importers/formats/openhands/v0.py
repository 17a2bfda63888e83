"""Events of OpenHands V0, and the histories of its first resolver in their shape.

An agent's action is a call of a tool; those of one answer (`tool_call_metadata.model_response.id`) belong
together. What answers a call carries the same `tool_call_id`. `message` is said, `finish` is a call that
nothing answers, changes of the agent's state and `null` are no turns. The oldest events have neither ids,
times nor sources.

Counted: responses = distinct `model_response.id`, and agent actions without metadata; calls and results by
`tool_call_id`; errors = observation `error`, and `run` with an exit code that is not zero; tokens from the
row's `metrics`.

Until August 2024 a history was pairs of an action and its observation, an observation `null` where there was
none; then, until V0's own shape, events whose arguments stand beside their name instead of in `args`, and
what was observed instead of in `extras`.
"""

from collections.abc import Iterator, Sequence

import msgspec

from refold.importers.content import agree, calls_of, read_call, unread, words
from refold.importers.fields import (
    JSON,
    at,
    instant,
    json_text,
    known_or,
    left,
    nano_usd,
    number,
    rest,
    rows,
    table,
    take_if,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.formats.openhands.v1 import RecordedEvent, condensed
from refold.importers.items import UNCOUNTED, Counted, Item, Place, Returned
from refold.importers.usage import CHAT_TOKENS, UsageNames
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Refuser, Role

_KINDS = frozenset({
    "browse", "browse_interactive", "call_tool_mcp", "condensation_request", "delegate",
    "delegate_observation", "edit", "error", "finish", "loop_recovery", "mcp", "message", "null", "pause",
    "read", "recall", "reject", "resume", "run", "run_ipython", "start", "state", "success", "system",
    "task_tracking", "think", "user_rejected", "write"
})  # fmt: skip
_STATES = ("change_agent_state", "agent_state_changed")
_FAILS_AS_ERROR = frozenset({"edit", "read", "success", "task_tracking", "think", "write"})
"""Kinds of observations in whose place stands one of the kind `error` if something failed."""
_TOKENS = UsageNames(
    input=CHAT_TOKENS.input,
    output=CHAT_TOKENS.output,
    cache_read=("cache_read_tokens", *CHAT_TOKENS.cache_read),
    cache_write=("cache_write_tokens",),
    reasoning=CHAT_TOKENS.reasoning,
)

NO_TURNS = {"change_agent_state", "recall", "condensation", "condensation_request", "null", "", "system"}
"""Actions of an agent that no model asked for."""


def response_of(event: JSON) -> str:
    """The id of the provider's answer that an event came from, "" where it has none."""
    return text(event, "tool_call_metadata", "model_response", "id")


def call_of(event: JSON) -> str:
    """The provider's id of the call that an event makes or answers, "" where it has none."""
    return text(event, "tool_call_metadata", "tool_call_id")


def is_user(event: JSON) -> bool:
    """Whether a person did it. Without sources (the oldest events) each message is the person's."""
    source = text(event, "source")
    return source == "user" if source else text(event, "action") == "message"


def is_answer(event: JSON) -> bool:
    """Whether it is something that the model did."""
    action = text(event, "action")
    return action not in NO_TURNS and not is_user(event) and text(event, "source") != "environment"


def exit_code(event: JSON) -> int | None:
    """The exit code of a command's observation."""
    for code in (at(event, "extras", "metadata", "exit_code"), at(event, "extras", "exit_code")):
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None


def failed_of(event: JSON) -> bool | None:
    """Whether an observation says that something failed; None: it says nothing."""
    match text(event, "observation"):
        case "error":
            return True
        case "run":
            return None if (code := exit_code(event)) is None else code != 0
        case kind:
            return False if kind in _FAILS_AS_ERROR else None


def read(events: Sequence[JSON], positions: Sequence[str], metrics: JSON) -> list[RecordedEvent]:
    """The events of one run, which stand at these positions; `metrics` have the tokens of its answers."""
    usages = {text(row, "response_id"): row for row in rows(metrics, "token_usages")}
    # Old events name no calls: each action is one, each observation its result.
    bare = not any("tool_call_metadata" in table(event) for event in events)
    around = _Around(usages, bare=bare)
    return [
        _event(event, Place(position, instant(at(event, "timestamp")), row=row), around)
        for row, (event, position) in enumerate(zip(events, positions, strict=True))
    ]


class _Around(msgspec.Struct):
    """What is known around an event: usages by response, tools of the calls before it by the calls' ids.

    `told`: metadata of events before it, by call and by response. `bare`: the events name no calls.
    """

    usages: dict[str, JSON]
    names: dict[str, str] = {}
    told: dict[str, dict[str, JSON]] = {}
    bare: bool = False


def _event(event: JSON, place: Place, around: _Around) -> RecordedEvent:
    action, kind, own = text(event, "action"), text(event, "observation"), _event_id(event)
    take_if(event, "id", place.row)
    if action == "condensation":
        remark = place.remark("condensation", event)
        return condensed(own, remark, at(event, "args"), between=_forgotten(event))
    if is_answer(event):
        return _answered(event, own, place, around)
    if action in ("message", "system"):
        counts = None if is_user(event) else UNCOUNTED
        item = _said(event, take_text(event, "args", "content"), place.with_counts(counts), around)
        return RecordedEvent(id=own, item=item)
    if kind not in ("", "null", "agent_state_changed", "recall"):
        return _observation(event, own, place, around)
    if action == "change_agent_state" and text(event, "args", "agent_state") == "stopped":
        by = text(event, "source") or "user"
        return RecordedEvent(id=own, item=place.cancellation(by=by, rest=json_text(event)))
    what = action or kind
    item = place.remark(_what(what), event, known=what in _KINDS or what in _STATES)
    return RecordedEvent(id=own, placed="recall" in (action, kind), item=item)


def _forgotten(event: JSON) -> tuple[int, int]:
    """The first and the last event that a condensation leaves out."""
    first, last = (at(event, "args", f"forgotten_events_{edge}_id") for edge in ("start", "end"))
    return (first, last) if isinstance(first, int) and isinstance(last, int) else (0, -1)


def _observation(event: JSON, own: str, place: Place, around: _Around) -> RecordedEvent:
    kind = text(event, "observation")
    more = place.remark("approval", {"decision": "reject"}) if kind == "user_rejected" else None
    lost = None if kind in _KINDS else next(place.unknown_calls(event), None)
    item = _observed(event, around, place)
    return RecordedEvent(id=own, item=item, more=more if isinstance(item, Returned) else lost)


def _answered(event: JSON, own: str, place: Place, around: _Around) -> RecordedEvent:
    call = _asked(event, place.row)
    if call:
        around.names[call.id] = text(event, "tool_call_metadata", "function_name") or text(event, "action")
    answer = _answer(event, call, around, place)
    again = place.remark("call", rest=answer.rest)
    written = at(event, "tool_call_metadata", "model_response", "choices", 0, "message", "content")
    more = next(place.hosted_calls(written), None)
    return RecordedEvent(id=own, item=answer, response=response_of(event), again=again, more=more)


def _said(event: JSON, said: str, place: Place, around: _Around) -> Item:
    role = Role.SYSTEM if text(event, "action") == "system" else Role.USER
    by = "user" if is_user(event) else "harness"
    take_if(event, "message", said)
    take_if(event, "action", "message", "system")
    return place.message(said, by, role=role, rest=_left_of(event, around))


def _answer(event: JSON, call: MessageCall | None, around: _Around, place: Place) -> Item:
    raw, response = at(event, "tool_call_metadata", "model_response"), response_of(event)
    used, choice = around.usages.get(response, at(raw, "usage")), at(raw, "choices", 0)
    thought = text(choice, "message", "reasoning_content")
    calls = (call,) if call else ()
    named = call is not None and (around.bare or bool(call_of(event)))
    counts, said = None if response else Counted(assistant=1, calls=int(named)), _said_by(event)
    if response not in around.told:  # else this item is not told: its call is with the answer's first
        for name in ("content", "thought", "final_thought"):
            take_if(at(event, "args"), name, said)
        take_if(event, "message", said)
    return place.with_counts(counts).reply(
        Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=calls),
        _TOKENS.of(used),
        cost=nano_usd(at(used, "cost")),
        model=text(raw, "model"),
        stop=text(choice, "finish_reason"),
        response=response,
        rest=_left_of(event, around),
    )


_BESIDE_ARGUMENTS = (
    "timestamp", "source", "message", "cause", "action", "args", "tool_call_metadata", "timeout",
    "llm_metrics",
)  # fmt: skip
"""Keys of an action that hold no arguments, but for `args`."""


def _asked(event: JSON, index: int) -> MessageCall | None:
    """The call that an action is: as the model wrote it where its answer is there, else from the action."""
    action, call = text(event, "action"), call_of(event)
    if action == "message" or (not call and action == "finish"):
        return None
    written = rows(event, "tool_call_metadata", "model_response", "choices")
    found = (asked for choice in written for asked in calls_of(at(choice, "message")) if asked.id == call)
    name = text(event, "tool_call_metadata", "function_name") or action
    given = left(at(event, "args"), "thought", "confirmation_state")
    if (model := next(found, None)) is not None:
        return model if agree(model, given) else unread(model)
    id_ = call or f"event-{_event_id(event) or index}"
    return read_call(id_, name, json_text(given), event, beside=_BESIDE_ARGUMENTS)


def _observed(event: JSON, around: _Around, place: Place) -> Item:
    output, call = take_words(event, "content"), call_of(event) or _caused(event, around.names)
    rejected, named = text(event, "observation") == "user_rejected", bool(call_of(event))
    result, failed = int(named or around.bare), failed_of(event)
    counts = (
        None if named and not rejected else Counted(tool=result, results=result, errors=int(failed is True))
    )
    place = place.with_counts(counts)
    if not call:
        return _said(event, output, place, around)
    name = around.names.get(call, text(event, "tool_call_metadata", "function_name"))
    went = Refuser.USER if rejected else failed
    return place.result(call, output, name=name, failed=went, rest=_left_of(event, around))


def _caused(event: JSON, names: dict[str, str]) -> str:
    """The call of the action that an observation without metadata answers: the one that caused it, or the
    last.
    """
    cause = at(event, "cause")
    wanted = f"event-{cause}" if isinstance(cause, int) and cause >= 0 else next(reversed(names), "")
    return wanted if wanted in names and wanted.startswith("event-") else ""


def _event_id(event: JSON) -> str:
    found = at(event, "id")
    return str(found) if isinstance(found, int | str) else ""


def _what(kind: str) -> str:
    return known_or("state" if kind in _STATES else kind, _KINDS)


def _said_by(event: JSON) -> str:
    """What the model said with an action: its answer's text, else what the action kept of it."""
    said = at(event, "tool_call_metadata", "model_response", "choices", 0, "message", "content")
    if said is not None:
        return words(said)
    kept = ("content",) if text(event, "action") == "message" else ("thought", "final_thought")
    return next((found for key in kept if (found := text(event, "args", key))), "")


def _left_of(event: JSON, around: _Around) -> str:
    """JSON text of what is left of an event.

    What the metadata of an answer say in every event of it is told once.
    """
    whole = table(event, "tool_call_metadata")
    metadata = {**whole}
    for key in filter(None, (call_of(event), response_of(event))):
        told = around.told.setdefault(key, whole)
        for name, value in () if told is whole else told.items():
            take_if(metadata, name, value)
    take_time(event, "timestamp")
    return rest({**table(event), "tool_call_metadata": metadata})


_AROUND = ("id", "timestamp", "source", "message", "cause", "action", "observation", "tool_call_metadata")
_INSIDE = {"action": "args", "observation": "extras"}


def is_resolved(row: JSON) -> bool:
    """Whether a row is of an issue that the resolver worked on."""
    return {"issue", "git_patch", "history"} <= table(row).keys()


def issue_of(row: JSON) -> str:
    """The issue that a row is of, as its forge names it: `owner/repository#number`; "" for none."""
    issue = table(row, "issue")
    owner, name = (text(issue, key) or text(issue, f"github_{key}") for key in ("owner", "repo"))
    return f"{owner}/{name}#{number(issue, 'number')}" if owner and name else ""


def events_of(history: Sequence[JSON], position: str) -> tuple[list[JSON], list[str]]:
    """The events of a history at `position`, in the shape of V0, and where each of them stands."""
    placed = list(_placed(history, position))
    return [_shaped(event) for event, _ in placed], [where for _, where in placed]


def _placed(history: Sequence[JSON], position: str) -> Iterator[tuple[JSON, str]]:
    for index, event in enumerate(history):
        where = f"{position}[{index}]"
        if isinstance(event, list):
            yield from ((each, f"{where}[{place}]") for place, each in enumerate(event))
        else:
            yield event, where


def _shaped(event: JSON) -> JSON:
    kind = next((kind for kind in _INSIDE if isinstance(at(event, kind), str)), "")
    if not kind or _INSIDE[kind] in table(event):
        return event
    outside = (*_AROUND, "content") if kind == "observation" else _AROUND
    kept = {name: value for name, value in table(event).items() if name in outside}
    return {**kept, _INSIDE[kind]: {name: value for name, value in table(event).items() if name not in kept}}
