"""OpenCode messages: user messages with their parts, and responses with their calls, states and results.

OpenCode calls the tool `invalid` if the model requested an unknown tool or passed invalid arguments, and
later requests contain that call. The log records the call that the model requested, and a cut records what
was sent instead.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from refold.importers.content import UnreadCall, arguments, read_call
from refold.importers.fields import (
    JSON,
    at,
    instant,
    json_text,
    number,
    rest,
    rows,
    table,
    take,
    take_cost,
    take_each,
    take_if,
    take_part,
    take_text,
    take_words,
    text,
)
from refold.importers.items import (
    UNKNOWN_PART,
    Answered,
    Counted,
    Item,
    Place,
    Returned,
)
from refold.importers.session_rows import BEGINNING, Cut
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.source_marks import CALL_UNREAD
from refold.reducers.vocabulary import FailureClass, Refuser, Role, ToolError

_TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=("cache/read",),
    cache_write=("cache/write",),
    reasoning=("reasoning",),
    beside=True,
)
ABORTED = "MessageAbortedError"
_NOT_RUN = "Tool execution aborted"
_SAYS = ("text", "reasoning", "tool")
_BESIDE = (
    "step-start", "step-finish", "snapshot", "patch", "file", "agent", "subtask", "retry", "compaction",
)  # fmt: skip
_AS_TEXT = ("text/plain", "application/x-directory")
_TASK = "task"
"""The tool that starts a subagent, which has its own session."""
_INVALID = "invalid"
"""The tool that OpenCode calls instead of an unknown tool or one with invalid arguments."""
_UNAVAILABLE = "Model tried to call unavailable tool"
_OWN_TOOLS = frozenset(
    (
        "bash",
        "edit",
        "glob",
        "grep",
        "list",
        "patch",
        "read",
        "skill",
        "task",
        "todowrite",
        "webfetch",
        "write",
    )
)
"""Tools whose error texts OpenCode writes. The error texts of other tools are not known."""
_REFUSED: tuple[tuple[str, Refuser], ...] = (
    ("The user rejected permission to use this specific tool call", Refuser.USER),
    ("The user has specified a rule which prevents you from using this specific tool call", Refuser.RULE),
)
_PLACEHOLDERS = {
    "compaction": "What did we do so far?",
    "subtask": "The following tool was executed by the user",
}
"""The text that OpenCode sends for parts without text."""
_BESIDE_ARGUMENTS = (
    "callID", "tool", "messageID", "sessionID", "state", "metadata", "status", "output", "time", "error",
    "attachments",
)  # fmt: skip
"""Keys of a tool part and of its state that are not arguments."""
DONE = ("completed", "error")
"""The states of calls that have ended."""


def read_message(message: JSON, where: Place, session: str, *, overflowed: bool = False) -> Iterator[Item]:
    """Yield the items of a message. `overflowed`: the next message says that its request was too long."""
    parts = rows(message, "parts")
    strange = sorted({text(part, "type") for part in parts} - {*_SAYS, *_BESIDE})
    if strange or not isinstance(at(message, "parts"), list):
        told = ", ".join(kind[:40] or "none" for kind in strange[:5])
        yield where.problem(UNKNOWN_PART, f"unknown parts in a message: {told}")
    match text(message, "info", "role"):
        case "user":
            yield from _read_user_message(message, parts, where, session)
        case "assistant":
            yield from _read_response(message, where, session, overflowed=overflowed)
        case _:
            yield where.remark("unmapped", message, known=False)


def _read_user_message(message: JSON, parts: Sequence[JSON], where: Place, session: str) -> Iterator[Item]:
    typed = any(text(part, "type") == "text" and at(part, "synthetic") is not True for part in parts)
    lost = [*where.unknown_calls([part for part in parts if text(part, "type") == "tool"])]
    said = "\n".join([_take_prompt_text(part) for part in parts if _is_in_prompt(part)])
    take(message, "info", "role")
    left = _take_rest(message, session, text(message, "info", "id"))
    yield where.message(said, "user" if typed else "harness", rest=left)
    yield from lost


def _read_response(message: JSON, where: Place, session: str, *, overflowed: bool) -> Iterator[Item]:
    info, steps = at(message, "info"), _split_steps(message)
    name, problem = text(info, "error", "name"), text(info, "error", "data", "message")
    requested = _map_invalid_calls(message)
    told = [
        item
        for step in steps
        for item in (
            _make_reply(info, step, where, requested),
            *_read_results(step, where, requested, session),
        )
    ]
    if told:
        failed = [] if name in ("", ABORTED) else [where.remark("error", take(info, "error"))]
        id_ = take_text(info, "id")
        take_text(info, "modelID")
        take(info, "role")
        yield replace(told[0], rest=_take_rest(message, session, id_))
        yield from (*told[1:], *failed)
    if name == ABORTED:
        yield where.cancellation(problem, rest="" if told else json_text(message))
    elif not told:
        yield _read_empty_response(message, where, overflowed=overflowed)
    if requested:
        sent = tuple(
            _rename_invalid_calls(item, requested) for item in told if isinstance(item, Answered | Returned)
        )
        yield Cut(
            where.position, why="repaired", head=((BEGINNING, where.row - 1),), joins=sent, row=where.row
        )


def _read_empty_response(message: JSON, where: Place, *, overflowed: bool) -> Item:
    """Return the item of a message without response parts.

    Its request failed if the message has an error or is empty.
    """
    error, name = at(message, "info", "error"), text(message, "info", "error", "name")
    if name:
        problem, status = text(error, "data", "message"), number(error, "data", "statusCode")
        return where.failure(problem or name, status=status, rest=json_text(message))
    if is_empty(message):
        why = FailureClass.CONTEXT_OVERFLOW if overflowed else FailureClass.OTHER
        return where.failure("the response has no content", why, rest=json_text(message))
    return where.remark("unmapped", message)


def _map_invalid_calls(message: JSON) -> dict[str, str]:
    """Return the tools that the model requested where OpenCode called `invalid`, by call id."""
    tools = (part for part in rows(message, "parts") if text(part, "tool") == _INVALID)
    return {
        text(part, "callID"): name
        for part in tools
        if (name := text(part, "state", "input", "tool")) and text(part, "state", "input", "error")
    }


def _rename_invalid_calls(item: Answered | Returned, requested: Mapping[str, str]) -> Answered | Returned:
    """Return a response or a result as later requests contain it: with calls of `invalid`."""
    if isinstance(item, Returned):
        return replace(item, name=_INVALID) if item.id in requested else item
    calls = (replace(call, name=_INVALID) if call.id in requested else call for call in item.calls)
    return replace(item, calls=tuple(calls))


def is_empty(message: JSON) -> bool:
    """Return whether a response is complete but has no parts, no error and no stop reason."""
    info = at(message, "info")
    over = at(info, "time", "completed") is not None
    return over and not (rows(message, "parts") or text(info, "finish") or table(info, "error"))


Step = list[tuple[int, JSON]]
"""The parts of one response, each with its index in the message."""


def _split_steps(message: JSON) -> list[Step]:
    """Return the responses of a message.

    After a `step-finish`, a new response starts; steps without text, reasoning, call or `step-finish` are
    omitted.
    """
    steps: list[Step] = [[]]
    for place, part in enumerate(rows(message, "parts")):
        if _find_finish(steps[-1]) and text(part, "type") in ("step-start", *_SAYS):
            steps.append([])
        steps[-1].append((place, part))
    return [step for step in steps if any(text(part, "type") in (*_SAYS, "step-finish") for _, part in step)]


def _find_finish(step: Step) -> JSON:
    return next((part for _, part in step if text(part, "type") == "step-finish"), None)


def _make_reply(info: JSON, step: Step, where: Place, requested: Mapping[str, str]) -> Item:
    finish = _find_finish(step)
    said, why = (finish, "reason") if finish else (info, "finish")
    place = replace(
        where, at=_find_completion_time(step) or instant(at(info, "time", "completed")) or where.at
    )
    for name, same in (("tokens", "tokens"), ("cost", "cost"), ("finish", "reason")):
        take_if(info, name, *([at(finish, same)] if finish else []))
    take_if(finish, "type", "step-finish")
    return place.reply(
        _take_message(step, requested),
        _take_usage(said, counted=finish is not None),
        stop="" if text(said, why) == "unknown" else take_text(said, why),
        cost=take_cost(said, "cost") if at(said, "cost") else None,  # OpenCode writes 0 if it has no price
        model=text(info, "modelID"),
        response=text(info, "id"),
    )


def _find_completion_time(step: Step) -> int | None:
    """Return the time at which a response was complete.

    The message completes later, when its tools have ended.
    """
    ends = (instant(at(part, "time", "end")) for _, part in step)
    calls = (instant(at(part, "state", "time", "start")) for _, part in step)
    return max((time for time in (*ends, *calls) if time is not None), default=None)


def _take_usage(said: JSON, *, counted: bool) -> Usage | None:
    """Take the usage of a response, or return None if it broke off before the tokens were counted."""
    used = _TOKENS.of(at(said, "tokens"))
    if used is None or (not counted and used == Usage()):
        return None
    _TOKENS.take(said, "tokens")
    return replace(used, output=used.output + used.reasoning)


def _take_message(step: Step, requested: Mapping[str, str]) -> Message:
    """Take the text, reasoning and calls of a response. Calls lose only their arguments."""
    texts, thoughts, calls = list[str](), list[str](), list[MessageCall]()
    for _, part in step:
        match text(part, "type"):
            case "text":
                texts.append(take_part(part))
            case "reasoning":
                thoughts.append(take_text(part, "text"))
                take(part, "type")
            case "tool":
                calls.append(_take_call(part, requested))
            case _:
                take_if(part, "type", "step-start")
    said, thought = "\n".join(texts), "\n".join(thoughts)
    return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=tuple(calls))


def _take_call(part: JSON, requested: Mapping[str, str]) -> MessageCall:
    """Take the arguments of the call in a tool part.

    While the model still writes them, they are in `raw`, not in `input`.
    """
    given, id_ = take(part, "state", "input"), text(part, "callID")
    name = requested.get(id_, text(part, "tool"))
    if not table(part, "state"):
        return UnreadCall(id_, name, arguments(given))
    return read_call(id_, name, given, part, table(part, "state"), beside=_BESIDE_ARGUMENTS)


def _read_results(step: Step, where: Place, requested: Mapping[str, str], session: str) -> Iterator[Item]:
    for index, part in step:
        if text(part, "type") != "tool":
            continue
        take(part, "type")
        call, name, state = take_text(part, "callID"), take_text(part, "tool"), take(part, "state")
        name, began = requested.get(call, name), text(state, "metadata", "sessionId")
        ended = instant(at(state, "time", "end"))
        place = replace(where, position=f"{where.position}.parts[{index}]", at=ended or where.at)
        lost = [*place.subagent_calls(at(state, "metadata"))] if name == _TASK else []
        if not table(state) or (text(state, "raw") and not table(state, "input")):
            lost.append(place.oddity(CALL_UNREAD, "a call without its arguments"))
        if text(state, "status") not in DONE:
            yield place.remark("unanswered", rest=json_text(state))
            yield from lost
            continue
        failed = _find_failure(state, name, invalid=call in requested)
        take_if(state, "status", "completed")
        yield place.with_counts(Counted(results=1, errors=int(failed not in (None, False)))).result(
            call,
            _take_output(state),
            name=name,
            failed=failed,
            duration=_measure_duration(state),
            began=began if began != session else "",
            rest=rest(state),
        )
        yield from lost


def _measure_duration(state: JSON) -> int:
    begun, ended = (instant(at(state, "time", name)) for name in ("start", "end"))
    return max(0, ended - begun) if begun and ended else 0


def _take_output(state: JSON) -> str:
    """Take the text of a result as the prompt contains it."""
    if text(state, "status") != "error":
        return take_words(state, "output")
    if at(state, "metadata", "interrupted") is True:
        return take_text(state, "metadata", "output")
    return take_words(state, "error")


def _find_failure(state: JSON, name: str, *, invalid: bool) -> ToolError | Refuser | bool | None:
    """Return whether a call failed, how it failed or who refused it, or None for a command without an exit
    code.
    """
    if invalid:
        unavailable = text(state, "output").find(_UNAVAILABLE) >= 0
        return ToolError.UNKNOWN_TOOL if unavailable else ToolError.BAD_ARGUMENTS
    error, metadata = text(state, "error"), table(state, "metadata")
    if text(state, "status") == "error":
        stopped = metadata.get("interrupted") is True or error == _NOT_RUN
        by = [by for words, by in _REFUSED if name in _OWN_TOOLS and error.startswith(words)]
        return ToolError.CANCELLED if stopped else by[0] if by else ToolError.RAISED
    if "exit" not in metadata:
        return False
    code = metadata["exit"]
    return code != 0 if isinstance(code, int) and not isinstance(code, bool) else None


def _take_prompt_text(part: JSON) -> str:
    """Take the text of a user message's part as the prompt contains it."""
    return _PLACEHOLDERS.get(text(part, "type")) or take_part(part)


def _is_in_prompt(part: JSON) -> bool:
    """Return whether the prompt contains a part of a user message."""
    match text(part, "type"):
        case "text":
            return at(part, "ignored") is not True
        case "file":  # the text of text files is in separate parts
            return text(part, "mime") not in _AS_TEXT
        case kind:
            return kind in ("compaction", "subtask")


def _take_rest(message: JSON, session: str, id_: str) -> str:
    """Return the unmapped rest of a message as JSON text, without message and session ids of its parts."""
    for part in take_each(message, "parts"):
        take_if(part, "sessionID", session)
        take_if(part, "messageID", id_)
    take_if(at(message, "info"), "sessionID", session)
    take_if(message, "info", {})
    return rest(message)
