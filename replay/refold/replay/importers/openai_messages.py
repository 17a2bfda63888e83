"""Chat message lists as the OpenAI API takes them, told as a conversation: what was given, asked, answered, returned.

Such a list has no times, no usage and no prompts; a call's result stands behind it, and the id that it names may repeat.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from refold.reducers.vocabulary import Role
from refold.replay.importers.documents import ANY, beginning
from refold.replay.importers.fields import JSON, at, json_text, rows, table, text, without
from refold.replay.importers.items import (
    UNKNOWN_PART,
    Answered,
    Item,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Tally,
    Unread,
)
from refold.replay.importers.message_shapes import read
from refold.replay.importers.otel.names import manifests
from refold.replay.importers.pieces import Piece, messages, unpaired
from refold.replay.importers.protocol import Match
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.values import Value, values

_CALLING = re.compile(r"(?i)tool|function|call")
_USED = ("role", "content", "tool_calls", "tool_call_id", "name")
_LIST = re.compile(rb'\s*\[\s*\{\s*"(?:role|content)"\s*:')
_OBJECT = re.compile(
    rb'\s*\{\s*(?:"[^"\\]*+"\s*:\s*(?:"[^"\\]*+"|null|true|false|-?\d++)\s*,\s*)*"(?:messages|tools)"\s*:\s*\['
)


class Row(msgspec.Struct, frozen=True, gc=False):
    """One message of the list, read: where it stands, what it is, what of it no item says.

    `lost` names what looks like a call or its result, in a form that these lists do not have.
    """

    position: str
    pieces: tuple[Piece, ...]
    rest: str = ""
    lost: str = ""


def read_rows(listed: Sequence[JSON], position: str) -> list[Row]:
    """The messages of a list that stands at `position`."""
    found: list[Row] = []
    for index, row in enumerate(listed):
        said = read(row)
        extra: dict[str, JSON] = {
            name: value for name, value in table(row).items() if name not in _USED and value is not None
        }
        if said.left:
            extra["unread"] = [*said.left]
        lost = next(_calling(extra), "")
        if at(row, "tool_calls") and not any(piece.calls for piece in said.pieces):
            lost = "tool_calls"
        found.append(Row(f"{position}[{index}]", said.pieces, json_text(extra) if extra else "", lost))
    return found


def _calling(value: JSON) -> Iterator[str]:
    """The names and kinds in a value by which it may hold a call."""
    if isinstance(value, list):
        for each in value:
            yield from _calling(each)
    elif isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and _CALLING.search(kind):
            yield kind
        for key, inner in value.items():
            if inner and _CALLING.search(key):
                yield key
            yield from _calling(inner)


def opening(listed: Sequence[Row]) -> int:
    """How many rows come before the first answer: system prompt, earlier words and the task."""
    for index, row in enumerate(listed):
        if any(piece.role in (Role.ASSISTANT, Role.TOOL) for piece in row.pieces):
            return index
    return len(listed)


def began(listed: Sequence[Row], began: RunBegan) -> RunBegan:
    """The beginning of a run with the list's first messages."""
    first = opening(listed)
    given = tuple(piece for row in listed[:first] for piece in row.pieces)
    position = began.position
    if first:
        position = f"{listed[0].position.rpartition('[')[0]}[0:{first}]"
    return msgspec.structs.replace(began, position=position, messages=messages(given))


def told(listed: Sequence[Row]) -> Iterator[Item]:
    """What happened after the beginning."""
    first = opening(listed)
    for row in listed[:first]:
        yield from _lost(row)
        if row.rest:
            yield Remarked(position=row.position, what="unmapped", rest=row.rest)
    for row in listed[first:]:
        yield from _lost(row)
        for place, piece in enumerate(row.pieces):
            yield _item(piece, row.position, row.rest if place == 0 else "")
        if not row.pieces:
            yield Unread(position=row.position, code="no_message", problem="not a message", rest=row.rest)


def _lost(row: Row) -> Iterator[Item]:
    if row.lost:
        problem = f"{row.lost!r} looks like a call or its result, in a form that is not known"
        yield Unread(position=row.position, code=UNKNOWN_PART, problem=problem)


def _item(piece: Piece, position: str, rest: str) -> Item:
    match piece.role:
        case Role.ASSISTANT:
            return Answered(
                position=position, rest=rest, text=piece.text, reasoning=piece.reasoning, calls=piece.calls
            )
        case Role.TOOL:
            return Returned(position=position, rest=rest, id=piece.call, output=piece.text, name=piece.name)
        case _:
            by = "user" if piece.role is Role.USER else "harness"
            return Said(position=position, rest=rest, text=piece.text, role=piece.role, by=by)


def tallied(listed: Sequence[Row]) -> Tally:
    """Counts by role; a call is answered where a result finds it, by its id or behind it."""
    pieces = tuple(piece for row in listed for piece in row.pieces)
    users, answers, results = (
        sum(piece.role is role for piece in pieces) for role in (Role.USER, Role.ASSISTANT, Role.TOOL)
    )
    return Tally(
        messages=users + answers + results,
        user_messages=users,
        assistant_messages=answers,
        tool_messages=results,
        tool_calls=sum(len(piece.calls) for piece in pieces),
        tool_results=results - len(unpaired(pieces)),
    )


class OpenAIMessages:
    """A list of chat messages, an object with `messages`, or one of either a line."""

    name = "openai_messages"

    def match(self, source: Source) -> Match | None:
        """A weak sign: many formats are made of such messages, and know themselves better."""
        head = source.head()
        if b'"role"' not in head:
            return None
        found = beginning(source)
        first = at(found, 0) if isinstance(found, list) else found
        if _LIST.match(head) or _OBJECT.match(head) or _is_request(first):
            return Match(30, "a list of messages with roles")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """One run a list; a bare list of messages is one run."""
        bare: list[JSON] = []
        count = 0
        for value in values(source, (), ("messages",), (ANY, "messages")):
            if isinstance(value, Unread):
                yield value
            elif "role" in table(value.value):
                bare.append(value.value)
            elif listed := rows(value.value, "messages") or rows(value.value):
                yield from _run(value, listed, count)
                count += 1
            else:
                yield Unread(
                    position=value.position,
                    code="no_messages",
                    problem="no list of messages",
                    rest=json_text(value.value),
                )
        if bare:
            yield from _run(Value("$", {}), bare, count)
        if not bare and not count:
            raise BadTranscript(source.name, "", "no list of messages in it")


OPENAI_MESSAGES = OpenAIMessages()


def _is_request(value: JSON) -> bool:
    """Whether it is an object around messages; one with `info` of the run is a format of its own."""
    return {"role", "content"} <= table(value, "messages", 0).keys() and "info" not in table(value)


def _run(value: Value, listed: Sequence[JSON], count: int) -> Iterator[Item]:
    place = f"{value.position}.messages" if "messages" in table(value.value) else value.position
    found = read_rows(listed, place)
    head = RunBegan(
        position=place,
        key=text(value.value, "id") or str(count),
        model=text(value.value, "model"),
        tools=manifests(table(value.value).get("tools")),
        rest=without(value.value, "messages", "model", "tools"),
    )
    yield began(found, head)
    yield from told(found)
    last = next((row.pieces[-1] for row in reversed(found) if row.pieces), None)
    done = last is not None and last.role is Role.ASSISTANT and not last.calls
    said = (
        "last message is an answer without calls" if done else "last message is no answer, or asks for tools"
    )
    yield RunEnded(
        position=found[-1].position, end="finished" if done else "open", end_source=said, tally=tallied(found)
    )
