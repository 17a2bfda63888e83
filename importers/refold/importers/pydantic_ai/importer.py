"""Message histories of Pydantic AI: `[{kind: request | response, parts: [{part_kind, …}], usage, …}]`.

A request with results is a tool's message, one without a person's. A `retry-prompt` that names a tool is how a failed call
came back; one that names none is the framework asking for another answer.
"""

from collections.abc import Iterator, Sequence

from refold.importers.documents import ANY
from refold.importers.fields import JSON, at, instant, rows, table, text
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, Unread, together
from refold.importers.leftovers import rest, take_if, take_rows, take_time
from refold.importers.protocol import Match
from refold.importers.pydantic_ai.parts import (
    GIVEN,
    TOKENS,
    answered,
    asked_of,
    failed_of,
    is_result,
    left_of,
    take_opening,
    untold,
)
from refold.importers.source import BadTranscript, Source
from refold.importers.stops import end_of
from refold.importers.times import Times
from refold.importers.values import Value, values

_LISTS = ("messages", "all_messages", "message_history")
_ENDS = ("tool-call", "tool-return")
_OUTPUT = "Final result processed."  # what the framework returns for a call of an output tool: the run's end
_IDS = ("conversation_id", "run_id")


class PydanticAI:
    """A list of the messages of one conversation, alone or in an object, or a message a line."""

    name = "pydantic_ai"

    def match(self, source: Source) -> Match | None:
        """By the discriminators of messages and parts."""
        head = source.head()
        if b'"part_kind"' in head and b'"parts"' in head:
            return Match(95, "messages with parts of a part_kind")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """One run a list of messages."""
        loose: list[tuple[str, JSON]] = []
        runs = 0
        for value in values(source, (), *((name,) for name in _LISTS), (ANY,)):
            if isinstance(value, Unread):
                yield value
            elif "parts" in table(value.value):
                loose.append((value.position, value.value))
            elif conversations := list(_conversations(value)):
                for listed, key, around in conversations:
                    yield from _Conversation(listed, key or str(runs), around).items()
                    runs += 1
            else:
                yield value.place.unread("no_message", "no message", value.value)
        if loose:
            yield from _Conversation(loose, str(runs)).items()
        elif not runs:
            raise BadTranscript(source.name, "", "no messages of Pydantic AI in it")


PYDANTIC_AI = PydanticAI()


def _conversations(value: Value) -> Iterator[tuple[list[tuple[str, JSON]], str, str]]:
    """The conversations of a value, each with its name and what stands around it.

    They are its own messages, or those of the runs that it lists; a run without any is told with the first.
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


class _Conversation:
    """One conversation: its messages with their places. Each repeats the ids of the first, which are told once."""

    def __init__(self, listed: Sequence[tuple[str, JSON]], key: str, around: str = "") -> None:
        first = table(listed[0][1])
        told = {name: first.get(name) for name in _IDS if isinstance(first.get(name), str | None)}
        told["state"] = "complete"
        for _, row in listed:
            for name, value in told.items():
                take_if(row, name, value)
        self.listed, self.key, self.around = listed, key, around
        self.labels = {name: label for name in _IDS if (label := text(told, name))}
        answers = (index for index, (_, row) in enumerate(listed) if text(row, "kind") == "response")
        self.first = next(answers, len(listed))

    def items(self) -> Iterator[Item]:
        """Beginning, what happened, end."""
        head = [row for _, row in self.listed]
        end, times, counts = self._end(), self._times(), together(map(_message, head[: self.first]))
        yield RunBegan(
            position=self.listed[0][0],
            at=instant(at(head[0], "timestamp")),
            key=self.labels.get("conversation_id", self.key),
            messages=tuple(message for row in head[: self.first] for message in take_opening(row)),
            model=next((name for row in head if (name := text(row, "model_name"))), ""),
            labels=self.labels,
            rest=self.around,
            counts=counts,
            unsaid=TOKENS.unsaid(at(row, "usage") for row in head),
        )
        for index, (position, row) in enumerate(self.listed):
            given = index < self.first
            # What the run began with has one time, that of the first.
            place = Place(
                position, instant(at(row, "timestamp")) if given and index else take_time(row, "timestamp")
            )
            if text(row, "kind") == "request" or given:
                yield from self._request(place, row, given=given)
            elif text(row, "kind") == "response":
                kinds: list[JSON] = [{"type": text(part, "part_kind")} for part in untold(row)]
                yield answered(place, row)
                yield from place.hosted(kinds)
            else:
                yield place.unread("no_message", f"kind {text(row, 'kind')[:40]!r}", row)
        yield Place(self.listed[-1][0]).ended(end, times)

    def _request(self, place: Place, row: JSON, *, given: bool) -> Iterator[Item]:
        """A request; `given`: it stands before the first answer, so its prompts and instructions begin the run."""
        message = _message(row)
        for index, part in enumerate(take_rows(row, "parts")):
            where = Place(f"{place.position}.parts[{index}]", None if given else place.at)
            if not given or text(part, "part_kind") not in GIVEN:
                own = Counted(
                    results=int(is_result(part)), errors=int(is_result(part) and bool(failed_of(part)))
                )
                whole = [own] if given or index else [own, message]
                yield asked_of(where.counting(together(whole)), part)
            elif unsaid := left_of(part, *GIVEN):
                yield where.remarked("unmapped", rest=unsaid)
        if unsaid := left_of(row, "request"):
            yield place.remarked("unmapped", rest=unsaid)

    def _end(self) -> tuple[str, str]:
        row = self.listed[-1][1]
        parts = {
            kind: [part for part in rows(row, "parts") if text(part, "part_kind") == kind] for kind in _ENDS
        }
        if text(row, "kind") == "response" and not parts["tool-call"]:
            finish = text(row, "finish_reason")  # of older versions no response has one
            said = f", finish_reason={finish}" if finish else ""
            return end_of(finish or "stop"), f"last message is a response without tool call{said}"
        if any(text(part, "content") == _OUTPUT for part in parts["tool-return"]):
            return "finished", "last message is the result of an output tool"
        return "open", "last message is a request or asks for tools"

    def _times(self) -> tuple[str, str] | None:
        messages = [row for _, row in self.listed]
        parts = [part for row in messages for part in rows(row, "parts")]
        return Times(at(row, "timestamp") for row in (*messages, *parts)).edges()


def _message(row: JSON) -> Counted:
    """As what message a request counts: a tool's if it has results, else a person's."""
    results = any(is_result(part) for part in rows(row, "parts"))
    return Counted(user=int(not results), tool=int(results)) if text(row, "kind") == "request" else UNCOUNTED
