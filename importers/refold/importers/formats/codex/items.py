"""Stateless readers for rows of a Codex rollout: items of the conversation, and events.

A row is `{timestamp, type, payload}`; the oldest versions wrote the payload bare. Results have no field for
failure: the exit code is in the first lines of the output, in one of three wordings, or in JSON. Without an
exit code, the status is not recorded.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from refold.importers.content import decode_nested_json, read_call
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
"""`message` is input to the model. `answer`, `reasoning` and `call` are parts of a response; `hosted` is a
call that the provider ran.
"""

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_BESIDE = ("metadata", "execution", "internal_chat_message_metadata_passthrough")
"""Keys of a call that hold no arguments in this format."""
RESULTS = ("function_call_output", "custom_tool_call_output", "tool_search_output", "local_shell_call_output")

CONTENT_FIELDS: Mapping[Kind, Sequence[str]] = MappingProxyType(
    {
        "message": ("content",),
        "answer": ("content",),
        "reasoning": ("summary", "content", "encrypted_content"),
    }
)
"""Fields with the content of an item; one must be present."""

ITEMS = ("agent_message", "compaction", "context_compaction", "ghost_snapshot")
"""Known types of items that are not part of the conversation."""

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
    (
        re.compile(
            r"exec_command failed: CreateProcess \{ message: \"Rejected\(\\\"[\s\S]{1,20000}?"
            r" rejected: (?:policy forbids|blocked by policy|approval required by policy)"
        ),
        Refuser.RULE,
    ),
)
"""Texts that Codex writes instead of an output, or at its beginning."""
_FAILED = re.compile(r"\s*(?:execution error: |exec_command failed|apply_patch verification failed)")


def item(row: JSON) -> JSON:
    """Return the response item of a row, bare or in its envelope; None for other rows."""
    if text(row, "type") == "response_item":
        return at(row, "payload")
    bare = at(row, "payload") is None and text(row, "type") in _BARE
    known = text(row, "role") or text(row, "call_id") or text(row, "type") == "reasoning"
    return row if bare and known else None


def kind(found: JSON) -> Kind:
    """Return the kind of a response item."""
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


def read_text(found: JSON) -> str:
    """Return the text of a message; an image becomes `[image]`."""
    content = at(found, "content")
    if isinstance(content, str):
        return content
    return "\n".join(part for block in rows(content) if (part := _part(block)))


def take_message_text(found: JSON) -> str:
    """Return the same, and take the text and the role out of the item."""
    content = read_text(found)
    take_texts(found, "content")
    take_if(found, "role", "user", "assistant", "system", "developer")
    return content


def take_texts(found: JSON, name: str) -> None:
    """Take the texts of the list under `name`, or the single text there."""
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
    """Take the readable text of a reasoning item; most of it is encrypted."""
    parts = [*rows(found, "summary"), *rows(found, "content")]
    thought = "\n".join(part for block in parts if (part := text(block, "text")))
    take_texts(found, "summary")
    take_texts(found, "content")
    return thought


def take_call(found: JSON) -> MessageCall:
    """Take a call out of its item. A custom tool's input is not JSON, so it becomes `{"input": …}`."""
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
    """Return a result's text for the model, from text, parts, or an object with these."""
    given = at(found, "output")
    if given is None:
        return json_text(at(found, "tools")) if at(found, "tools") is not None else ""
    if isinstance(given, list):
        return "\n".join(_part(part) for part in given)
    if isinstance(given, dict):
        inner = given.get("content", given.get("text", given.get("output")))
        return inner if isinstance(inner, str) else json_text(inner if inner is not None else given)
    return given if isinstance(given, str) else json_text(given)


def find_failure(found: JSON, name: str = "") -> ToolError | Refuser | bool | None:
    """Return whether or how a result of the tool `name` failed; None if not recorded.

    A failure is one of Codex's fixed texts, an exit code other than 0, an execution error, or
    `success: false`. The fixed texts are ignored in output of MCP tools (`server__tool`).
    """
    words = output(found)
    if "__" not in name and (fixed := next((what for pattern, what in _FIXED if pattern.match(words)), None)):
        return fixed
    given = decode_nested_json(at(found, "output"))
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
    """Return the role of a message; `developer` is `system`."""
    return Role.SYSTEM if text(found, "role") in ("developer", "system") else Role.USER


def author_of(found: JSON) -> str:
    """Return the author of a message: `harness` for injected texts such as repository instructions."""
    injected = role_of(found) is Role.SYSTEM or read_text(found).lstrip().startswith(_HARNESS)
    return "harness" if injected else "user"


def read_history_item(found: JSON, place: Place) -> Said | Answered | Returned | None:
    """Return a response item of a compacted history as an item; None if it is not a message."""
    match kind(found):
        case "message":
            return place.message(read_text(found), author_of(found), role=role_of(found))
        case "answer":
            return place.reply(Message(role=Role.ASSISTANT, text=read_text(found)))
        case "call":
            return place.reply(Message(role=Role.ASSISTANT, calls=(take_call(found),)))
        case "result":
            return place.result(text(found, "call_id"), output(found))
        case _:
            # A summary that the provider encrypted is part of the prompt, too.
            return place.message("[compaction]", "harness") if text(found, "type") == "compaction" else None


def failure(payload: JSON) -> tuple[FailureClass, str, str]:
    """Return why a request failed: the class, the source's error code, and the message."""
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


def encode_rest(row: Row, found: JSON) -> str:
    """Return JSON text of the remaining fields of a row and its response item, without its type."""
    take(found, "type")
    return row.rest()


TASK_EVENTS = ("task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "error")
"""Types of events for the start or end of a task."""

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
"""Prefixes of events about provider-hosted calls. The item of such a call follows its event."""
_ITEMS = ("CommandExecution", "DynamicToolCall", "FileChange", "ImageView", "McpToolCall", "CollabToolCall")
"""Types of turn items that are calls; their id is the call's."""

_TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cached_input_tokens",),
    reasoning=("reasoning_output_tokens",),
)


def is_known(what: str) -> bool:
    """Return whether events of a type are known, so that they are not calls recorded nowhere else."""
    return what in _BESIDE_EVENTS or what.startswith(_HOSTED)


def call_of(payload: JSON) -> str:
    """Return the id of an event's call; "" if it has none, or if the provider ran the call."""
    if text(payload, "type").startswith(_HOSTED):
        return ""
    turn = text(payload, "item", "id") if text(payload, "item", "type") in _ITEMS else ""
    return turn or text(payload, "call_id") or text(payload, "callId")


def is_from_user(payload: JSON) -> bool:
    """Return whether a command was typed by the user, not called by the model."""
    return "user_shell" in (text(payload, "source"), text(payload, "item", "source"))


class Meter:
    """Converts a cumulative token counter to differences. A smaller total is a restarted counter."""

    def __init__(self) -> None:
        self.last = Usage()

    def growth(self, payload: JSON) -> Usage | None:
        """Return the growth since the last `token_count` event; None for an event without a counter."""
        now = _TOKENS.of(at(payload, "info", "total_token_usage"))
        if now is None:
            return None
        before = Usage() if now.input + now.output < self.last.input + self.last.output else self.last
        self.last = now
        return each_of(now, before, lambda total, last: max(0, total - last))


def end_of(task: JSON) -> tuple[str, str]:
    """Return the end of a rollout and where it is recorded, by its last task event."""
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
