"""What `refold import` prints for each file."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from refold.console.derived_files import FileSummary, Refusal
from refold.console.import_files import FileDone, more
from refold.console.imported_logs import sentence
from refold.console.imported_runs import ImportResult
from refold.console.screen import Screen, note
from refold.importers.derivation.log import ImportProblem
from refold.importers.survey import Counts
from refold.reducers.errors import Damaged, ExternalFailure, WrongUse
from refold.replay import figures

_SHOWN = 5  # problems of a file that are printed as text
WORST = (0, 1, WrongUse.exit_code, Damaged.exit_code, ExternalFailure.exit_code)
"""Exit codes from good to bad."""


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


class ReadFile(msgspec.Struct, frozen=True):
    """An imported file."""

    summary: FileSummary
    runs: Sequence[ImportedRun]


def report_file(screen: Screen, name: str, told: ReadFile) -> FileDone:
    """Print an imported file, and return its totals."""
    if screen.json:
        screen.document(_document(name, told))
    else:
        _tell(screen, name, told)
    return _summarise(name, told)


def report_refusal(screen: Screen, name: str, refusal: Refusal) -> FileDone:
    """Print a file that was not imported, and return its totals."""
    said = NotImported(
        file=name,
        problem=refusal.problem.removeprefix(f"{name}: ").removeprefix(f"{name} "),
        skipped=refusal.skipped,
    )
    what = "skipped" if refusal.skipped else "not imported"
    screen.result(said, lambda: note(f"{name}: {what}: {said.problem}"))
    return FileDone(name=name, code=refusal.code)


def _summarise(name: str, told: ReadFile) -> FileDone:
    unread = told.summary.unread
    return FileDone(
        name=name,
        code=max([1 if unread else 0, *(run.code for run in told.runs)], key=WORST.index),
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


def _document(name: str, told: ReadFile) -> dict[str, Any]:
    reading = told.summary
    head = {"file": name, "format": reading.format, "sha256": reading.sha256, "bytes": reading.bytes}
    counts: dict[str, Any] = msgspec.to_builtins(reading.counts)
    return {
        **head,
        **counts,
        "imported": told.runs,
        "diagnostics": Diagnostics(count=reading.odd, unread=reading.unread, first=reading.problems),
    }


def _tell(screen: Screen, name: str, told: ReadFile) -> None:
    reading, counts = told.summary, told.summary.counts
    screen.heading(f"{name}: {reading.format} ({reading.why})")
    rows: list[tuple[str, str]] = [
        ("  runs", f"{figures.count(counts.runs)}, {counts.end}"),
        ("  messages", _messages(counts)),
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


def _messages(counts: Counts) -> str:
    more = f" and {figures.count(counts.beside)} beside them" if counts.beside else ""
    return f"{counts.messages}{more}, calls {counts.tool_calls}, failed {figures.at_least(str(counts.tool_errors), counts.unmarked)}"


def _tokens(told: ReadFile) -> str:
    counts, unknown = told.summary.counts, sum(run.uncounted for run in told.runs)
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
