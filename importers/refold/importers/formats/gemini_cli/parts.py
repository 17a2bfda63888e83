"""Gemini CLI messages and their parts, chat logs and chat documents, and the output of its shell tool.

A log contains a message again, under the same id, each time it changes: a call gets its result, or token
counts arrive. The last version counts, at the position of the first. `$set` changes the header or replaces
the prompt; `$rewindTo` withdraws a message and all later ones.

The shell tool appends status lines to the command's output. So only the last block of such lines is the
tool's. Source: `run_shell_command` of Gemini CLI 0.61 and of Qwen Code 0.15.

A call and its result may be recorded twice: in `toolCalls` of the model's message, and since about 0.50 as
`functionCall` and `functionResponse` parts of the messages sent to and received from the API. The ids match
within a file.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from refold.importers.content import decode_nested_json, mark_unread, read_call, take_call
from refold.importers.documents import decode_truncated, document
from refold.importers.fields import (
    JSON,
    at,
    json_text,
    rows,
    table,
    take,
    take_each,
    take_if,
    take_part,
    take_rows,
    take_text,
    take_words,
    text,
)
from refold.importers.items import Counted, Unread
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
from refold.reducers.messages import Message, MessageCall
from refold.reducers.text import clean
from refold.reducers.vocabulary import Refuser, Role, ToolError

MOST_LOOKED = 20
"""The number of rows read to distinguish a log from a document."""

_KEYS = ("sessionId", "id", "type", "$set", "$rewindTo")


class GeminiRecord(msgspec.Struct, frozen=True):
    """A message or a patch of the chat, with its position. `left`: the user withdrew it later."""

    what: Literal["header", "message", "replaced"]
    position: str
    value: JSON
    left: bool = False

    def messages(self) -> Iterator[JSON]:
        """Yield the messages in this record, or the record itself if it is a message.

        Fully mapped messages are removed from the record after the last one was yielded.
        """
        return take_each(self.value, "$set", "messages") if self.what == "replaced" else iter([self.value])


def is_log(source: Source) -> bool:
    """Return whether the source is a log, with one object on each line, not a single document.

    If the first line is not an object, it may be the damaged header of a log, or the start of a document that
    spans several lines. Then the source is a document if it parses as one beyond that line.
    """
    looked = first_rows(source, MOST_LOOKED)
    found = [isinstance(row, Row) and any(key in row.value for key in _KEYS) for row in looked]
    if not any(found):
        return False
    if isinstance(looked[0], Row):
        return "messages" not in looked[0].value or len(looked) > 1
    head = source.head().removeprefix(BOM_UTF8).lstrip()
    read = decode_truncated(head)
    return read is None or read.read <= head.find(b"\n")


def records(source: Source) -> Iterator[GeminiRecord | Noise | Unread]:
    """Yield the records of a chat in order, with the noise of a log at its position."""
    return _read_log(source) if is_log(source) else _read_document(source)


def _read_document(source: Source) -> Iterator[GeminiRecord | Noise | Unread]:
    try:
        read = document(source, ("messages",))
    except BadTranscript:
        # The file is not JSON: each line is reported separately.
        yield from (found.noise() if isinstance(found, Row) else found for found in Rows(source))
        return
    listed, header = take_rows(read.value, "messages"), table(read.value)
    deep = [key for key, value in header.items() if too_deep(value)]
    yield GeminiRecord("header", "$", {key: value for key, value in header.items() if key not in deep})
    for key in deep:
        yield Unread(position=f"$.{key}", code="too_deep", problem=TOO_DEEP)
    for place, message in enumerate(listed):
        position = f"$.messages[{place}]"
        if too_deep(message):
            yield Unread(position=position, code="too_deep", problem=TOO_DEEP)
        else:
            yield GeminiRecord("message", position, message)
    if read.problem:
        behind = clean(source.whole()[read.read :][:MOST_KEPT].decode(errors="replace"))
        problem = f"the document {read.problem}"
        yield Unread(position="$", code="cut_document", problem=problem, rest=behind)


class _RecordLog:
    """The state of a log while it is read: the messages in effect, in order."""

    def __init__(self) -> None:
        self.latest: dict[str, JSON] = {}
        self.standing: dict[str, None] = {}
        self.left: set[str] = set()

    def read(self, value: JSON) -> None:
        """Update the state with one row."""
        if isinstance(target := at(value, "$rewindTo"), str):
            ids = list(self.standing)
            # An unknown id withdraws all messages, as in the CLI.
            gone = ids[ids.index(target) :] if target in self.standing else ids
            self.left.update(gone)
            for id_ in gone:
                del self.standing[id_]
        elif id_ := text(value, "id"):
            self.latest[id_] = value
            self.standing[id_] = None
            self.left.discard(id_)


def _read_log(source: Source) -> Iterator[GeminiRecord | Noise | Unread]:
    log, listed = _RecordLog(), Rows(source)
    for row in listed:
        if isinstance(row, Row):
            log.read(row.value)
    seen: set[str] = set()
    begun = False
    for row in listed:
        if isinstance(row, Noise):
            yield row
            continue
        found = _read_row(row, log, seen, begun=begun)
        yield from _report_lost_calls(row, log)
        begun = begun or not isinstance(found, Noise)
        yield found
        if isinstance(found, GeminiRecord) and found.what == "message" and found.value != row.value:
            yield row.noise("repeated")  # an earlier version of the message yielded above
        if "sessionId" in row.value:
            yield from _read_nested(row, seen)


def _report_lost_calls(row: Row, log: _RecordLog) -> Iterator[Unread]:
    """Report calls that an earlier version of a message had and the last version does not have."""
    listed = rows(log.latest.get(text(row.value, "id"), row.value), "toolCalls")
    stayed = {text(call, "id") for call in listed}
    gone = sum(text(call, "id") not in stayed for call in rows(row.value, "toolCalls"))
    yield from diagnose_apart(row.place, "rewound", Counted(calls=gone))


def _read_row(row: Row, log: _RecordLog, seen: set[str], *, begun: bool) -> GeminiRecord | Noise:
    value, id_ = row.value, text(row.value, "id")
    if "$rewindTo" in value:
        return row.noise("rewind")
    if not id_ and not text(value, "type"):
        return _read_patch(row, begun=begun)
    if id_ in seen:
        return row.noise("repeated")
    if id_:
        seen.add(id_)
    latest = log.latest.get(id_, value)
    return GeminiRecord("message", row.position, latest, left=id_ in log.left)


def _read_nested(row: Row, seen: set[str]) -> Iterator[GeminiRecord | Noise]:
    """Yield the messages of a document that is on one line of a log: older versions wrote the chat as a
    document.
    """
    for place, message in enumerate(rows(row.value, "messages")):
        if (id_ := text(message, "id")) not in seen:
            seen.update({id_} - {""})
            yield GeminiRecord("message", f"{row.position} $.messages[{place}]", message)
        else:
            yield Noise(what="repeated", line=row.line, text=json_text(message))


def _read_patch(row: Row, *, begun: bool) -> GeminiRecord | Noise:
    """Return the header or a change of it. A change with messages replaces the prompt from there on."""
    if rows(row.value, "$set", "messages"):
        return GeminiRecord("replaced", row.position, row.value)
    if "sessionId" in row.value and not begun:
        listed = rows(row.value, "messages")
        header = {key: value for key, value in row.value.items() if value is not listed}
        return GeminiRecord("header", row.position, header)
    return row.noise("resumed") if begun and "sessionId" in row.value else row.noise()


TOOL = "run_shell_command"
"""The name of the shell tool in both CLIs."""

_LINE = re.compile(r"^(Error|Exit Code|Signal|Background PIDs|Process Group PGID): (.*)$", re.MULTILINE)
_CUT_OFF = re.compile(
    r"(?:<untrusted_context>\s*)?Command (?:(was automatically cancelled|timed out after)|was cancelled by user)"
)
_NONE = "(none)"
_NO_SIGNAL = (_NONE, "0")


def classify_shell_output(output: str) -> ToolError | bool | None:
    """Return whether a command failed or how it was stopped, or None if the output does not show it.

    Gemini CLI omits the exit code if it is 0, but still prints the process group.
    """
    if cut_off := _CUT_OFF.match(output):
        return ToolError.TIMEOUT if cut_off[1] else ToolError.CANCELLED
    found = _parse_status_lines(output)
    code, signal = found.get("Exit Code"), found.get("Signal", _NONE)
    if signal not in _NO_SIGNAL or code == _NONE:
        return True
    if code is not None:
        return code != "0"
    return False if "Process Group PGID" in found else None


def _parse_status_lines(output: str) -> dict[str, str]:
    found: dict[str, str] = {}
    follows = -1
    for line in reversed(list(_LINE.finditer(output))):
        if found and line.end() + 1 != follows:
            break
        found.setdefault(line[1], line[2].strip())
        follows = line.start()
    return found


INJECTED = ("<session_context>", "<state_snapshot>")
"""Prefixes of messages that the CLI adds in the user's role."""

_BESIDE = (
    "args", "result", "resultDisplay", "timestamp", "agentId", "displayName", "description",
    "renderOutputAsMarkdown",
)  # fmt: skip
"""Keys of a call in `toolCalls`, other than `args`, that are not arguments."""
_RESPONSE = "functionResponse"
_FAILED: dict[str, ToolError | bool] = {"success": False, "error": True, "cancelled": ToolError.CANCELLED}
# Texts of the CLI at the start of an error; the first match counts. Tool output never starts an error text.
_WORDS: tuple[tuple[re.Pattern[str], ToolError | Refuser], ...] = (
    (re.compile(r"Tool execution blocked: "), Refuser.HOOK),
    (re.compile(r"Tool execution (?:for \".{1,200}\" )?denied by policy\."), Refuser.RULE),
    (re.compile(r"Tool execution for \".{1,200}\" requires user confirmation"), Refuser.RULE),
    (re.compile(r"\[Operation Cancelled\] Reason: User denied execution\."), Refuser.USER),
    (re.compile(r"Tool \".{1,200}\" not found\b"), ToolError.UNKNOWN_TOOL),
    (re.compile(r"params (?:must|/)"), ToolError.BAD_ARGUMENTS),
)


def take_content_text(message: JSON) -> str:
    """Take the text of a content: a string, a part, or a list of parts. Other parts become placeholders."""
    if part := table(message, "content"):
        table(message)["content"] = [part]
    return take_words(message, "content")


def has_result(call: JSON) -> bool:
    """Return whether a call of `toolCalls` contains its result."""
    result = at(call, "result")
    return bool(result) if isinstance(result, list | str) else isinstance(result, dict)


def has_sent_results(message: JSON) -> bool:
    """Return whether a content has parts that are results."""
    return any(table(part, _RESPONSE) for part in _list_parts(message))


def _list_parts(message: JSON) -> Sequence[JSON]:
    content = at(message, "content")
    return [content] if isinstance(content, dict) else rows(message, "content")


def _take_parts(message: JSON, name: str) -> list[JSON]:
    """Take the parts of a content that have this key."""
    parts = _list_parts(message)
    found = [part for part in parts if table(part, name)]
    if found:
        take(message, "content")
        put_back(message, [part for part in parts if not table(part, name)])
    return found


def put_back(message: JSON, parts: Sequence[JSON]) -> None:
    """Append parts to the content again, without what was taken."""
    if left := [part for part in parts if part]:
        content = at(message, "content")
        table(message)["content"] = [*(content if isinstance(content, list) else []), *left]


def take_response(message: JSON) -> Message:
    """Take the text, reasoning and calls of a response. Calls in `toolCalls` lose only their arguments."""
    wire = _take_parts(message, "functionCall")
    said, thought = take_content_text(message), _take_thoughts(message)
    listed = [
        read_call(text(call, "id"), text(call, "name"), take(call, "args"), call, beside=_BESIDE)
        for call in rows(message, "toolCalls")
    ]
    places = {call.id: place for place, call in enumerate(listed)}
    asked = [take_call(part) for part in wire]
    put_back(message, wire)
    for call in asked:
        if call.id not in places:
            listed.append(call)
        elif not _is_same(call, listed[places[call.id]]):
            listed[places[call.id]] = mark_unread(listed[places[call.id]])
    return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=tuple(listed))


def _is_same(one: MessageCall, other: MessageCall) -> bool:
    return one.name == other.name and decode_nested_json(one.arguments) == decode_nested_json(other.arguments)


def _take_thoughts(message: JSON) -> str:
    found = [
        (take_text(thought, "subject"), take_text(thought, "description"))
        for thought in take_each(message, "thoughts")
    ]
    return "\n".join(": ".join(filter(None, pair)) for pair in found)


def take_result(call: JSON) -> Message:
    """Take a result in `toolCalls` as the prompt contains it, with the call's name and id."""
    id_, name = take_text(call, "id"), take_text(call, "name")
    result = at(call, "result")
    parts = take_each(call, "result") if isinstance(result, list) else [result]
    said = "\n".join([_take_result_text(part, id_, name) for part in parts])
    take_if(call, "result", {}, said)
    return Message(role=Role.TOOL, text=said, call=id_, name=name)


class GeminiResponse(NamedTuple):
    """A result as it was sent to the model. `failed` comes from its own keys, None if they do not show it."""

    call: str
    name: str
    text: str
    failed: ToolError | bool | None


def take_sent_results(message: JSON) -> list[GeminiResponse]:
    """Take the results among the parts of a content."""
    parts, found = _take_parts(message, _RESPONSE), list[GeminiResponse]()
    for part in parts:
        id_, name = text(part, _RESPONSE, "id"), text(part, _RESPONSE, "name")
        failed = True if "error" in table(part, _RESPONSE, "response") else None
        said = _take_result_text(part, id_, name)
        found.append(
            GeminiResponse(id_, name, said, failed or (classify_shell_output(said) if name == TOOL else None))
        )
    put_back(message, parts)
    return found


def _take_result_text(part: JSON, call: str, name: str) -> str:
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


def find_failure(status: str, result: Message) -> ToolError | Refuser | bool | None:
    """Return whether a call failed, how it failed or who refused it, or None if the status is not recorded.

    A shell command that fails has the status `success`.
    """
    failed = _FAILED.get(status)
    if failed is False and result.name == TOOL:
        return classify_shell_output(result.text)
    if failed:
        return next((word for words, word in _WORDS if words.match(result.text)), failed)
    return failed
