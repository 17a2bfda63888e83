"""The smallest list of permissions under which recorded calls that succeeded would run without a question.

Proposed are permissions for calls that no rule decides. A command is permitted by its program, or by program
and subcommand. Never proposed: interpreters and other programs that run text or programs, destructive
commands, scripts that cannot be read or that write files by redirection, and paths outside the session's
directory.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers.approvals import SENSITIVE, fits
from refold.reducers.patterns import values_at
from refold.reducers.permissions.conditions import (
    HOST_FIELDS,
    PATH_FIELDS,
    Conditions,
    Part,
    ToolCall,
    holds_for_part,
    list_parts,
    texts_in,
)
from refold.reducers.permissions.hosts import host_of
from refold.reducers.permissions.paths import locate
from refold.reducers.permissions.rules import PermissionRule, decide
from refold.reducers.permissions.shadowing import covers
from refold.reducers.permissions.wrappers import Words, base_name
from refold.replay.changes import DESTRUCTIVE
from refold.replay.command_effects import effects_of
from refold.replay.permissions.calls import CallResult, JudgedCall, JudgedRun, RuleList

_INTERPRETERS = frozenset(
    {
        "just", "task", "rake", "gradle", "mvn", "ant", "tox", "nox", "invoke", "mise", "nx", "bazel", "cmake", "ninja",
        "ash", "awk", "bash", "bun", "cmd", "csh", "dash", "deno", "ed", "emacs", "env", "eval",
        "exec", "expect", "fish", "gawk", "gdb", "irb", "java", "julia", "ksh", "lua", "make",
        "mawk", "node", "nodejs", "nohup", "npx", "osascript", "perl", "php", "powershell", "pwsh",
        "python", "python2", "python3", "pypy", "pypy3", "ruby", "Rscript", "sed", "sh", "source",
        "ssh", "sudo", "su", "doas", "tclsh", "time", "timeout", "vi", "vim", "wish", "xargs",
        "zsh", "parallel", "watch", "find", "nice", "setsid", "stdbuf", "strace", "script",
        "screen", "tmux", "at", "batch", "crontab", ".", "command", "builtin",
    }
)  # fmt: skip
_BROAD = frozenset(
    {
        "chmod", "chown", "curl", "dd", "fdisk", "iptables", "kill", "killall", "ln", "mkfs", "mount", "nc", "ncat",
        "parted", "pkill", "gh", "glab", "kubectl", "docker", "podman", "helm", "terraform", "aws", "az", "gcloud",
        "systemctl", "apt", "apt-get", "brew", "conda", "reboot", "rsync", "scp", "sftp", "shutdown", "ssh", "tee", "umount", "useradd", "userdel",
        "usermod", "wget",
    }
)  # fmt: skip
"""Programs with which a call may change or reach anything."""
_GIT_VERBS = frozenset(
    {"add", "blame", "commit", "describe", "diff", "fetch", "grep", "log", "ls-files", "ls-tree", "merge-base",
     "rev-list", "rev-parse", "shortlog", "show", "status"}
)  # fmt: skip
"""Subcommands of git that may be proposed. Others may discard changes with some options."""
_PACKAGE_VERBS = frozenset(
    {"add", "ci", "create", "exec", "i", "init", "install", "login", "publish", "remove", "uninstall", "yank"}
)
_RUNS_CODE = frozenset(
    {
        ("bundle", "exec"), ("cargo", "run"), ("docker", "exec"), ("docker", "run"), ("docker", "compose"),
        ("go", "run"), ("kubectl", "exec"), ("npm", "exec"), ("pnpm", "exec"), ("pnpm", "dlx"), ("poetry", "run"), ("pipx", "run"), ("podman", "run"), ("podman", "exec"),
        ("uv", "run"), ("uv", "tool"), ("yarn", "dlx"), ("git", "bisect"),
        ("git", "config"), ("git", "filter-branch"), ("git", "submodule"), ("git", "rebase"),
    }
)  # fmt: skip
_SCRIPTS = frozenset({("npm", "run"), ("pnpm", "run"), ("yarn", "run")})
"""Commands whose next word names a script of the project, which is permitted alone."""

_HAS_SUBCOMMANDS = frozenset(
    {
        "apt", "apt-get", "aws", "az", "brew", "bundle", "cargo", "conda", "docker", "dotnet",
        "gcloud", "gem", "gh", "git", "glab", "go", "gradle", "helm", "hg", "jj", "kubectl", "mvn",
        "npm", "nx", "pip", "pip3", "pipx", "pnpm", "podman", "poetry", "rustup", "svn",
        "systemctl", "terraform", "uv", "yarn",
    }
)  # fmt: skip


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
    if name in _BROAD:
        return f"{name} may change or reach anything"
    if base_name(name) in _INTERPRETERS:
        return f"{name} runs other programs or text"
    if any(kind in DESTRUCTIVE for kind, _ in effects_of(words)):
        return f"{name} may delete or push"
    if name not in _HAS_SUBCOMMANDS:
        return PermissionRule(effect="permit", tool=tool, command=(name,))
    second = words[1] if len(words) > 1 else ""
    if second is None or second.startswith("-") or not second:
        return f"{name} has options before its subcommand"
    if (name == "git" and second not in _GIT_VERBS) or second in _PACKAGE_VERBS - _GIT_VERBS:
        return f"{name} {second} may change more than these calls did"
    if (name, second) in _RUNS_CODE:
        return f"{name} {second} runs other programs"
    script = words[2] if (name, second) in _SCRIPTS and len(words) > 2 else None
    if (name, second) in _SCRIPTS and (script is None or script.startswith("-")):
        return f"{name} {second} runs a script that is not in the text"
    return PermissionRule(effect="permit", tool=tool, command=(name, second, *([script] if script else [])))


def _grant_tool(call: ToolCall) -> PermissionRule | str:
    """Return the permission for a call without a command."""
    rule = PermissionRule(effect="permit", tool=call.tool)
    if urls := _texts(call, HOST_FIELDS):
        hosts = [host_of(url) for url in urls]
        known = tuple(sorted({host for host in hosts if host}))
        return replace(rule, host=known) if len(known) == len(set(hosts)) else "a URL that cannot be read"
    if paths := _texts(call, PATH_FIELDS):
        if all(locate(path, call.folders).relative for path in paths):
            return replace(rule, path=("./**",))
        return "a path outside the session's directory, or of an unknown one"
    if fits(SENSITIVE, call.tool, call.arguments):
        return f"{call.tool} runs code or writes files, and its arguments name neither"
    return rule


def _texts(call: ToolCall, fields: Iterable[str]) -> list[str]:
    return [text for field in fields for text in texts_in(values_at(call.arguments, field.split(".")) or ())]
