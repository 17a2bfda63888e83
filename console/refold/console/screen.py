"""Output of commands: results on stdout, diagnostics on stderr; as text, or as JSON.

Every text is escaped first, so that it cannot control the terminal. No text is parsed as markup.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum, unique
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from rich.cells import cell_len, set_cell_size

from refold.console import descriptions
from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive

if TYPE_CHECKING:
    from rich.console import Console


_NARROWEST = 8  # cells: a shorter excerpt is useless
_LEGIBLE = 20  # cells: the least for an excerpt of several commands
_ASKED_FOR = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})
"""Environment variables that make a stream without a terminal count as one."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


@unique
class OutputFormat(StrEnum):
    """The format of results."""

    TEXT = "text"
    JSON = "json"


class OutputClosed(ExternalFailure):
    """Writing the output failed: the pipe is closed, or the disk is full."""

    def __init__(self, problem: str, *, quiet: bool) -> None:
        super().__init__(problem)
        self.problem, self.quiet = problem, quiet

    def __str__(self) -> str:
        return f"stdout: {self.problem}"


Facts = Mapping[str, str | list[str] | tuple[str, ...] | None]
"""Values by name."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table. An `elastic` one may be cut to the terminal's width: at its end, or in the
    `middle`.

    At most one column is the main one, and `main` is its minimal percentage of the width. Other columns are
    cut first; then those with an `optional` number are left out, the highest number first.
    """

    title: str
    right: bool = False
    elastic: bool = False
    middle: bool = False
    main: int = 0
    optional: int = 0


class Screen:
    """The output of a command, in the format `form`."""

    def __init__(self, form: OutputFormat = OutputFormat.TEXT) -> None:
        self.form, self._out = form, sys.stdout

    @cached_property
    def rich(self) -> "Console":
        """Return the terminal, with colour if enabled. Loaded lazily."""
        from rich.console import Console

        return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)

    @property
    def json(self) -> bool:
        """Whether results are JSON."""
        return self.form is OutputFormat.JSON

    @property
    def live(self) -> bool:
        """Whether stdout is a terminal with a movable cursor, and the format is text."""
        if self.json or not is_terminal(sys.stdout):
            return False
        return self.rich.is_terminal and not self.rich.is_dumb_terminal

    def redirect_prints(self) -> contextlib.AbstractContextManager[object]:
        """Return a context for JSON output: prints of tools go to stderr instead of stdout."""
        return contextlib.redirect_stdout(sys.stderr) if self.json else contextlib.nullcontext()

    def document(self, value: Any) -> None:
        """Write one JSON document, or one line of a stream of documents."""
        _write(self._out, descriptions.json_text(_ENCODER.encode(value).decode()) + "\n")

    def result(self, value: Any, tell: Callable[[], None]) -> None:
        """Write a result: `value` as a JSON document, or as text by `tell`."""
        if self.json:
            self.document(value)
        else:
            tell()

    def say(self, text: str = "") -> None:
        """Write one line. Line breaks in `text` are escaped."""
        _write(sys.stdout, descriptions.line(text) + "\n")

    def text(self, text: str) -> None:
        """Write text as is, with its line breaks and tabs."""
        _write(sys.stdout, descriptions.block(text))

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write names and values, one pair per line. An empty name continues the value above."""
        listed = list(rows)
        width = max((len(name) for name, _ in listed), default=0)
        for name, value in listed:
            for place, part in enumerate(self._fold(value, width + 2)):
                self.say(f"{'' if place else name:<{width}}  {part}".rstrip())

    def facts(self, rows: Facts, indent: str = "  ") -> None:
        """Write named values, indented.

        A list has a row for each entry; a tuple continues below its name; None is left out.
        """
        told: list[tuple[str, str]] = []
        for name, value in rows.items():
            if isinstance(value, tuple):
                told += [(f"{indent}{name}" if not n else "", each) for n, each in enumerate(value)]
            elif value is not None:
                told += [
                    (f"{indent}{name}", each) for each in (value if isinstance(value, list) else [value])
                ]
        self.pairs(told)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Write a table. On a terminal it fits the width; elsewhere lines are not cut."""
        titles = [column.title for column in columns]
        cells = [list(map(descriptions.line, row)) for row in (titles, *rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        shown = _fit_columns(columns, widths, self.rich.width) if self.live else dict(enumerate(widths))
        self.block(
            *("  ".join(_align(row[n], shown[n], columns[n]) for n in shown).rstrip() for row in cells)
        )
        if left_out := [title for n, title in enumerate(titles) if n not in shown]:
            note(
                f"columns left out: {', '.join(left_out)}; they are in the output of a wider terminal, a pipe or -o json"
            )

    def block(self, heading: str, *lines: str) -> None:
        """Write a heading with lines below it."""
        self.heading(heading)
        for each in lines:
            self.say(each)

    def heading(self, text: str) -> None:
        """Write a highlighted line. It is folded only on a terminal that is too narrow for it."""
        first, *rest = self._fold(text, 4) if self.live and cell_len(text) > self.rich.width else [text]
        self.styled(descriptions.line(first), "bold")
        for part in rest:
            self.styled(f"    {descriptions.line(part)}", "bold")

    def _fold(self, text: str, indent: int) -> list[str]:
        """Fold a text into lines that fit a terminal behind `indent` cells, at spaces.

        Elsewhere return it unchanged.
        """
        if not self.live:
            return [text]
        room = self.rich.width - indent
        if cell_len(text) <= room or room < _NARROWEST:
            return [text]
        return fold_text(descriptions.line(text), room)

    def styled(self, text: str, style: str = "") -> None:
        """Write lines in a rich style, if stdout is a terminal.

        Line breaks in the text stay: the caller indents text that refold did not write.
        """
        # Below a progress bar, only plain writes keep off its line.
        if not self.live or hasattr(sys.stdout, "rich_proxied_file"):
            _write(sys.stdout, descriptions.block(text) + "\n")
            return
        from rich.text import Text

        with _GuardedStdout():
            self.rich.print(Text(descriptions.block(text), style=style), soft_wrap=True)


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream may be a terminal, without importing rich, which is slow."""
    return stream.isatty() or not _ASKED_FOR.isdisjoint(os.environ)


def note(text: str) -> None:
    """Write a line to stderr. If that fails, the line is lost."""
    with contextlib.suppress(OSError):
        print(descriptions.line(text), file=sys.stderr, flush=True)


class _GuardedStdout:
    """Raises `OutputClosed` if writing to stdout fails."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            closed = error.errno in (errno.EPIPE, errno.ESHUTDOWN, errno.EINVAL)
            _forget(sys.stdout)
            raise OutputClosed(error.strerror or str(error), quiet=closed) from error


def _write(stream: TextIO, text: str) -> None:
    with _GuardedStdout():
        try:
            stream.write(text)
        except UnicodeEncodeError:  # the terminal's encoding is not UTF-8
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _forget(stream: TextIO) -> None:
    # Python flushes stdout again at exit, and would report the same error.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fit_columns(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    """Return the widths of the displayed columns, by index.

    Optional ones are dropped until the main column has its share.
    """
    kept = list(range(len(columns)))
    main = next((n for n in kept if columns[n].main), None)
    going = sorted((n for n in kept if columns[n].optional), key=lambda n: columns[n].optional)
    narrow = _fit_widths(columns, widths, kept, room)
    while main is not None and going and narrow[main] < min(widths[main], room * columns[main].main // 100):
        kept.remove(going.pop())
        narrow = _fit_widths(columns, widths, kept, room)
    return narrow


def _fit_widths(
    columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], room: int
) -> dict[int, int]:
    """Return the widths of the `kept` columns: the widest elastic one is cut, cell by cell, until all fit.

    The main column is cut to its share of the width; below that only if no other can be cut.
    """
    narrow = {n: widths[n] for n in kept}
    elastic = [n for n in kept if columns[n].elastic]
    excess = sum(narrow.values()) + 2 * (len(narrow) - 1) - room
    while excess > 0 and elastic:
        giving = [n for n in elastic if narrow[n] > max(_NARROWEST, room * columns[n].main // 100)] or elastic
        widest = max(giving, key=narrow.__getitem__)
        if narrow[widest] <= _NARROWEST:
            break
        narrow[widest] -= 1
        excess -= 1
    return narrow


def _align(cell: str, width: int, column: Column) -> str:
    space = " " * (width - cell_len(cell))
    if column.right:
        return space + cell
    return (_cut_middle(cell, width) if column.middle else fit_text(cell, width)) + space


def _cut_middle(text: str, width: int) -> str:
    """Cut a text to `width` cells, in its middle.

    Keeps a part of each command of several, or the file name of a path.
    """
    if cell_len(text) <= width:
        return text
    from refold.replay.kinds.commands import shorten, split_text

    name, gap, rest = text.partition("  ")
    parts = split_text(rest)
    if text.endswith("…"):  # already cut: its end is missing
        return fit_text(text, width)
    if len(parts) > 1 and cell_len(text) == len(text) and width - len(name + gap) >= _LEGIBLE:
        return name + gap + shorten(parts, width - len(name + gap))
    last = text.rpartition("/")[2]
    room = width // 3
    if "/" in text and " " not in last and room < cell_len(last) + 1 <= width - _NARROWEST:
        room = cell_len(last) + 1
    tail = text[-room:]
    while cell_len(tail) > room:
        tail = tail[1:]
    return fit_text(text, width - cell_len(tail)) + tail


def fold_text(text: str, width: int) -> list[str]:
    """Fold a text into lines of at most `width` cells, at spaces. A longer word gets a line of its own."""
    lines = [""]
    for word in text.split(" "):
        line = f"{lines[-1]} {word}"
        if lines[-1] and cell_len(line) > width:
            lines.append(word)
        else:
            lines[-1] = line if lines[-1] else word
    return lines


def fit_text(text: str, width: int) -> str:
    """Cut a line to `width` cells of a terminal, with `…` if something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


_ORDER = (0, Inconclusive.exit_code, 1, ExternalFailure.exit_code, Damaged.exit_code)  # from good to worst


def worst(codes: Iterable[int]) -> int:
    """Return the worst exit code: damaged, then failed, then different, then inconclusive, then 0."""
    return max(codes, key=_ORDER.index, default=0)
