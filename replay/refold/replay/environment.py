"""Environment of a run: directory, branch, user, permission mode, and time span.

It is read from the run's start and labels, and for an imported run from the stored source rows. Each format
has its own field names: `_READERS`. Items that no row states are unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import msgspec

from refold.reducers.events import ModelResponded, Remark, RunStarted, SourceRecorded
from refold.reducers.run_records import read_mode
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.replay import figures
from refold.replay.reader import Step

Item = Literal["cwd", "branch", "user", "host", "permission_mode", "client", "version"]
Row = dict[Item, Any]
ITEMS: tuple[Item, ...] = get_args(Item)

_MOST = 20  # maximum values per item: a source may change one in every row
_LONGEST = 400  # maximum characters of a value
_WANTED: tuple[Item, ...] = ("cwd", "branch", "permission_mode")
"""Items that are reported as not recorded if an imported run lacks them."""
LABELS: Mapping[str, Item] = MappingProxyType(
    {"cwd": "cwd", "gitBranch": "branch", "version": "version", "cli_version": "version", "user": "user"}
)
"""Labels of imported runs that are environment items."""


class RecordedValue(msgspec.Struct, frozen=True):
    """A value of an item, and the event since which it holds; 0 means from the beginning."""

    seq: int
    value: str


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Environment of a run.

    `began` and `ended` are the first and last time in the log, nanoseconds since 1970 UTC, 0 if not recorded.
    Each item has its values in order, one per change, 20 at most; an item without values was not recorded.
    `imported`: the run is from a transcript, which could have recorded all items of `_WANTED`.
    """

    began: int = 0
    ended: int = 0
    imported: bool = False
    cwd: tuple[RecordedValue, ...] = ()
    branch: tuple[RecordedValue, ...] = ()
    user: tuple[RecordedValue, ...] = ()
    host: tuple[RecordedValue, ...] = ()
    permission_mode: tuple[RecordedValue, ...] = ()
    client: tuple[RecordedValue, ...] = ()
    version: tuple[RecordedValue, ...] = ()

    @property
    def when(self) -> str:
        """Return the time span in UTC."""
        return figures.period(self.began, self.ended)

    def pairs(self) -> list[tuple[str, str]]:
        """Return names and texts: the time span, each item, and which are missing. Not sanitized."""
        told = [("when", self.when)]
        for item in ITEMS:
            if values := self.values(item):
                told.append((item.replace("_", " "), format_values(values)))
        lacking = [item.replace("_", " ") for item in _WANTED if self.imported and not self.values(item)]
        return [*told, *([("not recorded", ", ".join(lacking))] if lacking else [])]

    def values(self, item: Item) -> tuple[RecordedValue, ...]:
        """Return the values of an item in order."""
        found: tuple[RecordedValue, ...] = getattr(self, item)
        return found


def format_values(values: tuple[RecordedValue, ...]) -> str:
    """Format the values of an item in one line: `default, bypassPermissions from e30`."""
    return ", ".join(f"{each.value} from e{each.seq}" if each.seq else each.value for each in values)


class EnvironmentReader:
    """Follower that reads the environment of a run."""

    def __init__(self) -> None:
        self._began = self._ended = 0
        self._imported = self._answered = False
        self._found: dict[Item, list[RecordedValue]] = {}

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        seq, at, event = step.stored.seq, step.stored.at, step.event
        self._began = self._began or at
        self._ended = at or self._ended
        self._answered = self._answered or isinstance(event, ModelResponded)
        if isinstance(event, RunStarted):
            self._imported = SOURCE_LABEL in event.labels
            for item, value in _of_a_start(event):
                self._put(seq, item, value)
        elif isinstance(event, SourceRecorded):
            for item, value in read_source_row(event).items():
                self._put(seq, item, value)

    def result(self) -> Environment:
        """Return the environment after the last event taken."""
        found = {item: tuple(values) for item, values in self._found.items()}
        return Environment(began=self._began, ended=self._ended, imported=self._imported, **found)

    def _put(self, seq: int, item: Item, value: str) -> None:
        values = self._found.setdefault(item, [])
        if (not values or values[-1].value != value) and len(values) < _MOST:
            values.append(RecordedValue(seq if values or self._answered else 0, value))


def read_source_row(event: SourceRecorded) -> Mapping[Item, str]:
    """Return the environment items in a source row of an imported run. Pure; never raises."""
    row = event.content.text.partition("\n")[0] if isinstance(event.content, Remark) else ""
    reader = _READERS.get(event.format)
    if reader is None or not row.startswith("{"):
        return {}
    mode = read_mode(event)
    modes: dict[Item, str] = {} if mode is None else {"permission_mode": mode}
    try:
        return {**dict(_texts(reader(row).items())), **modes}
    except (msgspec.MsgspecError, RecursionError):
        return modes


def _of_a_start(event: RunStarted) -> Iterator[tuple[Item, str]]:
    told: Row = {item: event.labels.get(label) for label, item in LABELS.items() if label in event.labels}
    told["host"] = event.worker.rsplit(":", 2)[0]
    told["client"] = event.agent if SOURCE_LABEL in event.labels else ""
    return _texts(told.items())


def _texts(items: Iterable[tuple[Item, Any]]) -> Iterator[tuple[Item, str]]:
    for item, value in items:
        if isinstance(value, str) and value.strip():
            yield item, " ".join(value[:_LONGEST].split())


class _EnvironmentRow(msgspec.Struct):
    """A row of Claude Code and of formats that resemble it."""

    cwd: Any = None
    gitBranch: Any = None  # noqa: N815 - the format's own names
    version: Any = None


class _Git(msgspec.Struct):
    branch: Any = None


class _Payload(msgspec.Struct):
    cwd: Any = None
    cli_version: Any = None
    git: _Git | None = None


class _CodexRow(msgspec.Struct):
    payload: _Payload | None = None


class _Context(msgspec.Struct):
    cwd: Any = None
    branch: Any = None


class _Data(msgspec.Struct):
    context: _Context | None = None


class _Copilot(msgspec.Struct):
    data: _Data | None = None


class _At(msgspec.Struct):
    cwd: Any = None


class _RowInfo(msgspec.Struct):
    path: _At | None = None
    directory: Any = None
    version: Any = None


class _OpenCode(msgspec.Struct):
    info: _RowInfo | None = None


class _Environment(msgspec.Struct):
    cwd: Any = None


class _Config(msgspec.Struct):
    environment: _Environment | None = None


class _Mini(msgspec.Struct):
    config: _Config | None = None
    mini_version: Any = None


_FLAT, _CODEX, _COPILOT, _OPENCODE, _MINI = (
    msgspec.json.Decoder(_EnvironmentRow),
    msgspec.json.Decoder(_CodexRow),
    msgspec.json.Decoder(_Copilot),
    msgspec.json.Decoder(_OpenCode),
    msgspec.json.Decoder(_Mini),
)


def _flat(text: str) -> Row:
    row = _FLAT.decode(text)
    return {"cwd": row.cwd, "branch": row.gitBranch, "version": row.version}


def _codex(text: str) -> Row:
    told = _CODEX.decode(text).payload or _Payload()
    branch = told.git.branch if told.git else None
    return {"cwd": told.cwd, "version": told.cli_version, "branch": branch}


def _copilot(text: str) -> Row:
    data = _COPILOT.decode(text).data or _Data()
    context = data.context or _Context()
    return {"cwd": context.cwd, "branch": context.branch}


def _opencode(text: str) -> Row:
    info = _OPENCODE.decode(text).info or _RowInfo()
    return {"cwd": (info.path.cwd if info.path else None) or info.directory, "version": info.version}


def _mini(text: str) -> Row:
    row = _MINI.decode(text)
    where = row.config.environment if row.config else None
    return {"cwd": where.cwd if where else None, "version": row.mini_version}


_READERS: Mapping[str, Callable[[str], Row]] = MappingProxyType(
    {
        "claude_code": _flat,
        "qwen_code": _flat,
        "droid": _flat,
        "pi": _flat,
        "codex": _codex,
        "copilot_cli": _copilot,
        "opencode": _opencode,
        "mini_swe_agent": _mini,
    }
)
