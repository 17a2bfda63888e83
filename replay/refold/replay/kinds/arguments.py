"""Main argument of a call, and what the call would change.

Tools use similar argument names, so the main argument is the first of a few dozen known names that the
arguments contain. Otherwise it is the first text; without a text, the first entry of a list and the number of
others; else all arguments as written. Arguments that are not a JSON object are returned unchanged. Results
are not sanitized: the caller must do that.

Effects are known for tools of common agents (by name), shells (by their commands), and tools declared
read-only. For other tools the effect is unknown.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import msgspec

from refold.replay.kinds import commands

_RUN = ("command", "cmd", "commands", "script")
_SOUGHT = ("pattern", "query", "queries", "sql", "search", "url", "uri", "urls")
_PATHS = (
    "file_path", "filePath", "path", "absolute_path", "target_file", "notebook_path", "filename", "file_name", "file", "dir_path",
    "directory", "paths",
)  # fmt: skip
_WORDS = (
    "code",
    "expression",
    "description",
    "title",
    "subject",
    "task",
    "prompt",
    "question",
    "message",
    "thought",
)
_NAMES = (*_RUN, *_SOUGHT, *_PATHS, *_WORDS)
_OF_A_THING = ("content", "step", "text", "label")
"""Names of the main field of a list entry, such as a task, choice or question."""
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "powershell", "pwsh", "cmd"})
_BEGUN = 4000  # maximum characters of streamed arguments that are parsed: repeatedly, while they grow
_HALF_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_LOOKED_AT = 20_000  # maximum characters of a text that is processed completely
_LONG = 4  # multiple of the displayed length that is read on either side, because white space is collapsed

ERASED = "(erased)"
"""Placeholder for erased text."""


def main_argument(arguments: str) -> str:
    """Return the main argument of a call, unshortened. Pure; never raises.

    `arguments` is the JSON text that the model wrote.
    """
    return _main(arguments, nested=True)[0]


def command_argument(arguments: str) -> str | None:
    """Return the command that a call runs, unshortened; None if there is none. Pure; never raises."""
    said, is_command = _main(arguments, nested=True)
    return said if is_command else None


def partial_argument(arguments: str) -> str:
    """Return the main argument of a partly streamed call; "" if it has not arrived yet."""
    begun = arguments[:_BEGUN]
    closed, comma = _close_json(begun)
    for text in (closed, _close_json(begun[:comma])[0]):
        if text and _parse_arguments(text):
            said, _ = _main(text, nested=True)
            return (
                said if said != text or text == begun else ""
            )  # never return what was closed here as an argument
    return ""


def _close_json(begun: str) -> tuple[str, int]:
    """Complete a truncated JSON object, and return the position of its last top-level comma."""
    ends, comma, quoted, escaped = list[str](), 0, False, False
    for place, character in enumerate(begun):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[":
            ends.append("}" if character == "{" else "]")
        elif character in "}]" and ends:
            ends.pop()
        elif character == "," and len(ends) == 1:
            comma = place
    if quoted:
        half = _HALF_ESCAPED.search(begun)
        begun = (begun[: half.start(1)] if half else begun) + '"'
    return begun + "".join(reversed(ends)), comma


def sole_argument(arguments: str) -> str:
    """Return the text of a call's only argument; else all arguments as written."""
    given = _parse_arguments(arguments)
    only = [_join_texts(each) for each in given.values()] if given else []
    return only[0] if len(only) == 1 and only[0] else arguments


def elide(text: str, most: int) -> str:
    """Shorten a text to one line of at most `most` characters, collapsing white space.

    The middle is cut out. A long command line keeps part of each command, including its verb.
    """
    if len(text) <= _LOOKED_AT:
        line = " ".join(text.split())
        if len(line) <= most:
            return line
        parts = commands.split_text(line)
        if len(parts) > 1:
            return commands.shorten(parts, most)
        head = tail = line
    else:
        head, tail = (" ".join(part.split()) for part in (text[: _LONG * most], text[-_LONG * most :]))
    room = max(most - 3, 2)
    last = room // 3
    return f"{head[: room - last].rstrip()} … {tail[len(tail) - last :].lstrip()}"


def short_argument(arguments: str, most: int) -> str:
    """Return the main argument as one line of at most `most` characters, command lines joined by `; `."""
    said, is_command = _main(arguments, nested=True)
    if is_command and "\n" in said and (parts := commands.split(said)):
        line = "".join(joint + text for joint, text in parts)
        return line if len(line) <= most else commands.shorten(parts, most)
    return elide(said, most)


def brief(text: str | None, most: int) -> str:
    """Return the start of a text as one line, collapsing white space; `(erased)` if it was erased."""
    if text is None:
        return ERASED
    line = " ".join(text[: _LONG * most].split())
    whole = len(line) <= most and len(text) <= _LONG * most
    return line if whole else f"{line[: most - 1]}…"


def format_call(name: str, arguments: str | None, most: int) -> str:
    """Format a call in one line: tool and main argument. `arguments` is None if erased."""
    said = ERASED if arguments is None else short_argument(arguments, most)
    return f"{elide(name, 64)}  {said}".rstrip()


def format_full_call(name: str, arguments: str | None, most: int) -> str:
    """Format a call in one line with all arguments, each cut to `most` characters, for an approver."""
    given = None if arguments is None else _parse_arguments(arguments)
    main = main_argument(arguments or "")
    if arguments is None or not given or main == arguments.strip():
        return format_call(name, arguments, most)
    others = [
        f"{each}={elide(_format_value(value), most)}"
        for each, value in given.items()
        if _join_texts(value) != main
    ]
    return f"{elide(name, 64)}  {', '.join([short_argument(arguments, most), *others])}"


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def format_partial_call(name: str, begun: str, most: int) -> str:
    """Format a partly streamed call in one line: the tool and the main argument so far."""
    return f"{elide(name, 64)}  {elide(partial_argument(begun), most)}".rstrip()


def _main(arguments: str, *, nested: bool) -> tuple[str, bool]:
    """Return the main argument, and whether it is a command."""
    given = _parse_arguments(arguments)
    if given is None:
        return arguments, False
    found = {name: said for name in _NAMES if (said := _join_texts(given.get(name)))}
    if (first := next(iter(found), None)) is not None:
        return _with_path(first, found), first in _RUN
    said = _first(map(_join_texts, given.values()))
    if nested and said.lstrip().startswith("{"):  # some harnesses pass all arguments as the text of one
        return _main(said, nested=False)
    said = said or _first(map(_summarize_list, given.values()))
    return said or (arguments.strip() if given else ""), False


def _first(texts: Iterable[str]) -> str:
    """Return the first text that is not empty; "" if all are."""
    return next(filter(None, texts), "")


def _parse_arguments(arguments: str) -> dict[str, Any] | None:
    """Return the arguments by name; None if they are not a JSON object."""
    try:
        value: Any = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _with_path(first: str, found: dict[str, str]) -> str:
    """Add the file to an editor's `command`, which is only a word such as `view`."""
    said = found[first]
    path = next((found[name] for name in _PATHS if name in found), "")
    return f"{said} {path}" if path and first in _RUN and said.isidentifier() else said


def _summarize_list(value: object) -> str:
    """Return the main field of the first entry of a list, and the number of others; "" for other values."""
    things = cast("list[object]", value if isinstance(value, list) else [value])
    first = cast("dict[str, object]", things[0]) if things and isinstance(things[0], dict) else {}
    names = (*_NAMES, *_OF_A_THING, *(first if isinstance(value, list) else ()))
    named = (_join_texts(first[name]) for name in names if name in first)
    said = _first(named)
    return f"{said}, and {len(things) - 1} more" if said and len(things) > 1 else said


def _join_texts(value: object) -> str:
    """Return a text, or a list of texts joined; "" for other values. For a shell call, only the script."""
    if isinstance(value, str):
        return value if value.strip() else ""
    if not isinstance(value, list) or not value:
        return ""
    words = cast("list[object]", value)
    if not all(isinstance(word, str) for word in words):
        return ""
    texts = cast("list[str]", words)
    shell = texts[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    if len(texts) >= 3 and shell in _SHELLS and texts[1][:1] in ("-", "/"):
        return texts[-1]
    return " ".join(texts)


EffectKind = Literal["changes", "none", "unknown"]

_SHELL_TOOLS = frozenset(
    {"bash", "shell", "local_shell", "exec_command", "run_shell_command", "run_terminal_cmd", "run_command", "execute_command",
     "execute_bash", "shell_command", "terminal", "sh", "container.exec", "powershell", "bash_tool", "execute"}
)  # fmt: skip
_WRITES = frozenset(
    {"edit", "write", "multiedit", "multi_edit", "notebookedit", "notebook_edit", "write_file", "writefile", "edit_file", "create_file",
     "create", "str_replace", "replace", "insert", "apply_patch", "applypatch", "patch", "delete_file", "move_file", "rename_file",
     "search_replace", "write_to_file", "replace_in_file", "edit_notebook", "insert_edit_into_file", "replace_string_in_file",
     "strreplacefile", "make_directory", "create_directory"}
)  # fmt: skip
_EDITORS = frozenset({"str_replace_editor", "str_replace_based_edit_tool", "file_editor"})
_READS = frozenset(
    {"read", "read_file", "readfile", "read_many_files", "view", "view_file", "view_image", "cat", "grep", "grep_search",
     "search_file_content", "glob", "find", "find_files", "file_search", "list_dir", "list_directory", "list_files", "ls",
     "codebase_search", "search_files", "websearch", "web_search", "google_web_search", "webfetch", "web_fetch", "notebookread",
     "todoread", "todowrite", "todo_write", "write_todos", "update_plan", "think", "exitplanmode", "exit_plan_mode",
     "enterplanmode", "askuserquestion", "ask_user_question", "bashoutput", "taskoutput", "toolsearch", "report_intent"}
)  # fmt: skip
"""Tools that change nothing outside of the conversation. An agent's own task list counts as such."""

_HARMFUL = frozenset(
    {"chgrp", "chmod", "chown", "dd", "delete_file", "kill", "killall", "mkfs", "pkill", "reboot", "rm", "rmdir", "rsync", "scp",
     "shred", "shutdown", "truncate", "unlink",
     "git branch", "git clean", "git filter-branch", "git gc", "git push", "git rebase", "git remote", "git reset", "git restore",
     "git rm", "git tag", "git update-ref",
     "npm install", "npm i", "npm ci", "npm publish", "npm uninstall", "pnpm install", "pnpm add", "yarn install", "yarn add",
     "pip install", "pip uninstall", "pip3 install", "uv add", "uv sync", "poetry add", "poetry install", "cargo add",
     "cargo install", "cargo publish", "go install", "go get"}
)  # fmt: skip
_HARMFUL_PROGRAMS = frozenset(
    {"apt", "apt-get", "brew", "docker", "helm", "kubectl", "systemctl", "terraform"}
)
"""Programs that change a machine or a cluster: each of their changes is harmful."""
_HARMFUL_WORDS = frozenset(
    {"--", "-D", "-d", "-f", "--delete", "--discard-changes", "--force", "clear", "deinit", "drop", "remove"}
)
"""Arguments after a verb that discard work."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would change.

    `what` lists the changes in order: `Edit`, `git push`, `> notes.txt`; empty unless it `changes`.
    `changes`: it surely changes something if it runs. `none`: nothing outside of the conversation. `unknown`:
    cannot be told.
    """

    kind: EffectKind
    what: tuple[str, ...] = ()


NONE = Effect(kind="none")
UNKNOWN = Effect(kind="unknown")


def effect_of(name: str, arguments: str | None, *, read_only: bool = False) -> Effect:
    """Return what a call of the tool `name` would change. Pure; never raises.

    `arguments` is JSON text, None if erased; `read_only`: the tool was declared read-only.
    """
    if read_only:
        return NONE
    plain = name.casefold()
    if plain in _READS:
        return NONE
    if plain in _WRITES:
        return Effect(kind="changes", what=(name,))
    if arguments is None:
        return UNKNOWN
    if plain in _EDITORS:
        return NONE if main_argument(arguments).startswith("view") else Effect(kind="changes", what=(name,))
    if plain in _SHELL_TOOLS and (line := command_argument(arguments)) is not None:
        return _of_commands([part.text for part in commands.split(line)])
    return UNKNOWN


def is_harmful(what: str) -> bool:
    """Return whether a change reaches outside of the project or destroys something.

    Examples: `git push`, `rm`, `npm install`, `git checkout --`. `what` is an item of `Effect.what`. Harmful
    changes are listed first and never folded.
    """
    if what.startswith(">"):
        return False
    words = what.split()
    program, verb = words[0] if words else "", " ".join(words[:2])
    return (
        program.casefold() in _HARMFUL
        or verb in _HARMFUL
        or program in _HARMFUL_PROGRAMS
        or any(word in _HARMFUL_WORDS for word in words[2:])
    )


def _of_commands(parts: Sequence[str]) -> Effect:
    found = [commands.find_change(part) for part in parts]
    if what := tuple(dict.fromkeys(each for each in found if each)):
        return Effect(kind="changes", what=what)
    return NONE if found and all(each is None for each in found) else UNKNOWN
