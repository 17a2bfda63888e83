"""What a message of mini-swe-agent is: an answer with its commands, a result with its code, or something said."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from refold.importers.content import calls_of, unwrapped, words
from refold.importers.fields import JSON, at, json_text, rows, text
from refold.importers.items import Counted
from refold.importers.leftovers import rest, take, take_if, take_text, take_time, take_words
from refold.importers.times import Times
from refold.importers.usages import CHAT_TOKENS
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Refuser, Role, ToolError

SHELL = "bash"
"""The tool of every command."""

_FENCE = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
"""Version 1's default pattern: what it ran is the one block of the answer."""

_CODE = re.compile(r"\s*(?:<exception>.*?</exception>\s*)?<returncode>\s*(-?\d+)\s*</returncode>", re.DOTALL)
_TIMED_OUT = re.compile(r"\s*The last command <command>.*</command> timed out", re.DOTALL)


def role_of(row: JSON) -> str:
    """`system`, `user`, `assistant`, `tool` or `exit`; the messages of the Responses API have none of their own."""
    if text(row, "object") == "response":
        return "assistant"
    if text(row, "type") == "function_call_output":
        return "tool"
    role = text(row, "role")
    return role if role in ("system", "assistant", "tool", "exit") else "user"


def is_known(row: JSON) -> bool:
    """Whether a message is of a role, or a kind, that is known."""
    return role_of(row) != "user" or text(row, "role") == "user"


def output_of(row: JSON) -> str:
    """What a message says."""
    if text(row, "object") == "response":
        return "\n".join(
            words(at(part, "content")) for part in rows(row, "output") if text(part, "type") == "message"
        )
    return words(at(row, "output") if text(row, "type") == "function_call_output" else at(row, "content"))


def take_output(row: JSON) -> str:
    """The same, taken out of the message where it is all of its text."""
    if text(row, "object") == "response":
        return output_of(row)
    return take_words(row, "output" if text(row, "type") == "function_call_output" else "content")


def take_asked(row: JSON, place: int) -> tuple[MessageCall, ...]:
    """The commands of an answer: those that version 2 recorded, taken out of it, else the one fenced block of the text."""
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
    """The return code of a result."""
    recorded = at(row, "extra", "returncode")
    if isinstance(recorded, int) and not isinstance(recorded, bool):
        return recorded
    found = _CODE.match(output_of(row))
    return int(found[1]) if found else None


def timed_out(row: JSON) -> bool:
    """Whether a command was killed by its timeout: version 1 says so in words, version 2 names the exception."""
    return text(row, "extra", "exception_type") == "TimeoutExpired" or bool(_TIMED_OUT.match(output_of(row)))


def is_result(row: JSON) -> bool:
    """Whether a message is what a command gave back."""
    return role_of(row) in ("user", "tool") and (
        role_of(row) == "tool" or code_of(row) is not None or timed_out(row)
    )


def is_rejected(row: JSON) -> bool:
    """Whether a message stands for an answer that the agent could not use, which lies beside it whole."""
    response = at(row, "extra", "response")
    return role_of(row) == "user" and bool(rows(response, "choices") or rows(response, "output"))


def merged(messages: Sequence[Message]) -> Message:
    """One answer of the pieces that a response has."""
    return Message(
        role=Role.ASSISTANT,
        text="\n".join(filter(None, (each.text for each in messages))),
        reasoning="\n".join(filter(None, (each.reasoning for each in messages))),
        calls=tuple(call for each in messages for call in each.calls),
    )


def rejection_of(call: MessageCall) -> ToolError | Refuser:
    """Why a call of a rejected answer did not run: another call of it was wrong, if nothing was wrong with this one."""
    if call.name != SHELL:
        return ToolError.UNKNOWN_TOOL
    command = at(unwrapped(call.arguments), "command")
    return Refuser.HARNESS if isinstance(command, str) else ToolError.BAD_ARGUMENTS


def counted(row: JSON, calls: int = 0) -> Counted:
    """As what a message counts: by its role, and as a result if it has a code or a timeout."""
    role, result = role_of(row), is_result(row)
    return Counted(
        user=int(role == "user"),
        assistant=int(role == "assistant"),
        tool=int(role == "tool"),
        calls=calls,
        results=int(result),
        errors=int(result and bool(failed_of(row))),
        usage=CHAT_TOKENS.of(at(row, *usage_path(row))) if role == "assistant" else None,
    )


def failed_of(row: JSON) -> ToolError | bool | None:
    """Whether a command failed, or how, by its timeout or its code; None: it has neither."""
    if timed_out(row):
        return ToolError.TIMEOUT
    return None if (code := code_of(row)) is None else code != 0


def take_moment(row: JSON) -> int | None:
    """When: version 2's own time, else when the provider says that it answered."""
    return take_time(row, *_clock_path(row))


def _clock_path(row: JSON) -> tuple[str, ...]:
    own = at(row, "extra", "timestamp") is not None
    return ("extra", "timestamp") if own else ("extra", "response", "created")


def usage_path(row: JSON) -> tuple[str, ...]:
    """Where the provider's count of the tokens of an answer stands."""
    return ("usage",) if at(row, "extra", "response", "usage") is None else ("extra", "response", "usage")


def left_of(row: JSON) -> str:
    """JSON text of what is left of a message beside its role, which its item says."""
    take_if(row, "role", role_of(row))
    take_if(row, "type", "function_call_output")
    take_if(row, "object", "response")
    return rest(row)


def times_of(messages: Sequence[JSON]) -> tuple[str, str] | None:
    """The first and the last time of a message list."""
    return Times(
        _written(seconds)
        for row in messages
        if isinstance(seconds := at(row, *_clock_path(row)), int | float)
    ).edges()


def _written(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None
