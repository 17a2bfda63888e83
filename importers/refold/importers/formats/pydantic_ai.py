"""Message histories of Pydantic AI: `[{kind: request | response, parts: [{part_kind, …}], usage, …}]`.

A request with results counts as a tool message, any other as a user message. A `retry-prompt` with a tool is
the result of a failed call; one without a tool is the framework's request for another response.
"""

from collections.abc import Iterator, Mapping, Sequence

from refold.importers.content import end_of, take_call
from refold.importers.documents import ANY, JsonValue, values
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
    take_cost,
    take_each,
    take_if,
    take_rows,
    take_text,
    take_time,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, Unread
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.importers.tallies import add_counts
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role, ToolError

GIVEN = ("system-prompt", "user-prompt")
"""Kinds of parts that are initial messages of a run."""

TOKENS = UsageNames(
    input=("input_tokens", "request_tokens"),
    output=("output_tokens", "response_tokens"),
    cache_read=("cache_read_tokens",),
    cache_write=("cache_write_tokens",),
    reasoning=("output_reasoning_tokens", "details/reasoning_tokens"),
)
_READ_KINDS = ("text", "thinking", "tool-call")
_OUTCOMES: Mapping[str, ToolError | bool] = {
    "": False,
    "success": False,
    "failed": True,
    "denied": ToolError.CANCELLED,
}
"""Status of a result by its `outcome`.

`retried` is left out: a tool that asks to be called again may have done its work or not.
"""


def take_opening(row: JSON) -> Iterator[Message]:
    """Yield the initial messages in a request before the first response."""
    if instructions := take_text(row, "instructions"):
        yield Message(role=Role.SYSTEM, text=instructions)
    for part in rows(row, "parts"):
        if (kind := text(part, "part_kind")) in GIVEN:
            yield Message(
                role=Role.SYSTEM if kind == "system-prompt" else Role.USER, text=_take_content(part)
            )


def read_request_part(place: Place, part: JSON) -> Item:
    """Return the item for a part of a request."""
    kind, failed, result = text(part, "part_kind"), find_failure(part), is_result(part)
    if not result and kind not in (*GIVEN, "retry-prompt"):
        return place.problem("no_part", f"unknown part_kind {kind[:40]!r}", part)
    place = Place(place.position, take_time(part, "timestamp") or place.at, place.counts)
    content = _take_content(part)
    if result:
        name, call = take_text(part, "tool_name"), take_text(part, "tool_call_id")
        return place.result(call, content, name=name, failed=failed, rest=encode_rest(part, kind))
    role = Role.SYSTEM if kind == "system-prompt" else Role.USER
    by = "user" if kind == "user-prompt" else "harness"
    return place.message(content, by, role=role, rest=encode_rest(part, kind))


def read_response(place: Place, row: JSON) -> Item:
    """Return a response as an item."""
    pieces: dict[str, list[str]] = {"text": [], "thinking": []}
    calls: list[MessageCall] = []
    for part in take_each(row, "parts"):
        kind = text(part, "part_kind")
        if kind == "tool-call":
            calls.append(take_call(part))
        elif kind in pieces:
            pieces[kind].append(_take_content(part))
        if kind in _READ_KINDS and not _drop_nulls(part).keys() - {"part_kind"}:
            table(part).clear()
    cost, used = take_cost(row, "usage", "cost"), TOKENS.take(row, "usage") if at(row, "usage") else None
    # Counts of zero have no field in the item, so they are dropped.
    if isinstance(row, dict) and not any(table(row, "usage").values()):
        take(row, "usage")
    return place.reply(
        Message(
            role=Role.ASSISTANT,
            text="\n".join(pieces["text"]),
            reasoning="\n".join(pieces["thinking"]),
            calls=tuple(calls),
        ),
        used,
        stop=take_text(row, "finish_reason"),
        cost=cost,
        model=take_text(row, "model_name"),
        response=take_text(row, "provider_response_id"),
        rest=encode_rest(row, "response"),
    )


def list_other_parts(row: JSON) -> list[JSON]:
    """Return the parts of a response that its item does not include."""
    return [part for part in rows(row, "parts") if text(part, "part_kind") not in _READ_KINDS]


def is_result(part: JSON) -> bool:
    """Return whether a part is the result of a call."""
    kind = text(part, "part_kind")
    return kind == "tool-return" or (kind == "retry-prompt" and bool(text(part, "tool_name")))


def find_failure(part: JSON) -> ToolError | bool | None:
    """Return the status of a result by its kind, or by its outcome; None if not recorded.

    In versions without outcomes, every `tool-return` succeeded.
    """
    retried = text(part, "part_kind") == "retry-prompt"
    failed = True if retried else _OUTCOMES.get(text(part, "outcome"))
    # A list is the validator's errors: the arguments were invalid.
    complaints = failed is True and isinstance(table(part).get("content"), list)
    return ToolError.BAD_ARGUMENTS if complaints else failed


def _take_content(part: JSON) -> str:
    content = at(part, "content")
    if isinstance(content, list) and text(part, "part_kind") == "user-prompt":
        said = [
            piece if isinstance(piece, str) else take_text(piece, "content") or f"[{text(piece, 'kind')}]"
            for piece in content
        ]
        content[:] = [piece for piece in content if not isinstance(piece, str)]
        return "\n".join(said)
    take(part, "content")
    return content if isinstance(content, str) else "" if content is None else json_text(content)


def encode_rest(value: JSON, *kinds: str) -> str:
    """Return JSON text of the remaining fields of a message or part of these kinds, without nulls."""
    take_if(value, "kind", *kinds)
    take_if(value, "part_kind", *kinds)
    return rest(_drop_nulls(value))


def _drop_nulls(value: JSON) -> dict[str, JSON]:
    return {name: inner for name, inner in table(value).items() if inner is not None}


_LISTS = ("messages", "all_messages", "message_history")
_ENDS = ("tool-call", "tool-return")
_OUTPUT = "Final result processed."  # the framework's result for a call of an output tool, which ends the run
_IDS = ("conversation_id", "run_id")


class PydanticAI:
    """The importer for messages of a conversation: a list, an object with a list, or one per line."""

    name = "pydantic_ai"

    def match(self, source: Source) -> FormatMatch | None:
        """Match the discriminators of messages and parts."""
        head = source.head()
        if b'"part_kind"' in head and b'"parts"' in head:
            return FormatMatch(95, "messages with parts that have a part_kind")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per list of messages."""
        loose: list[tuple[str, JSON]] = []
        runs = 0
        for value in values(source, (), *((name,) for name in _LISTS), (ANY,)):
            if isinstance(value, Unread):
                yield value
            elif "parts" in table(value.value):
                loose.append((value.position, value.value))
            elif conversations := list(_conversations(value)):
                for listed, key, around in conversations:
                    yield from _MessageHistory(listed, key or str(runs), around).items()
                    runs += 1
            else:
                yield value.place.problem("no_message", "not a message", value.value)
        if loose:
            yield from _MessageHistory(loose, str(runs)).items()
        elif not runs:
            raise BadTranscript(source.name, "", "no messages of Pydantic AI")


PYDANTIC_AI = PydanticAI()


def _conversations(value: JsonValue) -> Iterator[tuple[list[tuple[str, JSON]], str, str]]:
    """Yield the conversations of a value, each with its id and JSON text of the fields around it.

    They are its own messages, and those of the runs that it lists. Runs without messages are left in the
    fields around the first conversation.
    """
    around = table(value.value)
    listed = _take_listed(value.value, value.position)
    found = [
        (run, _take_listed(run, f"{value.position}.runs[{index}]"))
        for index, run in enumerate(take_rows(around, "runs"))
    ]
    if silent := [run for run, inner in found if not inner]:
        around["runs"] = silent
    if listed:
        yield listed, "", rest(around)
        around = {}
    for run, inner in found:
        if inner:
            own: dict[str, JSON] = {**table(run), "around": around}
            yield inner, text(run, "id"), rest(own)
            around = {}


def _take_listed(value: JSON, position: str) -> list[tuple[str, JSON]]:
    name = next((name for name in _LISTS if rows(value, name)), "")
    listed = take_rows(value, name) if name else rows(value)
    place = f"{position}.{name}" if name else position
    return [(f"{place}[{index}]", row) for index, row in enumerate(listed)]


class _MessageHistory:
    """A reader of one conversation.

    Every message repeats the ids of the first one; they are imported once.
    """

    def __init__(self, listed: Sequence[tuple[str, JSON]], key: str, around: str = "") -> None:
        first = table(listed[0][1])
        shared = {name: first.get(name) for name in _IDS if isinstance(first.get(name), str | None)}
        shared["state"] = "complete"
        for _, row in listed:
            for name, value in shared.items():
                take_if(row, name, value)
        self.listed, self.key, self.around = listed, key, around
        self.labels = {name: label for name in _IDS if (label := text(shared, name))}
        answers = (index for index, (_, row) in enumerate(listed) if text(row, "kind") == "response")
        self.first = next(answers, len(listed))

    def items(self) -> Iterator[Item]:
        """Yield the start, the messages, and the end."""
        head = [row for _, row in self.listed]
        end, times, counts = self._end(), self._times(), add_counts(map(_message, head[: self.first]))
        yield self._begin(head, counts)
        for index, (position, row) in enumerate(self.listed):
            given = index < self.first
            # All initial messages have the time of the first.
            place = Place(
                position, instant(at(row, "timestamp")) if given and index else take_time(row, "timestamp")
            )
            if text(row, "kind") == "request" or given:
                yield from self._request(place, row, given=given)
            elif text(row, "kind") == "response":
                kinds: list[JSON] = [{"type": text(part, "part_kind")} for part in list_other_parts(row)]
                yield read_response(place, row)
                yield from place.hosted_calls(kinds)
            else:
                yield place.problem("no_message", f"unknown kind {text(row, 'kind')[:40]!r}", row)
        yield Place(self.listed[-1][0]).end(end, times)

    def _begin(self, head: Sequence[JSON], counts: Counted | None) -> RunBegan:
        return RunBegan(
            position=self.listed[0][0],
            at=instant(at(head[0], "timestamp")),
            key=self.labels.get("conversation_id", self.key),
            messages=tuple(message for row in head[: self.first] for message in take_opening(row)),
            model=next((name for row in head if (name := text(row, "model_name"))), ""),
            labels=self.labels,
            rest=self.around,
            counts=counts,
            unsaid=TOKENS.list_unrecorded(at(row, "usage") for row in head),
        )

    def _request(self, place: Place, row: JSON, *, given: bool) -> Iterator[Item]:
        """Yield the items of a request.

        `given`: it is before the first response, so its prompts and instructions are initial messages.
        """
        message = _message(row)
        for index, part in enumerate(take_rows(row, "parts")):
            where = Place(f"{place.position}.parts[{index}]", None if given else place.at)
            if not given or text(part, "part_kind") not in GIVEN:
                own = Counted(
                    results=int(is_result(part)), errors=int(is_result(part) and bool(find_failure(part)))
                )
                whole = [own] if given or index else [own, message]
                yield read_request_part(where.with_counts(add_counts(whole)), part)
            elif remaining := encode_rest(part, *GIVEN):
                yield where.remark("unmapped", rest=remaining)
        if remaining := encode_rest(row, "request"):
            yield place.remark("unmapped", rest=remaining)

    def _end(self) -> tuple[str, str]:
        row = self.listed[-1][1]
        parts = {
            kind: [part for part in rows(row, "parts") if text(part, "part_kind") == kind] for kind in _ENDS
        }
        if text(row, "kind") == "response" and not parts["tool-call"]:
            finish = text(row, "finish_reason")  # missing in older versions
            suffix = f", finish_reason={finish}" if finish else ""
            return end_of(finish or "stop"), f"last message is a response without tool call{suffix}"
        if any(text(part, "content") == _OUTPUT for part in parts["tool-return"]):
            return "finished", "last message is the result of an output tool"
        return "open", "last message is a request, or has calls"

    def _times(self) -> tuple[str, str] | None:
        messages = [row for _, row in self.listed]
        parts = [part for row in messages for part in rows(row, "parts")]
        return Times(at(row, "timestamp") for row in (*messages, *parts)).edges()


def _message(row: JSON) -> Counted:
    """Return the count of a request: a tool message if it has results, else a user message."""
    results = any(is_result(part) for part in rows(row, "parts"))
    return Counted(user=int(not results), tool=int(results)) if text(row, "kind") == "request" else UNCOUNTED
