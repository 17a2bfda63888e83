"""Text that Claude Code's harness adds to the conversation: rows of type `attachment`, each with its own
type.

Only the recorded text is imported; the text that the harness puts around it is in no row. A name before it,
`[file: a.py]`, states its source. A type missing from the table is not known to reach the model.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from refold.importers.fields import JSON, as_written, at, rows, text, word_of


class Attachment(msgspec.Struct, frozen=True):
    """How to read one type of attachment: `words` has the paths to its text; the first path with text counts.

    `name` is the key of its name, and `each` the key of a list whose elements have the text. `bare`: the text
    has no name line before it. `by`: who added it. `events`: if set, only attachments of these hook events
    reach the model.
    """

    words: tuple[str, ...] = ()
    name: str = ""
    each: str = ""
    bare: bool = False
    by: str = "harness"
    events: tuple[str, ...] = ()


_BARE = Attachment(words=("content",), bare=True)
_TEXT = Attachment(words=("text",))

REACHING: Mapping[str, Attachment] = MappingProxyType(
    {
        "agent_listing_delta": Attachment(words=("addedLines", "addedTypes", "removedTypes")),
        "agent_mention": Attachment(name="agentType"),
        "async_hook_response": Attachment(words=("response",), name="hookName", by="hook"),
        "batching_reminder_sent": _TEXT,
        "compact_file_reference": Attachment(name="filename"),
        "critical_system_reminder": Attachment(words=("content",)),
        "date_change": Attachment(words=("newDate",)),
        "deferred_tools_delta": Attachment(words=("addedLines", "addedNames", "removedNames")),
        "diagnostics": Attachment(words=("files",)),
        "directory": Attachment(words=("content",), name="path"),
        "edited_image_file": Attachment(words=("content/type",), name="filename"),
        "edited_text_file": Attachment(words=("snippet",), name="filename"),
        "file": Attachment(words=("content/file/content", "content/file", "content"), name="filename"),
        "hook_additional_context": Attachment(words=("content",), bare=True, by="hook"),
        "hook_blocking_error": Attachment(words=("blockingError/blockingError",), name="hookName", by="hook"),
        "hook_stopped_continuation": Attachment(words=("message",), name="hookName", by="hook"),
        "hook_success": Attachment(
            words=("content",), name="hookName", by="hook", events=("SessionStart", "UserPromptSubmit")
        ),
        "invoked_skills": Attachment(words=("content",), name="path", each="skills"),
        "mcp_instructions_delta": Attachment(words=("addedBlocks",), bare=True),
        "mcp_resource": Attachment(words=("content",), name="uri"),
        "nested_memory": Attachment(words=("content/content", "content"), name="path"),
        "opened_file_in_ide": Attachment(name="filename"),
        "output_style": Attachment(words=("style",)),
        "plan_file_reference": Attachment(words=("planContent",), name="planFilePath"),
        "plan_mode": Attachment(name="planFilePath"),
        "plan_mode_exit": Attachment(name="planFilePath"),
        "plan_mode_reentry": Attachment(name="planFilePath"),
        "read_truncation_notice": Attachment(words=("banner",)),
        "relevant_memories": Attachment(words=("content",), name="path", each="memories"),
        "selected_lines_in_ide": Attachment(words=("content",), name="filename"),
        "silent_turn_reminder": _TEXT,
        "skill_listing": _BARE,
        "task_reminder": _BARE,
        "task_status": Attachment(words=("deltaSummary", "description"), name="taskId"),
        "todo_reminder": _BARE,
        "total_tokens_reminder": _TEXT,
    }
)
"""The types known to be included in the prompt."""

_ALWAYS = frozenset({"plan_mode", "plan_mode_exit", "plan_mode_reentry", "task_reminder", "todo_reminder"})
"""Types that reach the model even without recorded text, because the harness writes the text."""


def read_queued(row: JSON) -> str:
    """Return the text that a user typed while the agent worked, if the row records that the model received
    it.
    """
    attached = at(row, "attachment")
    return _render_text(at(attached, "prompt")) if text(attached, "type") == "queued_command" else ""


def read_attachment(row: JSON) -> tuple[str, str]:
    """Return the text that an attachment sends to the model and its sender, or "" if it is not known to reach
    it.
    """
    attachment = at(row, "attachment")
    kind = text(attachment, "type")
    if kind == "queued_command":
        typed = text(attachment, "commandMode") == "prompt"
        return read_queued(row), "user" if typed else "harness"
    found = REACHING.get(kind)
    if found is None or (found.events and text(attachment, "hookEvent") not in found.events):
        return "", ""
    holders = rows(attachment, found.each) if found.each else (attachment,)
    said = "\n".join(filter(None, (_format_attachment(kind, found, holder) for holder in holders)))
    return said or (f"[{kind}]" if kind in _ALWAYS else ""), found.by


def _format_attachment(kind: str, found: Attachment, holder: JSON) -> str:
    """Return the text of one attachment below its name, or "" if it has neither."""
    words = next(filter(None, (_render_text(at(holder, *path.split("/"))) for path in found.words)), "")
    name = text(holder, found.name) if found.name else ""
    if found.bare or not (name or words) or (found.words and not words):
        return words
    return "\n".join(filter(None, (f"[{kind}: {name}]" if name else f"[{kind}]", words)))


def _render_text(value: JSON) -> str:
    """Return a text, or the texts, blocks and to-dos of a list, one per line; other values as JSON text."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_render_element, value)))
    return value if isinstance(value, str) else as_written(value) if value else ""


def _render_element(each: JSON) -> str:
    if isinstance(each, str):
        return each
    todo = text(each, "content") or text(each, "subject")
    if todo:
        return f"[{text(each, 'status')}] {todo}"
    return word_of(each) if text(each, "type") else as_written(each)
