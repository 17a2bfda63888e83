"""`refold import`: transcripts of other agents become runs of the store."""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from refold.console import import_files, locations
from refold.console.addresses import is_path
from refold.console.conversations import Conversations
from refold.console.import_files import FileDone, FoundFile, find_files, more, tell_sum
from refold.console.imported_logs import sentence
from refold.console.imported_runs import Growth, ImportResult, add_run, conversation
from refold.console.locations import StorePlace
from refold.console.options import argument, option
from refold.console.screen import Screen, note
from refold.engine import clock
from refold.importers.derivation.log import ImportProblem
from refold.importers.registry import Candidate, UnknownFormat, detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import MOST_PROBLEMS, Transcript, TranscriptRun
from refold.reducers.errors import Damaged, ExternalFailure, WrongUse
from refold.reducers.text import clean
from refold.replay import figures
from refold.store.protocol import Store

_SHOWN = 5  # problems of a file that are printed as text
_WORST = (0, 1, WrongUse.exit_code, Damaged.exit_code, ExternalFailure.exit_code)  # from good to bad


_Into = tuple[Store, Conversations]


class _Waits(Exception):
    """A file is a subagent's, and the store does not know yet which call started it."""


class ImportedRun(ImportResult, frozen=True, kw_only=True):
    """A run of a file. `end`: how it ended by its source; `state`: the derived state; `added` None: dry run.

    `uncounted`: responses without a complete token count.
    """

    run: str
    key: str
    end: str
    state: str
    events: int
    uncounted: int

    @property
    def code(self) -> int:
        """Its exit code: 3 for a damaged log, 1 if the stored run differs from the file."""
        return Damaged.exit_code if self.damaged else 1 if self.differs else 0


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """Odd places in a file: how many, how many could not be read, and the first of them."""

    count: int = 0
    unread: int = 0
    first: tuple[ImportProblem, ...] = ()


class NotImported(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not imported, as JSON. `skipped`: it was found in a folder and is no transcript."""

    file: str
    problem: str
    skipped: bool = False


class _ReadFile(msgspec.Struct, frozen=True):
    """An imported file."""

    reading: Transcript
    why: str
    runs: Sequence[ImportedRun]


async def import_command(
    screen: Screen,
    place: StorePlace,
    paths: Annotated[list[Path], argument("Files, or folders of them.", metavar="PATH...")],
    *,
    format: Annotated[  # noqa: A002
        str | None, option("--format", "The format of all files.", shows="detected from their content")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Read and count the files, but write nothing.")] = False,
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
        done = [(path, await _import_file(screen, None, file, format)) for path, file in files]
    else:
        async with locations.writing(place) as store:
            into = store, Conversations(store)
            done = await _import_all(screen, into, files, format)
    if not screen.json:
        tell_sum(screen, place, [file for _, file in done])
    codes = [file.code for _, file in done]
    # A named folder without any import is an error, like a named file that is not imported.
    for path in _find_bare(paths, done):
        note(f"{clean(str(path))}: no transcript in this folder: name another folder, or a file")
        codes.append(WrongUse.exit_code)
    return max(codes, key=_WORST.index)


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


def import_runs(place: StorePlace, typed: Sequence[str]) -> tuple[list[str], int]:
    """Import the transcripts among RUN arguments; return all run ids, and the exit code of the import.

    Raises `WrongUse` for a path without a transcript.
    """
    import anyio

    found = {each: list(find_files(Path(each).expanduser())) for each in typed if is_path(each)}
    return anyio.run(_import_runs, place, typed, found)


async def _import_runs(
    place: StorePlace, typed: Sequence[str], found: Mapping[str, Sequence[FoundFile]]
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
            done = [file for _, file in await _import_all(_Quiet(), into, files, None)]
            if not any(file.names for file in done):
                raise WrongUse(f"{each}: no transcript in it can be read")
            names += [name for file in done for name in file.names]
            added += sum(file.added or 0 for file in done)
            codes += [file.code for file in done]
    runs = list(dict.fromkeys(names))
    events = figures.quantity(added, "event")
    note(f"imported into {place.path}: {figures.quantity(len(runs), 'run')}, {events} added")
    return runs, max(codes, key=_WORST.index)


def _find_bare(paths: Sequence[Path], done: Sequence[tuple[Path, FileDone]]) -> list[Path]:
    full = {path for path, file in done if file.imported or file.code}
    return [path for path in paths if path not in full]


async def _import_all(
    screen: Screen, into: _Into, files: Sequence[tuple[Path, FoundFile]], named: str | None
) -> list[tuple[Path, FileDone]]:
    """Import each file, subagents after the runs that started them: a run's parent is recorded in its
    first event.
    """
    done: list[tuple[Path, FileDone]] = []
    waiting, before = files, 0
    while waiting:
        again, before, left = len(waiting) != before, len(waiting), list[tuple[Path, FoundFile]]()
        for path, file in waiting:
            try:
                done.append((path, await _import_file(screen, into, file, named, waits=again)))
            except _Waits:
                left.append((path, file))
        waiting = left
    return done


async def _import_file(
    screen: Screen, into: _Into | None, file: FoundFile, named: str | None, *, waits: bool = False
) -> FileDone:
    """Import a file. With `waits`, raises `_Waits` if its parent is not known yet."""
    if file.skipped:
        return _report_skip(screen, file.name, file.skipped, skipped=True)
    try:
        with file.open() as opened:
            size = opened.seek(0, os.SEEK_END)
            source = Source.opened(file.name, opened)
            found = detect_format(source) if named is None else Candidate(named, 100, "as given")
            told = await _import_source(
                into, source, found, partial(_reopen, file, size), sure=named is not None, waits=waits
            )
    except UnknownFormat as error:
        if _is_no_transcript(file, error):
            return _report_skip(screen, file.name, str(error.known or "no transcript"), skipped=True)
        return _report_skip(screen, file.name, str(error), error.exit_code)
    except (WrongUse, Damaged, import_files.Unreadable) as error:
        return _report_skip(screen, file.name, str(error), error.exit_code)
    if screen.json:
        screen.document(_document(file.name, told))
    else:
        _tell(screen, file.name, told)
    return _summarise(file.name, told)


def _is_no_transcript(file: FoundFile, error: UnknownFormat) -> bool:
    return file.walked and not (error.candidates or file.looks_like_transcript or error.packed)


def _summarise(name: str, told: _ReadFile) -> FileDone:
    unread = told.reading.unread
    return FileDone(
        name=name,
        code=max([1 if unread else 0, *(run.code for run in told.runs)], key=_WORST.index),
        imported=True,
        runs=len(told.runs),
        events=sum(run.events for run in told.runs),
        added=sum(run.added for run in told.runs if run.added is not None)
        if any(run.added is not None for run in told.runs)
        else None,
        unread=unread,
        first=next((run.run for run in told.runs if run.added is not None), ""),
        names=tuple(run.run for run in told.runs),
    )


@contextmanager
def _reopen(file: FoundFile, size: int) -> Generator[Source]:
    with file.open(size) as opened:
        yield Source.opened(file.name, opened)


async def _import_source(
    into: _Into | None,
    source: Source,
    found: Candidate,
    reopened: Callable[[], AbstractContextManager[Source]],
    *,
    sure: bool,
    waits: bool,
) -> _ReadFile:
    growth = Growth(*into, found, reopened) if into else None
    reading = Transcript(source, importer(found.format), None if sure else found)
    runs: list[ImportedRun] = []
    for run in reading.runs():
        done = ImportResult()
        if into is None or growth is None:
            for _ in run.derive(clock.new_salts(0)):
                pass
        else:
            if waits and not runs:
                await _wait_for_parent(*into, run)
            done = await add_run(*into, run, growth)
        ended = run.ended
        runs.append(
            ImportedRun(
                key=ended.key,
                end=ended.end,
                state=ended.state,
                **asdict(done),
                run=ended.run,
                events=ended.events,
                uncounted=ended.uncounted,
            )
        )
    return _ReadFile(reading, found.why, runs)


async def _wait_for_parent(store: Store, known: Conversations, run: TranscriptRun) -> None:
    new = run.apart is not None and not (await store.head(run.run)).seq
    if new and await known.parent_of(conversation(run)) is None:
        raise _Waits


def _document(name: str, told: _ReadFile) -> dict[str, Any]:
    reading = told.reading
    first = tuple(reading.problems[:MOST_PROBLEMS])
    head = {"file": name, "format": reading.format, "sha256": reading.sha256, "bytes": reading.bytes}
    counts: dict[str, Any] = msgspec.to_builtins(reading.counts())
    return {
        **head,
        **counts,
        "imported": told.runs,
        "diagnostics": Diagnostics(count=reading.odd, unread=reading.unread, first=first),
    }


def _report_skip(
    screen: Screen, name: str, problem: str, code: int = 0, *, skipped: bool = False
) -> FileDone:
    said = NotImported(
        file=name, problem=problem.removeprefix(f"{name}: ").removeprefix(f"{name} "), skipped=skipped
    )
    what = "skipped" if skipped else "not imported"
    screen.result(said, lambda: note(f"{name}: {what}: {said.problem}"))
    return FileDone(name=name, code=code)


def _tell(screen: Screen, name: str, told: _ReadFile) -> None:
    reading, counts = told.reading, told.reading.counts()
    screen.heading(f"{name}: {reading.format} ({told.why})")
    rows: list[tuple[str, str]] = [
        ("  runs", f"{figures.count(counts.runs)}, {counts.end}"),
        ("  messages", _messages(reading)),
        ("  tokens", _tokens(told)),
    ]
    for place_, run in enumerate(told.runs):
        state = f"{run.end}, derived {run.state}"
        rows.append(("  imported" if not place_ else "", f"{run.run}  {_describe_result(run)}; {state}"))
        rows += [
            ("", f"  {said}")
            for said in (*_comparison_lines(run), *_parent_line(run), *map(sentence, run.related))
        ]
    if reading.odd:
        unread = f", {figures.count(reading.unread)} of them not read" if reading.unread else ""
        rows.append(("  odd", f"{figures.quantity(reading.odd, 'place')}{unread}"))
        for problem in reading.problems[:_SHOWN]:
            where = f"{problem.position}: " if problem.position else ""
            rows.append(("", f"{where}{problem.problem} ({problem.code})"))
        rows += [("", left) for left in more(_SHOWN, reading.odd)]
    screen.pairs(rows)


def _messages(reading: Transcript) -> str:
    counts = reading.counts()
    more = f" and {figures.count(counts.beside)} beside them" if counts.beside else ""
    return f"{counts.messages}{more}, calls {counts.tool_calls}, failed {figures.at_least(str(counts.tool_errors), counts.unmarked)}"


def _tokens(told: _ReadFile) -> str:
    counts, unknown = told.reading.counts(), sum(run.uncounted for run in told.runs)
    sent, got = (figures.at_least(str(each), unknown) for each in (counts.input_tokens, counts.output_tokens))
    return f"{sent} in, {got} out"


def _describe_result(run: ImportedRun) -> str:
    if run.added is None:
        return f"{figures.quantity(run.events, 'event')}, not written"
    if run.whole and run.differs:
        return f"already imported, and DIFFERS from the file from e{run.differs}"
    if run.whole and run.damaged:
        return "already imported, and its log was edited after the events of this file"
    if run.whole:
        return f"{figures.quantity(run.events, 'event')}, already imported, {_describe_equality(run)}: nothing added"
    return f"{figures.quantity(run.events, 'event')}, {figures.count(run.added)} added"


def _describe_equality(run: ImportedRun) -> str:
    if not run.erased:
        return "equal"
    shown = ", ".join(f"e{seq}" for seq in run.erased[:_SHOWN])
    return f"equal except erased payloads at {', '.join([shown, *more(_SHOWN, len(run.erased))])}"


def _parent_line(run: ImportedRun) -> Iterable[str]:
    if run.parent is not None:
        yield f"started by call {run.parent.call} of {run.parent.run}"


def _comparison_lines(run: ImportedRun) -> Iterable[str]:
    if run.damaged:
        yield f"the log was edited: {run.damaged}"
    elif run.differs:
        yield "its chain is intact: another version of refold derived it differently, or it was rewritten (only a signed checkpoint can show which)"
