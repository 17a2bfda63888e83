"""Threads of Amp: one document `{v, id, messages}` of numbered messages with content blocks.

A result is a block of a user message: `run` has its status, and its result or error. The file does not record
the text that the model received for a result that is not text; JSON text of the result is used instead. User
input has a time, and so does a response with usage; results do not.

Counts: messages by role, with messages that hold results as results; tokens as recorded in the responses,
whose input excludes cached tokens.
"""

from collections.abc import Iterator

from refold.importers.content import plain
from refold.importers.documents import ANY, decode_beginning, document
from refold.importers.fields import (
    JSON,
    Times,
    as_written,
    at,
    instant,
    rest,
    rows,
    table,
    take,
    take_each,
    take_if,
    take_rows,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.items import (
    UNCOUNTED,
    UNKNOWN_PART,
    Answered,
    Counted,
    Item,
    Place,
    RequestFailed,
    RunBegan,
)
from refold.importers.message_shapes import take_messages
from refold.importers.registry import FormatMatch
from refold.importers.session import End, Ending, last_answer
from refold.importers.session_rows import Noise
from refold.importers.source import BadTranscript, Source
from refold.importers.traces import answer_of
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Refuser, Role, ToolError

_TOKENS = UsageNames(
    input=("inputTokens",),
    output=("outputTokens",),
    cache_read=("cacheReadInputTokens",),
    cache_write=("cacheCreationInputTokens",),
    beside=True,
)
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image")
_UNDER_WAY = ("in-progress", "queued", "blocked-on-user")
_STOPPED = ("cancelled", "rejected-by-user")
_ENDS = {"cancelled": "cancelled", "error": "error", "streaming": "open", "running": "open"}
_LABELS = ("title", "agentMode")


class Amp:
    """The importer of Amp's threads."""

    name = "amp"

    def match(self, source: Source) -> FormatMatch | None:
        """Match the id of a thread, or numbered messages with keys that only Amp uses."""
        head = source.head()
        found = decode_beginning(source) if b'"messages"' in head else None
        if text(found, "id").startswith("T-") and (
            "messageId" in table(found, "messages", 0) or "v" in table(found)
        ):
            return FormatMatch(96, "a thread with an id T-…")
        if "messageId" in table(found, "messages", 0) and (b'"toolUseID"' in head or b'"agentMode"' in head):
            return FormatMatch(90, "messages numbered by messageId")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the items of the document's only run."""
        read = document(source, ("messages",), ("messages", ANY, "content"))
        if not isinstance(at(read.value, "messages"), list):
            raise BadTranscript(source.name, "$", "no list of messages")
        thread = _Thread(read.value)
        yield from thread.items()
        yield from read.cut()
        yield Place(f"$.messages[{max(0, len(thread.messages) - 1)}]").end(
            thread.ending.end(), thread.times.edges()
        )


AMP = Amp()


class _Thread:
    """A reader of one thread."""

    def __init__(self, value: JSON) -> None:
        self.value, self.messages = value, take_rows(value, "messages")
        self.times, self.state = Times(), ""
        self.ending = Ending(rule=self._end_of_answer)

    def items(self) -> Iterator[Item]:
        """Yield all items except the end."""
        models = (text(message, "usage", "model") for message in self.messages)
        labels = {name: label for name in _LABELS if (label := take_text(self.value, name))}
        labels |= {"version": version} if (version := text(self.value, *_VERSION)) else {}
        key, created = take_text(self.value, "id") or "thread", instant(at(self.value, "created"))
        model = next(filter(None, models), "")
        yield RunBegan("$", created, rest(self.value), key=key, model=model, agent="amp", labels=labels)
        for index, message in enumerate(self.messages):
            place = Place(f"$.messages[{index}]", self._take_moment(message), row=index + 1)
            for item in self._message(message, place):
                self.ending.see(item)
                yield item

    def _take_moment(self, message: JSON) -> int | None:
        """Take the time of a message from the first path that has one."""
        moment = next((path for path in _MOMENTS if instant(at(message, *path)) is not None), ())
        self.times.see(at(message, *moment) if moment else None, instant(at(message, *moment)))
        return take_time(message, *moment) if moment else None

    def _message(self, message: JSON, place: Place) -> Iterator[Item]:
        strange = {
            text(block, "type") for block in rows(message, "content") if not isinstance(block, str)
        } - {*_BLOCKS}
        if strange or "content" not in table(message):
            problem = f"unknown parts in a message: {', '.join(sorted(strange))[:200] or 'no content'}"
            yield place.problem(UNKNOWN_PART, problem)
        match text(message, "role"):
            case "assistant":
                yield from self._answer(message, place)
            case "user":
                yield from self._user(message, place)
            case _:
                yield place.remark("unmapped", message, known=False)

    def _answer(self, message: JSON, place: Place) -> Iterator[Item]:
        used, model = _TOKENS.take(message, "usage"), take_text(message, "usage", "model")
        self.state, stop = text(message, "state", "type"), take_text(message, "state", "stopReason")
        take_if(at(message, "state"), "type", "complete", "cancelled")
        take_if(message, "state", {})
        answer: Message = answer_of(take_messages(message, role=Role.ASSISTANT))
        problem = text(message, "state", "error", "message")
        if self.state == "error" and not (answer.text or answer.calls):
            yield place.failure(problem, rest=rest(message))
            return
        yield place.reply(answer, used, stop=stop, model=model, rest=rest(message))
        if self.state == "cancelled":
            yield Place(place.position, place.at).cancellation()

    def _user(self, message: JSON, place: Place) -> Iterator[Item]:
        """Yield the results in a user message, then the text typed with them."""
        results: list[Item] = []
        for block in take_each(message, "content"):
            if text(block, "type") == "tool_result":
                results += self._result(block, place.with_counts(Counted(results=1)) if results else place)
        content = take_words(message, "content", beside=frozenset({"tool_result"}))
        take_if(message, "role", "user")
        yield from results
        if content or not results:
            yield (place.with_counts(UNCOUNTED) if results else place).message(content, rest=rest(message))
        elif left := rest(message):
            yield Place(place.position, place.at).remark("unmapped", rest=left)

    def _result(self, block: JSON, place: Place) -> Iterator[Item]:
        """Yield a result according to its status; a call still in progress becomes a remark."""
        status, call = text(block, "run", "status"), text(block, "toolUseID")
        if status in _UNDER_WAY:
            yield Place(place.position, place.at).remark("unmapped", block)
            yield from place.subagent_calls(at(block, "run", "progress"))
            table(block).clear()
            return
        if "result" not in table(block, "run") and status not in ("done", "error", *_STOPPED):
            yield place.problem(UNKNOWN_PART, "a result without a known run status")
            return
        take_text(block, "toolUseID")
        take_if(block, "type", "tool_result")
        take_if(at(block, "run"), "status", "done", *_STOPPED, "error")
        failed = _failure(status, at(block, "run", "result"))
        words = _take_words(block)
        take_if(block, "run", {})
        if place.counts is not None:
            place = place.with_counts(Counted(results=1, errors=int(failed not in (None, False))))
        shown, left = at(block, "run", "progress"), rest(block)
        yield place.result(call, words, name=self.ending.open.get(call), failed=failed, rest=left)
        yield from place.subagent_calls(shown)
        if status == "rejected-by-user":
            yield Place(place.position, place.at).remark("approval:rejected", {"toolUseID": call})
        table(block).clear()

    def _end_of_answer(self, item: Item | Noise) -> End | None:
        """Return the end by the state of the last response; only `complete` may end a thread normally."""
        if not isinstance(item, Answered | RequestFailed):
            return None
        if end := _ENDS.get(self.state):
            return end, f"state of the last response: {self.state}"
        return last_answer(item.stop_raw if isinstance(item, Answered) and self.state == "complete" else "")


_VERSION = ("env", "initial", "platform", "clientVersion")
_MOMENTS = (("usage", "timestamp"), ("meta", "sentAt"))


def _failure(status: str, result: JSON) -> ToolError | Refuser | bool | None:
    """Return whether or how a call failed, or who refused it, by its status.

    For the status `done`, the exit code and `success` of the result decide.
    """
    match status:
        case "error":
            return True
        case "cancelled":
            return ToolError.CANCELLED
        case "rejected-by-user":
            return Refuser.USER
        case "done":
            return at(result, "exitCode") not in (None, 0) or at(result, "success") is False
        case _:
            return None


def _take_words(block: JSON) -> str:
    """Take the text of a run for the model: its result, or the reason why it has none."""
    for path in (("run", "result"), ("run", "error", "message"), ("run", "reason")):
        found = at(block, *path)
        if found is not None:
            take(block, *path)
            return plain(found) if isinstance(found, str | list) else as_written(found)
    return ""
