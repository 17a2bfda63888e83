"""Rows of a Codex rollout: what the model said and saw in each, and what the events beside them say.
Remembers nothing.

A row is `{timestamp, type, payload}`; the oldest versions wrote the payload bare. Failure has no field: an
output says in its own head that it failed, in one of three wordings, or in JSON; one without an exit code
says neither.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from refold.importers.content import read_call, unwrapped
from refold.importers.fields import (
    JSON,
    at,
    json_text,
    number,
    rows,
    table,
    take,
    take_each,
    take_if,
    take_text,
    text,
)
from refold.importers.items import Answered, Place, Returned, Said
from refold.importers.session_rows import Row
from refold.importers.usage import UsageNames, each_of
from refold.reducers.failures import classify
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import FailureClass, Refuser, Role, ToolError

Kind = Literal["message", "answer", "reasoning", "call", "hosted", "result", "other"]
"""A message from outside, the model's text, its thoughts, its calls, a call that the provider ran itself, a
result.
"""

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_BESIDE = ("metadata", "execution", "internal_chat_message_metadata_passthrough")
"""Keys of a call that hold no arguments, in this format alone."""
RESULTS = ("function_call_output", "custom_tool_call_output", "tool_search_output", "local_shell_call_output")

SAYS: Mapping[Kind, Sequence[str]] = MappingProxyType(
    {
        "message": ("content",),
        "answer": ("content",),
        "reasoning": ("summary", "content", "encrypted_content"),
    }
)
"""The fields in which an item says something."""

ITEMS = ("agent_message", "compaction", "context_compaction", "ghost_snapshot")
"""Types of items that are none of the conversation."""

_BARE = ("message", "reasoning", *CALLS, *RESULTS)
_HARNESS = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<skill>",
    "<subagent_notification>",
)
_HEAD_END = re.compile(r"^(?:Output|Total output lines.*):\s*$", re.MULTILINE)
_EXIT = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)\s*$", re.MULTILINE)
_FIXED: tuple[tuple[re.Pattern[str], ToolError | Refuser], ...] = (
    (re.compile(r"unsupported (?:custom tool )?call: "), ToolError.UNKNOWN_TOOL),
    (re.compile(r"failed to parse function arguments: "), ToolError.BAD_ARGUMENTS),
    (
        re.compile(r"(?:Wall time: [\d.]+ seconds\n)?aborted by user(?: after [\d.]+s)?\Z"),
        ToolError.CANCELLED,
    ),
    (re.compile(r"(?:Command|Tool call) blocked by PreToolUse hook: "), Refuser.HOOK),
    (re.compile(r"(?:exec command|patch) rejected by user\Z"), Refuser.USER),
)
"""Codex's own words in place of an output, whole or at its beginning."""
_FAILED = re.compile(r"\s*(?:execution error: |exec_command failed|apply_patch verification failed)")


def item(row: JSON) -> JSON:
    """The response item of a row, bare or in its envelope, None for any other row."""
    if text(row, "type") == "response_item":
        return at(row, "payload")
    bare = at(row, "payload") is None and text(row, "type") in _BARE
    known = text(row, "role") or text(row, "call_id") or text(row, "type") == "reasoning"
    return row if bare and known else None


def kind(found: JSON) -> Kind:
    """What a response item is."""
    match text(found, "type"):
        case "message":
            return "answer" if text(found, "role") == "assistant" else "message"
        case "reasoning":
            return "reasoning"
        case what if what in CALLS:
            return "call"
        case what if what in RESULTS:
            return "result"
        case what if what.endswith("_call"):
            return "hosted"
        case _:
            return "other"


def said(found: JSON) -> str:
    """The text of a message; an image is named where it stood."""
    content = at(found, "content")
    if isinstance(content, str):
        return content
    return "\n".join(part for block in rows(content) if (part := _part(block)))


def take_said(found: JSON) -> str:
    """The same, taken out of the item with whose message it is."""
    shown = said(found)
    take_texts(found, "content")
    take_if(found, "role", "user", "assistant", "system", "developer")
    return shown


def take_texts(found: JSON, name: str) -> None:
    """Take the texts of a list out of it, or the text that stands in its place."""
    for block in take_each(found, name):
        if take_text(block, "text"):
            take_if(block, "type", "input_text", "output_text", "text", "summary_text", "reasoning_text")
    take_text(found, name)


def _part(block: JSON) -> str:
    if isinstance(block, str):
        return block
    what = text(block, "type")
    return text(block, "text") or ("[image]" if "image" in what and at(block, "image_url") else "")


def take_thought(found: JSON) -> str:
    """What can be read of a reasoning item, taken out of it; most of it is encrypted."""
    parts = [*rows(found, "summary"), *rows(found, "content")]
    thought = "\n".join(part for block in parts if (part := text(block, "text")))
    take_texts(found, "summary")
    take_texts(found, "content")
    return thought


def take_call(found: JSON) -> MessageCall:
    """A call, taken out of its item. A custom tool's input is no JSON, so it is put into some."""
    what = text(found, "type")
    name = take_text(found, "name")
    if what in ("local_shell_call", "tool_search_call"):
        name = name or what.removesuffix("_call")
    id_ = take_text(found, "call_id") or take_text(found, "id")
    match what:
        case "custom_tool_call":
            written = take(found, "input")
            given: JSON = None if written is None else {"input": written}
        case "local_shell_call":
            given = take(found, "action")
        case _:
            given = take(found, "arguments")
    given = given if isinstance(given, str) else json_text(given)
    return read_call(id_, name, given, found, beside=_BESIDE)


def output(found: JSON) -> str:
    """What the model was shown of a result: text, parts, or an object around them."""
    given = at(found, "output")
    if given is None:
        return json_text(at(found, "tools")) if at(found, "tools") is not None else ""
    if isinstance(given, list):
        return "\n".join(_part(part) for part in given)
    if isinstance(given, dict):
        inner = given.get("content", given.get("text", given.get("output")))
        return inner if isinstance(inner, str) else json_text(inner if inner is not None else given)
    return given if isinstance(given, str) else json_text(given)


def failed_of(found: JSON, name: str = "") -> ToolError | Refuser | bool | None:
    """Whether a result of the tool `name` says that it failed: Codex's own words, a code other than 0, an
    execution error, `success: false`; None: it says nothing. A tool of another server, `server__tool`, may
    say what it likes.
    """
    words = output(found)
    if "__" not in name and (fixed := next((what for said, what in _FIXED if said.match(words)), None)):
        return fixed
    given = unwrapped(at(found, "output"))
    success, code = at(given, "success"), at(given, "metadata", "exit_code")
    if success is False:
        return True
    if isinstance(code, int) and not isinstance(code, bool):
        return code != 0
    if _FAILED.match(words):
        return True
    end = _HEAD_END.search(words)
    found_code = _EXIT.search(words[: end.start()] if end else words[:400])
    if found_code:
        return int(found_code[1]) != 0
    return False if success is True else None


def role_of(found: JSON) -> Role:
    """Whose message it is: a developer's words are a system's."""
    return Role.SYSTEM if text(found, "role") in ("developer", "system") else Role.USER


def by(found: JSON) -> str:
    """Who put a message there: the first one of a user is the repository's instructions, not the person."""
    injected = role_of(found) is Role.SYSTEM or said(found).lstrip().startswith(_HARNESS)
    return "harness" if injected else "user"


def as_told(found: JSON, place: Place) -> Said | Answered | Returned | None:
    """A response item of a prompt as it was told once, None for what is no message."""
    match kind(found):
        case "message":
            return place.message(said(found), by(found), role=role_of(found))
        case "answer":
            return place.reply(Message(role=Role.ASSISTANT, text=said(found)))
        case "call":
            return place.reply(Message(role=Role.ASSISTANT, calls=(take_call(found),)))
        case "result":
            return place.result(text(found, "call_id"), output(found))
        case _:
            # What the provider encrypted stood in the prompt all the same.
            return place.message("[compaction]", "harness") if text(found, "type") == "compaction" else None


def failure(payload: JSON) -> tuple[FailureClass, str, str]:
    """Why a request failed: class, the source's word, and the message."""
    info = at(payload, "codex_error_info")
    word = info if isinstance(info, str) else next(iter(table(info)), "")
    word = text(payload, "error", "kind") or word
    message = text(payload, "message") or text(payload, "error", "message")
    status = number(info, word, "http_status_code")
    if word in ("rate_limit", "usage_limit_exceeded", "rate_limit_exceeded"):
        return FailureClass.RATE_LIMIT, word, message
    if word == "context_window_exceeded":
        return FailureClass.CONTEXT_OVERFLOW, word, message
    return classify(status, f"{word.replace('_', ' ')} {message}"), word, message


def left_of(row: Row, found: JSON) -> str:
    """JSON text of what is left of a row and of its item beside its type, which an item of ours says by what
    it is.
    """
    take(found, "type")
    return row.rest()


TASK_EVENTS = ("task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "error")
"""Types of events that say that a task began, or ended."""

_BESIDE_EVENTS = frozenset({
    "account/rateLimits/updated", "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
    "agent_reasoning_section_break", "background_event", "context_compacted", "deprecation_notice",
    "entered_review_mode", "exited_review_mode", "guardian_assessment", "hook_completed", "hook_started",
    "item_completed", "item_started", "list_custom_prompts_response", "list_skills_response",
    "mcp_list_tools_response", "mcp_startup_complete", "mcp_startup_update", "model_reroute", "plan_update",
    "raw_response_item", "request_permissions", "request_user_input", "session_configured",
    "shutdown_complete", "skills_update_available", "sub_agent_activity", "thread_goal_updated",
    "thread_name_updated", "thread_settings_applied", "turn_diff", "undo_completed", "undo_started",
    "user_message", "warning", *TASK_EVENTS
})  # fmt: skip
_HOSTED = ("web_search_", "image_generation_")
"""How types of events of calls begin that the provider ran: the item of such a call comes behind its event.
"""
_ITEMS = ("CommandExecution", "DynamicToolCall", "FileChange", "ImageView", "McpToolCall", "CollabToolCall")
"""Types of items of a turn that are calls, with the id of their call."""

_TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cached_input_tokens",),
    reasoning=("reasoning_output_tokens",),
)


def is_known(what: str) -> bool:
    """Whether events of a type are known to be no call that stands nowhere else."""
    return what in _BESIDE_EVENTS or what.startswith(_HOSTED)


def call_of(payload: JSON) -> str:
    """The id of the call that an event tells of, "" where it tells of none, or of one that the provider
    ran.
    """
    if text(payload, "type").startswith(_HOSTED):
        return ""
    turn = text(payload, "item", "id") if text(payload, "item", "type") in _ITEMS else ""
    return turn or text(payload, "call_id") or text(payload, "callId")


def is_users(payload: JSON) -> bool:
    """Whether a command is one that a person typed, which the model did not call."""
    return "user_shell" in (text(payload, "source"), text(payload, "item", "source"))


class Meter:
    """A cumulative counter of tokens, read as growth. A smaller total is a new counter."""

    def __init__(self) -> None:
        self.last = Usage()

    def growth(self, payload: JSON) -> Usage | None:
        """How much the counter of a `token_count` event grew, None for an event without one."""
        now = _TOKENS.of(at(payload, "info", "total_token_usage"))
        if now is None:
            return None
        before = Usage() if now.input + now.output < self.last.input + self.last.output else self.last
        self.last = now
        return each_of(now, before, lambda total, last: max(0, total - last))


def end_of(task: JSON) -> tuple[str, str]:
    """How a rollout ended, by its last event of a task, and what says so."""
    what = text(task, "type")
    match what:
        case "":
            return "unknown", "no task events in the file"
        case "task_started" | "turn_started":
            return "open", f"{what} without {what.replace('started', 'complete')}"
        case "turn_aborted":
            return "cancelled", "last task event is turn_aborted"
        case "error":
            failed, word, _ = failure(task)
            end = "limit:rate" if failed is FailureClass.RATE_LIMIT else "error"
            return end, f"last task event is error {word}".rstrip()
        case _:
            broke = isinstance(at(task, "error"), dict)
            return ("error" if broke else "finished"), f"last task event is {what}"
