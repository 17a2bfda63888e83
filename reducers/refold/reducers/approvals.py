"""Approvals: which calls may run, and the globs that classify tools in policies.

Globs ignore case; a mark that begins with `=` is case-sensitive. Tools in neither list are unclassified: one
that starts another agent, a skill, one that fetches an address chosen by the model, any tool of a user.
Sources: the tools of Claude Code, Codex, Copilot CLI, Cursor, Droid, Gemini CLI, Inspect, Kimi CLI, OpenCode,
OpenHands, Pi, Qwen Code, SWE-agent, VS Code.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.errors import Fault, PolicyError, brief
from refold.reducers.limits import Amount
from refold.reducers.patterns import is_object
from refold.reducers.patterns import rule as quote_rule
from refold.reducers.permissions.conditions import ArgumentConditions, ToolCall, holds
from refold.reducers.permissions.rule_checks import find_rule_problems
from refold.reducers.permissions.shell import installed_grammar
from refold.reducers.vocabulary import Knob

_RUN_CODE = (
    *("bash*", "execute_bash", "execute_ipython_cell", "execute", "execute_command", "exec_command", "exec"),
    *("shell", "shell_command", "local_shell", "run_shell_command", "run_command", "run_terminal_cmd"),
    *("run_in_terminal", "send_to_terminal", "write_stdin", "write_bash", "write_powershell", "powershell"),
    *("terminal", "ipython", "python*", "code_interpreter", "code_execution", "unified_exec"),
    *("run_notebook_cell", "create_and_run_task", "run_vscode_command", "install_extension", "*__bash"),
)
_WRITE_FILES = (
    *("write", "write_file*", "writefile", "*__write_file", "write_to_file", "save_memory"),
    *("edit", "edit_file", "edit_notebook_file", "*__edit_file", "multiedit", "multi_edit", "notebookedit"),
    *("text_editor*", "str_replace_editor", "str_replace_based_edit_tool", "strreplacefile", "file_editor"),
    *(
        "replace",
        "replace_in_file",
        "replace_string_in_file",
        "multi_replace_string_in_file",
        "search_replace",
    ),
    *(
        "apply_patch",
        "applypatch",
        "apply_diff",
        "patch",
        "insert",
        "insert_content",
        "insert_edit_into_file",
    ),
    *("create", "create_file", "create_directory", "create_new_*", "delete_file", "undo_edit"),
    *(f"files:{command}" for command in ("write", "edit", "trash", "mkdir", "move")),
)
_DRIVE_A_BROWSER = (
    *("web_browser*", "browser", "browser_*", "*__browser_*", "computer", "computer_*", "open_browser_page"),
    *("navigate_page", "click_element", "drag_element", "hover_element", "type_in_page", "handle_dialog"),
    "run_playwright_code",
)

OF_ITS_LOOP = (
    *("=write_file*", "=text_editor*", "=bash*", "=python*", "=web_browser_*"),
    *(f"=files:{command}" for command in ("write", "edit", "trash", "mkdir", "move")),
)
"""Marks of the tools that are sensitive in the loop behind `dev` and `prod`. Case-sensitive, and not meant
for other harnesses.
"""

SENSITIVE = (*_RUN_CODE, *_WRITE_FILES, *_DRIVE_A_BROWSER)
"""Marks of tools that write files, run code or drive a browser; `tool:command` is one command of a tool."""

HARMLESS = (
    *("read", "read_file", "readfile", "read_many_files", "notebookread", "view", "view_file", "view_image"),
    *("open", "goto", "scroll_up", "scroll_down", "readmediafile", "read_notebook_cell_output"),
    *("ls", "list", "list_dir", "list_directory", "list_files", "glob", "find", "find_file", "find_files"),
    *(
        "grep",
        "grep_search",
        "grep_files",
        "search_dir",
        "search_file",
        "search_files",
        "search_file_content",
    ),
    *("file_search", "semantic_search", "codebase_search", "list_code_definition_names", "get_errors"),
    *("tool_search", "toolsearch", "web_search", "websearch", "google_web_search", "get_terminal_output"),
    *("terminal_last_command", "terminal_selection", "read_bash", "read_powershell", "taskoutput"),
    *("todowrite", "todo_write", "todoread", "todo_read", "write_todos", "settodolist", "manage_todo_list"),
    *("update_plan", "task_tracker", "think", "sequentialthinking", "report_intent", "question"),
    *("askuserquestion", "ask_user", "ask_followup_question", "vscode_askquestions", "request_user_input"),
    *("enterplanmode", "exitplanmode", "exit_plan_mode", "finish", "submit", "final_result"),
    *("attempt_completion", "task_complete"),
    *(f"files:{command}" for command in ("read", "ls", "list", "search", "find", "grep", "stat", "tree")),
)
"""Marks of tools that only read, search, ask the user, or keep a list of tasks."""


Word = Literal["approve", "reject", "escalate", "terminate"]
PresetName = Literal["ci", "dev", "prod", "dev_any", "prod_any"]
Globs = Annotated[tuple[str, ...], Meta(min_length=1)]
_STRICTEST: tuple[Word, ...] = ("terminate", "reject", "escalate", "approve")


class _Approver(Knob, frozen=True, kw_only=True, tag_field="approver"):
    """Base of the approvers: `tools` are globs that must match a call's whole name."""

    tools: Globs = ("*",)


class Approve(_Approver, frozen=True, kw_only=True, tag="approve"):
    """Approves every call."""


class Reject(_Approver, frozen=True, kw_only=True, tag="reject"):
    """Rejects every call."""


class Gate(_Approver, frozen=True, kw_only=True, tag="gate", rename={"otherwise": "else"}):
    """Returns `then` for a sensitive call, `else` for others.

    `sensitive`: globs of whole names, ignoring case (case-sensitive after `=`), or `tool:command` for one
    command of a tool; null means `OF_ITS_LOOP`. `harmless`: the same for calls that are not sensitive; null
    means all others, or, if `sensitive` is null too, the built-in list. A call in neither list gets `else`
    as unclassified, which is reported.
    """

    sensitive: tuple[str, ...] | None = None
    harmless: tuple[str, ...] | None = None
    then: Word
    otherwise: Word = "approve"


class Match(ArgumentConditions, frozen=True, kw_only=True, tag_field="approver", tag="arguments"):
    """Returns `then` for a call for which all conditions hold, `else` for others.

    If `then` is the less strict decision, the conditions must hold for every command, path and host of the
    call; otherwise for any of them. If it is unknown whether they hold, the stricter of `then` and `else`
    applies. `say` is the reason that the model gets if the call does not run. `match` and `not_match` are
    examples. `grammar` is the version of the shell grammar that reads commands, filled in when a run starts.
    """

    tools: Globs = ("*",)
    then: Word
    otherwise: Word = msgspec.field(default="escalate", name="else")
    say: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()
    grammar: str = ""

    @property
    def globs(self) -> tuple[str, ...]:
        """Return the globs of the tools that it is for."""
        return self.tools

    def complete(self) -> "Match":
        """Return the same with the version of the grammar, if it reads commands."""
        fill = self.command is not None and not self.grammar
        return replace(self, grammar=installed_grammar()) if fill else self

    def problems(self) -> Iterator[Fault]:
        """Yield conditions that cannot be evaluated, and examples that contradict them."""
        examples = {"match": self.match, "not_match": self.not_match}
        yield from find_rule_problems(self, self.grammar, examples, permits=self.permits)

    @property
    def rule(self) -> str:
        """Return the rule as messages quote it."""
        plain = self.is_plain and self.matches is not None
        return quote_rule(self.matches or "", self.unless) if plain else f"`{brief(self.conditions)}`"

    @property
    def conditions(self) -> str:
        """Return the conditions in one line, without the tools."""
        title = replace(self, tools=("*",)).title
        return f"{title}, unless {self.unless}" if self.unless else title

    @property
    def permits(self) -> bool:
        """Return whether a call for which the conditions hold gets the less strict decision."""
        return _STRICTEST.index(self.then) > _STRICTEST.index(self.otherwise)

    def judge(self, call: ToolCall) -> bool | None:
        """Return whether the conditions hold for a call of its tools; None: unknown."""
        return holds(replace(self, tools=("*",)), call, permits=self.permits)

    def word(self, held: bool | None) -> Word:  # noqa: FBT001
        """Return the decision on a call by whether the conditions hold; None: unknown."""
        if held is None:
            return next(word for word in _STRICTEST if word in (self.then, self.otherwise))
        return self.then if held else self.otherwise


class ApprovalRule(Knob, frozen=True, kw_only=True):
    """A decision on calls to the tools that a glob matches."""

    tool: str
    decision: Word


class Rules(_Approver, frozen=True, kw_only=True, tag="rules"):
    """Returns the decision of the first rule whose glob matches the whole name; without one, escalates."""

    rules: tuple[ApprovalRule, ...]


class Human(_Approver, frozen=True, kw_only=True, tag="human"):
    """Asks a user, who may take days; after `timeout` seconds, `on_timeout` counts as the answer."""

    timeout: Amount | None = None
    on_timeout: Word = "reject"


Approver = Approve | Reject | Gate | Match | Rules | Human


class Approvals(Knob, frozen=True, kw_only=True):
    """A chain of approvers, or a preset for one. The first decision other than `escalate` applies."""

    preset: PresetName | None = None
    chain: tuple[Approver, ...] = ()


PRESETS: Mapping[PresetName, tuple[Approver, ...]] = MappingProxyType(
    {
        "ci": (Approve(),),
        "dev": (Gate(then="escalate"), Reject()),
        "prod": (Gate(then="terminate"),),
        "dev_any": (Gate(sensitive=SENSITIVE, harmless=HARMLESS, then="escalate"), Reject()),
        "prod_any": (Gate(sensitive=SENSITIVE, harmless=HARMLESS, then="terminate"),),
    }
)
WITH_HANDOFF: frozenset[str | None] = frozenset({"dev", "prod", "dev_any", "prod_any"})
"""The presets that also enable the guard `handoff`."""


def resolved(approvals: Approvals) -> Approvals:
    """Return the same as an explicit chain, with built-in lists written out. Idempotent.

    Raises `PolicyError` if both a preset and a chain are given, or neither.
    """
    if bool(approvals.preset) == bool(approvals.chain):
        given = "got both" if approvals.preset else "got neither"
        raise PolicyError(
            "approvals", f"expected 'preset' ({', '.join(PRESETS)}) or a 'chain' of approvers, {given}"
        )
    chain = PRESETS[approvals.preset] if approvals.preset else approvals.chain
    return Approvals(chain=tuple(map(_write_out, chain)))


def _write_out(approver: Approver) -> Approver:
    if isinstance(approver, Gate) and approver.sensitive is None:
        return replace(approver, sensitive=OF_ITS_LOOP, harmless=(*(approver.harmless or ()), *HARMLESS))
    return approver.complete() if isinstance(approver, Match) else approver


_NUMBERS_AS_TEXT = json.JSONDecoder(parse_int=str, parse_float=str)


def fits(marks: tuple[str, ...], name: str, arguments: str) -> bool:
    """Return whether a mark matches the name, or the tool and the command in its arguments.

    The command is `command`, else `root.command`, of `params` (an object, or its JSON text), or without
    `params` of the arguments. Unreadable values are not commands. Commands are case-sensitive.
    """
    if _matches_any(marks, name):
        return True
    commands = [mark.partition(":")[2] for mark in marks if ":" in mark and is_of(mark, name)]
    return bool(commands) and _command(arguments) in commands


def is_of(mark: str, name: str) -> bool:
    """Return whether a mark is for a tool of this name, whatever its command."""
    head, _, _ = mark.partition(":")
    return any(_matches_any((each,), name) for each in {mark, head})


def _matches_any(marks: tuple[str, ...], name: str) -> bool:
    in_any_case, to_the_letter = _patterns(marks)
    return bool(in_any_case.match(name.casefold()) or to_the_letter.match(name))


@lru_cache(maxsize=512)
def _patterns(marks: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    in_any_case = (translate(mark.casefold()) for mark in marks if not mark.startswith("="))
    to_the_letter = (translate(mark[1:]) for mark in marks if mark.startswith("="))
    return re.compile("|".join(in_any_case) or r"(?!)"), re.compile("|".join(to_the_letter) or r"(?!)")


def _command(arguments: str) -> str | None:
    given = _parse(arguments)
    params = given.get("params")
    if isinstance(params, str) and is_object(params or "-"):
        params = _parse(params)
    holder = _mapping(params)
    holder = given if holder is None else holder
    command = holder.get("command")
    if command is None:
        command = (_mapping(holder.get("root")) or {}).get("command")
    return command if isinstance(command, str) else None


def _parse(text: str) -> dict[str, object]:
    return (_mapping(_NUMBERS_AS_TEXT.decode(text or "{}")) or {}) if is_object(text) else {}


def _mapping(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None
