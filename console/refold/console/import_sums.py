"""What an import says at its end: of many files, how much there was and what was odd; and what to type next."""

from collections.abc import Iterable, Sequence

import msgspec

from refold.console.places import StorePlace
from refold.console.screen import Screen, note
from refold.replay import figures

_NAMED = 5  # files with something unread


class FileDone(msgspec.Struct, frozen=True, kw_only=True):
    """A file that an import is done with. `code`: its exit code; `added`: events that were written, None: none were to be.
    `first`: its first run, "" where none was written.
    """

    name: str
    code: int
    imported: bool = False
    runs: int = 0
    events: int = 0
    added: int | None = None
    unread: int = 0
    first: str = ""


def tell_sum(screen: Screen, place: StorePlace, files: Sequence[FileDone]) -> None:
    """Say in text what was imported of all the files, if they are several, and name the next command."""
    if len(files) > 1:
        screen.heading(_sum(files))
    runs = sum(file.runs for file in files if file.first)
    first = next((file.first for file in files if file.first), "")
    if first:
        note(f"next    refold {f'show {first}' if runs == 1 else 'ls'}{place.option}")


def more(shown: int, count: int) -> Iterable[str]:
    """How many of `count` are left when so many were shown; nothing for none."""
    return [f"and {figures.count(count - shown)} more"] if count > shown else []


def _sum(files: Sequence[FileDone]) -> str:
    read = [file for file in files if file.imported]
    runs, events = sum(file.runs for file in read), sum(file.events for file in read)
    added = [file.added for file in read if file.added is not None]
    parts = [
        f"{figures.counted(len(read), 'file')}, {figures.counted(runs, 'run')}, {figures.counted(events, 'event')}"
    ]
    if added and sum(added) < events:
        parts.append(f"{figures.count(sum(added))} of them new")
    if skipped := sum(not file.imported and not file.code for file in files):
        parts.append(f"{figures.count(skipped)} skipped")
    if refused := sum(not file.imported and bool(file.code) for file in files):
        parts.append(f"{figures.count(refused)} not imported")
    if odd := [file.name for file in read if file.unread]:
        named = ", ".join([*odd[:_NAMED], *more(_NAMED, len(odd))])
        parts.append(f"{figures.counted(len(odd), 'file')} with something unread: {named}")
    return "; ".join(parts)
