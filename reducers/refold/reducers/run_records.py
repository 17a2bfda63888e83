"""The permission mode of a run, and whether it is a subagent, from its events.

The permission mode is a label of a live run; for an imported run, rows of its source state it, and may change
it. Whether a run is a subagent is known only for formats that mark them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.permissions.run_facts import RunFacts
from refold.reducers.source_marks import BRANCH_LABEL, PARENT_LABEL
from refold.reducers.vocabulary import SOURCE_LABEL

MODE_LABEL = "mode"
"""The label of a live run that names its permission mode."""

_SAYS_SUBAGENTS = frozenset({"claude_code", "gemini_cli", "opencode"})
"""Formats in which each run of a subagent is marked as one."""

_MODES = frozenset({"permission_mode", "policy"})
"""What `source_recorded` calls a row about the mode."""

_LONGEST = 400  # characters of a mode


def take_event(known: RunFacts, event: ev.Event) -> RunFacts:
    """Return what is known of the run after an event; the same object if nothing changed."""
    match event:
        case ev.RunStarted():
            return _started(event)
        case ev.RunForked(labels=labels) if MODE_LABEL in labels and not known.format:
            return replace(known, mode=labels[MODE_LABEL])
        case ev.SourceRecorded(what=what, content=None):
            return replace(known, mode=None) if what in _MODES else known
        case ev.SourceRecorded():
            mode = read_mode(event)
            return known if mode is None or mode == known.mode else replace(known, mode=mode)
        case _:
            return known


def take_calls(known: RunFacts, calls: Iterable[ev.Call]) -> RunFacts:
    """Return what is known of an imported run after these calls, which may change the permission mode.

    A source records the mode in rows of its own, and not always between such a call and the next one.
    """
    if not known.format or known.mode is None or not any(_changes_mode(call.name) for call in calls):
        return known
    return replace(known, mode=None)


def _changes_mode(tool: str) -> bool:
    return tool.replace("_", "").casefold() in ("enterplanmode", "exitplanmode")


def _started(event: ev.RunStarted) -> RunFacts:
    labels = event.labels
    source = labels.get(SOURCE_LABEL)
    if source is None:
        child = event.parent is not None
        return RunFacts(mode=labels.get(MODE_LABEL), child=child, agent=event.agent if child else "")
    child = event.parent is not None or PARENT_LABEL in labels
    known = True if child else False if source in _SAYS_SUBAGENTS else None
    # A branch that a user left has a parent, too; it may be of a session or of a subagent.
    known = None if BRANCH_LABEL in labels else known
    return RunFacts(format="iflow" if event.agent == "iflow" else source, child=known)


class _Context(msgspec.Struct):
    approval_policy: Any = None
    sandbox_policy: Any = None


class _Data(msgspec.Struct):
    newMode: Any = None  # noqa: N815 - the format's own name


class _ModeRow(msgspec.Struct):
    """The fields of all formats that name a mode."""

    permissionMode: Any = None  # noqa: N815 - the format's own name
    payload: Any = None
    data: Any = None


_ROW = msgspec.json.Decoder(_ModeRow)
_FIELDS = ("permissionMode", "approval_policy", "newMode")


def read_mode(event: ev.SourceRecorded) -> str | None:
    """Return the permission mode that a row of the source states, None if it states none. Never raises.

    For Codex it is the approval policy and the sandbox: `on-request, workspace-write`.
    """
    row = event.content.text.partition("\n")[0] if isinstance(event.content, ev.Remark) else ""
    if not row.startswith("{") or not any(field in row for field in _FIELDS):
        return None
    try:
        found = _ROW.decode(row)
        told: Any = found.permissionMode
        if event.format == "codex":
            told = _mode_of_codex(msgspec.convert(found.payload, _Context))
        elif event.format == "copilot_cli":
            told = msgspec.convert(found.data, _Data).newMode
    except (msgspec.MsgspecError, RecursionError):
        return None
    return " ".join(told[:_LONGEST].split()) or None if isinstance(told, str) else None


def _mode_of_codex(told: _Context) -> str | None:
    if not isinstance(told.approval_policy, str):
        return None
    sandbox: Any = told.sandbox_policy
    if isinstance(sandbox, dict):
        fields = cast("Mapping[str, Any]", sandbox)
        sandbox = fields.get("mode") or fields.get("type")
    return ", ".join([told.approval_policy, *([sandbox] if isinstance(sandbox, str) else [])])
