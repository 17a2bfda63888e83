"""Gemini CLI chats: messages with thoughts, tokens and calls, each result inside its call."""

from collections.abc import Iterator, Mapping

import msgspec

from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.fields import JSON, as_written, at, instant, json_text, rows, table, text
from refold.replay.importers.gemini_cli.ending import answered, end_of
from refold.replay.importers.gemini_cli.records import Record, is_log, records
from refold.replay.importers.items import UNKNOWN_PART, Counted, Item, Place, RunBegan
from refold.replay.importers.leftovers import (
    rest,
    take,
    take_each,
    take_if,
    take_part,
    take_rows,
    take_text,
    take_time,
    take_words,
)
from refold.replay.importers.protocol import Match
from refold.replay.importers.session_rows import Noise, gathered
from refold.replay.importers.source import Source
from refold.replay.importers.tallies import counted
from refold.replay.importers.times import Times
from refold.replay.importers.usages import UsageNames

_FAILED: Mapping[str, ToolError | bool] = {"success": False, "error": True, "cancelled": ToolError.CANCELLED}
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
    times, end, told = Times(), end_of(None), set[str]()
    yield _began(header, begin, next((model for it in found if (model := _model(it))), ""))
    last, spoken = begin, False
    for record in found:
        if not isinstance(record, Record):
            yield record
        elif record is not header:
            last = record.position
            if record.what == "replaced" and spoken:
                yield _replaced(record, told)
                continue
            for message in record.messages():
                times.see(at(message, "timestamp"), instant(at(message, "timestamp")))
                if text(message, "type") in ("user", "gemini"):
                    spoken, end = True, end if record.left else end_of(message)
                yield from _message(record, message)
                table(message).clear()
            if record.what == "replaced" and (left := rest(record.value)):
                yield Place(last).remarked("unmapped", rest=left)
    yield Place(last).ended(end, times.edges())


def _model(found: object) -> str:
    return text(found.value, "model") if isinstance(found, Record) else ""


def _began(header: Record | None, position: str, model: str) -> RunBegan:
    value = header.value if header else None
    key, began = take_text(value, "sessionId") or "session", take_time(value, "startTime")
    return RunBegan(
        position=header.position if header else position,
        at=began,
        rest=rest(value),
        key=key,
        model=model,
        agent="gemini-cli",
        unsaid=("cache_write_tokens",),
    )


def _message(record: Record, message: JSON) -> Iterator[Item]:
    place, shown = Place(record.position, instant(at(message, "timestamp"))), text(message, "content")
    if record.left:
        whole, stood = json_text(message), msgspec.structs.replace(record, left=False)
        yield place.counting(counted(_message(stood, message))).remarked("rewound", rest=whole)
        return
    match text(message, "type"):
        case "user":
            said = _take_said(message)
            by = "harness" if said.startswith(_INJECTED) else "user"
            yield place.said(said, by, rest=_left_of(message))
        case "gemini":
            yield from _answered(message, place)
        case "error":
            yield place.failed(_take_said(message), rest=_left_of(message))
        case "info" if shown.startswith("Request cancelled"):
            yield place.cancelled(_take_said(message), rest=_left_of(message))
        case "info" if "compressed from" in shown:
            yield place.remarked("compaction", message)
        case "info" | "warning" as kind:
            yield place.remarked(kind, message)
        case kind:
            problem = f"a message of type {kind[:40]!r}, which is not known here"
            yield place.unread(UNKNOWN_PART, problem)
            yield place.remarked("unmapped", message)


def _left_of(message: JSON) -> str:
    """JSON text of what is left of a message beside its type and its time, which its item has."""
    take(message, "type")
    take_time(message, "timestamp")
    return rest(message)


def _answered(message: JSON, place: Place) -> Iterator[Item]:
    answer, used, model = _take_answer(message), _take_usage(message), take_text(message, "model")
    calls = take_rows(message, "toolCalls")
    yield place.answered(answer, used, model=model, rest=_left_of(message))
    yield from place.hosted(at(message, "content"))
    for index, call in enumerate(calls):
        inside = f".toolCalls[{index}]" if place.position.startswith("$") else ""
        yield from _returned(call, Place(place.position + inside, place.at))


def _take_usage(message: JSON) -> Usage | None:
    """The usage of a model message. `output` leaves out the thoughts there, here it has them; `input` has the cached."""
    used = _TOKENS.take(message, "tokens")
    return used and msgspec.structs.replace(used, output=used.output + used.reasoning)


def _take_said(message: JSON) -> str:
    """The text of a content: text, a part, or parts; a part that is no text is named where it stood."""
    if part := table(message, "content"):
        table(message)["content"] = [part]
    return take_words(message, "content")


def _take_thoughts(message: JSON) -> str:
    found = [
        (take_text(thought, "subject"), take_text(thought, "description"))
        for thought in take_each(message, "thoughts")
    ]
    return "\n".join(": ".join(filter(None, pair)) for pair in found)


def _take_answer(message: JSON) -> Message:
    """What the model said, thought and asked for; of its calls their arguments are taken."""
    calls = tuple(
        MessageCall(text(call, "id"), text(call, "name"), as_written(take(call, "args")))
        for call in rows(message, "toolCalls")
    )
    said, thought = _take_said(message), _take_thoughts(message)
    return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=calls)


def _returned(call: JSON, place: Place) -> Iterator[Item]:
    status, done = text(call, "status"), answered(call)
    counts = Counted(results=int(done), errors=int(status == "error"))  # it has no message of its own
    result = _take_result(call)
    if done:
        take_if(call, "status", *_FAILED)
        where = Place(place.position, take_time(call, "timestamp") or place.at, counts)
        failed = _FAILED.get(status)
        yield where.returned(result.call, result.text, name=result.name, failed=failed, rest=rest(call))
    elif left := rest(call):
        yield place.counting(counts).remarked("unanswered", rest=left)


def _take_result(call: JSON) -> Message:
    """What the model was shown of a call's result, which is taken out of the call with its name and its id."""
    id_, name = take_text(call, "id"), take_text(call, "name")
    result = at(call, "result")
    parts = take_each(call, "result") if isinstance(result, list) else [result]
    said = "\n".join([_take_response(part, id_, name) for part in parts])
    take_if(call, "result", {}, said)
    return Message(role=Role.TOOL, text=said, call=id_, name=name)


def _take_response(part: JSON, call: str, name: str) -> str:
    around = table(part, "functionResponse")
    if at(around, "response") is None:
        return take_part(part)
    said = take_text(around, "response", "output") or take_text(around, "response", "error")
    said = said or json_text(take(around, "response"))
    take_if(around, "id", call)
    take_if(around, "name", name)
    take_if(around, "response", {})
    take_if(part, "functionResponse", {})
    return said


def _replaced(record: Record, told: set[str]) -> Item:
    """What the model is shown from here on: the chat was compressed, or a turn taken out of it.

    `told`: what was left of such messages before; they are there each time.
    """
    shown: list[Message] = []
    for message in record.messages():
        if text(message, "type") == "user":
            shown.append(Message(role=Role.USER, text=_take_said(message)))
        elif text(message, "type") == "gemini":
            shown.append(_take_answer(message))
            shown += [_take_result(call) for call in take_each(message, "toolCalls") if answered(call)]
        if (left := rest(message)) in told:
            table(message).clear()
        told.add(left)
    return Place(record.position).prompted(tuple(shown), "compaction", rest(record.value))


GEMINI_CLI = GeminiCli()
