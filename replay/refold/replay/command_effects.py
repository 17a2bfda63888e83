"""What shell commands change, by the program and its arguments."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from itertools import pairwise
from types import MappingProxyType

from refold.reducers.permissions.hosts import host_of
from refold.reducers.permissions.wrappers import Words, base_name


@unique
class ChangeKind(StrEnum):
    """What a call does, from the most to the least destructive, and where that is not known.

    `UNREAD`: a command that cannot be read. `GAP`: data of the source may be missing, with calls in it.
    """

    DELETED = "deleted"
    PUSHED = "pushed"
    DISCARDED = "discarded"
    WROTE = "wrote"
    INSTALLED = "installed"
    REACHED = "reached"
    UNREAD = "unread"
    GAP = "gap"

    @property
    def is_known(self) -> bool:
        """Return whether it is a change, and not a place where changes may be missing."""
        return self not in (ChangeKind.UNREAD, ChangeKind.GAP)


REPOSITORY = "the repository"
BRANCH = "branch "
UNCOMMITTED = "uncommitted changes"
CHANGES_OF = "changes of "
"""Targets of discarded changes: all in the working directory, or those of the paths that follow."""

Effects = Iterator[tuple[ChangeKind, str]]


def join_words(words: Words) -> str:
    """Return a command in one line; `…` is an unknown word."""
    return " ".join("…" if word is None else word for word in words)


def effects_of(words: Words) -> Effects:
    """Yield the kind and the target of what a command changes; `UNREAD` for a program that is not known."""
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
    for place, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return [*found, *("…" if each is None else each for each in words[place + 1 :])]
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


def _dd(words: Words) -> Effects:
    yield from ((ChangeKind.WROTE, word[3:]) for word in words if word and word.startswith("of="))


def _find(words: Words) -> Effects:
    if "-delete" in words:
        yield ChangeKind.DELETED, join_words(tuple(word for word in words if word != "-delete"))


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
    if "--dry-run" in args or (verb in ("clean", "rm", "mv") and "-n" in args):
        return
    match verb:
        case "push":
            yield from _push(args, operands)
        case "clone" | "fetch" | "pull" | "ls-remote":
            hosts = [host for word in operands[:1] if (host := _git_host(word))]
            yield from ((ChangeKind.REACHED, host) for host in hosts or ["the remote of the repository"])
        case "rm":
            yield from ((ChangeKind.DELETED, target) for target in operands)
        case "clean":
            yield ChangeKind.DISCARDED, "files that git does not track"
        case "reset" if "--hard" in args:
            yield ChangeKind.DISCARDED, UNCOMMITTED
        case "stash" if operands[:1] in (["drop"], ["clear"]):
            yield ChangeKind.DISCARDED, "stashed changes"
        case "checkout" | "restore" if verb == "restore" or {"--", "-f", "--force", "."} & set(args):
            yield ChangeKind.DISCARDED, f"{CHANGES_OF}{' '.join(operands)}"
        case "branch":
            deletes = bool({"-d", "-D", "--delete"} & set(args))
            yield from ((ChangeKind.DELETED, f"{BRANCH}{target}") for target in operands if deletes)
        case verb if verb not in _GIT_READS or _changes_settings(verb, args, operands):
            yield ChangeKind.WROTE, REPOSITORY
        case _:
            pass


def _push(args: Words, operands: Sequence[str]) -> Effects:
    forced = any(word and word.startswith(("-f", "--force")) for word in args)
    yield ChangeKind.PUSHED, f"{' '.join(operands) or 'the current branch'}{' by force' if forced else ''}"
    host = _git_host(operands[0]) if operands else None
    yield ChangeKind.REACHED, host or "the remote of the repository"


def _changes_settings(verb: str | None, args: Words, operands: Sequence[str]) -> bool:
    """Return whether a verb that mostly reads is used to change something."""
    if verb == "tag":
        return bool(operands) and not {"-l", "--list", "-n", "--contains", "--points-at"} & set(args)
    if verb == "remote":
        return operands[:1] not in ([], ["show"], ["get-url"])
    if verb != "config":
        return False
    options = {"--unset", "--unset-all", "--add", "--replace-all", "--remove-section", "--rename-section"}
    return len(operands) > 1 or bool(options & set(args))


_GIT_READS = frozenset(
    {"", "status", "log", "diff", "show", "blame", "grep", "ls-files", "ls-tree", "rev-parse", "describe",
     "remote", "shortlog", "reflog", "cat-file", "rev-list", "merge-base", "config", "help", "version", "tag"}
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
        elif operands and operands[0] not in _PACKAGE_READS:
            yield ChangeKind.UNREAD, ""

    return find


_PACKAGE_READS = frozenset(
    {
        "freeze",
        "help",
        "info",
        "list",
        "ls",
        "metadata",
        "outdated",
        "search",
        "show",
        "tree",
        "version",
        "view",
        "why",
    }
)


def _uv(words: Words) -> Effects:
    if words[:1] == ("run",):
        return  # the command that it runs is listed
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
        "time", "nice", "nohup", "npx", "bunx", "command", "builtin", "exec", "setsid", "stdbuf", "ionice", "chronic", "bash", "sh",
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
        "dd": _dd,
        "git": _git,
        **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _installer("install", "i", "add", "ci")),
        **dict.fromkeys(("pip", "pip3", "pipx", "conda"), _installer("install", "add")),
        **dict.fromkeys(("apt", "apt-get", "brew", "dnf", "yum", "apk", "gem"), _installer("install", "add")),
        **dict.fromkeys(("cargo", "go"), _installer("install", "add", "get")),
        **dict.fromkeys(("uv", "poetry"), _uv),
    }
)
