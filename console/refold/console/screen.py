"""The two ways out: results on stdout, diagnostics on stderr; as text for people, or as JSON.

Every text that goes through here is made harmless first. Nothing is ever read as markup.
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
from refold.reducers.errors import CannotJudge, Damaged, WorldFailed

if TYPE_CHECKING:
    from rich.console import Console


_NARROWEST = 8  # cells: less of a text tells nothing
_LEGIBLE = 20  # cells: in less, several commands tell nothing
_ASKED_FOR = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})
"""Variables by which what is no terminal is to be taken for one."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


@unique
class OutputFormat(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"


class OutputClosed(WorldFailed):
    """Output cannot be written any more: the pipe is closed, or the disk behind it is full."""

    def __init__(self, problem: str, *, quiet: bool) -> None:
        super().__init__(problem)
        self.problem, self.quiet = problem, quiet

    def __str__(self) -> str:
        return f"stdout: {self.problem}"


Facts = Mapping[str, str | list[str] | tuple[str, ...] | None]
"""Values by their names."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table. `elastic`: it may be cut to what the terminal has room for, at its end, or in its
    `middle`.

    One column at most is what the table is read for. `main` is the percentage of the width that it gets:
    others are cut before it has less, and those with an `optional` number are then left out, the highest
    number first.
    """

    title: str
    right: bool = False
    elastic: bool = False
    middle: bool = False
    main: int = 0
    optional: int = 0


class Screen:
    """Where a command writes. `form` says how."""

    def __init__(self, form: OutputFormat = OutputFormat.TEXT) -> None:
        self.form, self._out = form, sys.stdout

    @cached_property
    def rich(self) -> "Console":
        """The terminal, with colour only where it is wanted. It is loaded where there may be one."""
        from rich.console import Console

        return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)

    @property
    def json(self) -> bool:
        """Whether results are JSON."""
        return self.form is OutputFormat.JSON

    @property
    def live(self) -> bool:
        """Whether a person watches: stdout is a terminal that can move its cursor, and text was asked for."""
        if self.json or not is_terminal(sys.stdout):
            return False
        return self.rich.is_terminal and not self.rich.is_dumb_terminal

    def kept(self) -> contextlib.AbstractContextManager[object]:
        """While this holds, nothing but JSON comes to stdout: what tools print goes to stderr."""
        return contextlib.redirect_stdout(sys.stderr) if self.json else contextlib.nullcontext()

    def document(self, value: Any) -> None:
        """One JSON document, or one line of a stream of them."""
        _write(self._out, descriptions.json_text(_ENCODER.encode(value).decode()) + "\n")

    def result(self, value: Any, tell: Callable[[], None]) -> None:
        """What a command found: as a JSON document, or as `tell` says it."""
        if self.json:
            self.document(value)
        else:
            tell()

    def say(self, text: str = "") -> None:
        """A line of a result. It stays one line, whatever is in it."""
        _write(sys.stdout, descriptions.line(text) + "\n")

    def text(self, text: str) -> None:
        """A piece of a result, its line ends and tabs kept and none added."""
        _write(sys.stdout, descriptions.block(text))

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and values, one below the other. An empty name goes on with the one above."""
        listed = list(rows)
        width = max((len(name) for name, _ in listed), default=0)
        for name, value in listed:
            for place, part in enumerate(self._folded(value, width + 2)):
                self.say(f"{'' if place else name:<{width}}  {part}".rstrip())

    def facts(self, rows: Facts, indent: str = "  ") -> None:
        """What is known of something by its names.

        None is left out; a list has a row each, a tuple goes on below its name.
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
        """A table that fits the terminal; whole lines, nothing cut, where there is none."""
        titles = [column.title for column in columns]
        cells = [list(map(descriptions.line, row)) for row in (titles, *rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        shown = _fitting(columns, widths, self.rich.width) if self.live else dict(enumerate(widths))
        self.block(
            *("  ".join(_align(row[n], shown[n], columns[n]) for n in shown).rstrip() for row in cells)
        )
        if left_out := [title for n, title in enumerate(titles) if n not in shown]:
            note(f"columns left out: {', '.join(left_out)}; a wider terminal, a pipe or -o json has them")

    def block(self, heading: str, *lines: str) -> None:
        """A line that stands out, and others below it."""
        self.heading(heading)
        for each in lines:
            self.say(each)

    def heading(self, text: str) -> None:
        """A line that stands out, where lines can.

        It stays one line, whatever is in it, but on a terminal too narrow for it.
        """
        first, *rest = self._folded(text, 4) if self.live and cell_len(text) > self.rich.width else [text]
        self.styled(descriptions.line(first), "bold")
        for part in rest:
            self.styled(f"    {descriptions.line(part)}", "bold")

    def _folded(self, text: str, indent: int) -> list[str]:
        """A text in lines that fit a terminal behind so much space, broken between words; whole where there
        is no terminal.
        """
        if not self.live:
            return [text]
        room = self.rich.width - indent
        if cell_len(text) <= room or room < _NARROWEST:
            return [text]
        return fold_text(descriptions.line(text), room)

    def styled(self, text: str, style: str = "") -> None:
        """Lines in a style (rich's words for one), where there is a terminal and colour is wanted.

        The text's line ends are kept: the caller indents what is not ours.
        """
        if not self.live:
            _write(sys.stdout, descriptions.block(text) + "\n")
            return
        from rich.text import Text

        with _GuardedStdout():
            self.rich.print(Text(descriptions.block(text), style=style), soft_wrap=True)


def is_terminal(stream: TextIO) -> bool:
    """Whether there may be a terminal behind: what then is to be loaded to know it, and to write there, takes
    its time.
    """
    return stream.isatty() or not _ASKED_FOR.isdisjoint(os.environ)


def note(text: str) -> None:
    """A line on stderr. Where that cannot be written either, it is lost."""
    with contextlib.suppress(OSError):
        print(descriptions.line(text), file=sys.stderr, flush=True)


class _GuardedStdout:
    """Raises `OutputClosed` where stdout fails."""

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
        except UnicodeEncodeError:  # a terminal of another age
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _forget(stream: TextIO) -> None:
    # Python flushes stdout once more at its end, and would complain of the same thing again.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    """The widths of the columns that are shown, by their places: of all, or without optional ones, so that
    the main column has its share.
    """
    kept = list(range(len(columns)))
    main = next((n for n in kept if columns[n].main), None)
    going = sorted((n for n in kept if columns[n].optional), key=lambda n: columns[n].optional)
    narrow = _narrow(columns, widths, kept, room)
    while main is not None and going and narrow[main] < min(widths[main], room * columns[main].main // 100):
        kept.remove(going.pop())
        narrow = _narrow(columns, widths, kept, room)
    return narrow


def _narrow(
    columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], room: int
) -> dict[int, int]:
    """The widths of those that are kept, with the elastic ones cut, the widest first, until all fit or none
    can give more.

    The main column is cut to its share of the width, and below that only once no other can give more.
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
    return (_without_middle(cell, width) if column.middle else fit_text(cell, width)) + space


def _without_middle(text: str, width: int) -> str:
    """A text cut to so many cells: of a command line something of each command, of a path its file, else head
    and tail.
    """
    if cell_len(text) <= width:
        return text
    from refold.replay.kinds.commands import shorten, split_text

    name, gap, rest = text.partition("  ")
    parts = split_text(rest)
    if text.endswith("…"):  # prose that was cut before: its end is not in it
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
    """A text in lines of so many cells at most, broken between words; a longer word stands in a line of its
    own.
    """
    lines = [""]
    for word in text.split(" "):
        line = f"{lines[-1]} {word}"
        if lines[-1] and cell_len(line) > width:
            lines.append(word)
        else:
            lines[-1] = line if lines[-1] else word
    return lines


def fit_text(text: str, width: int) -> str:
    """A line cut to so many cells of a terminal, with `…` where something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


_ORDER = (0, CannotJudge.exit_code, 1, WorldFailed.exit_code, Damaged.exit_code)  # from good to worst


def worst(codes: Iterable[int]) -> int:
    """The worst of some verdicts: damaged before failed before different before not judged before fine."""
    return max(codes, key=_ORDER.index, default=0)
