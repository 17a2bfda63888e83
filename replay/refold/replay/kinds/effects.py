"""What a call asks to change, as far as its tool and arguments tell it: for whoever must know what a run did to the world.

Known are tools of common agents by their names, shells by the commands that they are given, and tools that were declared read-only.
Of any other tool it is unknown: its name proves nothing.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from refold.replay.kinds import commands
from refold.replay.kinds.arguments import command_argument, main_argument

EffectKind = Literal["changes", "none", "unknown"]

_SHELLS = frozenset(
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
"""Tools that change nothing outside of the conversation. A list of things to do is the agent's own."""

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
"""Programs that change a machine or a cluster: whatever of theirs changes anything is harmful."""
_HARMFUL_WORDS = frozenset(
    {"--", "-D", "-d", "-f", "--delete", "--discard-changes", "--force", "clear", "deinit", "drop", "remove"}
)
"""Words behind a verb that throw work away."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a call asks to change. `what` names it, in order: `Edit`, `git push`, `> notes.txt`; empty unless it `changes`.

    `changes`: surely, if it ran. `none`: nothing outside of the conversation. `unknown`: nothing known says either.
    """

    kind: EffectKind
    what: tuple[str, ...] = ()


NONE = Effect(kind="none")
UNKNOWN = Effect(kind="unknown")


def effect_of(name: str, arguments: str | None, *, read_only: bool = False) -> Effect:
    """What a call of the tool `name` asks to change. `arguments` is JSON text, None where they were erased; `read_only`: it was
    declared so. Pure; never raises.
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
    if plain in _SHELLS and (line := command_argument(arguments)) is not None:
        return _of_commands([part.text for part in commands.split(line)])
    return UNKNOWN


def is_harmful(what: str) -> bool:
    """Whether a change reaches outside of the project or destroys something: `git push`, `rm`, `npm install`, `git checkout --`.

    `what` is one of an effect's. Such a change is named before all others, and never folded.
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
    found = [commands.changed_by(part) for part in parts]
    if what := tuple(dict.fromkeys(each for each in found if each)):
        return Effect(kind="changes", what=what)
    return NONE if found and all(each is None for each in found) else UNKNOWN
