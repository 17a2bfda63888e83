"""Results by client and script: as JSON, as a table for the terminal, and as tables of the documentation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from clients.comparison import CHECKS
from clients.limits import Cell, Limit

FILE = Path(__file__).with_name("results.json")
"""The results that the page shows."""


class ScriptResult(msgspec.Struct, frozen=True, kw_only=True):
    """A script that a client played: a cell for each property. `problem`: why there is no comparison."""

    cells: dict[str, Cell] = {}
    problem: str = ""

    @property
    def fine(self) -> bool:
        """Whether all is as expected."""
        return not self.problem and not any(cell.differs or cell.vanished for cell in self.cells.values())


class ClientResult(msgspec.Struct, frozen=True, kw_only=True):
    """A client and the scripts that it played. `not_here`: why it could not run, which is not a pass.

    `skipped`: scripts that it cannot play, with the reasons.
    """

    package: str
    version: str
    format: str
    scripts: dict[str, ScriptResult] = {}
    skipped: dict[str, str] = {}
    not_here: str = ""

    @property
    def fine(self) -> bool:
        """Whether it was run, and all is as expected."""
        return not self.not_here and all(result.fine for result in self.scripts.values())


Results = dict[str, ClientResult]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "transcripts.md"
HEADING = "## Checked against the real clients\n"


def read_results(file: Path = FILE) -> Results:
    """The results in a file."""
    return msgspec.json.decode(file.read_bytes(), type=Results)


def write_results(results: Results, file: Path) -> None:
    """Write results to a file, in an order that does not change."""
    data = msgspec.json.encode(results, order="sorted")
    file.write_bytes(msgspec.json.format(data, indent=1) + b"\n")


def record(results: Results, limits: Sequence[Limit]) -> None:
    """Store results in `FILE`, keep those of other clients and scripts, and update the page."""
    kept = read_results() if FILE.exists() else {}
    for name, result in results.items():
        old = kept.get(name)
        same = old is not None and old.version == result.version and not result.not_here
        scripts = {**(old.scripts if old and same else {}), **result.scripts}
        kept[name] = msgspec.structs.replace(result, scripts=scripts)
    write_results(kept, FILE)
    before, heading, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    prose = section.partition("\n| format")[0]
    PAGE.write_text(f"{before}{heading}{prose}\n{document_tables(kept, limits)}\n", encoding="utf-8")


def terminal_table(results: Results) -> str:
    """A row for each client and script, a column for each property, then a line for each difference."""
    head = ("client", "script", *CHECKS)
    rows: list[Sequence[str]] = [head]
    for name, result in results.items():
        if result.not_here:
            rows.append((name, "not run here", *("?" for _ in CHECKS)))
        for script, played in result.scripts.items():
            words = [played.cells[each].word if each in played.cells else "?" for each in CHECKS]
            rows.append((name, script, *words))
        rows += [(name, script, *("." for _ in CHECKS)) for script in result.skipped]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in [*lines, "", *differences(results)])


def differences(results: Results) -> Iterator[str]:
    """Unexpected and vanished differences, and clients that could not run, a line each."""
    for name, result in results.items():
        if result.not_here:
            yield f"{name}: not run here: {result.not_here}"
        for script, played in result.scripts.items():
            if played.problem:
                yield f"{name} {script}: nothing compared: {played.problem}"
            for each, cell in played.cells.items():
                yield from (f"{name} {script} {each}: {line}" for line in cell.differs)
                yield from (f"{name} {script} {each}: vanished: {line}" for line in cell.vanished)


def document_tables(results: Results, limits: Sequence[Limit]) -> str:
    """The tables of the page: equal and compared places by format, the limits, and other differences."""
    head = ("format", "client", "scripts", *CHECKS)
    rows: list[Sequence[str]] = [head, ("---", "---", *("--:" for _ in range(len(head) - 2)))]
    for result in sorted(results.values(), key=lambda each: each.format):
        rows.append((f"`{result.format}`", f"{result.package} {result.version}", *_counts(result)))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n\n".join([table, *_reasons(results, limits), *_unexplained(results)])


def _counts(result: ClientResult) -> list[str]:
    if result.not_here:
        return ["not run", *("?" for _ in CHECKS)]
    counts = [str(len(result.scripts))]
    for each in CHECKS:
        cells = [played.cells[each] for played in result.scripts.values() if each in played.cells]
        compared = sum(cell.compared for cell in cells)
        counts.append(f"{sum(cell.equal for cell in cells)}/{compared}" if compared else "-")
    return counts


def _reasons(results: Results, limits: Sequence[Limit]) -> list[str]:
    """The limits: each reason once, by format, with its properties."""
    found: dict[tuple[str, str], list[str]] = {}
    for limit in limits:
        if limit.client in results and not results[limit.client].not_here:
            named = found.setdefault((results[limit.client].format, limit.reason), [])
            named += [] if limit.property in named else [limit.property]
    lines = [f"- `{name}` ({', '.join(named)}): {reason}" for (name, reason), named in sorted(found.items())]
    return ["Limits of the formats, with the columns that they affect:", "\n".join(lines)] if lines else []


def _unexplained(results: Mapping[str, ClientResult]) -> list[str]:
    """Other differences: a line for each format, with properties and scripts."""
    found: dict[str, dict[str, list[str]]] = {}
    for result in results.values():
        for script, played in result.scripts.items():
            for each in [name for name in CHECKS if name in played.cells]:
                if played.cells[each].differs or played.cells[each].vanished:
                    found.setdefault(result.format, {}).setdefault(each, []).append(script)
    lines = [
        f"- `{name}`: "
        + ", ".join(f"`{each}` ({', '.join(scripts)})" for each, scripts in properties.items())
        for name, properties in sorted(found.items())
    ]
    return ["Other differences, by column and script:", "\n".join(lines)] if lines else []
