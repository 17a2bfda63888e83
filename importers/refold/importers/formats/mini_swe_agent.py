"""mini-swe-agent trajectories (`.traj.json`): a message list, since 1.0 inside `{info, messages,
trajectory_format}`.

Version 1 expects one fenced shell command per response. The observation is a user message that begins with
`<returncode>`. Version 2 records the commands with the response (`extra.actions`), and may offer a function
`bash` instead; its last message has the role `exit`. Each command becomes a call of `bash`, and the
observation its result, although most models received it as a user message.

A response without exactly one command is followed by a reminder, and has no call. Version 2 records a
response that it rejected in the message that it sent instead: the response has a cost, none of its calls ran,
and no later prompt has it. A command that submits has no result; the message after it is the submission. Raw
responses of the provider (`extra.response`) have usage, cost and time.

Counts: messages by role, without `exit`; calls = commands; results = messages with a return code or a
timeout; errors = results with a return code other than 0, and timeouts; tokens from the raw responses.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from refold.importers.content import calls_of, decode_nested_json, words
from refold.importers.documents import decode_beginning, document
from refold.importers.fields import (
    JSON,
    Times,
    at,
    json_text,
    labels_of,
    number,
    omit_keys,
    rest,
    rows,
    table,
    take,
    take_cost,
    take_if,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan
from refold.importers.message_shapes import take_messages
from refold.importers.registry import FormatMatch
from refold.importers.session_rows import BEGINNING, Cut
from refold.importers.source import BadTranscript, Source
from refold.importers.tallies import add_counts
from refold.importers.usage import CHAT_TOKENS
from refold.reducers.messages import Message, MessageCall
from refold.reducers.source_marks import CALL_UNREAD
from refold.reducers.vocabulary import Refuser, Role, StopReason, ToolError

SHELL = "bash"
"""Tool name of all commands."""

_FENCE = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
"""Version 1's default pattern for the command, which is the only block of a response."""

_CODE = re.compile(r"\s*(?:<exception>.*?</exception>\s*)?<returncode>\s*(-?\d+)\s*</returncode>", re.DOTALL)
_TIMED_OUT = re.compile(r"\s*The last command <command>.*</command> timed out", re.DOTALL)


def role_of(row: JSON) -> str:
    """Return `system`, `user`, `assistant`, `tool` or `exit`. Messages of the Responses API have no role."""
    if text(row, "object") == "response":
        return "assistant"
    if text(row, "type") == "function_call_output":
        return "tool"
    role = text(row, "role")
    return role if role in ("system", "assistant", "tool", "exit") else "user"


def is_known(row: JSON) -> bool:
    """Return whether the role or type of a message is known."""
    return role_of(row) != "user" or text(row, "role") == "user"


def output_of(row: JSON) -> str:
    """Return the text of a message."""
    if text(row, "object") == "response":
        return "\n".join(
            words(at(part, "content")) for part in rows(row, "output") if text(part, "type") == "message"
        )
    return words(at(row, "output") if text(row, "type") == "function_call_output" else at(row, "content"))


def take_output(row: JSON) -> str:
    """Return the same, and take it out of the message, except for messages of the Responses API."""
    if text(row, "object") == "response":
        return output_of(row)
    return take_words(row, "output" if text(row, "type") == "function_call_output" else "content")


def take_commands(row: JSON, place: int) -> tuple[MessageCall, ...]:
    """Take the commands of a response: those that version 2 recorded, else the only fenced block."""
    recorded = at(row, "extra", "actions")
    if isinstance(recorded, list):
        ids = [call.id for call in calls_of(row)]
        take(row, "extra", "actions")
        return tuple(
            MessageCall(
                take_text(action, "tool_call_id") or (ids[n] if n < len(ids) else f"action-{place}-{n}"),
                SHELL,
                json_text(action),
            )
            for n, action in enumerate(recorded)
        )
    blocks = _FENCE.findall(output_of(row))
    if len(blocks) != 1:
        return ()
    return (MessageCall(f"action-{place}", SHELL, json_text({"command": blocks[0].strip()})),)


def code_of(row: JSON) -> int | None:
    """Return the return code of a result, None if it has none."""
    recorded = at(row, "extra", "returncode")
    if isinstance(recorded, int) and not isinstance(recorded, bool):
        return recorded
    found = _CODE.match(output_of(row))
    return int(found[1]) if found else None


def is_timeout(row: JSON) -> bool:
    """Return whether a command timed out: version 1 writes a text, version 2 the exception's name."""
    return text(row, "extra", "exception_type") == "TimeoutExpired" or bool(_TIMED_OUT.match(output_of(row)))


def is_result(row: JSON) -> bool:
    """Return whether a message is the result of a command."""
    return role_of(row) in ("user", "tool") and (
        role_of(row) == "tool" or code_of(row) is not None or is_timeout(row)
    )


def is_rejected(row: JSON) -> bool:
    """Return whether a message replaces a rejected response, which it has in `extra.response`."""
    response = at(row, "extra", "response")
    return role_of(row) == "user" and bool(rows(response, "choices") or rows(response, "output"))


def merge_messages(messages: Sequence[Message]) -> Message:
    """Return the messages of a response as one message."""
    return Message(
        role=Role.ASSISTANT,
        text="\n".join(filter(None, (each.text for each in messages))),
        reasoning="\n".join(filter(None, (each.reasoning for each in messages))),
        calls=tuple(call for each in messages for call in each.calls),
    )


def rejection_of(call: MessageCall) -> ToolError | Refuser:
    """Return why a call of a rejected response did not run; `HARNESS` if only another call was invalid."""
    if call.name != SHELL:
        return ToolError.UNKNOWN_TOOL
    command = at(decode_nested_json(call.arguments), "command")
    return Refuser.HARNESS if isinstance(command, str) else ToolError.BAD_ARGUMENTS


def count_message(row: JSON) -> Counted:
    """Return the counts of a message that is not a response: by role, and as a result if it is one."""
    role, result = role_of(row), is_result(row)
    return Counted(
        user=int(role == "user"),
        tool=int(role == "tool"),
        results=int(result),
        errors=int(result and bool(find_failure(row))),
    )


def find_failure(row: JSON) -> ToolError | bool | None:
    """Return whether or how a command failed, by its timeout or return code; None if it has neither."""
    if is_timeout(row):
        return ToolError.TIMEOUT
    return None if (code := code_of(row)) is None else code != 0


def take_moment(row: JSON) -> int | None:
    """Take the time of a message: version 2's own, else that of the provider's response."""
    return take_time(row, *_clock_path(row))


def _clock_path(row: JSON) -> tuple[str, ...]:
    own = at(row, "extra", "timestamp") is not None
    return ("extra", "timestamp") if own else ("extra", "response", "created")


def usage_path(row: JSON) -> tuple[str, ...]:
    """Return the path of a response's token counts."""
    return ("usage",) if at(row, "extra", "response", "usage") is None else ("extra", "response", "usage")


def encode_rest(row: JSON) -> str:
    """Return JSON text of the remaining fields of a message, without its role and type."""
    take_if(row, "role", role_of(row))
    take_if(row, "type", "function_call_output")
    take_if(row, "object", "response")
    return rest(row)


def times_of(messages: Sequence[JSON]) -> tuple[str, str] | None:
    """Return the first and the last time of a message list."""
    return Times(
        _format_time(seconds)
        for row in messages
        if isinstance(seconds := at(row, *_clock_path(row)), int | float)
    ).edges()


def _format_time(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None


CUT_SHORT = (StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER)
"""Stop reasons that are kept. Others only reflect whether the response has a command."""


class MiniSweAgent(msgspec.Struct, frozen=True):
    """The importer for `.traj.json` files."""

    name: str = "mini_swe_agent"

    def match(self, source: Source) -> FormatMatch | None:
        """Match the format's name, a bare message list with return codes, or characteristic keys."""
        found = decode_beginning(source)
        if text(found, "trajectory_format").startswith("mini-swe-agent") or text(
            found, "info", "mini_version"
        ):
            return FormatMatch(98, "names its format mini-swe-agent")
        answered = any(text(row, "role") == "assistant" for row in rows(found))
        if answered and any(text(row, "content").startswith("<returncode>") for row in rows(found)):
            return FormatMatch(85, "a message list with return codes")
        if {"info", "messages"} <= table(found).keys() and "model_stats" in table(found, "info"):
            return FormatMatch(85, "messages, and info with model_stats")
        if {"agent", "model", "environment"} <= table(found, "info", "config").keys():
            return FormatMatch(80, "info with the configuration of an agent, a model and an environment")
        if any({"response", "actions"} & table(row, "extra").keys() for row in rows(found, "messages")):
            return FormatMatch(80, "messages with extra.response or extra.actions")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the items of the file's only run."""
        found = document(source, ("messages",), ())
        doc = found.value
        messages = rows(doc) if isinstance(doc, list) else rows(doc, "messages")
        if not messages:
            raise BadTranscript(source.name, "$.messages", "no messages")
        place = "$" if isinstance(doc, list) else "$.messages"
        rejected = sum(map(is_rejected, messages))
        begin = [*map(_is_answer, messages), True].index(True)
        times, counts = times_of(messages), add_counts(map(count_message, messages[:begin]))
        given = ((Role(role_of(row)), take_words(row, "content")) for row in messages[:begin])
        labels = {"instance": text(doc, "instance_id"), "version": text(doc, "info", "mini_version")}
        yield RunBegan(
            position=f"{place}[0:{begin}]",
            at=take_moment(messages[0]),
            key=text(doc, "instance_id") or "trajectory",
            messages=tuple(Message(role=role, text=message) for role, message in given),
            model=text(doc, "info", "config", "model", "model_name"),
            agent="mini-swe-agent",
            labels=labels_of(labels),
            rest=rest(omit_keys(doc, "messages", "info")),
            counts=counts,
            unsaid=("cache_write_tokens",),
            cuts=rejected,
        )
        yield from _conversation(messages, begin, place)
        yield from found.cut()
        last = Place("$.info" if isinstance(doc, dict) else f"$[{len(messages) - 1}]")
        yield last.end(end_of(doc), times, rest=rest(at(doc, "info")))


def _is_answer(row: JSON) -> bool:
    """Return whether a message is a response, replaces one, or only occurs after one."""
    return is_rejected(row) or role_of(row) not in ("system", "user")


MINI_SWE_AGENT = MiniSweAgent()

ENDS = {"Submitted": "finished", "TimeExceeded": "limit:time", "UserInterruption": "cancelled"}
"""Ends by exit status. Any other status is an error: usually the name of an exception class."""


def end_of(doc: JSON) -> tuple[str, str]:
    """Return how a run ended, and where that is recorded.

    `LimitsExceeded` does not name the limit: it is that of steps if all were used, else that of cost.
    """
    if "info" not in table(doc):
        return "unknown", "no info block"
    status = text(doc, "info", "exit_status")
    if not status:
        return "open", "info.exit_status missing or null"
    if status == "LimitsExceeded":
        limit = number(doc, "info", "config", "agent", "step_limit") or 0
        used = number(doc, "info", "model_stats", "api_calls") or 0
        return ("limit:steps" if 0 < limit <= used else "limit:cost"), f"info.exit_status={status}"
    return ENDS.get(status, "error"), f"info.exit_status={status}"


def _conversation(messages: Sequence[JSON], begin: int, position: str) -> Iterator[Item]:
    waiting: list[MessageCall] = []
    for index in range(begin):
        if remaining := encode_rest(messages[index]):
            known = is_known(messages[index])
            yield Place(f"{position}[{index}]").remark("unmapped", rest=remaining, known=known)
    for index in range(begin, len(messages)):
        row = messages[index]
        role, whole = role_of(row), rest(row) if role_of(row) == "exit" else ""
        counts = None if role == "assistant" else count_message(row)
        place = Place(f"{position}[{index}]", take_moment(row), counts, index + 1)
        if is_rejected(row):
            waiting = []
            yield from _read_rejection(row, place)
        elif role == "assistant":
            beside = [part for part in rows(row, "content") if at(part, "type") != "text"]
            waiting = list(take_commands(row, index))
            yield _read_response(row, place, waiting)
            yield from place.hosted_calls(beside)
        elif role == "exit":
            if waiting and text(row, "extra", "exit_status") == "Submitted":
                yield _read_result(row, place, waiting)
            yield place.remark("exit", rest=whole)
        elif waiting and (is_result(row) or index == len(messages) - 1):
            # The output of a submitting command has no return code; it is the last message.
            yield _read_result(row, place, waiting)
        else:
            yield from _read_message(row, place)


def _read_message(row: JSON, place: Place) -> Iterator[Item]:
    role = Role.SYSTEM if role_of(row) == "system" else Role.USER
    if not is_known(row):
        yield from place.unknown_calls(row)
    elif is_result(row):
        yield place.oddity(CALL_UNREAD, "a command's result after a response without a readable command")
    yield place.message(take_words(row, "content"), "harness", role=role, rest=encode_rest(row))


def _read_response(row: JSON, place: Place, calls: Sequence[MessageCall]) -> Item:
    # Version 1 recorded the provider's complete response in addition to its text.
    raw = at(row, "extra", "response")
    choice, cost = at(raw, "choices", 0), take_cost(row, "extra", "cost")
    take_if(at(choice, "message"), "content", at(row, "content"))
    thought = take_text(choice, "message", "reasoning") or take_text(choice, "message", "reasoning_content")
    message = Message(role=Role.ASSISTANT, text=take_output(row), reasoning=thought, calls=tuple(calls))
    used = usage_path(row)
    answer = place.reply(
        message,
        cost=cost if cost is not None else take_cost(row, *used, "cost"),
        usage=CHAT_TOKENS.take(row, *used),
        stop=take_text(choice, "finish_reason"),
        model=take_text(raw, "model"),
        response=take_text(raw, "id"),
        rest=encode_rest(row),
    )
    # A text with a command in it has the stop reason `stop`, which does not show that the run ended.
    return answer if answer.stop in CUT_SHORT else msgspec.structs.replace(answer, stop=None)


def _read_rejection(row: JSON, place: Place) -> Iterator[Item]:
    """Yield a rejected response, a cut that removes it from later prompts, and the message sent instead."""
    cost = take_cost(row, "extra", "cost")
    model, id_ = take_text(row, "extra", "response", "model"), take_text(row, "extra", "response", "id")
    used = CHAT_TOKENS.take(row, *usage_path(row))
    read = take_messages(row, "extra", "response", role=Role.ASSISTANT)
    message = merge_messages(read.messages)
    yield place.with_counts(None).reply(message, used, stop=read.stop, cost=cost, model=model, response=id_)
    for call in message.calls:
        result = Counted(results=1, errors=1)
        yield place.with_counts(result).result(call.id, "", name=call.name, failed=rejection_of(call))
    yield Cut(*place.with_counts(UNCOUNTED).common(), why="rejected", head=((BEGINNING, place.row - 1),))
    yield place.message(take_words(row, "content"), "harness", rest=encode_rest(row))


def _read_result(row: JSON, place: Place, waiting: list[MessageCall]) -> Item:
    named = text(row, "tool_call_id") or text(row, "call_id")
    call = next((call for call in waiting if call.id == named), waiting[0])
    waiting.remove(call)
    take_if(row, "tool_call_id", call.id)
    take_if(row, "call_id", call.id)
    failed, output = find_failure(row), take_output(row)
    return place.result(call.id, output, name=call.name, failed=failed, rest=encode_rest(row))
