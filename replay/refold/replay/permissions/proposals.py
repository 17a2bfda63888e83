"""The smallest list of permissions under which recorded calls that succeeded would run without a question.

Proposed are permissions for calls that no rule decides. A command is permitted by its program, or by program
and subcommand, if these are known to be harmless. Never proposed: interpreters, destructive commands, scripts
that cannot be read or that write files by redirection, and paths outside the session's directory.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers.approvals import HARMLESS, fits
from refold.reducers.permissions.conditions import (
    HOST_FIELDS,
    PATH_FIELDS,
    Conditions,
    Part,
    ToolCall,
    holds_for_part,
    list_parts,
    list_texts,
)
from refold.reducers.permissions.hosts import host_of
from refold.reducers.permissions.paths import locate
from refold.reducers.permissions.rules import PermissionRule, decide
from refold.reducers.permissions.shadowing import covers
from refold.reducers.permissions.wrappers import Words
from refold.replay.changes import DESTRUCTIVE
from refold.replay.command_effects import effects_of
from refold.replay.permissions.calls import CallResult, JudgedCall, JudgedRun, RuleList

_PROGRAMS = frozenset(
    {
        "basename", "black", "cat", "cd", "cmp", "column", "comm", "cut", "df", "diff", "dirname", "du", "echo", "egrep",
        "eslint", "expr", "false", "fgrep", "file", "flake8", "fold", "gofmt", "grep", "head", "hexdump", "id", "isort",
        "jest", "jq", "ls", "md5sum", "mkdir", "mypy", "nl", "nproc", "od", "paste", "prettier", "pwd", "pylint", "pyright",
        "pytest", "readlink", "realpath", "rev", "ruff", "rustfmt", "seq", "sha1sum", "sha256sum", "shellcheck", "sleep",
        "stat", "strings", "tac", "tail", "test", "touch", "tr", "tree", "true", "tsc", "type", "uname", "uniq", "vitest", "wc",
        "which", "whoami", "xxd",
    }
)  # fmt: skip
"""Programs that may be permitted whatever their arguments: they read, check, format or make empty files."""
_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "git": frozenset(
        {"add", "blame", "commit", "describe", "diff", "log", "ls-files", "ls-tree", "merge-base", "rev-list",
         "rev-parse", "shortlog", "show", "status"}
    ),
    "cargo": frozenset({"build", "check", "clippy", "doc", "fmt", "metadata", "test", "tree"}),
    "go": frozenset({"build", "fmt", "list", "test", "vet"}),
    **dict.fromkeys(("npm", "pnpm", "yarn"), frozenset({"ls", "outdated", "run", "test", "why"})),
    **dict.fromkeys(("pip", "pip3"), frozenset({"freeze", "list", "show"})),
}  # fmt: skip
"""Subcommands that may be permitted. Of `npm run`, one script is."""


class Proposal(msgspec.Struct, kw_only=True):
    """Proposed rules, the number of calls that they let run, and those left out, by reason."""

    rules: list[PermissionRule] = []
    permitted: int = 0
    left_out: Counter[str] = msgspec.field(default_factory=Counter[str])


def propose_rules(runs: Iterable[JudgedRun]) -> Proposal:
    """Propose permissions for the calls that succeeded and that no rule of their run's first list decides."""
    grants: dict[PermissionRule, None] = {}
    candidates: list[tuple[RuleList, ToolCall]] = []
    proposal = Proposal()
    for run in runs:
        for call in run.calls:
            if not (made := _candidate(call, proposal.left_out)):
                continue
            needed = list(_needed(run.lists[0], made))
            refused = next((each for each in needed if isinstance(each, str)), None)
            if refused is not None:
                proposal.left_out[refused] += 1
                continue
            grants.update(dict.fromkeys(each for each in needed if not isinstance(each, str)))
            candidates.append((run.lists[0], made))
    wider = [rule for rule in grants if not any(covers(other, rule) for other in grants if other != rule)]
    proposal.rules = sorted(wider, key=lambda rule: (rule.tools, rule.title))
    for rules, made in candidates:
        if _runs(rules, proposal.rules, made):
            proposal.permitted += 1
        else:
            proposal.left_out["another rule decides a part of it"] += 1
    return proposal


def _candidate(call: JudgedCall, left_out: Counter[str]) -> ToolCall | None:
    """Return a call that succeeded and needs a permission; None for others."""
    if call.result is not CallResult.SUCCEEDED or not call.judged:
        return None
    judged = call.judged[0]
    if judged.outcome == "unknown":
        left_out[judged.why] += 1
    if judged.rule or judged.outcome not in ("no rule", "ask"):
        return None
    return call.made


def _runs(rules: RuleList, proposed: Sequence[PermissionRule], call: ToolCall) -> bool:
    guard = rules.guard
    extended = [*proposed, *guard.rules] if guard.order == "last" else [*guard.rules, *proposed]
    return decide(extended, guard.order, "ask", call).effect == "permit"


def _needed(rules: RuleList, call: ToolCall) -> Iterator[PermissionRule | str]:
    """Yield the permissions that a call needs, or why it gets none."""
    condition = Conditions(tool=call.tool, command=("",))
    parts = list_parts([condition], call)
    commands = [part for part in parts if part.command is not None]
    if not commands:
        yield _opaque(parts) or _grant_tool(call)
        return
    for part in parts:
        if part.command is None:
            yield part.opaque or "it writes a file by redirection, or sets a variable"
        elif not part.command.transparent and not _is_permitted(rules, call, part):
            yield _grant_command(call.tool, part.command.words)


def _opaque(parts: Iterable[Part]) -> str:
    return next((part.opaque for part in parts if part.opaque), "")


def _is_permitted(rules: RuleList, call: ToolCall, part: Part) -> bool:
    return any(
        rule.effect == "permit" and rule.is_for(call.tool) and holds_for_part(rule, call, part, permits=True)
        for rule in rules.guard.rules
    )


def _grant_command(tool: str, words: Words) -> PermissionRule | str:
    name = words[0] if words else None
    if name is None or "/" in name:
        return "the program is given by its path, or is not in the text"
    if any(kind in DESTRUCTIVE for kind, _ in effects_of(words)):
        return f"{name} may delete or push"
    if name in _PROGRAMS:
        return PermissionRule(effect="permit", tool=tool, command=(name,))
    second = words[1] if len(words) > 1 else None
    if name not in _SUBCOMMANDS or second is None or second not in _SUBCOMMANDS[name]:
        return f"{name} is not known to be harmless"
    if second != "run":
        return PermissionRule(effect="permit", tool=tool, command=(name, second))
    script = words[2] if len(words) > 2 else None
    if script is None or script.startswith("-"):
        return f"{name} run runs a script that is not in the text"
    return PermissionRule(effect="permit", tool=tool, command=(name, second, script))


def _grant_tool(call: ToolCall) -> PermissionRule | str:
    """Return the permission for a call without a command."""
    rule = PermissionRule(effect="permit", tool=call.tool)
    if urls := list_texts(call.arguments, HOST_FIELDS):
        hosts = [host_of(url) for url in urls]
        known = tuple(sorted({host for host in hosts if host}))
        return replace(rule, host=known) if len(known) == len(set(hosts)) else "a URL that cannot be read"
    if paths := list_texts(call.arguments, PATH_FIELDS):
        if all(locate(path, call.folders).relative for path in paths):
            return replace(rule, path=("./**",))
        return "a path outside the session's directory, or of an unknown one"
    if not fits(HARMLESS, call.tool, call.arguments):
        return f"what {call.tool} changes is not known"
    return rule
