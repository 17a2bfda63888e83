"""Permission rules, and the decision of a list of rules on a call.

A rule has an effect and conditions on the tool, a command, a path, a host or the text of the arguments; all
its conditions must hold. A call with a shell script is judged by each command that the script runs: the
strictest decision applies. So a rule that permits `git status` does not permit `git status; rm -rf /`, and a
rule that refuses `git push` also refuses `cd app && git push`.

Each condition is true, false or unknown, for example where the shell determines a word. A rule never permits
a call for an unknown condition; if a rule that refuses or asks is unknown, so is the decision.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from refold.reducers.errors import Fault, shown
from refold.reducers.patterns import (
    UNLESS,
    list_search_texts,
    occurs,
    pattern_faults,
    problem_of,
    values_at,
)
from refold.reducers.permissions.commands import alternatives, command_pattern, glob_matches, prefix_matches
from refold.reducers.permissions.hosts import host_matches, host_of
from refold.reducers.permissions.paths import Folders, Location, glob_problem, locate, path_matches
from refold.reducers.permissions.shell import Command, Script, read_script, read_words
from refold.reducers.vocabulary import Knob

Effect = Literal["refuse", "ask", "permit"]
Order = Literal["strictest", "first", "last"]
Text = Annotated[str, Meta(min_length=1)]
Prefix = Annotated[tuple[Text | Annotated[tuple[Text, ...], Meta(min_length=1)], ...], Meta(min_length=1)]

COMMAND_FIELDS = ("command", "cmd", "script", "code", "params.command", "root.command")
PATH_FIELDS = (
    "file_path", "path", "filePath", "notebook_path", "target_file", "absolute_path", "filename", "file",
    "directory", "dir_path", "paths", "params.path",
)  # fmt: skip
HOST_FIELDS = ("url", "uri", "urls", "params.url")

_STRICTNESS: Mapping[str, int] = {"refuse": 3, "unknown": 2, "ask": 1, "permit": 0}


class PermissionRule(Knob, frozen=True, kw_only=True):
    """A rule over calls of the tools that the globs `tool` match.

    `command`: the first words of a command, as `[git, [push, fetch]]` with alternatives; or a glob over the
    whole command, as `npm run *` (if it is the only `*`, ` *` at the end also matches no further words).
    `path`: gitignore globs; `!` before a glob excludes paths, and the last glob that matches applies. `host`:
    hosts of a URL, as `example.com` or `*.example.com`. `matches` and `unless`: patterns over the texts of
    the arguments. `field` is the argument that the conditions read, by default the usual names. `say` is the
    reason that the model gets. `match` and `not_match` are examples: the text of a command, path or URL, or
    arguments as a JSON object. `source` is where the rule is from, as `settings.json:12`. `opaque` is why the
    rule cannot be evaluated, "" if it can: it is then unknown for every call of its tools.
    """

    effect: Effect
    tool: Text | Annotated[tuple[Text, ...], Meta(min_length=1)] = "*"
    command: Prefix | Text | None = None
    path: tuple[Text, ...] | None = None
    host: tuple[Text, ...] | None = None
    matches: str | None = None
    unless: str | None = None
    field: str | None = None
    say: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()
    source: str = ""
    opaque: str = ""

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the globs of the tools that it is for."""
        return (self.tool,) if isinstance(self.tool, str) else self.tool

    def is_for(self, tool: str) -> bool:
        """Return whether the rule is for calls of this tool."""
        return any(fnmatchcase(tool, glob) for glob in self.tools)

    def problems(self) -> Iterator[Fault]:
        """Yield conditions that cannot be evaluated, and examples that contradict the rule."""
        faults = [*self._faults()]
        yield from faults
        if not faults:
            yield from self._contradicted()

    def _faults(self) -> Iterator[Fault]:
        if self.matches is not None:
            yield from pattern_faults("matches", self.matches, UNLESS)
        if self.unless is not None:
            yield from pattern_faults("unless", self.unless)
            if self.matches is None:
                yield "unless", "needs 'matches', which it restricts"
        for place, glob in enumerate(self.path or ()):
            if problem := glob_problem(glob.removeprefix("!")):
                yield f"path[{place}]", f"{problem}; got {shown(glob)}"
        for place, glob in enumerate(self.host or ()):
            if glob != "*" and host_of(glob.removeprefix("*.")) is None:
                yield f"host[{place}]", f"expected a host, as example.com or *.example.com; got {shown(glob)}"
        for name in ("path", "host"):
            if getattr(self, name) == ():
                yield name, "expected at least one entry; remove the key for no condition"
        if isinstance(self.command, str) and (problem := problem_of(command_pattern(self.command))):
            yield "command", f"{problem}; got {shown(self.command)}"

    def _contradicted(self) -> Iterator[Fault]:
        for key, expected in (("match", True), ("not_match", False)):
            for place, example in enumerate(getattr(self, key)):
                otherwise: Effect = "ask" if self.effect == "permit" else "permit"
                found = decide([self], "strictest", otherwise, Call(self.tools[0], _arguments(self, example)))
                if (found.effect == self.effect) is not expected:
                    problem = "does not match this rule" if expected else "matches this rule"
                    yield f"{key}[{place}]", f"{shown(example)} {problem}"

    @property
    def label(self) -> str:
        """Return the rule as messages name it: where it is from, or its conditions."""
        if self.source:
            return self.source
        parts = ["|".join(self.tools)] if self.tools != ("*",) else []
        if self.command is not None:
            words = (
                self.command if isinstance(self.command, str) else " ".join(map(alternatives, self.command))
            )
            parts.append(words)
        parts += [*(self.path or ()), *(self.host or ()), *([self.matches] if self.matches else [])]
        return " ".join(parts) or "every call"


class Call(msgspec.Struct, frozen=True):
    """A call to judge: the tool's name, the arguments as JSON text, and the folders of the run."""

    tool: str
    arguments: str
    folders: Folders = Folders()


class Decision(msgspec.Struct, frozen=True):
    """The decision on a call. `rule` is the index of the deciding rule; None: no rule applies.

    `why` is what makes it unknown. `command` is the command that it is about, "" if the call has none.
    """

    effect: Literal["refuse", "ask", "permit", "unknown"]
    rule: int | None = None
    why: str = ""
    command: str = ""


class _Part(msgspec.Struct, frozen=True):
    """A part of a call to judge: a command, or (None) what only a rule without a command covers.

    `field` is the field that rules name for the script, None for the usual ones; `opaque` is why it has
    commands that cannot be read.
    """

    command: Command | None = None
    field: str | None = None
    opaque: str = ""


_NO_COMMAND = _Part()


def decide(rules: Sequence[PermissionRule], order: Order, otherwise: Effect, call: Call) -> Decision:
    """Return the decision of these rules on a call. `otherwise`: the effect where no rule applies.

    `order` is which of several rules applies: `strictest` (refuse before ask before permit), or the `first`
    or `last` in the list.
    """
    relevant = [(place, rule) for place, rule in enumerate(rules) if rule.is_for(call.tool)]
    if not relevant:
        return Decision(otherwise)
    parts = _list_parts(rules, call)
    decided = [_decide_part(relevant, order, otherwise, call, part) for part in parts]
    return max((one for one in decided if one is not None), key=_strictness, default=Decision(otherwise))


def matching_rules(rules: Sequence[PermissionRule], call: Call) -> frozenset[int]:
    """Return the indices of the rules that match the call, or a part of it, whichever of them decides."""
    parts = _list_parts(rules, call)
    return frozenset(
        place
        for place, rule in enumerate(rules)
        if rule.is_for(call.tool) and any(_holds(rule, call, part) for part in parts)
    )


def _list_parts(rules: Iterable[PermissionRule], call: Call) -> list[_Part]:
    """Return the parts of a call that the rules are about."""
    fields = {rule.field for rule in rules if rule.command is not None and rule.is_for(call.tool)}
    parts = [part for field in fields for script in _scripts(call, field) for part in _parts(script, field)]
    return parts or [_NO_COMMAND]


def _strictness(decision: Decision) -> tuple[int, bool]:
    return _STRICTNESS[decision.effect], decision.rule is None


def _parts(script: Script, field: str | None) -> list[_Part]:
    parts = [_Part(command, field) for command in script.commands]
    if script.opaque:
        parts.append(_Part(None, field, script.opaque))
    if script.assigns or any(target not in _HARMLESS_TARGETS for target in script.writes):
        parts.append(_NO_COMMAND)
    return parts or [_NO_COMMAND]


_HARMLESS_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")


def _decide_part(
    rules: Sequence[tuple[int, PermissionRule]], order: Order, otherwise: Effect, call: Call, part: _Part
) -> Decision | None:
    """Return the decision on a part; None if the part needs none."""
    text = _text(part)
    found = list[Decision]()
    for place, rule in rules if order != "last" else reversed(rules):
        held = _holds(rule, call, part)
        if held is None and rule.effect != "permit":
            why = rule.opaque or part.opaque or "what the rule reads is unknown"
            found.append(Decision("unknown", place, why, text))
        elif held:
            found.append(Decision(rule.effect, place, "", text))
        if found and order != "strictest":
            break
    if part.command is not None and part.command.transparent and all(one.effect == "permit" for one in found):
        return None
    return max(found, key=_strictness, default=Decision(otherwise, command=text))


def _text(part: _Part) -> str:
    words = part.command.words if part.command else ()
    return " ".join("…" if word is None else word for word in words)


def _holds(rule: PermissionRule, call: Call, part: _Part) -> bool | None:
    """Return whether all conditions of a rule hold; None: unknown."""
    conditions = [
        *([None] if rule.opaque else []),
        *([_command_holds(rule, part)] if rule.command is not None else []),
        *([_path_holds(rule, rule.path, call)] if rule.path is not None else []),
        *([_host_holds(rule, rule.host, call)] if rule.host is not None else []),
        *([_text_holds(rule, rule.matches, call)] if rule.matches is not None else []),
    ]
    return False if False in conditions else None if None in conditions else True


def _command_holds(rule: PermissionRule, part: _Part) -> bool | None:
    if part.field != rule.field or (part.command is None and not part.opaque):
        return False
    if part.command is None:
        return None
    assert rule.command is not None
    permits = rule.effect == "permit"
    if isinstance(rule.command, str):
        return glob_matches(rule.command, part.command.words, permits=permits)
    return prefix_matches(rule.command, part.command.words, permits=permits)


def _values(call: Call, field: str | None, usual: Iterable[str]) -> list[Any] | None:
    """Return the values of the argument that a condition reads; None if the arguments cannot be read."""
    for name in [field] if field else usual:
        values = values_at(call.arguments, name.split("."))
        if values is None or any(value is not None for value in values):
            return values
    return []


def _scripts(call: Call, field: str | None) -> list[Script]:
    """Return the scripts of a call. One that cannot be read is opaque."""
    values = _values(call, field, COMMAND_FIELDS)
    if values is None:
        return [Script(opaque="the arguments are not a JSON object")]
    return [script for value in values if (script := _script(value)) is not None]


def _script(value: Any) -> Script | None:
    if isinstance(value, str):
        return read_script(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return read_words(tuple(cast("list[str]", value)))
    return None


def _texts(call: Call, field: str | None, usual: Iterable[str]) -> list[str] | None:
    values = _values(call, field, usual)
    if values is None:
        return None
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [value for value in flat if isinstance(value, str)]


def _path_holds(rule: PermissionRule, globs: Sequence[str], call: Call) -> bool | None:
    paths = _texts(call, rule.field, PATH_FIELDS)
    if paths is None:
        return None
    found = [_path_matches(globs, path, call.folders) for path in paths]
    # To permit, all paths of a call must match.
    if rule.effect == "permit":
        return bool(found) and (False if False in found else None if None in found else True)
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


def _host_holds(rule: PermissionRule, globs: Sequence[str], call: Call) -> bool | None:
    urls = _texts(call, rule.field, HOST_FIELDS)
    if urls is None:
        return None
    hosts = [host_of(url) for url in urls]
    found = [None if host is None else any(host_matches(glob, host) for glob in globs) for host in hosts]
    if rule.effect == "permit":
        return bool(found) and (False if False in found else None if None in found else True)
    return True if True in found else None if None in found else False


def _text_holds(rule: PermissionRule, pattern: str, call: Call) -> bool | None:
    return occurs(pattern, list_search_texts(call.arguments, rule.field), rule.unless)


def _arguments(rule: PermissionRule, example: str) -> str:
    """Return the arguments of an example: itself if it is a JSON object, else in the field that is read."""
    if example.startswith("{"):
        return example
    usual = "command" if rule.command is not None else "path" if rule.path else "url" if rule.host else "text"
    value: Any = example
    for key in reversed((rule.field or usual).split(".")):
        value = {key: value}
    return msgspec.json.encode(value).decode()
