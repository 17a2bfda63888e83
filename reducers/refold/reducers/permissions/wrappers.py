"""Commands that run other commands: wrappers such as `env` and `sudo`, shells, and `find -exec`.

A wrapper is read only if all its options are known here, because an unknown option may take the next word as
its value. Otherwise the command that it runs is opaque.
"""

import re
from collections.abc import Mapping

import msgspec

Words = tuple[str | None, ...]
"""The words of a command. None: one or more words, or no word, that only the shell can determine."""


class Wrapped(msgspec.Struct, frozen=True):
    """What a command runs: other words, or a script. `name` is the wrapper's, without its folder."""

    words: Words = ()
    script: str | None = None
    opaque: str = ""
    transparent: bool = False
    assigns: bool = False
    name: str = ""


_PLAIN = Wrapped()


class _Options(msgspec.Struct, frozen=True):
    """The options of a wrapper: `flags` stand alone, `takes` have a value. `positional`: words before the
    command. `transparent`: the wrapper itself changes nothing that permission rules are about.
    """

    flags: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    positional: int = 0
    transparent: bool = True


def _options(flags: str = "", takes: str = "", positional: int = 0, *, transparent: bool = True) -> _Options:
    return _Options(frozenset(flags.split()), frozenset(takes.split()), positional, transparent)


_WRAPPERS: Mapping[str, _Options] = {
    "builtin": _options(),
    "chronic": _options("-v -e"),
    "command": _options("-p"),
    "doas": _options("-n", "-u -C", transparent=False),
    "env": _options(
        "-i - -0 -v --ignore-environment --null --debug", "-u --unset -C --chdir", transparent=True
    ),
    "exec": _options("-c -l", "-a"),
    "ionice": _options("-t", "-c -n --class --classdata"),
    "nice": _options("", "-n --adjustment"),
    "nohup": _options(),
    "setsid": _options("-c -f -w --ctty --fork --wait"),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "sudo": _options(
        "-A -b -E -H -n -P -S -k --askpass --background --preserve-env --set-home --non-interactive --stdin",
        "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir",
        transparent=False,
    ),
    "time": _options("-p -v -a --portability --verbose --append", "-f -o --format --output"),
    "timeout": _options(
        "-f -p -v --foreground --preserve-status --verbose", "-k -s --kill-after --signal", 1
    ),
    "xargs": _options(
        "-0 -r -t -x -p -o --null --no-run-if-empty --verbose --exit --interactive --open-tty",
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --replace --max-lines --max-args --max-procs "
        "--max-chars",
    ),
}
_SHELLS = frozenset(
    {"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "yash", "zsh"}
)  # fmt: skip
_RUNNERS = frozenset({"pdm", "pipenv", "poetry", "uv"})
"""Programs whose subcommand `run` runs a program."""
_OPAQUE = frozenset(
    {
        "eval", "source", ".", "trap", "alias", "coproc", "watch", "parallel", "su", "script", "flock", "strace",
        "ltrace", "busybox", "runuser", "systemd-run", "at", "batch", "bwrap", "chroot", "chrt", "cmd", "cmd.exe",
        "entr", "fakeroot", "faketime", "firejail", "nsenter", "pkexec", "powershell", "prlimit", "proot", "pwsh",
        "rlwrap", "setpriv", "sg", "taskset", "unbuffer", "unshare", "xvfb-run", "arch", "caffeinate", "compgen",
        "complete", "gosu", "hyperfine", "linux32", "linux64", "screen", "setarch", "su-exec", "tmux", "toybox",
    }
)  # fmt: skip
"""Commands that run others in ways that are not read here."""
_ASSIGNING = frozenset({"read", "mapfile", "readarray", "getopts", "let"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def base_name(name: str) -> str:
    """Return a command's name without its folder."""
    return name.rpartition("/")[2]


def unwrap(words: Words) -> Wrapped:
    """Return what a command runs. Wrappers and shells of unknown options are opaque."""
    if not words:
        return _PLAIN
    if words[0] is None:
        return Wrapped(opaque="a command's name is determined by the shell")
    name = base_name(words[0])
    if name in _OPAQUE:
        return Wrapped(opaque=f"{name} runs commands that are not in the text")
    if name in _SHELLS:
        return _shell(words)
    if name == "find":
        return _find(words)
    if name in ("git", "fd"):
        return _of_subcommand(name, words)
    if name in ("npx", "bunx") or (name in _RUNNERS and words[1:2] == ("run",)):
        rest = words[1:] if name in ("npx", "bunx") else words[2:]
        if not rest or rest[0] is None or rest[0].startswith("-"):
            return Wrapped(opaque=f"the command that {name} runs cannot be read")
        return Wrapped(rest, name=name)
    if name in ("mapfile", "readarray") and "-C" in words:
        return Wrapped(opaque=f"{name} runs commands that are not in the text")
    if name in _ASSIGNING or (name == "printf" and "-v" in words):
        return Wrapped(assigns=True)
    options = _WRAPPERS.get(name)
    if options is None or (name == "command" and words[1:2] and words[1] in ("-v", "-V")):
        return _PLAIN
    return _wrapper(name, words[1:], options)


def _wrapper(name: str, words: Words, options: _Options) -> Wrapped:
    unread = Wrapped(opaque=f"the command that {name} runs cannot be read")
    start = _skip_options(words, options)
    if start is None:
        return unread
    given, rest = words[:start], words[start:]
    assigns = False
    while name in ("env", "sudo", "doas") and rest and rest[0] and _ASSIGNMENT.match(rest[0]):
        assigns, rest = True, rest[1:]
    if None in rest[: options.positional + 1]:
        return unread
    rest = rest[options.positional :]
    if name == "xargs":
        rest = _with_input(given, rest)
    return Wrapped(rest, transparent=options.transparent and bool(rest), assigns=assigns, name=name)


def _skip_options(words: Words, options: _Options) -> int | None:
    """Return the number of words that are options; None if one is unknown."""
    place = 0
    while place < len(words):
        word = words[place]
        if word is None:
            return None
        if word == "--":
            return place + 1
        if not word.startswith("-") or (word == "-" and "-" not in options.flags):
            return place
        name, equals, _ = word.partition("=")
        if word in options.flags or (equals and name in options.takes and name.startswith("--")):
            place += 1
        elif word in options.takes:
            place += 2
        elif not word.startswith("--") and (step := _cluster(word, options)):
            place += step
        else:
            return None
    return place


def _cluster(word: str, options: _Options) -> int:
    """Return how many words a cluster of short options takes; 0 if one of them is unknown."""
    for place, letter in enumerate(word[1:], 2):
        if f"-{letter}" in options.takes:
            return 1 if place < len(word) else 2
        if f"-{letter}" not in options.flags:
            return 1 if word[1:].isdigit() else 0  # `nice -10`
    return 1


def _with_input(given: Words, rest: Words) -> Words:
    """Return the command of `xargs`, with unknown words where it puts its input."""
    names = [word for word in given if word is not None]
    replaced = next(
        (given[place + 1] for place, word in enumerate(names[:-1]) if word in ("-I", "--replace")),
        next(
            (word.partition("=")[2] or word[2:] for word in names if re.match(r"-I.|--replace=", word)), None
        ),
    )
    if replaced is None:
        return (*rest, None) if rest else ()
    return tuple(None if word is None or replaced in word else word for word in rest)


def _shell(words: Words) -> Wrapped:
    """Return the script of `bash -c`. A shell with a file runs what is in it: a command like others."""
    name = base_name(words[0] or "")
    is_value = False
    for place, word in enumerate(words[1:], 1):
        if word is None:
            return Wrapped(opaque=f"the command that {name} runs cannot be read")
        if is_value:
            is_value = False
            continue
        if not word.startswith(("-", "+")) or word == "-":
            is_input = word == "-" or word.startswith(("/dev/", "/proc/"))
            return Wrapped(opaque=f"{name} reads commands from its input") if is_input else _PLAIN
        if not word.startswith("--") and "c" in word:
            script = next(
                (each for each in words[place + 1 :] if each is None or not each.startswith(("-", "+"))), None
            )
            if script is None:
                return Wrapped(opaque=f"the script of {name} -c cannot be read")
            return Wrapped(script=script, transparent=True, name=name)
        if word in ("--version", "--help"):
            return _PLAIN
        if word in ("--rcfile", "--init-file"):
            return Wrapped(opaque=f"{name} has options that are not read")
        if not word.startswith("--") and "s" in word:
            return Wrapped(opaque=f"{name} reads commands from its input")
        is_value = not word.startswith("--") and word[-1] in "oO"
    return Wrapped(opaque=f"{name} reads commands from its input")


def _of_subcommand(name: str, words: Words) -> Wrapped:
    """Return what options and subcommands of git and fd run: text that is not read here."""
    given = set(words[1:])
    if name == "fd":
        runs = bool(given & {"-x", "-X", "--exec", "--exec-batch"})
    else:
        runs = (
            {"submodule", "foreach"} <= given
            or {"bisect", "run"} <= given
            or bool("rebase" in given and given & {"-x", "--exec"})
            or "filter-branch" in given
            or any(word is not None and word.startswith("alias.") for word in words)
        )
    return Wrapped(opaque=f"{name} runs commands that are not in the text") if runs else _PLAIN


def _find(words: Words) -> Wrapped:
    """Return the commands of `find -exec`; its own placeholder is an unknown word."""
    runs = [place for place, word in enumerate(words) if word in ("-exec", "-execdir", "-ok", "-okdir")]
    if not runs:
        return _PLAIN if None not in words[1:] else Wrapped(opaque="the arguments of find cannot be read")
    inner = words[runs[0] + 1 :]
    end = next((place for place, word in enumerate(inner) if word in (";", "+")), len(inner))
    if len(runs) > 1 or None in inner[:1] or None in inner[end:]:
        return Wrapped(opaque="find runs commands that are not read")
    return Wrapped(tuple(None if word is None or "{}" in word else word for word in inner[:end]), name="find")
