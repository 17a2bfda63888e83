"""OpenCode sessions as exported: `{info, messages: [{info, parts}]}`, or only the list of messages.

A call and its result are one part, `tool`, with a state. A message is usually one response; a message with
several `step-finish` parts is several responses. A message that fails before any of it arrived is a failed
request.

A compaction is a part of a user message, followed by a response with `summary`. Later requests contain that
response and the earlier messages from `tail_start_id` on. Messages from `revert` of the session on were
withdrawn by the user; the next prompt drops them. They are counted, and recorded only as remarks.

Counts: messages by role, one response for each step; results are not messages. Tokens are those of each
`step-finish`: its input excludes cached tokens and its output excludes reasoning tokens. Times are in
milliseconds.
"""

from collections.abc import Iterator

from refold.importers.documents import ANY, decode_beginning, document
from refold.importers.fields import (
    JSON,
    at,
    instant,
    json_text,
    number,
    rest,
    rows,
    table,
    take_if,
    take_rows,
    take_text,
    text,
)
from refold.importers.formats.opencode.messages import ABORTED, DONE, is_empty, read_message
from refold.importers.items import (
    Item,
    Place,
    RunBegan,
)
from refold.importers.registry import FormatMatch
from refold.importers.session import NOTHING, PROMPT, end_with_open_calls, last_answer
from refold.importers.session_rows import ALL, Cut, since
from refold.importers.source import BadTranscript, Source
from refold.importers.tallies import count_items
from refold.reducers.source_marks import ASKED_FOR_SUMMARY, PARENT_LABEL

_LABELS = ("version", "agent")


class OpenCode:
    """The importer of OpenCode's exports."""

    name = "opencode"

    def match(self, source: Source) -> FormatMatch | None:
        """Recognise an export by messages with parts, or by the header of the session."""
        head = decode_beginning(source)
        first = at(head, 0) if isinstance(head, list) else at(head, "messages", 0)
        if {"info", "parts"} <= table(first).keys() and text(first, "info", "role"):
            return FormatMatch(95, "messages with info and parts")
        if {"id", "projectID", "directory"} <= table(head, "info").keys():
            return FormatMatch(80, "info of a session")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the items of the document's single run."""
        read = document(source, ("messages",), ("messages", ANY, "parts"), (), (ANY, "parts"))
        run = _OpenCodeRun(read.value)
        if not (run.messages or read.problem or "info" in table(read.value)):
            raise BadTranscript(source.name, "$", "expected a session or a list of messages")
        yield from run.items()
        # Unreadable parts are reported before the end.
        yield from read.cut()
        yield run.ended


OPENCODE = OpenCode()


class _OpenCodeRun:
    """A session and the positions of its messages.

    `standing`: the number of messages that were not withdrawn.
    """

    def __init__(self, value: JSON) -> None:
        self.value, self.info = value, at(value, "info")
        listed = isinstance(value, list)
        self.messages = rows(value) if listed else take_rows(value, "messages")
        self.place = "$" if listed else "$.messages"
        self.ids = [text(message, "info", "id") for message in self.messages]
        first = next(iter(self.messages), None)
        self.key = text(self.info, "id") or text(first, "info", "sessionID") or "session"
        taken = text(self.info, "revert", "messageID")
        self.standing = self.ids.index(taken) if taken and taken in self.ids else len(self.ids)
        # If only some parts of a message were withdrawn, the message itself stays.
        self.standing += bool(text(self.info, "revert", "partID"))
        self.ended = self._make_end()

    def items(self) -> Iterator[Item]:
        """Yield everything but the end of the run."""
        models = (text(message, "info", "modelID") for message in self.messages)
        take_if(self.info, "id", self.key)
        labels = {name: label for name in _LABELS if (label := take_text(self.info, name))}
        if parent := take_text(self.info, "parentID"):
            labels[PARENT_LABEL] = parent
        yield RunBegan(
            "$.info" if self.info else "$",
            instant(at(self.info, "time", "created")),
            rest(table(self.value)),
            key=self.key,
            model=next(filter(None, models), ""),
            agent="opencode",
            cuts=None,
            labels=labels,
        )
        for index, message in enumerate(self.messages):
            created = instant(at(message, "info", "time", "created"))
            where = Place(f"{self.place}[{index}]", created, row=index + 1)
            if index >= self.standing:
                whole, counts = json_text(message), count_items(read_message(message, where, self.key))
                yield where.with_counts(counts).remark("rewound", rest=whole)
            else:
                summed_up = at(message, "info", "summary") is True and not table(message, "info", "error")
                yield from read_message(message, where, self.key, overflowed=self._detect_overflow(index))
                if summed_up:
                    yield where.remark(ASKED_FOR_SUMMARY)
                    yield self._cut_compaction(message, where)

    def _cut_compaction(self, message: JSON, where: Place) -> Item:
        """Return the cut of a compaction: the kept messages, the prompt that requested the summary, and the
        summary.
        """
        asked = self._find_index(text(message, "info", "parentID"))
        parts = rows(self.messages[asked], "parts") if asked is not None else ()
        tails = (self._find_index(text(part, "tail_start_id")) for part in parts)
        first = next((place for place in tails if place is not None), asked)
        tail = ALL if first is None else since(first + 1)
        return Cut(*where.common(), why="compaction", tail=tail)

    def _detect_overflow(self, index: int) -> bool:
        """Return whether the next message requests a compaction because a request exceeded the context
        window.
        """
        following = self.messages[index + 1] if index + 1 < len(self.messages) else None
        return any(at(part, "overflow") is True for part in rows(following, "parts"))

    def _find_index(self, id_: str) -> int | None:
        return self.ids.index(id_) if id_ and id_ in self.ids else None

    def _make_end(self) -> Item:
        """Return the end of the run."""
        told = (at(message, "info", "time") for message in self.messages)
        said = [count for time in told for name in ("created", "completed") if (count := number(time, name))]
        place = Place(f"{self.place}[{len(self.ids) - 1}]" if self.ids else self.place)
        return place.end(self._find_end(), (str(min(said)), str(max(said))) if said else None)

    def _find_end(self) -> tuple[str, str]:
        last = self.messages[self.standing - 1] if self.messages[: self.standing] else None
        error, finish = text(last, "info", "error", "name"), text(last, "info", "finish")
        tools = [part for part in rows(last, "parts") if text(part, "type") == "tool"]
        pending = sum(text(part, "state", "status") not in DONE for part in tools)
        match text(last, "info", "role"):
            case "assistant" if error:
                return "cancelled" if error == ABORTED else "error", f"last response: {error[:60]}"
            case "assistant" if pending:
                return end_with_open_calls(pending)
            case "assistant" if finish == "length":
                return last_answer(finish)
            case "assistant" if is_empty(last):
                return "unknown", "last response is empty; it is not recorded whether it is complete"
            case "assistant" if not finish:
                return "open", "last response has no stop reason: cut while it was written"
            case "assistant" if finish == "tool-calls" or (tools and finish != "stop"):
                return "open", f"last response requests tools, stop={finish[:40]}"
            case "assistant":
                return last_answer("" if finish == "unknown" else finish)
            case "user":
                return PROMPT
            case _:
                return NOTHING
