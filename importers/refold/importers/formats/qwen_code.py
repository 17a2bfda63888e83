"""Qwen Code sessions: rows that form a tree, each with content sent to the model or received from it.

A row is a user message, a response, a result, or a system row: telemetry, compressions, commands. A failed
request is only in the telemetry (`api_error`), together with those of subagents, which the prompt id
distinguishes. Up to 0.13, a call that the user declined has no result. A compression row has the complete
prompt after it. Two processes may write to one file: then the last writer is the session, and the other is a
branch.

If Qwen Code cannot use a response, it drops it from its history and repeats the request, but the row stays:
another response follows, with no result or user message between. The calls of such a withdrawn response may
have run; their results are later in the file. No later request contains the response or the results. A stream
that broke off leaves a response without `usageMetadata`.

Counts: rows of each type on the path and its branches, calls and results once; tokens as recorded in the
responses. Reasoning tokens are included in the candidates' tokens, unless the total shows that they are not.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy

from msgspec.structs import replace

from refold.importers.fields import (
    JSON,
    at,
    json_text,
    number,
    rows,
    table,
    take,
    take_each,
    take_first,
    take_if,
    take_text,
    text,
)
from refold.importers.formats.gemini_cli.parts import TOOL, classify_shell_output
from refold.importers.items import Answered, Item, Place, RunBegan
from refold.importers.message_shapes import take_messages
from refold.importers.registry import FormatMatch
from refold.importers.session import End, Session, SessionFormat
from refold.importers.session_rows import BEGINNING, Cut, Noise, Row, unread_parts
from refold.importers.source import Source
from refold.importers.tallies import count_items
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Refuser, Role, ToolError

_TOKENS = UsageNames(
    input=("promptTokenCount",),
    output=("candidatesTokenCount",),
    cache_read=("cachedContentTokenCount",),
    reasoning=("thoughtsTokenCount",),
)
_FAILED: Mapping[str, ToolError | bool] = {"success": False, "error": True, "cancelled": ToolError.CANCELLED}
_LABELS = ("sessionId", "version", "cwd", "gitBranch")
"""Keys whose values every row repeats."""
_PARTS = ("text", "thought", "functionCall", "functionResponse", "inlineData", "fileData", "thoughtSignature")
_CONVERSATION_TYPES = ("user", "assistant", "tool_result")
_MAIN = "########"
"""Part of the ids of the main agent's prompts up to 0.13. Those of subagents have `#` and their name."""
_ERRORS: Mapping[str, ToolError] = {
    "tool_not_registered": ToolError.UNKNOWN_TOOL,
    "invalid_tool_params": ToolError.BAD_ARGUMENTS,
}
# `execution_denied` with another text may come from a hook that ran after the call.
_DENIED: tuple[tuple[re.Pattern[str], Refuser], ...] = (
    (re.compile(r"Qwen Code requires permission to use "), Refuser.RULE),
    (re.compile(r"Tool \"[^\"\n]{1,200}\" (?:is denied|requires permission, but)"), Refuser.RULE),
    (re.compile(r"Permission denied by hook for \""), Refuser.HOOK),
    (re.compile(r"Tool execution blocked by hook$"), Refuser.HOOK),
)


class _QwenCode(Session):
    """A reader of one session. `late` maps calls of withdrawn responses to the rows with their results."""

    id, parent = "uuid", "parentUuid"

    def __init__(self, source: Source) -> None:
        self.first: Row | None = None
        self.alone = True
        super().__init__(source)
        self.withdrawn, self.late = dict[int, tuple[str, ...]](), dict[str, Row]()
        self.known_rests = set[str]()
        first = self.first.value if self.first else None
        self.labels = {name: label for name in _LABELS if (label := text(first, name))}
        self._find_withdrawn(self.left)

    def look(self, row: Row) -> None:
        self.first = self.first or (row if "sessionId" in row.value else None)
        self.model = self.model or text(row.value, "model")
        self.alone = self.alone and (_is_side(row.value) or not self.is_conversation(row))

    def is_conversation(self, row: Row) -> bool:
        return text(row.value, "type") in _CONVERSATION_TYPES

    def select_content(self, value: JSON) -> JSON:
        return [at(value, name) for name in ("type", "subtype", "message", "systemPayload")]

    def ends(self, item: Item | Noise) -> End | None:
        if isinstance(item, Answered) and item.quality == "":
            return "unknown", "last response has no call and no usage: it may be truncated"
        return None

    def _find_withdrawn(self, left: frozenset[str]) -> None:
        """Find the responses that another one follows directly, and the rows with results of their calls."""
        last: Row | None = None
        calls = set[str]()
        ours = (row for row in self.rows if isinstance(row, Row) and self._is_ours(row, left))
        for row in ours:
            if text(row.value, "type") == "tool_result":
                ids = [call for call in _list_result_ids(row.value) if call in calls]
                for call in ids:
                    self.late.setdefault(call, row)
                last = None if len(ids) < len(_list_result_ids(row.value)) else last
            elif text(row.value, "type") == "user":
                last = None
            else:
                calls.update(self._withdraw(last, row) if last is not None else ())
                last = row

    def _is_ours(self, row: Row, left: frozenset[str]) -> bool:
        """Return whether a row is part of this conversation."""
        spoke = text(row.value, "type") in _CONVERSATION_TYPES and text(row.value, "uuid") not in left
        return spoke and (self.alone or not _is_side(row.value))

    def _withdraw(self, answer: Row, following: Row) -> tuple[str, ...]:
        """Record a response that another one follows directly, and return its calls."""
        # A row with the same id as the previous row is part of the same response.
        calls, part = (
            _list_call_ids(answer.value),
            text(answer.value, "uuid") == text(following.value, "uuid"),
        )
        if part or not (calls or "usageMetadata" not in answer.value):
            return ()
        self.withdrawn[answer.number] = calls
        return calls

    def begin(self) -> RunBegan:
        place = self.first.place if self.first else Place("line 1")
        return RunBegan(
            place.position,
            place.at,
            key=self.labels.get("sessionId", "session"),
            model=self.model,
            agent="qwen-code",
            labels={name: label for name, label in self.labels.items() if name != "sessionId"},
            unsaid=("cache_write_tokens",),
            cuts=len(self.withdrawn),
        )

    def main(self, row: Row) -> Iterator[Item | Noise]:
        if _is_side(row.value) and not self.alone:
            noise = row.noise("subagent")  # encoded before anything is taken from it
            yield replace(
                noise, apart=count_items(each for each in self._read_row(row) if not isinstance(each, Noise))
            )
        else:
            yield from self._read_row(row)

    def _read_row(self, row: Row) -> Iterator[Item | Noise]:
        message, kind = row.value.get("message"), text(row.value, "type")
        if kind in _CONVERSATION_TYPES:
            keys = (key for part in rows(message, "parts") for key in table(part))
            yield from unread_parts(row, message, ("parts",), keys, _PARTS)
        match kind:
            case "user":
                yield self._read_user_message(row)
            case "assistant":
                yield self._answer(row)
                if row.number in self.withdrawn:
                    yield from self._read_withdrawal(row)
            case "tool_result" if self._is_late(row):
                yield row.noise("late_result")
            case "tool_result":
                yield from self._results(row, message)
            case "system":
                yield self._system(row)
            case _:
                yield row.noise(known=False)

    def _read_user_message(self, row: Row) -> Item:
        by = "user" if text(row.value, "subtype") in ("", "mid_turn_user_message") else "harness"
        said = "\n".join(each.text for each in take_messages(row.value, "message").messages)
        return row.place.message(said, by, rest=self._encode_rest(row))

    def _encode_rest(self, row: Row) -> str:
        """Return JSON text of the remaining fields of a row, without those that every row repeats."""
        for name, label in self.labels.items():
            take_if(row.value, name, label)
        return row.rest()

    def _answer(self, row: Row) -> Item:
        answer, used, model = _take_answer(row.value), _take_usage(row.value), take_text(row.value, "model")
        return row.place.reply(answer, used, model=model, rest=self._encode_rest(row))

    def _is_late(self, row: Row) -> bool:
        """Return whether all results of a row were already yielded with withdrawn responses."""
        ids = _list_result_ids(row.value)
        return bool(ids) and all(
            self.late.get(call) is not None and self.late[call].number == row.number for call in ids
        )

    def _read_withdrawal(self, row: Row) -> Iterator[Item]:
        """Yield the results of a withdrawn response, and a cut that removes all of it from the prompt."""
        for call in self.withdrawn[row.number]:
            if (late := self.late.get(call)) is not None and self._is_late(late):
                value = deepcopy(late.value)
                part = next(
                    each
                    for each in rows(value, "message", "parts")
                    if text(each, "functionResponse", "id") == call
                )
                # Without its time: that is later than the next response, which follows in the log.
                place = Place(late.position, row=row.number)
                yield self._result(Row(late.line, value, None, late.size, row.number), part, place)
        yield Cut(row.position, why="withdrawn", head=((BEGINNING, row.number - 1),), row=row.number)

    def _results(self, row: Row, message: JSON) -> Iterator[Item | Noise]:
        lost = [*row.place.subagent_calls(at(row.value, "toolCallResult", "resultDisplay"))]
        listed = take_each(message, "parts")
        results = [self._result(row, part) for part in listed if table(part, "functionResponse")]
        if not results:
            yield row.noise(known=False)
        take_if(message, "role", "user", "tool")
        for index, result in enumerate(results):
            yield result if index else replace(result, rest=self._encode_rest(row))
        yield from lost

    def _result(self, row: Row, part: JSON, place: Place | None = None) -> Item:
        call, name = take_text(part, "functionResponse", "id"), text(part, "functionResponse", "name")
        take_if(at(part, "functionResponse"), "name", self.ending.open.get(call))
        output = _take_output(part)
        failed = _find_failure(row.value, name, output)
        return (place or row.place).result(call, output, name=name, failed=failed)

    def _system(self, row: Row) -> Item | Noise:
        event = at(row.value, "systemPayload", "uiEvent")
        if text(row.value, "subtype") == "chat_compression":
            messages = take_messages(
                row.value, "systemPayload", "compressedHistory", known_rests=self.known_rests
            ).messages
            return row.place.prompt(messages, "compaction", rest=self._encode_rest(row))
        if not text(event, "event.name").endswith(".api_error") or not _is_main(event):
            return row.noise()
        problem = take_first(event, "error_message", "error")
        if "Abort" in text(event, "error_type"):
            return row.place.cancellation(problem, rest=self._encode_rest(row))
        return row.place.failure(problem, status=number(event, "status_code"), rest=self._encode_rest(row))


def _is_main(event: JSON) -> bool:
    """Return whether a telemetry event is about a request of the main agent."""
    prompt = text(event, "prompt_id")
    return (_MAIN in prompt or "#" not in prompt) and not text(event, "subagent_name")


def _list_call_ids(row: JSON) -> tuple[str, ...]:
    calls = (table(part, "functionCall") for part in rows(row, "message", "parts"))
    return tuple(id_ for call in calls if (id_ := text(call, "id")))


def _list_result_ids(row: JSON) -> list[str]:
    return [
        text(part, "functionResponse", "id")
        for part in rows(row, "message", "parts")
        if table(part, "functionResponse")
    ]


def _find_failure(row: JSON, name: str, output: str) -> ToolError | Refuser | bool | None:
    """Return whether or how a call failed, or who refused it; None if not recorded.

    A failed shell command has the status `success`, so its output decides.
    """
    failed = _FAILED.get(text(row, "toolCallResult", "status"))
    if failed is False and name == TOOL:
        return classify_shell_output(output)
    if failed is not True:
        return failed
    kind = text(row, "toolCallResult", "errorType")
    denied = (by for words, by in _DENIED if words.match(output)) if kind in ("", "execution_denied") else ()
    return next(iter(denied), None) or _ERRORS.get(kind, True)


def _is_side(row: JSON) -> bool:
    return at(row, "isSidechain") is True


def _take_answer(row: JSON) -> Message:
    found = take_messages(row, "message", role=Role.ASSISTANT).messages
    return next((said for said in found if said.role is Role.ASSISTANT), Message(role=Role.ASSISTANT))


def _take_usage(row: JSON) -> Usage | None:
    total, used = number(row, "usageMetadata", "totalTokenCount"), _TOKENS.take(row, "usageMetadata")
    beside = used is not None and total == used.input + used.output + used.reasoning
    return replace(used, output=used.output + used.reasoning) if used and beside else used


def _take_output(part: JSON) -> str:
    """Take the text of a result that the model received."""
    response = table(part, "functionResponse", "response")
    inner = [name for name in ("output", "error") if name in response][:1]
    said = take(part, "functionResponse", "response", *inner)
    take_if(part, "functionResponse", {})
    return said if isinstance(said, str) else "" if said is None else json_text(said)


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match rows of a tree that have messages with parts, or a system payload."""
    linked = [row for row in found if {"uuid", "parentUuid", "sessionId"} <= row.keys()]
    if any(isinstance(at(row, "message", "parts"), list) or "systemPayload" in row for row in linked):
        return FormatMatch(95, "rows with parentUuid whose messages have parts")
    return None


QWEN_CODE = SessionFormat("qwen_code", _QwenCode, _match)
