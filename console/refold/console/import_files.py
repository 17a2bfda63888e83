"""Which files a person means who names files and folders."""

import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

import msgspec

from refold.console import places, steady
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean

_EVENT = re.compile(r"event-(\d{1,9})-[\w-]{1,80}\.json|(\d{1,9})\.json")
_EVENTS, _STATE = "events", "base_state.json"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""In JSON a line break stands between values only."""


class FoundFile(msgspec.Struct, frozen=True):
    """A file. `name` is what it is called in reports: below the folder that was given, else as it was given.

    `walked`: it was found in a folder. `skipped`: why it is not even opened. `parts`: it is a folder, and these files of it,
    in their order, are one transcript of a JSON value a line.
    """

    path: Path
    name: str
    walked: bool = False
    skipped: str = ""
    parts: tuple[Path, ...] = ()

    @property
    def sounds_like_one(self) -> bool:
        """Whether it must be a transcript by its name, if not by what is in it: a broken session is one that nobody has read."""
        return bool(self.parts) or (self.path.suffix in (".jsonl", ".eval") and self.path.stat().st_size > 0)

    @contextmanager
    def opened(self, upto: int | None = None) -> Generator[BinaryIO]:
        """Its bytes, at most `upto` of them. Raises `Unreadable` as `steady.opened` does."""
        if not self.parts:
            with steady.opened(self.path, self.name, upto) as file:
                yield file
            return
        with TemporaryFile() as joined:
            for part in self.parts:
                with steady.opened(part, self.name) as file:
                    joined.write(file.read().translate(_ONE_LINE) + b"\n")
            joined.truncate(joined.tell() if upto is None else min(upto, joined.tell()))
            joined.seek(0)
            yield cast("BinaryIO", joined)


def found_files(path: Path) -> Sequence[FoundFile]:
    """The file of a path, or those of a folder, sorted. Raises `WrongUse` for a path where nothing is."""
    place = places.expanded(path)
    if place.is_dir():
        return list(_walked(place))
    if not place.is_file():
        what = "is no file" if place.exists() else "does not exist"
        raise WrongUse(f"{clean(str(path))} {what}: name a transcript, or a folder of them")
    return [FoundFile(place, _name(str(path)))]


def _walked(folder: Path) -> Iterator[FoundFile]:
    for where, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        place, shown = Path(where), Path(where).relative_to(folder).as_posix()
        inner = place / _EVENTS if _EVENTS in folders and _STATE in files else None
        parts = _events(place, files)
        taken = {part.name for part in parts}
        if parts:
            state = place / _STATE if _STATE in files else place.parent / _STATE
            beside = (state,) if state.is_relative_to(folder) and _is_plain(state) else ()
            yield FoundFile(
                place, _name(folder.name if shown == "." else shown), walked=True, parts=(*parts, *beside)
            )
        for name in sorted(
            {*files} - taken - ({_STATE} if parts or (inner and _events(inner, os.listdir(inner))) else set())
        ):
            path = place / name
            yield FoundFile(
                path, _name(path.relative_to(folder).as_posix()), walked=True, skipped=_unwanted(path)
            )


def _events(folder: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """The files of a folder that hold an event of OpenHands each, in the order of their numbers."""
    matches = [
        match for match in map(_EVENT.fullmatch, names) if match and (match[1] or folder.name == _EVENTS)
    ]
    found = sorted((int(match[1] or match[2]), folder / match[0]) for match in matches)
    return tuple(path for _, path in found if _is_plain(path))


def _is_plain(path: Path) -> bool:
    return path.exists() and not _unwanted(path)


def _unwanted(path: Path) -> str:
    """Why a file that was not named is left alone. A link may lead out of the folder that was given."""
    if path.name.startswith("."):
        return "hidden"
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "a link: name it to follow it"
    return "" if stat.S_ISREG(mode) else "no regular file"


def _name(text: str) -> str:
    return clean(text)


def _refuse(error: OSError) -> None:
    raise error
