"""Gemini CLI's two ways to write a chat, brought to one: a JSON document, or since 0.40 a log of messages, one a line.

In the log a message is written anew whenever it changes (a call gets its result, tokens arrive), under its id; its last
version counts, in its first place. `$set` changes the header, or replaces what the model is shown; `$rewindTo` takes back a
message and all after it.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Literal

import msgspec

from refold.importers.documents import document, leading
from refold.importers.fields import JSON, at, json_text, rows, table, text
from refold.importers.items import Counted, Unread
from refold.importers.leftovers import take_each, take_rows
from refold.importers.session_rows import (
    MOST_KEPT,
    TOO_DEEP,
    Noise,
    Row,
    Rows,
    diagnose_apart,
    first_rows,
    too_deep,
)
from refold.importers.source import BadTranscript, Source
from refold.reducers.text import clean

MOST_LOOKED = 20
"""Rows by which a log is told from a document."""

_KEYS = ("sessionId", "id", "type", "$set", "$rewindTo")


class Record(msgspec.Struct, frozen=True):
    """A message or a patch of the chat, where it stands. `left`: the person took it back later."""

    what: Literal["header", "message", "replaced"]
    position: str
    value: JSON
    left: bool = False

    def messages(self) -> Iterator[JSON]:
        """The messages in it, or the one that it is; of which all was taken are gone from it once the last was asked for."""
        return take_each(self.value, "$set", "messages") if self.what == "replaced" else iter([self.value])


def is_log(source: Source) -> bool:
    """Whether objects of their own stand on the first lines: a document has one, which is all there is.

    Where the first line is no object, the rest of a log may follow a damaged header, or a document goes on over lines,
    and a line of it may well hold a message: then it is a document if it reads as one beyond that line.
    """
    looked = first_rows(source, MOST_LOOKED)
    found = [isinstance(row, Row) and any(key in row.value for key in _KEYS) for row in looked]
    if not any(found):
        return False
    if isinstance(looked[0], Row):
        return "messages" not in looked[0].value or len(looked) > 1
    head = source.head().removeprefix(BOM_UTF8).lstrip()
    read = leading(head)
    return read is None or read.read <= head.find(b"\n")


def records(source: Source) -> Iterator[Record | Noise | Unread]:
    """What a chat says, in its order; noise of a log in its place."""
    return _of_log(source) if is_log(source) else _of_document(source)


def _of_document(source: Source) -> Iterator[Record | Noise | Unread]:
    try:
        read = document(source, ("messages",))
    except BadTranscript:
        # Not one bracket of a chat: each line is reported by itself.
        yield from (found.noise() if isinstance(found, Row) else found for found in Rows(source))
        return
    listed, header = take_rows(read.value, "messages"), table(read.value)
    deep = [key for key, value in header.items() if too_deep(value)]
    yield Record("header", "$", {key: value for key, value in header.items() if key not in deep})
    for key in deep:
        yield Unread(position=f"$.{key}", code="too_deep", problem=TOO_DEEP)
    for place, message in enumerate(listed):
        position = f"$.messages[{place}]"
        if too_deep(message):
            yield Unread(position=position, code="too_deep", problem=TOO_DEEP)
        else:
            yield Record("message", position, message)
    if read.problem:
        behind = clean(source.whole()[read.read :][:MOST_KEPT].decode(errors="replace"))
        problem = f"the document {read.problem}"
        yield Unread(position="$", code="cut_document", problem=problem, rest=behind)


class _Log:
    """The state of a log as it grows: which messages stand, in order."""

    def __init__(self) -> None:
        self.latest: dict[str, JSON] = {}
        self.standing: dict[str, None] = {}
        self.left: set[str] = set()

    def read(self, value: JSON) -> None:
        """Go on by a row."""
        if isinstance(target := at(value, "$rewindTo"), str):
            ids = list(self.standing)
            # What nobody knows takes all back, as the CLI does.
            gone = ids[ids.index(target) :] if target in self.standing else ids
            self.left.update(gone)
            for id_ in gone:
                del self.standing[id_]
        elif id_ := text(value, "id"):
            self.latest[id_] = value
            self.standing[id_] = None
            self.left.discard(id_)


def _of_log(source: Source) -> Iterator[Record | Noise | Unread]:
    log, listed = _Log(), Rows(source)
    for row in listed:
        if isinstance(row, Row):
            log.read(row.value)
    seen: set[str] = set()
    begun = False
    for row in listed:
        if isinstance(row, Noise):
            yield row
            continue
        found = _record(row, log, seen, begun=begun)
        yield from _gone(row, log)
        begun = begun or not isinstance(found, Noise)
        yield found
        if isinstance(found, Record) and found.what == "message" and found.value != row.value:
            yield row.noise("repeated")  # it was written anew: told is what it became
        if "sessionId" in row.value:
            yield from _inside(row, seen)


def _gone(row: Row, log: _Log) -> Iterator[Unread]:
    """That calls of an earlier version of a message are not in its last one."""
    listed = rows(log.latest.get(text(row.value, "id"), row.value), "toolCalls")
    stayed = {text(call, "id") for call in listed}
    gone = sum(text(call, "id") not in stayed for call in rows(row.value, "toolCalls"))
    yield from diagnose_apart(row.place, "rewound", Counted(calls=gone))


def _record(row: Row, log: _Log, seen: set[str], *, begun: bool) -> Record | Noise:
    value, id_ = row.value, text(row.value, "id")
    if "$rewindTo" in value:
        return row.noise("rewind")
    if not id_ and not text(value, "type"):
        return _patch(row, begun=begun)
    if id_ in seen:
        return row.noise("repeated")
    if id_:
        seen.add(id_)
    latest = log.latest.get(id_, value)
    return Record("message", row.position, latest, left=id_ in log.left)


def _inside(row: Row, seen: set[str]) -> Iterator[Record | Noise]:
    """The messages of a document that stands in a line of a log: it was written as one before."""
    for place, message in enumerate(rows(row.value, "messages")):
        if (id_ := text(message, "id")) not in seen:
            seen.update({id_} - {""})
            yield Record("message", f"{row.position} $.messages[{place}]", message)
        else:
            yield Noise(what="repeated", line=row.line, text=json_text(message))


def _patch(row: Row, *, begun: bool) -> Record | Noise:
    """The header, or a change of it. One with messages says what the model is shown from there on."""
    if rows(row.value, "$set", "messages"):
        return Record("replaced", row.position, row.value)
    if "sessionId" in row.value and not begun:
        listed = rows(row.value, "messages")
        header = {key: value for key, value in row.value.items() if value is not listed}
        return Record("header", row.position, header)
    return row.noise("resumed") if begun and "sessionId" in row.value else row.noise()
