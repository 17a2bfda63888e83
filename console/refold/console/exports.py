"""`refold export` and `refold report`: runs as files of other formats, and as pages."""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum, unique
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from refold.console import addresses, descriptions, locations
from refold.console.addresses import Problems, all_runs, check_choice
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import Everything, Force, new_file, option, words
from refold.console.report.builder import build
from refold.console.report.data import Report
from refold.console.report.page import NAME, IndexEntry, index, page_name, pieces
from refold.console.screen import Screen, note, worst
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive, WrongUse
from refold.replay import figures
from refold.replay.exports.markdown import markdown
from refold.replay.exports.openai import openai_messages
from refold.replay.exports.otlp import otlp_spans
from refold.replay.exports.table import ParquetFile, Table, json_lines
from refold.replay.reader import Steps, stored_events
from refold.replay.summary import RunSummary
from refold.store.files import check_free, write_atomically
from refold.store.protocol import Store, UnknownRun


@unique
class ExportFormat(StrEnum):
    """The format of an export: JSON lines, a ticket, chat messages, OTLP/JSON spans, a table for SQL."""

    JSONL = "jsonl"
    MARKDOWN = "markdown"
    OPENAI = "openai"
    OTEL = "otel"
    PARQUET = "parquet"


_WITHOUT = frozenset({ExportFormat.JSONL, ExportFormat.OTEL, ExportFormat.PARQUET})


class WrittenExport(msgspec.Struct, frozen=True, kw_only=True):
    """A written file, as JSON: `size` in bytes."""

    path: str
    shape: str
    runs: int
    size: int


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The content and the format of an export."""

    to: Annotated[ExportFormat, option("--to", "The format.")] = ExportFormat.JSONL
    no_content: Annotated[
        bool, option("--no-content", "Leave out payloads (for jsonl, otel and parquet).")
    ] = False
    prompts: Annotated[
        bool, option("--prompts", "For otel: the full prompt of each request, not only its new messages.")
    ] = False


ExportRequest = Sequence[tuple[str, int | None]]


@without_event_loop
async def export_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN, RUN@e41, RUN@t7 (up to there) or @last; ids may be prefixes.")],
    choice: ExportOptions,
    *,
    file: Annotated[Path | None, new_file("The file to write.", shows="stdout")] = None,
    everything: Everything = False,
    force: Force = False,
) -> int:
    """Export runs as JSON lines, Markdown for a ticket, OpenAI messages, OpenTelemetry spans (OTLP/JSON) or
    Parquet.

    Example: refold export RUN --to markdown --out incident.md

    Exit code 3 for a damaged log: a ticket states where it breaks off, other formats are refused.
    """
    _check(choice, file)
    check_choice(runs, everything=everything)
    if file is not None:
        check_free(file, force=force)
    trouble = Problems()
    async with locations.reading(place) as store:
        wanted = await _read_request(store, runs)
        if file is None:
            await _write_stdout(screen, _pieces(store, wanted, choice, trouble), choice.to)
            return trouble.code
        size = await _write_file(file, store, wanted, choice, trouble, force=force)
    told = WrittenExport(path=str(file), shape=str(choice.to), runs=len(wanted), size=size)
    screen.result(
        told,
        lambda: screen.say(
            f"{told.path}: {told.shape} of {figures.quantity(told.runs, 'run')}, {figures.size(told.size)}"
        ),
    )
    return trouble.code


def _check(choice: ExportOptions, file: Path | None) -> None:
    # Checked before any log is read, which may take a while.
    if choice.to is ExportFormat.PARQUET and file is None:
        raise WrongUse("--to parquet is binary: name its file with --out FILE")
    if choice.no_content and choice.to not in _WITHOUT:
        raise WrongUse(f"--no-content is not possible with --to {choice.to}: expected jsonl, otel or parquet")
    if choice.prompts and (choice.to is not ExportFormat.OTEL or choice.no_content):
        raise WrongUse("--prompts needs --to otel, and cannot be combined with --no-content")


async def _read_request(store: Store, typed: Sequence[str]) -> ExportRequest:
    if typed:
        return list(dict.fromkeys([await addresses.place_of(store, each) for each in typed]))
    return [(run, None) async for chunk in store.runs() for run, head in chunk if head.seq]


async def _write_stdout(screen: Screen, pieces: AsyncIterator[str], shape: ExportFormat) -> None:
    """Write pieces of text to stdout. Invisible characters are escaped, in JSON with JSON's own escapes."""
    async for piece in pieces:
        screen.text(piece if shape is ExportFormat.MARKDOWN else descriptions.json_text(piece))


async def _write_file(
    file: Path, store: Store, wanted: ExportRequest, choice: ExportOptions, trouble: Problems, *, force: bool
) -> int:
    """Write the export to a temporary file, then replace `file` with it, so that readers never see a part.

    Return its size in bytes.
    """
    with write_atomically(file, force=force) as beside:
        with beside.open("wb") as opened:
            if choice.to is ExportFormat.PARQUET:
                await _table(opened, store, wanted, choice)
            else:
                async for piece in _pieces(store, wanted, choice, trouble):
                    opened.write(piece.encode())
        return beside.stat().st_size


async def _table(file: BinaryIO, store: Store, wanted: ExportRequest, choice: ExportOptions) -> None:
    with ParquetFile(file) as written:
        for run, upto in wanted:
            table = Table(content=not choice.no_content)
            async for step in Steps(stored_events(store, run, upto), folds=True):
                written.write(table.row(step))


async def _pieces(
    store: Store, wanted: ExportRequest, choice: ExportOptions, trouble: Problems
) -> AsyncIterator[str]:
    if choice.to is ExportFormat.OTEL:
        yield '{"resourceSpans":[\n'
    for place, (run, upto) in enumerate(wanted):
        if place and choice.to is ExportFormat.OTEL:
            yield ",\n"
        async for piece in await _export_run(store, run, upto, choice, trouble):
            yield piece
    if choice.to is ExportFormat.OTEL:
        yield "]}\n"


async def _export_run(
    store: Store, run: str, upto: int | None, choice: ExportOptions, trouble: Problems
) -> AsyncIterator[str]:
    match choice.to:
        case ExportFormat.MARKDOWN:
            about, pieces = await markdown(store, run, upto, descriptions.block, installed_guards())
            if about.damaged:
                trouble.add(run, Damaged(about.damaged))
            return pieces
        case ExportFormat.OPENAI:
            return openai_messages(store, run, upto)
        case ExportFormat.OTEL:
            return otlp_spans(store, run, upto, content=not choice.no_content, prompts=choice.prompts)
        case ExportFormat.JSONL:
            return json_lines(store, run, upto, content=not choice.no_content)
        case ExportFormat.PARQUET:
            raise AssertionError("a table is no text")


_MUCH = 100 * 1024 * 1024  # bytes: browsers take many seconds to load a larger page
_FOLDER = Path("reports")


class WrittenPage(msgspec.Struct, frozen=True, kw_only=True):
    """A written page, as JSON: `size` in bytes; `damaged`: why part of the log could not be followed."""

    run: str
    path: str
    size: int
    events: int
    damaged: str


class WrittenPages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of a store, as JSON; `unwritten`: runs without a page, with the reason."""

    index: str
    pages: list[WrittenPage]
    unwritten: dict[str, str]


@without_event_loop
async def report_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[
        list[str],
        words("RUN, RUN@e41 (up to an event), RUN@t7 (a turn) or @last; ids may be prefixes."),
    ],
    *,
    file: Annotated[
        Path | None,
        new_file("The page's file; with --all a folder.", shows="the run's id, in this folder; reports/"),
    ] = None,
    everything: Everything = False,
    force: Force = False,
) -> int:
    """Write a run as one HTML page that opens from disk, without network: what happened, why, and the
    prompts.

    With --all: a page for each run, and an index.html.

    Example: refold report @last --out page.html

    Exit code 3 if a log is damaged, 125 if one is inconclusive, for example of a newer refold: the page
    states where.
    """
    if everything == bool(runs) or len(runs) > 1:
        raise WrongUse("expected one RUN, or --all; `refold ls` lists the runs")
    async with locations.reading(place) as store:
        if everything:
            return await _write_all_pages(screen, store, file or _FOLDER, force=force)
        if file is not None:
            check_free(file, force=force)  # checked before the log is read, which may take a while
        run, upto = await addresses.place_of(store, runs[0])
        report = await build(store, run, upto, installed_guards())
    told = _write_page(report, file or Path(page_name(run)), force=force)
    screen.result(told, lambda: screen.say(_sentence(told)))
    if told.size > _MUCH:
        note(
            f"browsers load so large a page slowly; `refold report {run}@e{told.events // 4}` stops at an earlier event"
        )
    return _code(report)


async def _write_all_pages(screen: Screen, store: Store, folder: Path, *, force: bool) -> int:
    """Write a page for each run of the store, then the index."""
    check_free(folder / NAME, force=force)
    _make_folder(folder)
    sizes, damage = await all_runs(store)
    pages = {run: page_name(run) for run, _ in sizes}
    trouble, entries, told = (
        Problems(),
        list[IndexEntry](),
        WrittenPages(index=str(folder / NAME), pages=[], unwritten={}),
    )
    codes = [Damaged.exit_code] if damage is not None else []
    for run, name in pages.items():
        try:
            report = await build(store, run, None, installed_guards(), pages)
        except (Inconclusive, Damaged, UnknownRun) as error:
            trouble.add(run, error)
            told.unwritten[run] = str(error)
            entries.append(IndexEntry(about=RunSummary(run=run), wrong=str(error)))
            continue
        one = _write_page(report, folder / name, force=force)
        if not screen.json:
            screen.say(_sentence(one))
        told.pages.append(one)
        codes.append(_code(report))
        entries.append(_entry(report, one.damaged, name))
    with write_atomically(folder / NAME, force=force) as beside:
        beside.write_text(index(entries), encoding="utf-8")
    screen.result(told, lambda: screen.say(f"{told.index}: {figures.quantity(len(entries), 'run')}"))
    if damage is not None:
        raise damage
    return worst([0, trouble.code, *codes])


def _entry(report: Report, wrong: str, file: str) -> IndexEntry:
    told = report.figures
    return IndexEntry(
        about=report.about, did=told.did, failed=told.failed, changes=told.changes, wrong=wrong, file=file
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExternalFailure(f"{folder}: cannot be created: {error.strerror or error}") from error


def _write_page(report: Report, file: Path, *, force: bool) -> WrittenPage:
    size = 0
    # Written beside it and renamed: a reader sees the old page or the new one.
    with write_atomically(file, force=force) as beside, beside.open("wb") as made:
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


def _sentence(told: WrittenPage) -> str:
    said = (
        f"{told.path}: {figures.quantity(told.events, 'event')} of run {told.run}, {figures.size(told.size)}"
    )
    return f"{said}; DAMAGED: {told.damaged}" if told.damaged else said


def _code(report: Report) -> int:
    damaged = report.about.damaged or report.checked.problem
    if report.checked.unjudged or (report.checked.unweighed and not damaged):
        return Inconclusive.exit_code
    return Damaged.exit_code if damaged else 0
