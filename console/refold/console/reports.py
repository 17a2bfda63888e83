"""`refold report`: a run as one page that opens from disk, or each run of a store with an index over them."""

from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import addresses, places
from refold.console.options import Everything, Force, new_file, words
from refold.console.places import StorePlace, reads
from refold.console.report.builder import build
from refold.console.report.data import Report
from refold.console.report.page import NAME, Entry, index, page_name, pieces
from refold.console.screen import Screen, note, worst
from refold.console.selection import Trouble, all_runs
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import CannotJudge, Damaged, WorldFailed, WrongUse
from refold.replay import figures
from refold.replay.summary import Summary
from refold.store.files import check_free, written_beside
from refold.store.protocol import Store, UnknownRun

_MUCH = 100 * 1024 * 1024  # bytes from which browsers take many seconds to read a page
_FOLDER = Path("reports")


class WrittenPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, as JSON: `size` in bytes; `damaged` says why not all of the log could be followed."""

    run: str
    path: str
    size: int
    events: int
    damaged: str


class WrittenPages(msgspec.Struct, frozen=True, kw_only=True):
    """What was written of a store, as JSON; `unwritten` says of a run why it has no page."""

    index: str
    pages: list[WrittenPage]
    unwritten: dict[str, str]


@reads
async def report_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[
        list[str],
        words("RUN, RUN@e41 (up to an event), RUN@t7 (a turn) or @last; a prefix of an id will do."),
    ],
    *,
    file: Annotated[
        Path | None,
        new_file("The page's file; with --all a folder.", shows="the run's id, in this folder; reports/"),
    ] = None,
    everything: Everything = False,
    force: Force = False,
) -> int:
    """Write a run as one HTML page that opens from disk, without network: what happened, why, and what the model saw.

    With --all a page for each run and an index.html over them. Exit code 3 if a log is damaged, 125 if one cannot be judged, as one
    of a newer refold: the page says where.
    """
    if everything == bool(runs) or len(runs) > 1:
        raise WrongUse("expected one RUN, or --all; `refold ls` lists the runs")
    async with places.reading(place) as store:
        if everything:
            return await _all(screen, store, file or _FOLDER, force=force)
        if file is not None:
            check_free(file, force=force)  # before the log is read: that may take a while
        run, upto = await addresses.place_of(store, runs[0])
        report = await build(store, run, upto, installed_guards())
    told = _written(report, file or Path(page_name(run)), force=force)
    screen.result(told, lambda: screen.say(_said(told)))
    if told.size > _MUCH:
        note(
            f"browsers take long for so large a page; {run}@e{told.events // 4} is a report up to an earlier event"
        )
    return _code(report)


async def _all(screen: Screen, store: Store, folder: Path, *, force: bool) -> int:
    """A page for each run of the store, each as it is done, and then the index."""
    check_free(folder / NAME, force=force)
    _make(folder)
    sizes, damage = await all_runs(store)
    pages = {run: page_name(run) for run, _ in sizes}
    trouble, entries, told = (
        Trouble(),
        list[Entry](),
        WrittenPages(index=str(folder / NAME), pages=[], unwritten={}),
    )
    codes = [Damaged.exit_code] if damage is not None else []
    for run, name in pages.items():
        try:
            report = await build(store, run, None, installed_guards(), pages)
        except (CannotJudge, Damaged, UnknownRun) as error:
            trouble.add(run, error)
            told.unwritten[run] = str(error)
            entries.append(Entry(about=Summary(run=run), wrong=str(error)))
            continue
        one = _written(report, folder / name, force=force)
        if not screen.json:
            screen.say(_said(one))
        told.pages.append(one)
        codes.append(_code(report))
        entries.append(_entry(report, one.damaged, name))
    with written_beside(folder / NAME, force=force) as beside:
        beside.write_text(index(entries), encoding="utf-8")
    screen.result(told, lambda: screen.say(f"{told.index}: {figures.counted(len(entries), 'run')}"))
    if damage is not None:
        raise damage
    return worst([0, trouble.code, *codes])


def _entry(report: Report, wrong: str, file: str) -> Entry:
    told = report.figures
    return Entry(
        about=report.about, did=told.did, failed=told.failed, changes=told.changes, wrong=wrong, file=file
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorldFailed(f"{folder}: cannot be made: {error.strerror or error}") from error


def _written(report: Report, file: Path, *, force: bool) -> WrittenPage:
    size = 0
    # A reader of the old page sees one of the two while the new one is written.
    with written_beside(file, force=force) as beside, beside.open("wb") as made:
        for piece in pieces(report):
            size += made.write(piece.encode())
    checked = report.checked.problem
    wrong = f"event {checked.seq}: {checked.problem}" if checked else ""
    return WrittenPage(
        run=report.about.run,
        path=str(file),
        size=size,
        events=len(report.events),
        damaged=wrong or report.about.damaged,
    )


def _said(told: WrittenPage) -> str:
    said = (
        f"{told.path}: {figures.counted(told.events, 'event')} of run {told.run}, {figures.size(told.size)}"
    )
    return f"{said}; DAMAGED: {told.damaged}" if told.damaged else said


def _code(report: Report) -> int:
    damaged = report.about.damaged or report.checked.problem
    if report.checked.unjudged or (report.checked.unweighed and not damaged):
        return CannotJudge.exit_code
    return Damaged.exit_code if damaged else 0
