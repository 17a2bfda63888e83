"""The tools that a command line asks for: built-in ones by a word, one's own as `module:attribute`."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import cast

from refold.console.screen import note
from refold.engine import Tool, files, shell, todos
from refold.engine.validation import made_of
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState

Given = Tool | FunctionType

READING = frozenset({"read_file", "list_files", "search_files"})
WRITING = frozenset({"write_file", "edit_file"})
_BUILT_IN_NAMES = READING | WRITING | {"run_command", "write_todos"}


def _rooted(make: Callable[[Path], list[Tool]], word: str) -> Callable[[Path | None], list[Tool]]:
    def made(root: Path | None) -> list[Tool]:
        if root is None:
            raise WrongUse(f"--tools {word}: needs --root DIR, the directory that it may reach")
        return make(root)

    return made


BUILT_IN: Mapping[str, Callable[[Path | None], list[Tool]]] = {
    "files": _rooted(files, "files"),
    "files-ro": _rooted(lambda root: files(root, write=False), "files-ro"),
    "todos": lambda root: todos(),  # noqa: ARG005
    "shell": _rooted(shell, "shell"),
}


def chosen_tools(words: Sequence[str], root: Path | None) -> list[Tool]:
    """The tools of a new run. Without `words`: to-dos, and the files below `root` if there is one.

    Raises `WrongUse` for a word that names no tool, and for what a named module raises on import.
    """
    asked = _split(words) if words else ["files", "todos"] if root is not None else ["todos"]
    return _made(asked, root)


def rebuilt_tools(run: str, offered: Sequence[str], words: Sequence[str], root: Path | None) -> list[Tool]:
    """The tools that a run was started with, by their recorded names: to-dos and files need no word of their own.

    A shell is never brought back unasked. Raises `WrongUse` that says what to add to the command.
    """
    asked = _split(words) if words else _recorded(offered, root)
    tools = _made(asked, root)
    missing = [name for name in offered if name not in {tool.name for tool in tools}]
    if "write_todos" in missing:
        tools += todos()
        missing.remove("write_todos")
    if missing:
        raise WrongUse(
            f"run {run} was started with the tools {', '.join(missing)}, which are not there now; "
            f"add {_way_out(missing)}, as when it was started"
        )
    return tools


def _split(words: Sequence[str]) -> list[str]:
    return [word.strip() for each in words for word in each.split(",") if word.strip()]


def _recorded(offered: Sequence[str], root: Path | None) -> list[str]:
    names, words = set(offered), list[str]()
    if root is not None and names & WRITING:
        words.append("files")
    elif root is not None and names & READING:
        words.append("files-ro")
    return words


def means_needed(state: RunState) -> str:
    """What must be typed, with a word in the place of what only its owner knows, to go on with a run of this state."""
    names = {tool.name for tool in state.setup.tools}
    root = " --root DIR" if names & (READING | WRITING | {"run_command"}) else ""
    words = ["shell"] * ("run_command" in names) + ["MODULE:ATTRIBUTE"] * bool(names - _BUILT_IN_NAMES)
    return root + (f" --tools {','.join(words)}" if words else "")


def _way_out(missing: Sequence[str]) -> str:
    names = set(missing)
    needs = ["--root DIR"] if names & (READING | WRITING) else []
    needs += ["--root DIR --tools shell (and the other words of --tools)"] if "run_command" in names else []
    needs += ["--tools module:attribute"] if names - _BUILT_IN_NAMES else []
    return " and ".join(needs) or "--tools as before"


def _made(words: Iterable[str], root: Path | None) -> list[Tool]:
    """The tools of all words; plain functions among them are made into tools, with one line about all of them."""
    tools, unsaid = made_of([tool for word in words for tool in _tools(word, root)])
    if unsaid:
        note(f"note: {unsaid}")
    return tools


def _tools(word: str, root: Path | None) -> Sequence[Given]:
    if word in BUILT_IN:
        return BUILT_IN[word](root)
    if ":" not in word and not all(part.isidentifier() for part in word.split(".")):
        raise WrongUse(f"--tools {word}: expected {', '.join(BUILT_IN)}, module or module:attribute")
    return _imported(word)


def _imported(word: str) -> Sequence[Given]:
    name, colon, attribute = word.partition(":")
    # The `refold` script's own directory is first on the path; who names a module means one that lies here.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(name)
        found = cast("object", getattr(module, attribute)) if colon else _all_of(module)
    except Exception as error:  # whatever a stranger's module raises is told, not thrown
        there = "" if colon else f"; expected {', '.join(BUILT_IN)}, module or module:attribute"
        raise WrongUse(f"--tools {word}: {type(error).__name__}: {error}{there}") from error
    kind = type(found).__name__
    listed = [*cast("Iterable[object]", found)] if isinstance(found, list | tuple) else [found]
    if not listed and not colon:
        raise WrongUse(
            f"--tools {word}: the module has no tools, and no functions of its own; give module:attribute"
        )
    if not listed or not all(isinstance(each, Tool | FunctionType) for each in listed):
        raise WrongUse(f"--tools {word}: expected a tool, a function or a list of such, got a {kind}")
    return cast("list[Given]", listed)


def _all_of(module: ModuleType) -> list[Given]:
    """The tools of a module, each once; of one without any its own public functions."""
    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    tools = {id(value): value for value in public if isinstance(value, Tool)}
    functions = [
        value for value in public if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]
    return list(tools.values()) or list(functions)
