"""`refold import`: transcripts of other agents become runs of the store."""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import asdict

from refold.console import locations
from refold.console.addresses import is_path
from refold.console.conversations import Conversations
from refold.console.derived_files import (
    Derivable,
    DerivedFile,
    FileSummary,
    Refusal,
    conversation,
    open_format,
    refuse_file,
)
from refold.console.derivers import derivers, size_of
from refold.console.import_files import FileDone, find_files, tell_sum
from refold.console.import_reports import (
    WORST,
    ImportedRun,
    NotImported,
    ReadFile,
    report_file,
    report_refusal,
)
from refold.console.imported_conversation import ImportedConversation
from refold.console.imported_runs import Growth, ImportResult, add_derived, add_run
from refold.console.locations import StorePlace
from refold.console.opened_files import FoundFile, Unreadable
from refold.console.options import argument, option
from refold.console.processes import progress_of_files
from refold.console.screen import Screen, note
from refold.engine import clock
from refold.importers.registry import Candidate, importer
from refold.importers.source import Source
from refold.importers.transcript import EndOfRun, Transcript
from refold.reducers.errors import Damaged, WrongUse
from refold.reducers.text import clean
from refold.replay import figures
from refold.store.protocol import Store

ImportJobs = Annotated[
    int | None,
    option(
        "--jobs", "Number of processes that read files.", min=1, shows="one per core; one for little data"
    ),
]


_Into = tuple[Store, Conversations]


class _Waits(Exception):
    """A file is a subagent's, and the store does not know yet which call started it."""


async def import_command(
    screen: Screen,
    place: StorePlace,
    paths: Annotated[list[Path], argument("Files, or folders of them.", metavar="PATH...")],
    *,
    format: Annotated[  # noqa: A002
        str | None, option("--format", "The format of all files.", shows="detected from their content")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Read and count the files, but write nothing.")] = False,
    jobs: ImportJobs = None,
) -> int:
    """Import transcripts of other agents as runs. Runs that are already in the store are compared, not added
    again.

    Example: refold import ~/.claude/projects

    With -o json: one line per file, with its counts, its runs and its problems (`diagnostics`).

    Exit codes, the worst of all files: 1 if something could not be read, or a stored run differs from its
    file; 2 for a file of an unknown format, or a folder without transcripts; 3 if a file cannot be imported,
    or the stored run is damaged; 4 if a file is not readable.
    """
    if format is not None:
        importer(format)
    files = [(path, file) for path in paths for file in find_files(path)]
    if dry_run:
        done = await _import_all(screen, None, files, format, jobs)
    else:
        async with locations.writing(place) as store:
            done = await _import_all(screen, (store, Conversations(store)), files, format, jobs)
    if not screen.json:
        tell_sum(screen, place, [file for _, file in done])
    codes = [file.code for _, file in done]
    # A named folder without any import is an error, like a named file that is not imported.
    for path in _find_bare(paths, done):
        note(f"{clean(str(path))}: no transcript in this folder: name another folder, or a file")
        codes.append(WrongUse.exit_code)
    return max(codes, key=WORST.index)


class _Quiet(Screen):
    """A screen for imports on the way: it shows only which files cannot be imported."""

    def document(self, value: Any) -> None:
        """Show nothing."""

    def heading(self, text: str) -> None:
        """Show nothing."""

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Show nothing."""

    def result(self, value: Any, tell: Callable[[], None]) -> None:
        """Show a file that cannot be imported."""
        if isinstance(value, NotImported) and not value.skipped:
            tell()


def import_runs(place: StorePlace, typed: Sequence[str], jobs: int | None = None) -> tuple[list[str], int]:
    """Import the transcripts among RUN arguments; return all run ids, and the exit code of the import.

    Raises `WrongUse` for a path without a transcript.
    """
    import anyio

    found = {each: list(find_files(Path(each).expanduser())) for each in typed if is_path(each)}
    return anyio.run(_import_runs, place, typed, found, jobs)


async def _import_runs(
    place: StorePlace, typed: Sequence[str], found: Mapping[str, Sequence[FoundFile]], jobs: int | None
) -> tuple[list[str], int]:
    names: list[str] = []
    codes, added = [0], 0
    async with locations.writing(place) as store:
        into = store, Conversations(store)
        for each in typed:
            if each not in found:
                names.append(each)
                continue
            files = [(Path(each), file) for file in found[each]]
            done = [file for _, file in await _import_all(_Quiet(), into, files, None, jobs)]
            if not any(file.names for file in done):
                raise WrongUse(f"{each}: no transcript in it can be read")
            names += [name for file in done for name in file.names]
            added += sum(file.added or 0 for file in done)
            codes += [file.code for file in done]
    runs = list(dict.fromkeys(names))
    events = figures.quantity(added, "event")
    note(f"imported into {place.shown}: {figures.quantity(len(runs), 'run')}, {events} added")
    return runs, max(codes, key=WORST.index)


def _find_bare(paths: Sequence[Path], done: Sequence[tuple[Path, FileDone]]) -> list[Path]:
    full = {path for path, file in done if file.imported or file.code}
    return [path for path in paths if path not in full]


async def _import_all(
    screen: Screen,
    into: _Into | None,
    files: Sequence[tuple[Path, FoundFile]],
    named: str | None,
    jobs: int | None,
) -> list[tuple[Path, FileDone]]:
    """Import each file, subagents after the runs that started them: a run's parent is recorded in its
    first event.
    """
    found = [file for _, file in files]
    done: list[tuple[Path, FileDone]] = []
    waiting, before = list(range(len(files))), 0
    sizes = list(map(size_of, found))
    with (
        progress_of_files("importing", sizes) as step,
        derivers(found, named, jobs, kept=into is not None) as derived,
    ):
        while waiting:
            again, before, left = len(waiting) != before and into is not None, len(waiting), list[int]()
            for index in waiting:
                path, file = files[index]
                made = await derived.of(index)
                try:
                    done.append((path, await _import_file(screen, into, file, named, made, waits=again)))
                    step(sizes[index])
                except _Waits:
                    derived.hold(index, made)
                    left.append(index)
            waiting = left
    return done


async def _import_file(
    screen: Screen, into: _Into | None, file: FoundFile, named: str | None, made: Derivable, *, waits: bool
) -> FileDone:
    """Import a file. With `waits`, raises `_Waits` if its parent is not known yet."""
    if file.skipped:
        return report_refusal(screen, file.name, Refusal(problem=file.skipped, skipped=True))
    try:
        told = await _read_file(into, file, named, made, waits=waits)
    except (WrongUse, Damaged, Unreadable) as error:
        told = refuse_file(file, error)
    if isinstance(told, Refusal):
        return report_refusal(screen, file.name, told)
    return report_file(screen, file.name, told)


async def _read_file(
    into: _Into | None, file: FoundFile, named: str | None, made: Derivable, *, waits: bool
) -> ReadFile | Refusal:
    """Import a file as it was derived, or derive it here, from the first run that the store knows."""
    if isinstance(made, Refusal):
        return made
    runs: list[ImportedRun] = []
    if isinstance(made, DerivedFile):
        runs = await _add_derived(into, made, waits=waits)
        if len(runs) == len(made.runs):
            return ReadFile(made.summary, runs)
    with file.open() as opened:
        size = opened.seek(0, os.SEEK_END)
        source = Source.opened(file.name, opened)
        found = open_format(source, named)
        return await _import_source(
            into, source, found, partial(_reopen, file, size), runs, sure=named is not None, waits=waits
        )


async def _add_derived(into: _Into | None, made: DerivedFile, *, waits: bool) -> list[ImportedRun]:
    """Append the runs of a file up to the first one that the store knows."""
    runs: list[ImportedRun] = []
    for each in made.runs:
        done: ImportResult | None = ImportResult()
        if into is not None:
            if waits and not runs:
                await _wait_for_parent(*into, each.conversation)
            done = await add_derived(*into, each)
        if done is None:
            break
        runs.append(_describe_run(each.ended, done))
    return runs


@contextmanager
def _reopen(file: FoundFile, size: int) -> Generator[Source]:
    with file.open(size) as opened:
        yield Source.opened(file.name, opened)


async def _import_source(
    into: _Into | None,
    source: Source,
    found: Candidate,
    reopened: Callable[[], AbstractContextManager[Source]],
    known: Sequence[ImportedRun],
    *,
    sure: bool,
    waits: bool,
) -> ReadFile:
    """Import a file, of which the `known` runs were just appended."""
    growth = Growth(*into, found, reopened) if into else None
    reading = Transcript(source, importer(found.format), None if sure else found)
    runs: list[ImportedRun] = []
    for run in reading.runs():
        done = ImportResult()
        if into is None or growth is None or len(runs) < len(known):
            for _ in run.derive(clock.new_salts(0)):
                pass
        else:
            if waits and not runs:
                await _wait_for_parent(*into, conversation(run))
            done = await add_run(*into, run, growth)
        runs.append(known[len(runs)] if len(runs) < len(known) else _describe_run(run.ended, done))
    return ReadFile(FileSummary.of(reading, found.why), runs)


def _describe_run(ended: EndOfRun, done: ImportResult) -> ImportedRun:
    return ImportedRun(
        key=ended.key,
        end=ended.end,
        state=ended.state,
        **asdict(done),
        run=ended.run,
        events=ended.events,
        uncounted=ended.uncounted,
    )


async def _wait_for_parent(store: Store, known: Conversations, told: ImportedConversation) -> None:
    new = told.apart is not None and not (await store.head(told.run)).seq
    if new and await known.parent_of(told) is None:
        raise _Waits
