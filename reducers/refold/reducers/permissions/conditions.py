"""Conditions of permission rules on the tool, a command, a path, a host or the text of the arguments.

A condition is true, false or unknown, for example where the shell determines a word. A call with a shell
script has a part for each command of the script.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.errors import Fault, shown
from refold.reducers.patterns import (
    UNLESS,
    list_search_texts,
    occurs,
    pattern_faults,
    problem_of,
    values_at,
)
from refold.reducers.permissions.commands import (
    alternatives,
    command_pattern,
    glob_matches,
    prefix_matches,
)
from refold.reducers.permissions.hosts import host_matches, host_of
from refold.reducers.permissions.paths import Folders, Location, glob_problem, locate, path_matches
from refold.reducers.permissions.run_facts import RunFacts, When
from refold.reducers.permissions.shell import Command, Script, read_script, read_words
from refold.reducers.vocabulary import Knob

COMMAND_FIELDS = ("command", "cmd", "script", "code", "params.command", "root.command")
PATH_FIELDS = (
    "file_path", "path", "filePath", "notebook_path", "target_file", "absolute_path", "filename", "file",
    "directory", "dir_path", "paths", "params.path",
)  # fmt: skip
PATCH_FIELDS = ("input", "patch", "patchText")
HOST_FIELDS = ("url", "uri", "urls", "params.url")

_ANY = ("", "\0", "a b")
"""Texts without anything in common: a pattern that matches all of them matches any text."""

Text = Annotated[str, Meta(min_length=1)]
Prefix = Annotated[tuple[Text | Annotated[tuple[Text, ...], Meta(min_length=1)], ...], Meta(min_length=1)]


class ArgumentConditions(Knob, frozen=True, kw_only=True):
    """Conditions on the arguments and the run of a call; all of them must hold.

    `command`: the first words of a command, as `[git, [push, fetch]]` with alternatives; or a glob over the
    whole command, as `npm run *` (if it is the only `*`, ` *` at the end also matches no further words).
    `path`: gitignore globs; `!` before a glob excludes paths, and the last glob that matches applies. `host`:
    hosts of a URL, as `example.com` or `*.example.com`. `matches` and `unless`: patterns over the texts of
    the arguments. `field` is the argument that the conditions read, by default the usual names. `when`: the
    permission mode, the subagent or the MCP server.
    """

    command: Prefix | Text | None = None
    path: tuple[Text, ...] | None = None
    host: tuple[Text, ...] | None = None
    matches: str | None = None
    unless: str | None = None
    field: str | None = None
    when: When | None = None

    @property
    def globs(self) -> tuple[str, ...]:
        """Return the globs of the tools that they are for."""
        return ("*",)

    def is_for(self, tool: str) -> bool:
        """Return whether they are for calls of this tool."""
        return _is_matched(tool, self.globs)

    @property
    def is_plain(self) -> bool:
        """Return whether they read only texts of the arguments."""
        return self.command is None and self.path is None and self.host is None and self.when is None

    def problems(self) -> Iterator[Fault]:
        """Yield conditions that cannot be evaluated."""
        if self.matches is not None:
            yield from pattern_faults("matches", self.matches, UNLESS)
        if self.unless is not None:
            yield from pattern_faults("unless", self.unless)
            if self.matches is None:
                yield "unless", "needs 'matches', which it restricts"
            elif all(occurs(self.unless, [text]) for text in _ANY):
                yield (
                    "unless",
                    f"it matches any text, so the rule would never match; got {shown(self.unless)}",
                )
        for place, glob in enumerate(self.path or ()):
            if problem := glob_problem(glob.removeprefix("!")):
                yield f"path[{place}]", f"{problem}; got {shown(glob)}"
        for place, glob in enumerate(self.host or ()):
            if glob != "*" and not host_of(glob.removeprefix("*.")):
                yield f"host[{place}]", f"expected a host, as example.com or *.example.com; got {shown(glob)}"
        if self.field is not None and not any((self.command, self.path, self.host, self.matches)):
            yield "field", "needs a condition that reads it: command, path, host or matches"
        for name in ("path", "host"):
            if getattr(self, name) == ():
                yield name, "expected at least one entry; remove the key for no condition"
        if isinstance(self.command, str) and (problem := problem_of(command_pattern(self.command))):
            yield "command", f"{problem}; got {shown(self.command)}"

    @property
    def title(self) -> str:
        """Return the conditions in one line."""
        parts = ["|".join(self.globs)] if self.globs != ("*",) else []
        if self.command is not None:
            words = (self.command,) if isinstance(self.command, str) else map(alternatives, self.command)
            parts.append(" ".join(words))
        parts += [*(self.path or ()), *(self.host or ()), *([self.matches] if self.matches else [])]
        parts += [self.when.title] if self.when else []
        return " ".join(parts) or "every call"


class Conditions(ArgumentConditions, frozen=True, kw_only=True):
    """The same, on calls of the tools that the globs `tool` match."""

    tool: Text | Annotated[tuple[Text, ...], Meta(min_length=1)] = "*"

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the globs of the tools that they are for."""
        return (self.tool,) if isinstance(self.tool, str) else self.tool

    @property
    def globs(self) -> tuple[str, ...]:
        """Return the globs of the tools that they are for."""
        return self.tools

    def is_for(self, tool: str) -> bool:
        """Return whether they are for calls of this tool."""
        return _is_matched(tool, self.tool)


@lru_cache(maxsize=1024)
def _is_matched(tool: str, globs: str | tuple[str, ...]) -> bool:
    """Return whether a tool is one of those that a rule names."""
    return any(fnmatchcase(tool, glob) for glob in ((globs,) if isinstance(globs, str) else globs))


class ToolCall(msgspec.Struct, frozen=True):
    """A call to judge: the tool's name, the arguments as JSON text, and the folders and facts of the run."""

    tool: str
    arguments: str
    folders: Folders = Folders()
    run: RunFacts = RunFacts()


class Part(msgspec.Struct, frozen=True):
    """A part of a call to judge: a command, or (None) what only a rule without a command covers.

    `field` is the field that rules name for the script, None for the usual ones; `opaque` is why it has
    commands that cannot be read.
    """

    command: Command | None = None
    field: str | None = None
    opaque: str = ""


NO_COMMAND = Part()


def list_parts(rules: Iterable[ArgumentConditions], call: ToolCall) -> list[Part]:
    """Return the parts of a call that the rules are about."""
    reading = [rule for rule in rules if rule.command is not None and rule.is_for(call.tool)]
    fields = dict.fromkeys(rule.field for rule in reading)  # in the rules' order, in every process
    parts = [part for field in fields for script in _scripts(call, field) for part in _parts(script, field)]
    return parts or [NO_COMMAND]


def _parts(script: Script, field: str | None) -> list[Part]:
    parts = [Part(command, field) for command in script.commands]
    if script.opaque:
        parts.append(Part(None, field, script.opaque))
    if script.assigns or any(target not in _HARMLESS_TARGETS for target in script.writes):
        parts.append(NO_COMMAND)
    return parts or [NO_COMMAND]


_HARMLESS_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")


def holds(conditions: ArgumentConditions, call: ToolCall, *, permits: bool = False) -> bool | None:
    """Return whether conditions hold for a call, or for a part of it; None: unknown.

    `permits`: for all its parts, except commands that only run another one, which is a part, too.
    """
    if not conditions.is_for(call.tool):
        return False
    parts = list_parts([conditions], call)
    if permits:
        parts = [part for part in parts if not (part.command and part.command.transparent)] or parts
    found = [holds_for_part(conditions, call, part, permits=permits) for part in parts]
    if permits:
        return join(found)
    return True if True in found else None if None in found else False


def holds_for_part(rule: ArgumentConditions, call: ToolCall, part: Part, *, permits: bool) -> bool | None:
    """Return whether all conditions hold for a part of a call; None: unknown.

    `permits`: strict, as a permission must be. All paths and hosts of the call must match, and a command must
    begin with exactly the words of the rule.
    """
    found: bool | None = True
    if rule.command is not None:
        found = _command_holds(rule, part, permits=permits)
    if found is not False and rule.path is not None:
        found = join([found, _path_holds(rule, rule.path, call, permits=permits)])
    if found is not False and rule.host is not None:
        found = join([found, _host_holds(rule, rule.host, call, permits=permits)])
    if found is not False and rule.matches is not None:
        found = join([found, _text_holds(rule, rule.matches, call)])
    if found is not False and rule.when is not None:
        found = join([found, rule.when.holds(call.tool, call.run)])
    return found


def lacks_record(rule: ArgumentConditions, call: ToolCall, part: Part) -> bool:
    """Return whether conditions that permit are unknown only because the record lacks what they read."""
    known = call.folders.cwd and call.folders.home
    others = replace(rule, when=None, path=rule.path if known else None)
    return others != rule and holds_for_part(others, call, part, permits=True) is True


def explain_lack(rule: ArgumentConditions, call: ToolCall) -> str:
    """Return why conditions are unknown for a call, other than for its script."""
    if rule.when is not None and (why := rule.when.unknowns(call.tool, call.run)):
        return why
    if rule.path is not None and not (call.folders.cwd and call.folders.home):
        return "a path may depend on the working directory or home, which is not recorded"
    return "what the rule reads is unknown"


def join(conditions: Sequence[bool | None]) -> bool | None:
    """Return whether all conditions hold; None: unknown."""
    return False if False in conditions else None if None in conditions else True


def _command_holds(rule: ArgumentConditions, part: Part, *, permits: bool) -> bool | None:
    if part.field != rule.field or (part.command is None and not part.opaque):
        return False
    if part.command is None:
        return None
    assert rule.command is not None
    if isinstance(rule.command, str):
        return glob_matches(rule.command, part.command.words, permits=permits)
    return prefix_matches(rule.command, part.command.words, permits=permits)


def _values(call: ToolCall, field: str | None, usual: Iterable[str]) -> list[Any] | None:
    """Return the values of the arguments that a condition reads; None if the arguments cannot be read."""
    found: list[Any] = []
    for name in [field] if field else usual:
        values = values_at(call.arguments, name.split("."))
        if values is None:
            return None
        found += [value for value in values if value is not None]
    return found


def _scripts(call: ToolCall, field: str | None) -> list[Script]:
    """Return the scripts of a call. One that cannot be read is opaque."""
    values = _values(call, field, COMMAND_FIELDS)
    if values is None:
        return [Script(opaque="the arguments are not a JSON object")]
    return [script for value in values if (script := _script(value)) is not None]


def _script(value: object) -> Script | None:
    if isinstance(value, str):
        return read_script(value)
    if (words := words_of(value)) is not None:
        return read_words(words)
    is_no_command = isinstance(value, bool | int | float)
    return None if is_no_command else Script(opaque="a command is neither a text nor a list of texts")


def words_of(value: object) -> tuple[str, ...] | None:
    """Return a list of texts as a tuple; None for any other value."""
    listed = cast("list[object]", value) if isinstance(value, list) else None
    words = [each for each in listed or () if isinstance(each, str)]
    return tuple(words) if listed is not None and len(words) == len(listed) else None


def texts_in(values: Iterable[object]) -> list[str]:
    """Return the texts among values, and in lists among them."""
    flat: list[object] = []
    for value in values:
        flat += cast("list[object]", value) if isinstance(value, list) else [value]
    return [value for value in flat if isinstance(value, str)]


def list_texts(arguments: str, fields: Iterable[str]) -> list[str]:
    """Return the texts in these fields of arguments (JSON text), and in lists there."""
    return [text for field in fields for text in texts_in(values_at(arguments, field.split(".")) or ())]


def _texts(call: ToolCall, field: str | None, usual: Iterable[str]) -> list[str] | None:
    """Return the texts of the argument, None if some of it cannot be read."""
    values = _values(call, field, usual)
    if values is None or any(isinstance(each, dict) or _is_nested(each) for each in values):
        return None
    return texts_in(values)


def _is_nested(value: object) -> bool:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return any(isinstance(each, list | dict) for each in listed)


def _paths(call: ToolCall, field: str | None) -> list[str] | None:
    """Return the paths of a call; without a field for them, those that a patch names."""
    paths = _texts(call, field, PATH_FIELDS)
    if field is not None or paths is None:
        return paths
    patches = _texts(call, None, PATCH_FIELDS) if "*** " in call.arguments else []
    return (
        None if patches is None else [*paths, *(path for each in patches for path in _PATCHED.findall(each))]
    )


_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)


def _path_holds(
    rule: ArgumentConditions, globs: Sequence[str], call: ToolCall, *, permits: bool
) -> bool | None:
    paths = _paths(call, rule.field)
    if paths is None:
        return None
    found = [_path_matches(globs, path, call.folders) for path in paths]
    # To permit, all paths of a call must match.
    if permits:
        return bool(found) and join(found)
    return True if True in found else None if None in found else False


def _path_matches(globs: Sequence[str], path: str, folders: Folders) -> bool | None:
    location: Location = locate(path, folders)
    result: bool | None = False
    for glob in globs:
        excludes = glob.startswith("!")
        held = path_matches(glob.removeprefix("!"), location, folders)
        if held:
            result = not excludes
        elif held is None and result is excludes:
            result = None  # it may change the result
    return result


def _host_holds(
    rule: ArgumentConditions, globs: Sequence[str], call: ToolCall, *, permits: bool
) -> bool | None:
    urls = _texts(call, rule.field, HOST_FIELDS)
    if urls is None:
        return None
    hosts = [host_of(url) for url in urls]
    found = [None if host is None else _is_host_of(globs, host) for host in hosts]
    if permits:
        return bool(found) and join(found)
    return True if True in found else None if None in found else False


def _is_host_of(globs: Sequence[str], host: str) -> bool:
    return bool(host) and any(host_matches(glob, host) for glob in globs)


def _text_holds(rule: ArgumentConditions, pattern: str, call: ToolCall) -> bool | None:
    return occurs(pattern, list_search_texts(call.arguments, rule.field), rule.unless)
