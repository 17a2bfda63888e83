"""`refold export`: runs in the shapes that other programs read, into a file or onto stdout, a piece at a time."""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum, unique
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from refold.console import addresses, descriptions, places
from refold.console.options import Everything, Force, new_file, option, words
from refold.console.places import StorePlace, reads
from refold.console.screen import Screen
from refold.console.selection import Trouble, check_choice
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, WrongUse
from refold.replay import figures
from refold.replay.exports.markdown import markdown
from refold.replay.exports.openai import openai_messages
from refold.replay.exports.otlp import otlp_spans
from refold.replay.exports.table import ParquetFile, Table, json_lines
from refold.replay.reader import Steps, stored_events
from refold.store.files import check_free, written_beside
from refold.store.protocol import Store


@unique
class Shape(StrEnum):
    """What an export is: JSON lines of events, a ticket, chat messages, OTLP/JSON spans, a table for SQL."""

    JSONL = "jsonl"
    MARKDOWN = "markdown"
    OPENAI = "openai"
    OTEL = "otel"
    PARQUET = "parquet"


_WITHOUT = frozenset({Shape.JSONL, Shape.OTEL, Shape.PARQUET})


class WrittenExport(msgspec.Struct, frozen=True, kw_only=True):
    """What was written into a file, as JSON: `size` in bytes."""

    path: str
    shape: str
    runs: int
    size: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is written of each run, and how."""

    to: Annotated[Shape, option("--to", "In which shape.")] = Shape.JSONL
    no_content: Annotated[
        bool, option("--no-content", "Without what was said: for jsonl, otel and parquet.")
    ] = False
    prompts: Annotated[
        bool, option("--prompts", "For otel: all that each request showed, not only what is new in it.")
    ] = False


Wanted = Sequence[tuple[str, int | None]]


@reads
async def export_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[
        list[str], words("RUN, RUN@e41, RUN@t7 (up to there) or @last; a prefix of an id will do.")
    ],
    choice: Choice,
    *,
    file: Annotated[Path | None, new_file("The file.", shows="stdout")] = None,
    everything: Everything = False,
    force: Force = False,
) -> int:
    """Write runs as JSON lines, Markdown for a ticket, OpenAI messages, OpenTelemetry spans (OTLP/JSON) or Parquet.

    Exit code 3 for a ticket of a damaged log, which says where it breaks off.
    """
    _check(choice, file)
    check_choice(runs, everything=everything)
    if file is not None:
        check_free(file, force=force)
    trouble = Trouble()
    async with places.reading(place) as store:
        wanted = await _wanted(store, runs)
        if file is None:
            await _onto(screen, _pieces(store, wanted, choice, trouble), choice.to)
            return trouble.code
        size = await _into(file, store, wanted, choice, trouble, force=force)
    told = WrittenExport(path=str(file), shape=str(choice.to), runs=len(wanted), size=size)
    screen.result(
        told,
        lambda: screen.say(
            f"{told.path}: {told.shape} of {figures.counted(told.runs, 'run')}, {figures.size(told.size)}"
        ),
    )
    return trouble.code


def _check(choice: Choice, file: Path | None) -> None:
    # Before any log is read: that may take a while.
    if choice.to is Shape.PARQUET and file is None:
        raise WrongUse("--to parquet is binary: name its file with --out FILE")
    if choice.no_content and choice.to not in _WITHOUT:
        raise WrongUse(f"--no-content: there is nothing of {choice.to} without what was said")
    if choice.prompts and (choice.to is not Shape.OTEL or choice.no_content):
        raise WrongUse("--prompts is for otel, and for what was said: leave it out, or --no-content")


async def _wanted(store: Store, typed: Sequence[str]) -> Wanted:
    if typed:
        return list(dict.fromkeys([await addresses.place_of(store, each) for each in typed]))
    return [(run, None) async for chunk in store.runs() for run, head in chunk if head.seq]


async def _onto(screen: Screen, pieces: AsyncIterator[str], shape: Shape) -> None:
    """Pieces of text onto stdout. What cannot be seen is shown as its escape, in JSON as JSON's own: the same values."""
    async for piece in pieces:
        screen.text(piece if shape is Shape.MARKDOWN else descriptions.json_text(piece))


async def _into(
    file: Path, store: Store, wanted: Wanted, choice: Choice, trouble: Trouble, *, force: bool
) -> int:
    """The same into a file, beside it first: a reader of the old one sees one of the two. Its size in bytes."""
    with written_beside(file, force=force) as beside:
        with beside.open("wb") as opened:
            if choice.to is Shape.PARQUET:
                await _table(opened, store, wanted, choice)
            else:
                async for piece in _pieces(store, wanted, choice, trouble):
                    opened.write(piece.encode())
        return beside.stat().st_size


async def _table(file: BinaryIO, store: Store, wanted: Wanted, choice: Choice) -> None:
    with ParquetFile(file) as written:
        for run, upto in wanted:
            table = Table(content=not choice.no_content)
            async for step in Steps(stored_events(store, run, upto), folds=True):
                written.write(table.row(step))


async def _pieces(store: Store, wanted: Wanted, choice: Choice, trouble: Trouble) -> AsyncIterator[str]:
    if choice.to is Shape.OTEL:
        yield '{"resourceSpans":[\n'
    for place, (run, upto) in enumerate(wanted):
        if place and choice.to is Shape.OTEL:
            yield ",\n"
        async for piece in await _of(store, run, upto, choice, trouble):
            yield piece
    if choice.to is Shape.OTEL:
        yield "]}\n"


async def _of(
    store: Store, run: str, upto: int | None, choice: Choice, trouble: Trouble
) -> AsyncIterator[str]:
    match choice.to:
        case Shape.MARKDOWN:
            about, pieces = await markdown(store, run, upto, descriptions.block, installed_guards())
            if about.damaged:
                trouble.add(run, Damaged(about.damaged))
            return pieces
        case Shape.OPENAI:
            return openai_messages(store, run, upto)
        case Shape.OTEL:
            return otlp_spans(store, run, upto, content=not choice.no_content, prompts=choice.prompts)
        case _:
            return json_lines(store, run, upto, content=not choice.no_content)
