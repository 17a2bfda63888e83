"""What the calls of a run changed: files written and deleted, hosts reached, packages, remote branches.

The arguments of a call are evidence of what it was to do, and its result of whether it did. Shell scripts are
read as permission rules read them. A tool, program or command whose changes are unknown is listed as such.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from itertools import pairwise
from types import MappingProxyType
from typing import cast

import msgspec

from refold.reducers import events as ev
from refold.reducers.approvals import HARMLESS, fits
from refold.reducers.patterns import values_at
from refold.reducers.permissions.conditions import COMMAND_FIELDS, HOST_FIELDS, PATH_FIELDS
from refold.reducers.permissions.hosts import host_of
from refold.reducers.permissions.shell import Script, read_script, read_words
from refold.reducers.permissions.wrappers import Words, base_name
from refold.reducers.vocabulary import Replay
from refold.replay import known
from refold.replay.reader import Follower, Step


@unique
class ChangeKind(StrEnum):
    """What a call does, from the most to the least destructive."""

    DELETED = "deleted"
    PUSHED = "pushed"
    DISCARDED = "discarded"
    WROTE = "wrote"
    INSTALLED = "installed"
    REACHED = "reached"
    UNREAD = "unread"


DESTRUCTIVE = frozenset({ChangeKind.DELETED, ChangeKind.PUSHED, ChangeKind.DISCARDED})


@unique
class Outcome(StrEnum):
    """What became of the call. A script may have run only some of its commands."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Change(msgspec.Struct, kw_only=True):
    """A change by the call `call`, requested at event `seq`. `target` is a path, host, package or branch.

    `command` is the command that does it, "" for a tool of its own. `why`: why a command is unread.
    """

    kind: ChangeKind
    target: str
    seq: int
    call: str
    tool: str
    at: int
    command: str = ""
    why: str = ""
    outcome: Outcome = Outcome.UNKNOWN


class ChangeLog(Follower[list[Change]]):
    """Lists what the calls of a run do, in their order."""

    def __init__(self) -> None:
        self._found: list[Change] = []
        self._open: dict[str, list[Change]] = {}
        self._read_only: frozenset[str] = frozenset()

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        match event := step.event:
            case ev.RunStarted(tools=tools) | ev.RunForked(tools=tools) if tools is not None:
                self._read_only = frozenset(each.name for each in tools if each.replay is Replay.READ_ONLY)
            case ev.ModelResponded(calls=calls, content=content):
                texts = content.arguments if content is not None else [None] * len(calls)
                for call, arguments in zip(calls, texts, strict=True):
                    self._add(call, arguments, step.stored.seq, event.at)
            case ev.ApprovalAnswered(content=content) if content is not None:
                for call_id, arguments in content.arguments.items():
                    self._edit(call_id, arguments)
            case ev.ToolReturned(call=call_id):
                self._settle(call_id, _outcome(event))
            case ev.CallRefused(call=call_id):
                self._settle(call_id, Outcome.REFUSED)
            case _:
                pass

    def _add(self, call: ev.Call, arguments: str | None, seq: int, at: int) -> None:
        changes = [
            Change(
                kind=kind,
                target=target,
                seq=seq,
                call=call.id,
                tool=call.name,
                at=at,
                command=command,
                why=why,
            )
            for kind, target, command, why in find_changes(
                call.name, arguments, read_only=call.name in self._read_only
            )
        ]
        self._found += changes
        self._open[call.id] = changes

    def _edit(self, call: str, arguments: str) -> None:
        """Replace the changes of a call that a user edited."""
        old = self._open.get(call, [])
        if not old:
            return
        first = old[0]
        self._found = [change for change in self._found if change not in old]
        self._add(ev.Call(id=call, name=first.tool), arguments, first.seq, first.at)

    def _settle(self, call: str, outcome: Outcome) -> None:
        for change in self._open.pop(call, ()):
            change.outcome = outcome

    def result(self) -> list[Change]:
        """Return all changes, also those of refused calls."""
        return self._found


def _outcome(event: ev.ToolReturned) -> Outcome:
    if event.refused_by is not None:
        return Outcome.REFUSED
    failed = known.failed(event) if known.recorded(event) else None
    return Outcome.UNKNOWN if failed is None else Outcome.FAILED if failed else Outcome.OK


Found = tuple[ChangeKind, str, str, str]
"""A kind, a target, the command, and why it is unread."""

_WRITE_TOOLS = re.compile(
    r"(?i)(?:write|edit|multi_?edit|notebook_?edit|create|replace|insert|str_replace\w*|apply_?(?:patch|diff)|patch"
    r"|write_(?:to_)?file|edit_file|create_file|search_replace|file_editor|text_editor\w*)"
)
_DELETE_TOOLS = re.compile(r"(?i)(?:delete|remove|trash)(?:_?files?)?")
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)


def find_changes(tool: str, arguments: str | None, *, read_only: bool = False) -> Iterator[Found]:
    """Yield what a call of a tool with these arguments (JSON text; None: erased) is to change.

    `read_only`: the tool is declared to change nothing itself; a script that it runs still may.
    """
    if arguments is None:
        yield ChangeKind.UNREAD, "", "", "its arguments are erased"
        return
    if values_at(arguments, ()) is None:
        yield ChangeKind.UNREAD, "", "", "its arguments are not a JSON object"
        return
    name = tool.rpartition("__")[2]
    scripts = [script for field in COMMAND_FIELDS for script in _scripts(arguments, field)]
    hosts = [host for url in _texts(arguments, HOST_FIELDS) if (host := host_of(url)) != ""]
    if _WRITE_TOOLS.fullmatch(name) or _DELETE_TOOLS.fullmatch(name):
        yield from _of_file_tool(name, arguments)
    elif scripts:
        for script in scripts:
            yield from _of_script(script)
    elif not (hosts or read_only or fits(HARMLESS, name, arguments)):
        yield ChangeKind.UNREAD, "", "", "what this tool changes is not known"
    for host in hosts:
        yield ChangeKind.REACHED, host or "an unreadable address", "", ""


def _of_file_tool(name: str, arguments: str) -> Iterator[Found]:
    kind = ChangeKind.DELETED if _DELETE_TOOLS.fullmatch(name) else ChangeKind.WROTE
    yield from ((kind, path, "", "") for path in _texts(arguments, PATH_FIELDS))
    for patch in _texts(arguments, ("input", "patch", "patchText")):
        for verb, path in _PATCHED.findall(patch):
            yield ChangeKind.DELETED if verb == "Delete" else ChangeKind.WROTE, path, "", ""


def _scripts(arguments: str, field: str) -> Iterator[Script]:
    for value in values_at(arguments, field.split(".")) or ():
        if isinstance(value, str):
            yield read_script(value)
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            yield read_words(tuple(cast("list[str]", value)))


def _texts(arguments: str, fields: Sequence[str]) -> Iterator[str]:
    for field in fields:
        for value in values_at(arguments, field.split(".")) or ():
            listed = value if isinstance(value, list) else [value]
            yield from (each for each in listed if isinstance(each, str))


def _of_script(script: Script) -> Iterator[Found]:
    for command in script.commands:
        if command.transparent:
            continue
        text = _join(command.words)
        for kind, target in _of_command(command.words):
            yield kind, target, text, _PROGRAM if kind is ChangeKind.UNREAD else ""
    for file in script.writes:
        if file not in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            yield ChangeKind.WROTE, file or "…", "a redirection", ""
    if script.opaque:
        yield ChangeKind.UNREAD, "", " ; ".join(_join(each.words) for each in script.commands), script.opaque


def _join(words: Words) -> str:
    return " ".join("…" if word is None else word for word in words)


_PROGRAM = "what the program changes is not in its arguments"
Effects = Iterator[tuple[ChangeKind, str]]


def _of_command(words: Words) -> Effects:
    name = base_name(words[0] or "") if words else ""
    if effects := _COMMANDS.get(name):
        yield from effects(words[1:])
    elif name and name not in _READ_ONLY and not _asks_for_help(words):
        yield ChangeKind.UNREAD, ""


def _asks_for_help(words: Words) -> bool:
    return words[1:] in (("--version",), ("--help",), ("-h",), ("-V",), ("version",), ("help",))


def _operands(words: Words, takes: str = "") -> list[str]:
    """Return the words that are no options; `takes` are options with a value."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word is None:
            found.append("…")
        elif word.startswith("-") and len(word) > 1:
            skip = word in takes.split()
        else:
            found.append(word)
    return found


def _all(kind: ChangeKind, takes: str = "") -> Callable[[Words], Effects]:
    return lambda words: ((kind, target) for target in _operands(words, takes))


def _last(words: Words) -> Effects:
    yield from ((ChangeKind.WROTE, target) for target in _operands(words, "-t --target-directory")[1:][-1:])


def _move(words: Words) -> Effects:
    *sources, target = _operands(words) or [""]
    yield from ((ChangeKind.DELETED, source) for source in sources)
    if target:
        yield ChangeKind.WROTE, target


def _sed(words: Words) -> Effects:
    in_place = [word for word in words if word and word.startswith(("-i", "--in-place"))]
    if in_place:
        expression = any(word in ("-e", "-f", "--expression", "--file") for word in words)
        yield from (
            (ChangeKind.WROTE, target) for target in _operands(words, "-e -f")[0 if expression else 1 :]
        )


def _find(words: Words) -> Effects:
    if "-delete" in words:
        yield ChangeKind.DELETED, _join(tuple(word for word in words if word != "-delete"))


def _urls(words: Words) -> Effects:
    takes = "-o -O -d -H -X -u -A -e -F -b -c -T --output --data --header --request --user --data-raw --form"
    for word in _operands(words, takes):
        host = host_of(word) if "." in word or "://" in word or word.startswith("localhost") else None
        yield ChangeKind.REACHED, host or word
    for option, file in pairwise(words):
        if option in ("-o", "-O", "--output", "--output-document") and file and not file.startswith("-"):
            yield ChangeKind.WROTE, file


def _ssh(words: Words) -> Effects:
    yield from ((ChangeKind.REACHED, _host_part(word)) for word in _operands(words, _SSH_TAKES)[:1])


def _copy_to_remote(words: Words) -> Effects:
    for word in _operands(words, _SSH_TAKES):
        if ":" in word:
            yield ChangeKind.REACHED, _host_part(word)
    yield from ((kind, path) for kind, path in _last(words) if ":" not in path)


_SSH_TAKES = "-i -p -P -o -l -F -J -e"


def _host_part(word: str) -> str:
    return word.partition(":")[0].rpartition("@")[2]


def _git(words: Words) -> Effects:
    rest = list(words)
    while rest and rest[0] is not None and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c", "--git-dir", "--work-tree") else rest[1:]
    verb, args = (rest[0] if rest else ""), tuple(rest[1:])
    operands = _operands(args, "-m -b -o --message --branch")
    match verb:
        case verb if verb in _GIT_READS:
            pass
        case "push":
            yield ChangeKind.PUSHED, " ".join(operands) or "the default branch"
        case "clone" | "fetch" | "pull" | "ls-remote":
            hosts = [host for word in operands[:1] if (host := _git_host(word))]
            yield from ((ChangeKind.REACHED, host) for host in hosts or ["the remote of the repository"])
        case "rm":
            yield from ((ChangeKind.DELETED, target) for target in operands)
        case "clean":
            yield ChangeKind.DISCARDED, "files that git does not track"
        case "reset" if "--hard" in args:
            yield ChangeKind.DISCARDED, "uncommitted changes"
        case "checkout" | "restore" if "--" in args or verb == "restore":
            yield ChangeKind.DISCARDED, f"changes of {' '.join(operands)}"
        case "branch":
            deletes = bool({"-d", "-D", "--delete"} & set(args))
            yield from ((ChangeKind.DELETED, f"branch {target}") for target in operands if deletes)
        case _:
            yield ChangeKind.WROTE, "the repository"


_GIT_READS = frozenset(
    {"", "status", "log", "diff", "show", "blame", "grep", "ls-files", "ls-tree", "rev-parse", "describe",
     "remote", "shortlog", "reflog", "cat-file", "rev-list", "merge-base", "config", "help", "version", "tag", "stash"}
)  # fmt: skip
"""Verbs of git that are mostly used to read; `branch` without an option to delete lists branches."""


def _git_host(word: str) -> str | None:
    if "://" in word:
        return host_of(word)
    return _host_part(word) if "@" in word else None


def _installer(*verbs: str) -> Callable[[Words], Effects]:
    def find(words: Words) -> Effects:
        operands = _operands(words, "-r -c -i --requirement --index-url --prefix --target -t")
        if operands and operands[0] in verbs:
            named = operands[1:]
            required = [value for option, value in pairwise(words) if option in ("-r", "--requirement")]
            for name in [*named, *(f"all of {value or '…'}" for value in required)] or ["all of the project"]:
                yield ChangeKind.INSTALLED, name

    return find


def _uv(words: Words) -> Effects:
    rest = words[1:] if words[:1] == ("pip",) else words
    yield from _installer("install", "add", "sync")(rest)


_READ_ONLY = frozenset(
    {
        "[", ":", "ag", "awk", "base64", "basename", "bat", "break", "cat", "cd", "cmp", "column", "comm", "continue", "cut",
        "date", "df", "diff", "dirname", "du", "echo", "egrep", "env", "exit", "expr", "false", "fd", "fgrep", "file",
        "fold", "free", "grep", "groups", "head", "hexdump", "hostname", "id", "jq", "less", "ls", "lsof", "md5sum", "more",
        "nl", "nproc", "od", "paste", "popd", "printenv", "printf", "ps", "pushd", "pwd", "read", "readlink", "realpath",
        "return", "rev", "rg", "seq", "set", "sha1sum", "sha256sum", "shift", "sleep", "sort", "stat", "strings", "tac", "tail",
        "test", "tr", "tree", "true", "type", "uname", "uniq", "uptime", "wait", "wc", "whereis", "which", "who", "whoami",
        "xxd", "yes", "export", "unset", "declare", "local", "readonly", "typeset", "xargs", "sudo", "doas", "timeout",
        "time", "nice", "nohup", "command", "builtin", "exec", "setsid", "stdbuf", "ionice", "chronic", "bash", "sh",
        "zsh", "dash", "ksh", "eval", "source", ".", "trap", "alias",
    }
)  # fmt: skip
"""Programs that only read and print, and those whose inner commands are listed instead."""

_COMMANDS: Mapping[str, Callable[[Words], Effects]] = MappingProxyType(
    {
        **dict.fromkeys(("rm", "rmdir", "unlink", "shred"), _all(ChangeKind.DELETED)),
        **dict.fromkeys(("touch", "mkdir", "tee", "truncate"), _all(ChangeKind.WROTE, "-m -s")),
        **dict.fromkeys(("cp", "install", "ln"), _last),
        **dict.fromkeys(("curl", "wget", "http", "https"), _urls),
        **dict.fromkeys(("scp", "rsync"), _copy_to_remote),
        **dict.fromkeys(("ssh", "sftp"), _ssh),
        "mv": _move,
        "sed": _sed,
        "find": _find,
        "git": _git,
        **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _installer("install", "i", "add", "ci")),
        **dict.fromkeys(("pip", "pip3", "pipx", "poetry", "conda"), _installer("install", "add")),
        **dict.fromkeys(("apt", "apt-get", "brew", "dnf", "yum", "apk", "gem"), _installer("install", "add")),
        **dict.fromkeys(("cargo", "go"), _installer("install", "add", "get")),
        "uv": _uv,
    }
)
