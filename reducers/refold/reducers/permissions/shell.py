"""Shell scripts as the commands that they run, for permission rules.

A script is parsed with the Bash grammar of tree-sitter. Commands in lists, pipelines, subshells,
substitutions, functions and heredocs are found, and so are commands that wrappers run (`bash -c`, `env`,
`timeout`, `sudo`, `xargs`, `find -exec`). What only the shell can decide, such as the value of a variable, is
an unknown word. What runs commands that cannot be read, such as `eval`, makes the script opaque.

The parse is pure: it depends on the script and on the version of the grammar, `GRAMMAR`. Scripts longer than
`MAX_BYTES` or nested deeper than `MAX_DEPTH` are opaque.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_BYTES = 100_000
MAX_DEPTH = 200
MAX_NESTED_SCRIPTS = 5
"""Maximum number of scripts inside one another, as in `bash -c "bash -c ..."`."""

Words = tuple[str | None, ...]
"""The words of a command. None: one or more words, or no word, that only the shell can determine."""


class Command(msgspec.Struct, frozen=True):
    """A command that a script runs. `transparent`: it only runs another command, which is listed too."""

    words: Words
    transparent: bool = False


class Script(msgspec.Struct, frozen=True):
    """What a script runs.

    `writes` are the files that redirections write (None: a file that cannot be read from the text).
    `assigns`: it sets a variable, which may change what later commands do. `opaque` is why some of its
    commands cannot be read, "" if all can.
    """

    commands: tuple[Command, ...] = ()
    writes: tuple[str | None, ...] = ()
    assigns: bool = False
    opaque: str = ""


def grammar_version() -> str:
    """Return the name and version of the installed grammar. Raises `ImportError` if it is not installed."""
    import tree_sitter_bash
    from tree_sitter import Language

    version = Language(tree_sitter_bash.language()).semantic_version or (0, 0, 0)
    return f"bash {'.'.join(map(str, version))}"


@lru_cache(maxsize=1)
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@lru_cache(maxsize=64)  # each rule asks about the same few commands
def read_script(text: str) -> Script:
    """Return the commands of a script. Total: what cannot be read makes the result opaque."""
    reading = _Reading()
    reading.read(text, 0)
    return Script(tuple(reading.commands), tuple(reading.writes), reading.assigns, reading.opaque)


@lru_cache(maxsize=64)
def read_words(words: tuple[str, ...]) -> Script:
    """Return what a command given as a list of words runs, without a shell around it."""
    reading = _Reading()
    reading.run(words, 0)
    return Script(tuple(reading.commands), tuple(reading.writes), reading.assigns, reading.opaque)


class _Reading:
    """The commands found so far."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.writes: list[str | None] = []
        self.assigns = False
        self.opaque = ""

    def read(self, text: str, nested: int) -> None:
        """Add the commands of a script that is inside `nested` others."""
        source = text.encode(errors="replace")
        if len(source) > MAX_BYTES or nested > MAX_NESTED_SCRIPTS or b"\0" in source:
            self.obscure("it is longer or more deeply nested than rules are applied to")
            return
        open_nodes: list[tuple[Node, int]] = [(_parser().parse(source).root_node, 0)]
        while open_nodes:
            node, depth = open_nodes.pop()
            if depth > MAX_DEPTH:
                self.obscure("it is nested too deeply")
            elif node.is_error or node.is_missing:
                self.obscure("it has a syntax error")
            else:
                self._see(node, nested)
                open_nodes += [(child, depth + 1) for child in reversed(node.children)]

    def obscure(self, why: str) -> None:
        """Mark the script as opaque; the first reason is kept."""
        self.opaque = self.opaque or why

    def _see(self, node: "Node", nested: int) -> None:
        match node.type:
            case "command":
                self.run(_words(node), nested)
            case "declaration_command" | "unset_command":
                self.assigns = True
                self.commands.append(Command((_source(node).split(None, 1)[0],)))
            case "variable_assignment":
                self.assigns = True
            case "file_redirect":
                self._redirect(node)
            case "test_command" if node.children and node.children[0].type == "[":
                self.commands.append(Command(("[",), transparent=True))
            case _:
                pass

    def _redirect(self, node: "Node") -> None:
        operator = next((child.type for child in node.children if child.type in _WRITING), "")
        target = node.child_by_field_name("destination")
        if operator and not (operator in (">&", "<&") and target is not None and target.type == "number"):
            self.writes.append(_word(target) if target is not None else None)

    def run(self, words: Words, nested: int) -> None:
        """Add a command and, if it is a wrapper, what it runs."""
        for _ in range(MAX_DEPTH):
            wrapped = _unwrap(words)
            self.commands.append(Command(words, wrapped.transparent))
            self.assigns = self.assigns or wrapped.assigns
            if wrapped.opaque:
                self.obscure(wrapped.opaque)
            if wrapped.script is not None:
                self.read(wrapped.script, nested + 1)
            if not wrapped.words:
                return
            words = wrapped.words
        self.obscure("it has too many wrappers")


_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})


def _source(node: "Node") -> str:
    return (node.text or b"").decode(errors="replace")


def _words(command: "Node") -> Words:
    """Return the words of a command, with quotes removed."""
    beside = ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect")
    return tuple(_word(child) for child in command.named_children if child.type not in beside)


def _word(node: "Node") -> str | None:
    """Return the text of a word after quote removal; None if the shell determines it."""
    raw = _source(node)
    match node.type:
        case "command_name" | "concatenation":
            if node.type == "concatenation" and _BRACES.search(raw):
                return None
            parts = [_word(child) for child in node.children]
            return None if None in parts else "".join(filter(None, parts))
        case "word" | "number" | "{" | "}" | "extglob_pattern" | "special_character":
            return _unquoted(raw)
        case "string" | "translated_string":
            text = raw.removeprefix("$")
            inner = {child.type for child in node.named_children} - {"string_content"}
            return None if inner else _ESCAPED_IN_QUOTES.sub(_escaped, text[1:-1])
        case "raw_string":
            return raw[1:-1]
        case "ansi_c_string":
            return _ansi_c(raw[2:-1])
        case _:
            return None


_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_GLOB = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_ANSI_C = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|.)", re.DOTALL)
_ANSI_LETTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def _unquoted(raw: str) -> str | None:
    """Return an unquoted word. None if the shell expands it: a glob or braces."""
    if _GLOB.search(raw) or _BRACES.search(raw):
        return None
    return _ESCAPED.sub(_escaped, raw)


def _escaped(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _ansi_c(raw: str) -> str | None:
    def decode(found: re.Match[str]) -> str:
        what = found[1]
        if what[0] in "xuU" and len(what) > 1:
            return chr(int(what[1:], 16)) if int(what[1:], 16) < 0x110000 else "\0"
        return chr(int(what, 8) & 0xFF) if what[0] in "01234567" else _ANSI_LETTERS.get(what, "\0")

    decoded = _ANSI_C.sub(decode, raw)
    # Bytes above ASCII may form a UTF-8 sequence, and NUL ends the word: neither is worth decoding.
    return decoded if decoded.isascii() == raw.isascii() and "\0" not in decoded else None


class _Wrapped(msgspec.Struct, frozen=True):
    """What a command runs: other words, or a script."""

    words: Words = ()
    script: str | None = None
    opaque: str = ""
    transparent: bool = False
    assigns: bool = False


_PLAIN = _Wrapped()


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
_SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"})
_OPAQUE = frozenset(
    {
        "eval", "source", ".", "trap", "alias", "coproc", "watch", "parallel", "su", "script", "flock", "strace",
        "ltrace", "busybox", "runuser", "systemd-run", "at", "batch",
    }
)  # fmt: skip
"""Commands that run others in ways that are not read here."""
_ASSIGNING = frozenset({"read", "mapfile", "readarray", "getopts", "let"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def base_name(name: str) -> str:
    """Return a command's name without its folder."""
    return name.rpartition("/")[2]


def _unwrap(words: Words) -> _Wrapped:
    if not words:
        return _PLAIN
    if words[0] is None:
        return _Wrapped(opaque="a command's name is determined by the shell")
    name = base_name(words[0])
    if name in _OPAQUE:
        return _Wrapped(opaque=f"{name} runs commands that are not in the text")
    if name in _SHELLS:
        return _shell(words)
    if name == "find":
        return _find(words)
    if name in _ASSIGNING or (name == "printf" and "-v" in words):
        return _Wrapped(assigns=True)
    options = _WRAPPERS.get(name)
    if options is None or (name == "command" and words[1:2] and words[1] in ("-v", "-V")):
        return _PLAIN
    return _wrapper(name, words[1:], options)


def _wrapper(name: str, words: Words, options: _Options) -> _Wrapped:
    unread = _Wrapped(opaque=f"the command that {name} runs cannot be read")
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
    return _Wrapped(rest, transparent=options.transparent and bool(rest), assigns=assigns)


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


def _shell(words: Words) -> _Wrapped:
    """Return the script of `bash -c`. A shell with a file runs what is in it: a command like others."""
    name = base_name(words[0] or "")
    for place, word in enumerate(words[1:], 1):
        if word is None:
            return _Wrapped(opaque=f"the command that {name} runs cannot be read")
        if not word.startswith(("-", "+")) or word == "-":
            return _PLAIN if word != "-" else _Wrapped(opaque=f"{name} reads commands from its input")
        if not word.startswith("--") and "c" in word:
            script = next(
                (each for each in words[place + 1 :] if each is None or not each.startswith(("-", "+"))), None
            )
            if script is None:
                return _Wrapped(opaque=f"the script of {name} -c cannot be read")
            return _Wrapped(script=script, transparent=True)
        if word in ("--version", "--help"):
            return _PLAIN
        if word in ("-o", "-O", "--rcfile", "--init-file"):
            return _Wrapped(opaque=f"{name} has options that are not read")
    return _Wrapped(opaque=f"{name} reads commands from its input")


def _find(words: Words) -> _Wrapped:
    """Return the commands of `find -exec`; its own placeholder is an unknown word."""
    runs = [place for place, word in enumerate(words) if word in ("-exec", "-execdir", "-ok", "-okdir")]
    if not runs:
        return _PLAIN if None not in words[1:] else _Wrapped(opaque="the arguments of find cannot be read")
    inner = words[runs[0] + 1 :]
    end = next((place for place, word in enumerate(inner) if word in (";", "+")), len(inner))
    if len(runs) > 1 or None in inner[:1]:
        return _Wrapped(opaque="find runs commands that are not read")
    return _Wrapped(tuple(None if word is None or "{}" in word else word for word in inner[:end]))
