"""What reading costs: transcripts imported, megabytes a second; and verbs over a store, events a second of
one process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.bulk import Bulk
from bench.timing import Case
from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.parser import parse
from refold.replay import audit, grep, stats, whatif
from refold.replay.queries.rows import event_question
from refold.store import SqliteStore
from refold.store.protocol import Store
from support.transcripts import FILES, path_of, salts

OTHER_POLICY = {"limits": [{"type": "step", "value": 10_000}]}


class Texts(msgspec.Struct, frozen=True):
    """The transcripts of one format, unpacked."""

    format: str
    files: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(len(data) for _, data in self.files)

    def documents(self) -> list[bytes]:
        """What a bare decoder is given: whole documents, or lines."""
        found: list[bytes] = []
        for _, data in self.files:
            try:
                msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                found += [line for line in data.splitlines() if _is_json(line)]
            else:
                found.append(data)
        return found


def texts() -> list[Texts]:
    """The transcripts of the repository that are text, by format."""
    found: dict[str, Texts] = {}
    for file in FILES:
        if file.endswith((".eval", ".db")):
            continue
        with path_of(file).open("rb") as opened:
            source = Source.opened(file, opened)
            format_ = detect_format(source).format
            data = source.whole()
        found.setdefault(format_, Texts(format_, [])).files.append((file, data))
    return sorted(found.values(), key=lambda each: each.format)


def import_cases(of: Texts, times: int) -> dict[str, Case]:
    """`bare` decodes the same bytes; `items` is what the importer says; `import` derives and encodes whole
    logs.
    """
    documents = of.documents()
    return {
        "bare": lambda: [msgspec.json.decode(each) for _ in range(times) for each in documents],
        "items": lambda: [_items(of.format, *file) for _ in range(times) for file in of.files],
        "import": lambda: [_imported(of.format, *file) for _ in range(times) for file in of.files],
    }


def _items(format_: str, name: str, data: bytes) -> int:
    return sum(1 for _ in importer(format_).items(Source.of(name, data)))


def _imported(format_: str, name: str, data: bytes) -> int:
    events = 0
    for run in Transcript(Source.of(name, data), importer(format_)).runs():
        events += sum(len(group) for group in run.derive(salts))
    return events


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def verb_cases(bulk: Bulk, runs: int) -> dict[str, Case]:
    """Each verb over so many runs of the store, one after the other."""
    names = [name for name, _ in bulk.sizes[:runs]]
    other = parse(OTHER_POLICY)

    async def found(store: Store, run: str, asked: str) -> int:
        return len([each async for each in grep(store, run, event_question(asked))])

    return {
        "audit": partial(_each, bulk.path, names, audit),
        "whatif": partial(_each, bulk.path, names, lambda store, run: whatif(store, run, other)),
        "stats": partial(_each, bulk.path, names, stats),
        "grep tool": partial(_each, bulk.path, names, lambda store, run: found(store, run, "name:nothing")),
        "grep text": partial(
            _each, bulk.path, names, lambda store, run: found(store, run, '"no such words"')
        ),
    }


def _each(path: Path, names: list[str], verb: Callable[[Store, str], Coroutine[Any, Any, object]]) -> None:
    async def all_() -> None:
        async with await SqliteStore.open(path, readonly=True) as store:
            for name in names:
                await verb(store, name)

    asyncio.run(all_())
