"""Which files a person means who names files and folders."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from refold.console import places
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean


class FoundFile(msgspec.Struct, frozen=True):
    """A file. `name` is what it is called in reports: below the folder that was given, else as it was given.

    `walked`: it was found in a folder. `skipped`: why it is not even opened.
    """

    path: Path
    name: str
    walked: bool = False
    skipped: str = ""

    @property
    def sounds_like_one(self) -> bool:
        """Whether it must be a transcript by its name, if not by what is in it: a broken session is one that nobody has read."""
        return self.path.suffix in (".jsonl", ".eval") and self.path.stat().st_size > 0


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
        for name in sorted(files):
            path = Path(where, name)
            shown = _name(path.relative_to(folder).as_posix())
            yield FoundFile(path, shown, walked=True, skipped=_unwanted(path))


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
