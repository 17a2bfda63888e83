"""The files of an import in folders, and its totals."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from refold.console import locations
from refold.console.locations import StorePlace
from refold.console.opened_files import FoundFile
from refold.console.screen import Screen, note
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean
from refold.replay import figures

_NAMED = 5  # files with unread places in the totals


class FileDone(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was processed. `code`: its exit code; `added`: events that were written, None for a dry
    run.

    `first`: its first run that was written, or "".
    """

    name: str
    code: int
    imported: bool = False
    runs: int = 0
    events: int = 0
    added: int | None = None
    unread: int = 0
    first: str = ""
    names: tuple[str, ...] = ()


def tell_sum(screen: Screen, place: StorePlace, files: Sequence[FileDone]) -> None:
    """Print the totals if there are several files, and the next command."""
    if len(files) > 1:
        screen.heading(_sum(files))
    runs = sum(file.runs for file in files if file.first)
    first = next((file.first for file in files if file.first), "")
    if first:
        note(f"next    refold {f'show {first}' if runs == 1 else 'ls'}{place.option}")


def more(shown: int, count: int) -> Iterable[str]:
    """Return a line with the number of entries that were left out, or nothing."""
    return [f"and {figures.count(count - shown)} more"] if count > shown else []


def _sum(files: Sequence[FileDone]) -> str:
    read = [file for file in files if file.imported]
    refused = sum(not file.imported and bool(file.code) for file in files)
    parts = _count_read(read)
    if skipped := len(files) - len(read) - refused:
        parts.append(f"{figures.count(skipped)} skipped")
    if refused:
        parts.append(f"{figures.count(refused)} not imported")
    if odd := [file.name for file in read if file.unread]:
        named = ", ".join([*odd[:_NAMED], *more(_NAMED, len(odd))])
        parts.append(f"{figures.quantity(len(odd), 'file')} not fully read: {named}")
    return "; ".join(parts)


def _count_read(read: Sequence[FileDone]) -> list[str]:
    runs, events = sum(file.runs for file in read), sum(file.events for file in read)
    added = [file.added for file in read if file.added is not None]
    parts = [
        f"{figures.quantity(len(read), 'file')}, {figures.quantity(runs, 'run')}, {figures.quantity(events, 'event')}"
    ]
    if added and sum(added) < events:
        parts.append(f"{figures.count(sum(added))} of them new")
    return parts


_EVENT = re.compile(r"event-(\d{1,9})-[\w-]{1,80}\.json|(\d{1,9})\.json")
_ADDRESS = re.compile("postgres(ql)?:", re.IGNORECASE)
_EVENTS, _STATE = "events", "base_state.json"


def find_files(path: Path) -> Sequence[FoundFile]:
    """Return the file at a path, or the files of a folder, sorted. Raises `WrongUse` for an invalid path."""
    place = locations.expand_home(path)
    if place.is_dir():
        return list(_walk(place))
    if not place.is_file():
        if _ADDRESS.match(str(path)):  # it may have a password
            raise WrongUse("import reads files and folders, not stores; the store to import into is --store")
        what = "is not a file" if place.exists() else "does not exist"
        raise WrongUse(f"{clean(str(path))} {what}: name a transcript, or a folder of them")
    return [FoundFile(place, clean(str(path)))]


def _walk(folder: Path) -> Iterator[FoundFile]:
    for where, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        place = Path(where)
        parts = _events(place, files)
        taken = {part.name for part in parts}
        if parts:
            yield _join(folder, place, files, parts)
        if parts or (_STATE in files and _EVENTS in folders and _has_events(place / _EVENTS)):
            taken.add(_STATE)
        for name in sorted({*files} - taken):
            path = place / name
            yield FoundFile(
                path, clean(path.relative_to(folder).as_posix()), walked=True, skipped=_reason_to_skip(path)
            )


def _join(folder: Path, place: Path, files: Sequence[str], parts: Sequence[Path]) -> FoundFile:
    """Return the transcript whose events are files of `place`, with the state file beside them."""
    shown = place.relative_to(folder).as_posix()
    state = place / _STATE if _STATE in files else place.parent / _STATE
    beside = (state,) if state.is_relative_to(folder) and _is_plain(state) else ()
    name = clean(folder.name if shown == "." else shown)
    return FoundFile(place, name, walked=True, parts=(*parts, *beside))


def _has_events(folder: Path) -> bool:
    return bool(_events(folder, os.listdir(folder)))


def _events(folder: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of a folder that hold an OpenHands event each, in the order of their numbers."""
    matches = [
        match for match in map(_EVENT.fullmatch, names) if match and (match[1] or folder.name == _EVENTS)
    ]
    found = sorted((int(match[1] or match[2]), folder / match[0]) for match in matches)
    return tuple(path for _, path in found if _is_plain(path))


def _is_plain(path: Path) -> bool:
    return path.exists() and not _reason_to_skip(path)


def _reason_to_skip(path: Path) -> str:
    """Return why a file found in a folder is skipped, or "". A link may lead out of the folder."""
    if path.name.startswith("."):
        return "hidden"
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "a link: name it to follow it"
    return "" if stat.S_ISREG(mode) else "not a regular file"


def _refuse(error: OSError) -> None:
    raise error
