"""`refold export`: runs in the shapes that other programs read, into a file or onto stdout, a piece at a time."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from refold.console import addresses, figures, hostile, places
from refold.console.export_shapes import Shape
from refold.console.places import Place
from refold.console.screen import Screen
from refold.console.selection import Trouble
from refold.engine.guards import installed_guards
from refold.reducers.errors import Damaged, WrongUse
from refold.replay.exports.lines import json_lines
from refold.replay.exports.markdown import markdown
from refold.replay.exports.openai import openai_messages
from refold.replay.exports.otlp import otlp_spans
from refold.replay.exports.parquet import ParquetFile
from refold.replay.exports.table import Table
from refold.replay.exports.trail import Trail, follow
from refold.replay.summary import summary
from refold.store.atomic_files import check_free, written_beside
from refold.store.protocol import Store

_WITHOUT = frozenset({Shape.JSONL, Shape.OTEL, Shape.PARQUET})


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be exported, and where to. `file` None: onto stdout."""

    typed: list[str]
    shape: Shape
    file: Path | None = None
    everything: bool = False
    content: bool = True
    prompts: bool = False
    force: bool = False


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written into a file, as JSON: `size` in bytes."""

    path: str
    shape: str
    runs: int
    size: int


Wanted = Sequence[tuple[str, int | None]]


async def export_command(screen: Screen, place: Place, request: ExportRequest) -> int:
    """Write the runs. Exit code 0; 3 for a ticket of a damaged log, which says where it breaks off.

    Raises `WrongUse`; of the other shapes, `Damaged` and `NewerLog` for a log that cannot be read to its end.
    """
    _check(request)
    trouble = Trouble()
    async with places.reading(place) as store:
        wanted = await _wanted(store, request)
        if request.file is None:
            await _onto(screen, _pieces(store, wanted, request, trouble), request)
            return trouble.code
        size = await _into(request.file, store, wanted, request, trouble)
    told = Exported(path=str(request.file), shape=str(request.shape), runs=len(wanted), size=size)
    if screen.json:
        screen.document(told)
    else:
        runs = "1 run" if told.runs == 1 else f"{figures.count(told.runs)} runs"
        screen.say(f"{told.path}: {told.shape} of {runs}, {figures.size(size)}")
    return trouble.code


def _check(request: ExportRequest) -> None:
    # Before any log is read: that may take a while.
    if request.shape is Shape.PARQUET and request.file is None:
        raise WrongUse("--to parquet is no text: name its file by -o")
    if not request.content and request.shape not in _WITHOUT:
        raise WrongUse(f"--no-content: there is nothing of {request.shape} without what was said")
    if request.prompts and (request.shape is not Shape.OTEL or not request.content):
        raise WrongUse("--prompts is for otel, and for what was said: leave it out, or --no-content")
    if request.typed and request.everything:
        raise WrongUse("expected RUN or --all, not both")
    if not request.typed and not request.everything:
        raise WrongUse("which runs? Name them, or all by --all; `refold ls` lists them")
    if request.file is not None:
        check_free(request.file, force=request.force)


async def _wanted(store: Store, request: ExportRequest) -> Wanted:
    if request.typed:
        return list(dict.fromkeys([await addresses.place_of(store, each) for each in request.typed]))
    found: list[tuple[str, int | None]] = []
    async for chunk in store.runs():
        found += [(run, None) for run, head in chunk if head.seq]
    return found


async def _onto(screen: Screen, pieces: AsyncIterator[str], request: ExportRequest) -> None:
    """Pieces of text onto stdout. What cannot be seen is shown as its escape, in JSON as JSON's own: the same values."""
    async for piece in pieces:
        screen.text(piece if request.shape is Shape.MARKDOWN else hostile.json_text(piece))


async def _into(file: Path, store: Store, wanted: Wanted, request: ExportRequest, trouble: Trouble) -> int:
    """The same into a file, beside it first: whoever reads the old one meanwhile sees one of the two. Its size in bytes."""
    with written_beside(file, force=request.force) as beside:
        with beside.open("wb") as opened:
            if request.shape is Shape.PARQUET:
                await _table(opened, store, wanted, request)
            else:
                async for piece in _pieces(store, wanted, request, trouble):
                    opened.write(piece.encode())
        return beside.stat().st_size


async def _table(file: BinaryIO, store: Store, wanted: Wanted, request: ExportRequest) -> None:
    with ParquetFile(file) as written:
        for run, upto in wanted:
            table, trail = Table(content=request.content), Trail()
            async for step in follow(store, run, upto, trail):
                written.write(table.row(step))


async def _pieces(
    store: Store, wanted: Wanted, request: ExportRequest, trouble: Trouble
) -> AsyncIterator[str]:
    if request.shape is Shape.OTEL:
        yield '{"resourceSpans":[\n'
    for place, (run, upto) in enumerate(wanted):
        if place and request.shape is Shape.OTEL:
            yield ",\n"
        async for piece in await _of(store, run, upto, request, trouble):
            yield piece
    if request.shape is Shape.OTEL:
        yield "]}\n"


async def _of(
    store: Store, run: str, upto: int | None, request: ExportRequest, trouble: Trouble
) -> AsyncIterator[str]:
    match request.shape:
        case Shape.MARKDOWN:
            guards = installed_guards()
            about, _ = await summary(store, run, upto, guards)
            if about.damaged:
                trouble.add(run, Damaged(about.damaged))
            return markdown(store, about, hostile.block, guards)
        case Shape.OPENAI:
            return openai_messages(store, run, upto)
        case Shape.OTEL:
            return otlp_spans(store, run, upto, content=request.content, prompts=request.prompts)
        case _:
            return json_lines(store, run, upto, content=request.content)
