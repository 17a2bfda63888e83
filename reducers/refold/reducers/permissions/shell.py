"""Shell scripts as the commands that they run, for permission rules.

A script is parsed with the Bash grammar of tree-sitter. Commands in lists, pipelines, subshells,
substitutions, functions and heredocs are found, and so are commands that wrappers run (`bash -c`, `env`,
`timeout`, `sudo`, `xargs`, `find -exec`). What only the shell can decide, such as the value of a variable, is
an unknown word. What runs commands that cannot be read, such as `eval`, makes the script opaque.

The parse is pure: it depends on the script and on the version of the grammar, `GRAMMAR`. Scripts longer than
`MAX_BYTES` or nested deeper than `MAX_DEPTH` are opaque.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from refold.reducers.permissions.wrappers import Words, unwrap

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_BYTES = 100_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPLIT_WORD = re.compile(r"[^\s\\]\\\n\S")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
MAX_DEPTH = 200
MAX_NESTED_SCRIPTS = 5
"""Maximum number of scripts inside one another, as in `bash -c "bash -c ..."`."""


class Command(msgspec.Struct, frozen=True):
    """A command that a script runs. `transparent`: it only runs another command, which is listed too.

    `forms` is how it is written, from the outside in, where that may hide it from a simple matcher:
    `complex` (somewhere in the script is more than lists and pipelines of plain words), `compound` (in a
    subshell, loop, condition or function), `substitution`, `script` (of `bash -c`), `wrapper:NAME`,
    `assignment` (a variable is set before it), `quoted` (its name has quotes or escapes).
    """

    words: Words
    transparent: bool = False
    forms: tuple[str, ...] = ()


class Script(msgspec.Struct, frozen=True):
    """What a script runs.

    `writes` are the files that redirections write (None: a file that cannot be read from the text).
    `assigns`: it sets a variable or a function, which may change what later commands do. `opaque` is why some
    of its commands cannot be read, "" if all can.
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
def installed_grammar() -> str:
    """Return `grammar_version`, "" if the grammar is not installed."""
    try:
        return grammar_version()
    except ImportError:
        return ""


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
    return reading.result()


@lru_cache(maxsize=64)
def read_words(words: tuple[str, ...]) -> Script:
    """Return what a command given as a list of words runs, without a shell around it."""
    reading = _Reading()
    wrapped = unwrap(words)
    if wrapped.script is None:
        reading.run(words, 0)
    else:  # how an agent runs a script: `[bash, -lc, ...]`
        reading.commands.append(Command(words, wrapped.transparent))
        reading.read(wrapped.script, 1)
    return reading.result()


class _Reading:
    """The commands found so far."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.functions: set[str | None] = set()
        self.writes: list[str | None] = []
        self.assigns = False
        self.opaque = ""
        self.is_plain = True

    def read(self, text: str, nested: int, forms: tuple[str, ...] = ()) -> None:
        """Add the commands of a script that is inside `nested` others, in these forms."""
        # The scanner of the grammar is unsafe for other characters; to Bash, they are letters of a word.
        source = _NOT_ASCII.sub("%", text).encode()
        if _CONTROL.search(text):
            self.obscure("it has a control character, which Bash does not read as white space")
            return
        if _SPLIT_WORD.search(text):
            self.obscure("a word of it continues on the next line")
        if len(source) > MAX_BYTES or nested > MAX_NESTED_SCRIPTS:
            self.obscure("it is longer or more deeply nested than rules are applied to")
            return
        root = _parser().parse(source).root_node
        broken = root.has_error  # without an error no node is one
        open_nodes: list[tuple[Node, int]] = [(root, 0)]
        while open_nodes:
            node, depth = open_nodes.pop()
            if depth > MAX_DEPTH:
                self.obscure("it is nested too deeply")
            elif broken and (node.is_error or node.is_missing):
                self.obscure("it has a syntax error")
            else:
                self._see(node, text, nested, forms)
                if node.child_count:
                    open_nodes += [(child, depth + 1) for child in reversed(node.children)]

    def result(self) -> Script:
        """Return what was found. A function's call is transparent: the commands of its body are listed."""
        commands = self.commands
        if self.functions or not self.is_plain:
            before = () if self.is_plain else ("complex",)
            commands = [
                Command(
                    each.words,
                    each.transparent or (bool(each.words) and each.words[0] in self.functions),
                    before + each.forms,
                )
                for each in commands
            ]
        return Script(tuple(commands), tuple(self.writes), self.assigns, self.opaque)

    def obscure(self, why: str) -> None:
        """Mark the script as opaque; the first reason is kept."""
        self.opaque = self.opaque or why

    def _see(self, node: "Node", text: str, nested: int, forms: tuple[str, ...]) -> None:
        kind = node.type
        if kind not in _PLAIN or (kind == "word" and _SPECIAL.search(_source(node, text))):
            self.is_plain = False
        if kind not in _READ:  # most nodes are words, blanks and separators
            return
        if kind in _HIDING and _hides_code(node, text):
            self.obscure("it has an expansion that may run commands")
        match kind:
            case "command":
                self.run(_words(node, text), nested, forms + _forms(node, text))
            case "declaration_command" | "unset_command":
                self.assigns = True
                self.commands.append(Command((_source(node, text).split(None, 1)[0],)))
            case "variable_assignment":
                self.assigns = True
            case "function_definition":
                self.assigns = True
                name = node.child_by_field_name("name")
                self.functions.add(_word(name, text) if name is not None else None)
            case "file_redirect":
                self._redirect(node, text)
            case "test_command" if node.children and node.children[0].type == "[":
                self.commands.append(Command(("[",), transparent=True))
            case _:
                pass

    def _redirect(self, node: "Node", text: str) -> None:
        operator = next((child.type for child in node.children if child.type in _WRITING), "")
        target = node.child_by_field_name("destination")
        if target is not None and _source(target, text).startswith(("/dev/tcp", "/dev/udp")):
            self.writes.append(None)
        if operator and not (operator in (">&", "<&") and target is not None and target.type == "number"):
            self.writes.append(_word(target, text) if target is not None else None)

    def run(self, words: Words, nested: int, forms: tuple[str, ...] = ()) -> None:
        """Add a command in these forms and, if it is a wrapper, what it runs."""
        for _ in range(MAX_DEPTH):
            wrapped = unwrap(words)
            self.commands.append(Command(words, wrapped.transparent, forms))
            if words and words[0] in _EVALUATING and any(map(_has_code, words)):
                self.obscure("an index in it may run commands")
            self.assigns = self.assigns or wrapped.assigns
            if wrapped.opaque:
                self.obscure(wrapped.opaque)
            if wrapped.script is not None:
                self.read(wrapped.script, nested + 1, (*forms, "script"))
            if not wrapped.words:
                return
            words, forms = wrapped.words, (*forms, f"wrapper:{wrapped.name}")
        self.obscure("it has too many wrappers")


_HIDING = frozenset(
    {
        "heredoc_body", "expansion", "command_substitution", "arithmetic_expansion", "compound_statement",
        "test_command",
    }
)  # fmt: skip
"""Kinds of nodes in which the grammar may take code for text."""
_READ = _HIDING | {
    "command", "declaration_command", "unset_command", "variable_assignment", "function_definition",
    "file_redirect",
}  # fmt: skip
"""Kinds of nodes that say what a script runs or writes."""


def _hides_code(node: "Node", text: str) -> bool:
    """Return whether a node may have commands that are no nodes: in backquotes, patterns or an index."""
    raw = _source(node, text)
    match node.type:
        case "heredoc_body":
            start = node.prev_named_sibling
            quoted = start is not None and _QUOTES.search(_source(start, text)) is not None
            return not quoted and ("`" in raw or _CODE_IN_INDEX.search(raw) is not None)
        case "expansion":
            return _CODE_IN_EXPANSION.search(raw) is not None
        case "command_substitution" if raw.startswith("`") and "\\`" in raw:
            return True
        case "compound_statement" if not raw.startswith("(("):
            return False
        case _:
            return _CODE_IN_INDEX.search(raw) is not None


_EVALUATING = frozenset(
    {"[", "[[", "declare", "export", "let", "local", "mapfile", "printf", "read", "readonly", "test", "typeset",
     "unset", "wait"}
)  # fmt: skip
"""Builtins that evaluate the index of an array in their words."""


def _has_code(word: str | None) -> bool:
    return word is not None and "[" in word and ("$(" in word or "`" in word)


_PLAIN = frozenset(
    {
        "program", "list", "pipeline", "command", "command_name", "word", "number", "string", "string_content",
        "raw_string", "comment", ";", "&&", "||", "|", "\n", '"', "",
    }
)  # fmt: skip
"""Kinds of nodes in lists and pipelines of plain words."""
_COMPOUND = frozenset(
    {
        "subshell", "compound_statement", "negated_command", "if_statement", "elif_clause", "else_clause",
        "for_statement", "c_style_for_statement", "while_statement", "case_statement", "case_item",
        "do_group", "function_definition",
    }
)  # fmt: skip
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})


def _forms(command: "Node", text: str) -> tuple[str, ...]:
    """Return how a command is written; see `Command`."""
    found: list[str] = []
    parent = command.parent
    while parent is not None:
        if parent.type in _COMPOUND:
            found.append("compound")
        elif parent.type in _SUBSTITUTIONS:
            found.append("substitution")
        parent = parent.parent
    found.reverse()
    if any(child.type == "variable_assignment" for child in command.children):
        found.append("assignment")
    name = command.child_by_field_name("name")
    if name is not None and _source(name, text) != _word(name, text):
        found.append("quoted")
    return tuple(found)


_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})


def _source(node: "Node", text: str) -> str:
    return text[node.start_byte : node.end_byte]


def _words(command: "Node", text: str) -> Words:
    """Return the words of a command, with quotes removed."""
    return tuple([_word(child, text) for child in command.named_children if child.type not in _BESIDE])


_BESIDE = frozenset({"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"})
"""Named parts of a command that are not its words."""


def _word(node: "Node", script: str) -> str | None:
    """Return the text of a word after quote removal; None if the shell determines it."""
    raw, kind = _source(node, script), node.type
    if kind == "word":
        return _unquoted(raw)
    match kind:
        case "command_name" | "concatenation":
            if kind == "concatenation" and _BRACES.search(raw):
                return None
            parts = [_word(child, script) for child in node.children]
            return None if None in parts else "".join(filter(None, parts))
        case "number" | "{" | "}" | "extglob_pattern" | "special_character":
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


_CODE_IN_EXPANSION = re.compile(r"\$\(|`|@P")
_CODE_IN_INDEX = re.compile(r"\w\[[^\]]*(?:\$\(|`)")
_QUOTES = re.compile(r"['\"\\]")
_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_SPECIAL = re.compile(r"[*?\[{\\]")
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
    if not _SPECIAL.search(raw):
        return raw
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
