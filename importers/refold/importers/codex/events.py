"""What the events of a Codex rollout say of it: tokens, by counters that are cumulative and repeated, and how it ended."""

from refold.importers.codex.items import failure
from refold.importers.fields import JSON, at, text
from refold.importers.usages import UsageNames, each_of
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass

TASK_EVENTS = ("task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "error")
"""Types of events that say that a task began, or ended."""

_BESIDE = frozenset({
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
"""How types of events of calls begin that the provider ran: the item of such a call comes behind its event."""
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
    return what in _BESIDE or what.startswith(_HOSTED)


def call_of(payload: JSON) -> str:
    """The id of the call that an event tells of, "" where it tells of none, or of one that the provider ran."""
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
