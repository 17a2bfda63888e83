"""Gemini CLI chats: messages with thoughts, token counts and calls; each result is inside its call."""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy

import msgspec

from refold.importers.fields import (
    JSON,
    Times,
    at,
    instant,
    json_text,
    rest,
    rows,
    table,
    take,
    take_each,
    take_if,
    take_text,
    take_time,
    text,
)
from refold.importers.formats.gemini_cli.parts import (
    INJECTED,
    GeminiRecord,
    GeminiResponse,
    find_failure,
    has_result,
    has_sent_results,
    is_log,
    records,
    take_content_text,
    take_response,
    take_result,
    take_sent_results,
)
from refold.importers.items import (
    UNKNOWN_PART,
    Answered,
    Counted,
    Item,
    Place,
    Returned,
    RunBegan,
    Said,
    Unread,
)
from refold.importers.registry import FormatMatch
from refold.importers.session import RESULT, End, Ending
from refold.importers.session_rows import Noise, diagnose_apart, gather
from refold.importers.source import Source
from refold.importers.tallies import count_items
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, Usage
from refold.reducers.source_marks import PARENT_LABEL
from refold.reducers.vocabulary import Role, ToolError

_TOKENS = UsageNames(input=("input",), output=("output",), cache_read=("cached",), reasoning=("thoughts",))
Shown = tuple[str, str]
"""Who sent a message that the prompt contains (`user` or `gemini`), and its text."""


class GeminiCli:
    """The importer of Gemini CLI's chat files: JSON documents and JSONL logs."""

    name = "gemini_cli"

    def match(self, source: Source) -> FormatMatch | None:
        """Recognise a chat by its header, or by messages of type `gemini`."""
        head = source.head()
        if not head.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{"):
            return None
        if b'"projectHash"' in head and b'"sessionId"' in head:
            return FormatMatch(90, "a header with sessionId and projectHash")
        typed = b'"type":"gemini"' in head or b'"type": "gemini"' in head
        if typed and b'"content"' in head:
            return FormatMatch(75, "messages of type gemini")
        dated = b'"lastUpdated"' in head and b'"messages"' in head and b'"type"' in head
        return (
            FormatMatch(40, "a chat with messages and lastUpdated")
            if dated and b'"role"' not in head
            else None
        )

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the items of the file's single run."""
        return gather(_read_items(source))


def _read_items(source: Source) -> Iterator[Item | Noise]:
    # The list costs little: a document is in memory anyway, and a log needs the last version of each message.
    found = list(records(source))
    header = next((it for it in found if isinstance(it, GeminiRecord) and it.what == "header"), None)
    begin = "line 1" if is_log(source) else "$"
    yield _begin_run(header, begin, next((model for it in found if (model := _find_model(it))), ""))
    yield from _Chat(begin).items([record for record in found if record is not header])


class _Chat:
    """A reader of one chat.

    `answered` maps calls to their results. `shown` has the keys of the messages in the current prompt.
    `known_rests` has the JSON texts of unmapped message parts that were already recorded. `resumed`: the chat
    was reopened, and no user or model message followed yet.
    """

    def __init__(self, begin: str) -> None:
        self.times, self.last = Times(), begin
        # A call is written only when it has ended. So a response without calls may have been cut off while
        # its tool ran, or while it was streamed.
        self.ending = Ending(silent="unknown", rule=_find_end)
        self.spoken = self.resumed = False
        self.answered: dict[str, str] = {}
        self.known_rests, self.shown = set[str](), list[Shown]()

    def items(self, found: Sequence[GeminiRecord | Noise | Unread]) -> Iterator[Item | Noise]:
        """Yield everything after the start of the run."""
        for place, record in enumerate(found):
            if isinstance(record, GeminiRecord):
                self.last = record.position
                behind = map(found.__getitem__, range(place + 1, len(found)))
                following = (each for each in behind if isinstance(each, GeminiRecord))
                yield from self._read_record(record, following)
            else:
                self.resumed = self.resumed or (isinstance(record, Noise) and record.what == "resumed")
                yield record
        yield Place(self.last).end(self.ending.end(), self.times.edges())

    def _read_record(self, record: GeminiRecord, following: Iterator[GeminiRecord]) -> Iterator[Item]:
        if record.what == "replaced" and self.spoken:
            yield self._replace_prompt(record, next(following, None))
            return
        for message in record.messages():
            self.times.see(at(message, "timestamp"), instant(at(message, "timestamp")))
            if text(message, "type") in ("user", "gemini"):
                self.spoken, self.resumed = True, False
            for item in self._read_message(record, message):
                if isinstance(item, Said | Answered | Returned):
                    self.ending.see(item)
                yield item
            table(message).clear()
        if record.what == "replaced" and (left := rest(record.value)):
            yield Place(self.last).remark("unmapped", rest=left)

    def _read_message(self, record: GeminiRecord, message: JSON) -> Iterator[Item]:
        place = Place(record.position, instant(at(message, "timestamp")))
        if record.left:
            whole, aside = json_text(message), _Chat(record.position)
            restored = msgspec.structs.replace(record, left=False)
            counts = count_items(aside._read_message(restored, message))
            yield place.with_counts(counts).remark("rewound", rest=whole)
            yield from diagnose_apart(place, "rewound", counts)
            return
        if text(message, "type") in ("user", "info", "warning", "error"):
            yield from place.unknown_calls({"toolCalls": at(message, "toolCalls")})
        match text(message, "type"):
            case "user" if has_sent_results(message):
                yield from self._read_sent_results(message, place)
            case "user":
                said = take_content_text(message)
                self.shown.append(("user", said))
                by = "harness" if said.startswith(INJECTED) else "user"
                yield place.message(said, by, rest=_take_rest(message))
            case "gemini":
                yield from self._read_response(message, place)
            case _:
                yield from _read_other(message, place)

    def _read_response(self, message: JSON, place: Place) -> Iterator[Item]:
        calls = rows(message, "toolCalls")
        answer, used, model = take_response(message), _take_usage(message), take_text(message, "model")
        take(message, "toolCalls")
        self.shown.append(("gemini", answer.text))
        yield place.reply(answer, used, model=model, rest=_take_rest(message))
        yield from place.hosted_calls(at(message, "content"))
        for index, call in enumerate(calls):
            inside = f".toolCalls[{index}]" if place.position.startswith("$") else ""
            yield from self._read_call_result(call, Place(place.position + inside, place.at))

    def _read_call_result(self, call: JSON, place: Place) -> Iterator[Item]:
        status, done = text(call, "status"), has_result(call)
        lost = [*place.subagent_calls(at(call, "resultDisplay"))]
        result = take_result(call)
        failed = find_failure(status, result) if done else None
        # A result in `toolCalls` is not a separate message.
        errors = failed not in (None, False, ToolError.CANCELLED) if done else status == "error"
        counts = Counted(results=int(done), errors=int(errors))
        if done:
            self.answered[result.call or ""] = result.text
            take_if(call, "status", "success", "error", "cancelled")
            where = Place(place.position, take_time(call, "timestamp") or place.at, counts)
            began = take_text(call, "agentId")
            yield where.result(
                result.call, result.text, name=result.name, failed=failed, began=began, rest=rest(call)
            )
        elif left := rest(call):
            yield place.with_counts(counts).remark("unanswered", rest=left)
        yield from lost

    def _is_known(self, result: GeminiResponse) -> bool:
        return self.answered.get(result.call) == result.text

    def _read_sent_results(self, message: JSON, place: Place) -> Iterator[Item]:
        """Yield the results that a user message sends to the model, unless their calls already contain them.

        The text beside them is from the harness, not from the user.
        """
        results = take_sent_results(message)
        said = take_content_text(message)
        for each in results:
            if not self._is_known(each):
                self.answered[each.call] = each.text
                counts = Counted(results=1, errors=int(each.failed is True))
                yield place.with_counts(counts).result(
                    each.call, each.text, name=each.name, failed=each.failed
                )
        if said:
            yield place.with_counts(Counted(tool=1)).message(said, "harness", rest=_take_rest(message))
        else:
            yield place.with_counts(Counted(tool=1)).remark("sent", rest=_take_rest(message))

    def _replace_prompt(self, record: GeminiRecord, following: GeminiRecord | None) -> Item:
        """Return the new prompt: the chat was compressed, a turn was removed, or the chat was reopened.

        Each replacement repeats all messages, so their unmapped parts are recorded only once. The CLI may
        compress the chat between the results of a batch and the request that sends them. Then the results are
        in the next record.
        """
        shown: list[Message] = []
        for message in record.messages():
            shown += _take_prompt_messages(message)
            if (left := rest(message)) in self.known_rests:
                table(message).clear()
            self.known_rests.add(left)
        keys = [(_WHOSE[each.role], each.text) for each in shown if each.role in _WHOSE]
        if shown and following is not None:
            waiting = {call.id for call in shown[-1].calls}
            shown += (
                _make_tool_message(each)
                for each in _list_sent_results(following)
                if each.call in waiting and self._is_known(each)
            )
        dropped = Counter(self.shown) - Counter(keys)
        why = "resume" if self.resumed else "compaction" if dropped else "history"
        self.shown = keys
        return Place(record.position).prompt(tuple(shown), why, rest(record.value))


_WHOSE = {Role.USER: "user", Role.ASSISTANT: "gemini"}


def _take_prompt_messages(message: JSON) -> Iterator[Message]:
    """Yield the prompt messages that a message of the chat becomes."""
    if text(message, "type") == "user":
        results, said = take_sent_results(message), take_content_text(message)
        yield from map(_make_tool_message, results)
        if said or not results:
            yield Message(role=Role.USER, text=said)
    elif text(message, "type") == "gemini":
        yield take_response(message)
        yield from (take_result(call) for call in take_each(message, "toolCalls") if has_result(call))


def _find_end(item: Item | Noise) -> End | None:
    """Return the end that the last item shows if the general rules do not apply.

    Either the chat has no prompt, or its last response was cut off.
    """
    if isinstance(item, Answered) and '"tokens":null' in item.rest:
        return "unknown", "last response has no token counts: cut off"
    if isinstance(item, Said) and item.counts is not None and item.counts.tool:
        return RESULT  # text that was sent with results
    if isinstance(item, Said) and item.text.startswith(INJECTED[0]):
        return "unknown", "only the CLI's own messages before a chat; no prompt"
    return None


def _make_tool_message(result: GeminiResponse) -> Message:
    return Message(role=Role.TOOL, text=result.text, call=result.call, name=result.name)


def _list_sent_results(record: GeminiRecord) -> list[GeminiResponse]:
    """Return the results that a message sends to the model, without taking them out of it."""
    sends = record.what == "message" and not record.left and has_sent_results(record.value)
    return take_sent_results(deepcopy(record.value)) if sends else []


def _find_model(found: object) -> str:
    return text(found.value, "model") if isinstance(found, GeminiRecord) else ""


def _begin_run(header: GeminiRecord | None, position: str, model: str) -> RunBegan:
    value = header.value if header else None
    key, began = take_text(value, "sessionId") or "session", take_time(value, "startTime")
    return RunBegan(
        position=header.position if header else position,
        at=began,
        rest=rest(value),
        key=key,
        model=model,
        agent="gemini-cli",
        # The file does not name the parent run. The result of the call that started the subagent does.
        labels={PARENT_LABEL: ""} if text(value, "kind") == "subagent" else {},
        unsaid=("cache_write_tokens",),
    )


def _read_other(message: JSON, place: Place) -> Iterator[Item]:
    shown = text(message, "content")
    match text(message, "type"):
        case "error":
            yield place.failure(take_content_text(message), rest=_take_rest(message))
        case "info" if shown.startswith("Request cancelled"):
            yield place.cancellation(take_content_text(message), rest=_take_rest(message))
        case "info" if "compressed from" in shown:
            yield place.remark("compaction", message)
        case "info" | "warning" as kind:
            yield place.remark(kind, message)
        case kind:
            problem = f"unknown message type {kind[:40]!r}"
            yield place.problem(UNKNOWN_PART, problem)
            yield place.remark("unmapped", message)


def _take_rest(message: JSON) -> str:
    """Return the unmapped rest of a message as JSON text, without its type and time, which the item has."""
    take(message, "type")
    take_time(message, "timestamp")
    return rest(message)


def _take_usage(message: JSON) -> Usage | None:
    """Take the usage of a model message.

    Gemini CLI's `output` excludes reasoning tokens, ours includes them; its `input` includes cached tokens.
    """
    used = _TOKENS.take(message, "tokens")
    return used and msgspec.structs.replace(used, output=used.output + used.reasoning)


GEMINI_CLI = GeminiCli()
