"""Gemini CLI chats: messages with thoughts, tokens and calls, each result inside its call."""

from collections.abc import Iterator

import msgspec

from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.call_ids import (
    messages,
)
from refold.replay.importers.fields import JSON, as_written, at, instant, json_text, left, rows, text, without
from refold.replay.importers.gemini_cli.ending import answered, end_of
from refold.replay.importers.gemini_cli.records import Record, is_log, records
from refold.replay.importers.items import UNKNOWN_PART, Counted, Item, Place, RunBegan
from refold.replay.importers.protocol import Match
from refold.replay.importers.session_rows import Noise, gathered
from refold.replay.importers.source import Source
from refold.replay.importers.tallies import counted
from refold.replay.importers.times import Times
from refold.replay.importers.usages import UsageNames

_ERRORS = {"error": ToolError.RAISED, "cancelled": ToolError.CANCELLED}
_STATUSES = ("success", *_ERRORS)
_TOKENS = UsageNames(input=("input",), output=("output",), cache_read=("cached",), reasoning=("thoughts",))
_INJECTED = ("<session_context>", "<state_snapshot>")


class GeminiCli:
    """The importer of Gemini CLI's chat files, documents and logs."""

    name = "gemini_cli"

    def match(self, source: Source) -> Match | None:
        """By its header, or by messages of type `gemini`."""
        head = source.head()
        if not head.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{"):
            return None
        if b'"projectHash"' in head and b'"sessionId"' in head:
            return Match(90, "a header with sessionId and projectHash")
        typed = b'"type":"gemini"' in head or b'"type": "gemini"' in head
        if typed and b'"content"' in head:
            return Match(75, "messages of type gemini")
        dated = b'"lastUpdated"' in head and b'"messages"' in head and b'"type"' in head
        return Match(40, "a chat with messages and lastUpdated") if dated and b'"role"' not in head else None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gathered(_items(source))


def _items(source: Source) -> Iterator[Item | Noise]:
    # A document is in memory whole in any case, and a message of a log counts as it was written last.
    found = list(records(source))
    header = next((it for it in found if isinstance(it, Record) and it.what == "header"), None)
    begin = "line 1" if is_log(source) else "$"
    times, ending = Times(), None
    yield _began(header, begin, next((model for it in found if (model := _model(it))), ""))
    last, spoken = begin, False
    for record in found:
        if not isinstance(record, Record):
            yield record
        elif record is not header:
            last = record.position
            if record.what == "replaced" and spoken:
                yield _replaced(record)
                continue
            for message in rows(record.value, "messages") if record.what == "replaced" else [record.value]:
                times.see(at(message, "timestamp"), instant(at(message, "timestamp")))
                if text(message, "type") in ("user", "gemini"):
                    spoken, ending = True, ending if record.left else message
                yield from _message(record, message)
    yield Place(last).ended(end_of(ending), times.edges())


def _model(found: object) -> str:
    return text(found.value, "model") if isinstance(found, Record) else ""


def _began(header: Record | None, position: str, model: str) -> RunBegan:
    value = header.value if header else None
    return RunBegan(
        position=header.position if header else position,
        at=instant(at(value, "startTime")),
        rest=without(value, "messages", "sessionId", "startTime"),
        key=text(value, "sessionId") or "session",
        model=model,
        agent="gemini-cli",
        unsaid=("cache_write_tokens",),
    )


def _message(record: Record, message: JSON) -> Iterator[Item]:
    place = Place(record.position, instant(at(message, "timestamp")))
    said, rest = spoken_in(message), without(message, "type", "content", "timestamp")
    if record.left:
        said_then = _message(msgspec.structs.replace(record, left=False), message)
        yield place.counting(counted(said_then)).remarked("rewound", message)
        return
    match text(message, "type"):
        case "user":
            yield place.said(said, "harness" if said.startswith(_INJECTED) else "user", rest=rest)
        case "gemini":
            told = without(message, "type", "content", "timestamp", "thoughts", "model", "toolCalls")
            model = text(message, "model")
            yield place.answered(_answer(message), _usage(message), model=model, rest=told)
            yield from place.hosted(at(message, "content"))
            yield from _results(message, place)
        case "error":
            yield place.failed(said, rest=rest)
        case "info" if said.startswith("Request cancelled"):
            yield place.cancelled(said[:200], rest=rest)
        case "info" if "compressed from" in said:
            yield place.remarked("compaction", message)
        case "info" | "warning" as kind:
            yield place.remarked(kind, message)
        case kind:
            problem = f"a message of type {kind[:40]!r}, which is not known here"
            yield place.unread(UNKNOWN_PART, problem)
            yield place.remarked("unmapped", message)


def _usage(message: JSON) -> Usage | None:
    """The usage of a model message. `output` leaves out the thoughts there, here it has them; `input` has the cached."""
    used = _TOKENS.of(at(message, "tokens"))
    return used and msgspec.structs.replace(used, output=used.output + used.reasoning)


def spoken_in(message: JSON) -> str:
    """The text of a content: text, a part, or parts; a part that is no text is named where it stood."""
    content = at(message, "content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content] if isinstance(content, dict) else []
    return "\n".join(_part(part) for part in parts)


def _part(part: JSON) -> str:
    if isinstance(part, str):
        return part
    said = at(part, "text")
    return (
        said
        if isinstance(said, str)
        else f"[{next(iter(part), 'part') if isinstance(part, dict) else 'part'}]"
    )


def _thoughts(message: JSON) -> str:
    found = (
        (text(thought, "subject"), text(thought, "description")) for thought in rows(message, "thoughts")
    )
    return "\n".join(": ".join(filter(None, pair)) for pair in found)


def _answer(message: JSON) -> Message:
    calls = tuple(
        MessageCall(text(call, "id"), text(call, "name"), as_written(at(call, "args")))
        for call in rows(message, "toolCalls")
    )
    said, thought = spoken_in(message), _thoughts(message)
    return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=calls)


def _results(message: JSON, place: Place) -> Iterator[Item]:
    for index, call in enumerate(rows(message, "toolCalls")):
        where = f"{place.position}.toolCalls[{index}]" if place.position.startswith("$") else place.position
        status = text(call, "status")
        told, failed = ("status",) if status in _STATUSES else (), int(status == "error")
        if not answered(call):
            if rest := left(call, "id", "name", "args"):
                yield Place(where, place.at, Counted(errors=failed)).remarked("unanswered", rest)
            continue
        counts = Counted(results=1, errors=failed)  # it has no message of its own
        yield Place(where, instant(at(call, "timestamp")) or place.at, counts).returned(
            text(call, "id"),
            output(call),
            name=text(call, "name"),
            error=_ERRORS.get(status),
            rest=without(call, "id", "name", "args", "result", "timestamp", *told),
        )


def output(call: JSON) -> str:
    """What the model was shown of a call's result."""
    result = at(call, "result")
    parts = result if isinstance(result, list) else [result]
    return "\n".join(_response(part) for part in parts)


def _response(part: JSON) -> str:
    response = at(part, "functionResponse", "response")
    if response is None:
        return _part(part)
    said = text(response, "output") or text(response, "error")
    return said or json_text(response)


def _replaced(record: Record) -> Item:
    """What the model is shown from here on: the chat was compressed, or a turn taken out of it."""
    shown: list[Message] = []
    for message in rows(record.value, "messages"):
        if text(message, "type") == "user":
            shown.append(Message(role=Role.USER, text=spoken_in(message)))
        elif text(message, "type") == "gemini":
            shown.append(_answer(message))
            shown += [
                Message(role=Role.TOOL, text=output(call), call=text(call, "id"), name=text(call, "name"))
                for call in rows(message, "toolCalls")
                if answered(call)
            ]
    rest = without(record.value, "messages")
    return Place(record.position).prompted(messages(shown), "compaction", rest)


GEMINI_CLI = GeminiCli()
