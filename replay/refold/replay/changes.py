"""What the calls of a run changed: files written and deleted, hosts reached, packages, remote branches.

The arguments of a call are evidence of what it was to do, and its result of whether it did. Shell scripts are
read as permission rules read them. A tool, program or command whose changes are unknown is listed as such.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from types import MappingProxyType

import msgspec

from refold.reducers import events as ev
from refold.reducers.approvals import HARMLESS, fits
from refold.reducers.patterns import values_at
from refold.reducers.permissions.conditions import (
    COMMAND_FIELDS,
    HOST_FIELDS,
    PATH_FIELDS,
    list_texts,
    words_of,
)
from refold.reducers.permissions.hosts import host_of
from refold.reducers.permissions.paths import Folders, locate
from refold.reducers.permissions.shell import Script, read_script, read_words
from refold.reducers.vocabulary import Replay
from refold.replay import known
from refold.replay.command_effects import (
    BRANCH,
    CHANGES_OF,
    REPOSITORY,
    UNCOMMITTED,
    ChangeKind,
    effects_of,
    join_words,
)
from refold.replay.reader import Follower, Step
from refold.replay.source_words import describe_loss, is_lost

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

    `command` is the command that does it, "" for a tool of its own. `why`: why a command is unread, or
    what is missing in a gap, which has no call and no tool. `undone_by` is the event of the first later call
    that may undo it: it deletes what was written, or discards changes of the path with git.
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
    undone_by: int | None = None


_MAX_COMMAND = 500
"""Characters of a command that each of its changes has: one command may have thousands of targets."""


class ChangeLog(Follower[list[Change]]):
    """Lists what the calls of a run do, in their order."""

    def __init__(self) -> None:
        self._found: list[Change] = []
        self._open: dict[str, list[Change]] = {}
        self._read_only: frozenset[str] = frozenset()
        self._folders = Folders()

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        event = step.event
        if isinstance(event, ev.RunStarted | ev.RunForked) and event.labels:
            self._folders = Folders(event.labels.get("cwd", ""), event.labels.get("home", ""))
        match event:
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
            case ev.Diagnosed(code=code) if is_lost(event):
                self._add_gap(step.stored.seq, event.at, describe_loss(code))
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
                command=command[:_MAX_COMMAND],
                why=why,
            )
            for kind, target, command, why in find_changes(
                call.name, arguments, read_only=call.name in self._read_only
            )
        ]
        self._found += changes
        self._open[call.id] = changes

    def _add_gap(self, seq: int, at: int, why: str) -> None:
        self._found.append(Change(kind=ChangeKind.GAP, target="", seq=seq, call="", tool="", at=at, why=why))

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
        _find_undos(self._found, self._folders)
        return self._found


def _find_undos(changes: Sequence[Change], folders: Folders) -> None:
    """Set `undone_by` of each change of a file for which a later call may undo it."""
    deleted: dict[str, int] = {}
    restored: dict[str, int] = {}
    everything: int | None = None
    for change in reversed(changes):
        path = _place(change.target, folders)
        if change.kind in (ChangeKind.WROTE, ChangeKind.DELETED):
            is_file = change.target != REPOSITORY and not change.target.startswith(BRANCH)
            is_inside = is_file and bool(locate(change.target, folders).relative)
            later = [restored.get(path), everything if is_inside else None]
            later += [deleted.get(path)] if change.kind is ChangeKind.WROTE else []
            change.undone_by = min((seq for seq in later if seq is not None), default=None)
        if change.outcome not in (Outcome.OK, Outcome.UNKNOWN):
            continue
        if change.kind is ChangeKind.DELETED:
            deleted[path] = change.seq
        elif change.kind is ChangeKind.DISCARDED and change.target == UNCOMMITTED:
            everything = change.seq
        elif change.kind is ChangeKind.DISCARDED and change.target.startswith(CHANGES_OF):
            for word in change.target.removeprefix(CHANGES_OF).split():
                restored[_place(word, folders)] = change.seq
                everything = change.seq if word == "." else everything


def _place(target: str, folders: Folders) -> str:
    location = locate(target, folders)
    return location.absolute or location.relative or target


_NOUNS: Mapping[ChangeKind, tuple[str, str]] = MappingProxyType(
    {
        ChangeKind.DELETED: ("deletion", "deletions"),
        ChangeKind.PUSHED: ("push", "pushes"),
        ChangeKind.DISCARDED: ("discarded change", "discarded changes"),
        ChangeKind.WROTE: ("write", "writes"),
        ChangeKind.INSTALLED: ("installation", "installations"),
        ChangeKind.REACHED: ("host", "hosts"),
        ChangeKind.UNREAD: ("unread command", "unread commands"),
        ChangeKind.GAP: ("gap", "gaps"),
    }
)


class ChangeCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of changes of a kind, as `3 deletions`, and the event of the first one."""

    kind: ChangeKind
    text: str
    seq: int


class ChangeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run changed, by kind, without refused calls; and the first destructive change that may have run.

    `unread` and `gap` are the kinds of what is not known.
    """

    counts: tuple[ChangeCount, ...] = ()
    first: Change | None = None

    def __str__(self) -> str:
        return ", ".join(each.text for each in self.counts)


def summarize_changes(changes: Iterable[Change]) -> ChangeSummary:
    """Return the numbers of changes by kind, the most destructive first."""
    made = [each for each in changes if each.outcome is not Outcome.REFUSED]
    by_kind: dict[ChangeKind, list[Change]] = {}
    for each in made:
        by_kind.setdefault(each.kind, []).append(each)
    counts = tuple(
        ChangeCount(kind=kind, text=f"{len(found):,} {nouns[len(found) != 1]}", seq=found[0].seq)
        for kind, nouns in _NOUNS.items()
        if (found := by_kind.get(kind))
    )
    return ChangeSummary(counts=counts, first=next((each for each in made if each.kind in DESTRUCTIVE), None))


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
    if "powershell" in name.lower():
        yield ChangeKind.UNREAD, "", "", "PowerShell is not read"
        return
    scripts = [script for field in COMMAND_FIELDS for script in _scripts(arguments, field)]
    hosts = [host for url in list_texts(arguments, HOST_FIELDS) if (host := host_of(url)) != ""]
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
    yield from ((kind, path, "", "") for path in list_texts(arguments, PATH_FIELDS))
    for patch in list_texts(arguments, ("input", "patch", "patchText")):
        for verb, path in _PATCHED.findall(patch):
            yield ChangeKind.DELETED if verb == "Delete" else ChangeKind.WROTE, path, "", ""


def _scripts(arguments: str, field: str) -> Iterator[Script]:
    for value in values_at(arguments, field.split(".")) or ():
        if isinstance(value, str):
            yield read_script(value)
        elif (words := words_of(value)) is not None:
            yield read_words(words)


def _of_script(script: Script) -> Iterator[Found]:
    for command in script.commands:
        if command.transparent:
            continue
        text = join_words(command.words)
        for kind, target in effects_of(command.words):
            yield kind, target, text, _PROGRAM if kind is ChangeKind.UNREAD else ""
    for file in script.writes:
        if file not in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            yield ChangeKind.WROTE, file or "…", "a redirection", ""
    if script.opaque:
        yield (
            ChangeKind.UNREAD,
            "",
            " ; ".join(join_words(each.words) for each in script.commands),
            script.opaque,
        )


_PROGRAM = "what the program changes is not in its arguments"
