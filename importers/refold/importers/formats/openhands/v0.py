"""Events of OpenHands V0, and histories of its first resolver, converted to the same shape.

An agent's action is a call of a tool. Actions with the same `tool_call_metadata.model_response.id` are one
response. A result has the `tool_call_id` of its call. The action `message` is text, and `finish` is a call
without a result. Changes of the agent's state and `null` are not turns. The oldest events have no ids, times
or sources.

Counts: responses = distinct `model_response.id`, and agent actions without metadata; calls and results by
`tool_call_id`; errors = observation `error`, and `run` with an exit code other than 0; tokens from the row's
`metrics`.

Until August 2024, a history was pairs of an action and its observation (`null` for none). After that, and
before V0's own shape, it was events whose fields are beside the name of the action or observation instead of
in `args` or `extras`.
"""

from collections.abc import Iterator, Sequence

import msgspec

from refold.importers.content import agree, calls_of, mark_unread, read_call, words
from refold.importers.fields import (
    JSON,
    at,
    instant,
    json_text,
    known_or,
    nano_usd,
    number,
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
from refold.importers.formats.openhands.v1 import RecordedEvent, read_condensation
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
"""Kinds of observations that are replaced by one of the kind `error` on failure."""
_TOKENS = UsageNames(
    input=CHAT_TOKENS.input,
    output=CHAT_TOKENS.output,
    cache_read=("cache_read_tokens", *CHAT_TOKENS.cache_read),
    cache_write=("cache_write_tokens",),
    reasoning=CHAT_TOKENS.reasoning,
)

NO_TURNS = {"change_agent_state", "recall", "condensation", "condensation_request", "null", "", "system"}
"""Actions with the source `agent` that the model did not request."""


def response_of(event: JSON) -> str:
    """Return the id of the provider's response that an event came from, "" for none."""
    return text(event, "tool_call_metadata", "model_response", "id")


def call_of(event: JSON) -> str:
    """Return the provider's id of the call that an event makes or is the result of, "" for none."""
    return text(event, "tool_call_metadata", "tool_call_id")


def is_user(event: JSON) -> bool:
    """Return whether an event is by the user. Without sources (the oldest events), every message is."""
    source = text(event, "source")
    return source == "user" if source else text(event, "action") == "message"


def is_answer(event: JSON) -> bool:
    """Return whether an event is an action of the model."""
    action = text(event, "action")
    return action not in NO_TURNS and not is_user(event) and text(event, "source") != "environment"


def exit_code(event: JSON) -> int | None:
    """Return the exit code of a command's observation, None if not recorded."""
    for code in (at(event, "extras", "metadata", "exit_code"), at(event, "extras", "exit_code")):
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None


def find_failure(event: JSON) -> bool | None:
    """Return whether an observation reports a failure; None if not recorded."""
    match text(event, "observation"):
        case "error":
            return True
        case "run":
            return None if (code := exit_code(event)) is None else code != 0
        case kind:
            return False if kind in _FAILS_AS_ERROR else None


def read(events: Sequence[JSON], positions: Sequence[str], metrics: JSON) -> list[RecordedEvent]:
    """Return the events of one run at these positions; `metrics` has the tokens of its responses."""
    usages = {text(row, "response_id"): row for row in rows(metrics, "token_usages")}
    # Old events have no call ids: each action is a call, and each observation its result.
    bare = not any("tool_call_metadata" in table(event) for event in events)
    state = _State(usages, bare=bare)
    return [
        _event(event, Place(position, instant(at(event, "timestamp")), row=row), state)
        for row, (event, position) in enumerate(zip(events, positions, strict=True))
    ]


class _State(msgspec.Struct):
    """State between events: usages by response id, and tool names of earlier calls by call id.

    `metadata`: metadata of earlier events, by call and by response. `bare`: the events have no call ids.
    """

    usages: dict[str, JSON]
    names: dict[str, str] = {}
    metadata: dict[str, dict[str, JSON]] = {}
    bare: bool = False


def _event(event: JSON, place: Place, state: _State) -> RecordedEvent:
    action, kind, own = text(event, "action"), text(event, "observation"), _event_id(event)
    take_if(event, "id", place.row)
    if action == "condensation":
        remark = place.remark("condensation", event)
        return read_condensation(own, remark, at(event, "args"), between=_read_range(event))
    if is_answer(event):
        return _read_action(event, own, place, state)
    if action in ("message", "system"):
        counts = None if is_user(event) else UNCOUNTED
        item = _make_message(event, take_text(event, "args", "content"), place.with_counts(counts), state)
        return RecordedEvent(id=own, item=item)
    if kind not in ("", "null", "agent_state_changed", "recall"):
        return _read_observation(event, own, place, state)
    if action == "change_agent_state" and text(event, "args", "agent_state") == "stopped":
        by = text(event, "source") or "user"
        return RecordedEvent(id=own, item=place.cancellation(by=by, rest=json_text(event)))
    what = action or kind
    item = place.remark(_name_remark(what), event, known=what in _KINDS or what in _STATES)
    return RecordedEvent(id=own, placed="recall" in (action, kind), item=item)


def _read_range(event: JSON) -> tuple[int, int]:
    """Return the ids of the first and the last event of the range that a condensation omits."""
    first, last = (at(event, "args", f"forgotten_events_{edge}_id") for edge in ("start", "end"))
    return (first, last) if isinstance(first, int) and isinstance(last, int) else (0, -1)


def _read_observation(event: JSON, own: str, place: Place, state: _State) -> RecordedEvent:
    kind = text(event, "observation")
    more = place.remark("approval", {"decision": "reject"}) if kind == "user_rejected" else None
    lost = None if kind in _KINDS else next(place.unknown_calls(event), None)
    item = _make_result(event, state, place)
    return RecordedEvent(id=own, item=item, more=more if isinstance(item, Returned) else lost)


def _read_action(event: JSON, own: str, place: Place, state: _State) -> RecordedEvent:
    call = _read_call(event, place.row)
    if call:
        state.names[call.id] = text(event, "tool_call_metadata", "function_name") or text(event, "action")
    answer = _make_response(event, call, state, place)
    again = place.remark("call", rest=answer.rest)
    written = at(event, "tool_call_metadata", "model_response", "choices", 0, "message", "content")
    more = next(place.hosted_calls(written), None)
    return RecordedEvent(id=own, item=answer, response=response_of(event), again=again, more=more)


def _make_message(event: JSON, content: str, place: Place, state: _State) -> Item:
    role = Role.SYSTEM if text(event, "action") == "system" else Role.USER
    by = "user" if is_user(event) else "harness"
    take_if(event, "message", content)
    take_if(event, "action", "message", "system")
    return place.message(content, by, role=role, rest=_encode_rest(event, state))


def _make_response(event: JSON, call: MessageCall | None, state: _State, place: Place) -> Item:
    raw, response = at(event, "tool_call_metadata", "model_response"), response_of(event)
    used, choice = state.usages.get(response, at(raw, "usage")), at(raw, "choices", 0)
    thought = text(choice, "message", "reasoning_content")
    calls = (call,) if call else ()
    named = call is not None and (state.bare or bool(call_of(event)))
    counts, content = None if response else Counted(assistant=1, calls=int(named)), _find_text(event)
    if response not in state.metadata:  # otherwise its call is part of the response's first item
        for name in ("content", "thought", "final_thought"):
            take_if(at(event, "args"), name, content)
        take_if(event, "message", content)
    return place.with_counts(counts).reply(
        Message(role=Role.ASSISTANT, text=content, reasoning=thought, calls=calls),
        _TOKENS.of(used),
        cost=nano_usd(at(used, "cost")),
        model=text(raw, "model"),
        stop=text(choice, "finish_reason"),
        response=response,
        rest=_encode_rest(event, state),
    )


_BESIDE_ARGUMENTS = (
    "timestamp", "source", "message", "cause", "action", "args", "tool_call_metadata", "timeout",
    "llm_metrics",
)  # fmt: skip
"""Keys of an action that hold no arguments; `args` is read separately."""


def _read_call(event: JSON, index: int) -> MessageCall | None:
    """Return the call of an action, as the model wrote it if its response is recorded, else by `args`."""
    action, call = text(event, "action"), call_of(event)
    if action == "message" or (not call and action == "finish"):
        return None
    written = rows(event, "tool_call_metadata", "model_response", "choices")
    found = (asked for choice in written for asked in calls_of(at(choice, "message")) if asked.id == call)
    name = text(event, "tool_call_metadata", "function_name") or action
    given = omit_keys(at(event, "args"), "thought", "confirmation_state")
    if (model := next(found, None)) is not None:
        return model if agree(model, given) else mark_unread(model)
    id_ = call or f"event-{_event_id(event) or index}"
    return read_call(id_, name, json_text(given), event, beside=_BESIDE_ARGUMENTS)


def _make_result(event: JSON, state: _State, place: Place) -> Item:
    output, call = take_words(event, "content"), call_of(event) or _find_cause(event, state.names)
    rejected, named = text(event, "observation") == "user_rejected", bool(call_of(event))
    result, failed = int(named or state.bare), find_failure(event)
    counts = (
        None if named and not rejected else Counted(tool=result, results=result, errors=int(failed is True))
    )
    place = place.with_counts(counts)
    if not call:
        return _make_message(event, output, place, state)
    name = state.names.get(call, text(event, "tool_call_metadata", "function_name"))
    went = Refuser.USER if rejected else failed
    return place.result(call, output, name=name, failed=went, rest=_encode_rest(event, state))


def _find_cause(event: JSON, names: dict[str, str]) -> str:
    """Return the call id for an observation without metadata: that of its `cause`, else the last one."""
    cause = at(event, "cause")
    wanted = f"event-{cause}" if isinstance(cause, int) and cause >= 0 else next(reversed(names), "")
    return wanted if wanted in names and wanted.startswith("event-") else ""


def _event_id(event: JSON) -> str:
    found = at(event, "id")
    return str(found) if isinstance(found, int | str) else ""


def _name_remark(kind: str) -> str:
    return known_or("state" if kind in _STATES else kind, _KINDS)


def _find_text(event: JSON) -> str:
    """Return the model's text with an action: from its response, else as far as the action has it."""
    content = at(event, "tool_call_metadata", "model_response", "choices", 0, "message", "content")
    if content is not None:
        return words(content)
    keys = ("content",) if text(event, "action") == "message" else ("thought", "final_thought")
    return next((found for key in keys if (found := text(event, "args", key))), "")


def _encode_rest(event: JSON, state: _State) -> str:
    """Return JSON text of the remaining fields of an event.

    Metadata that all events of a response repeat is kept once.
    """
    whole = table(event, "tool_call_metadata")
    metadata = {**whole}
    for key in filter(None, (call_of(event), response_of(event))):
        earlier = state.metadata.setdefault(key, whole)
        for name, value in () if earlier is whole else earlier.items():
            take_if(metadata, name, value)
    take_time(event, "timestamp")
    return rest({**table(event), "tool_call_metadata": metadata})


_AROUND = ("id", "timestamp", "source", "message", "cause", "action", "observation", "tool_call_metadata")
_INSIDE = {"action": "args", "observation": "extras"}


def is_resolved(row: JSON) -> bool:
    """Return whether a row is an issue that the resolver worked on."""
    return {"issue", "git_patch", "history"} <= table(row).keys()


def issue_of(row: JSON) -> str:
    """Return the issue of a row as `owner/repository#number`; "" for none."""
    issue = table(row, "issue")
    owner, name = (text(issue, key) or text(issue, f"github_{key}") for key in ("owner", "repo"))
    return f"{owner}/{name}#{number(issue, 'number')}" if owner and name else ""


def events_of(history: Sequence[JSON], position: str) -> tuple[list[JSON], list[str]]:
    """Return the events of a history at `position`, in the shape of V0, and their positions."""
    placed = list(_list_events(history, position))
    return [_convert_shape(event) for event, _ in placed], [where for _, where in placed]


def _list_events(history: Sequence[JSON], position: str) -> Iterator[tuple[JSON, str]]:
    for index, event in enumerate(history):
        where = f"{position}[{index}]"
        if isinstance(event, list):
            yield from ((each, f"{where}[{place}]") for place, each in enumerate(event))
        else:
            yield event, where


def _convert_shape(event: JSON) -> JSON:
    kind = next((kind for kind in _INSIDE if isinstance(at(event, kind), str)), "")
    if not kind or _INSIDE[kind] in table(event):
        return event
    outside = (*_AROUND, "content") if kind == "observation" else _AROUND
    kept = {name: value for name, value in table(event).items() if name in outside}
    return {**kept, _INSIDE[kind]: {name: value for name, value in table(event).items() if name not in kept}}
