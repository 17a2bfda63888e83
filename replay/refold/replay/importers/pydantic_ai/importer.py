"""Message histories of Pydantic AI: `[{kind: request | response, parts: [{part_kind, …}], usage, …}]`.

A request with results is a tool's message, one without a person's. A `retry-prompt` that names a tool is how a failed call
came back; one that names none is the framework asking for another answer.
"""

from collections.abc import Iterator, Sequence

from refold.reducers.vocabulary import Role
from refold.replay.importers.documents import ANY
from refold.replay.importers.fields import JSON, instant, json_text, rows, table, text
from refold.replay.importers.items import (
    Item,
    Remarked,
    RunBegan,
    RunEnded,
    Tally,
    Unread,
)
from refold.replay.importers.protocol import Match
from refold.replay.importers.pydantic_ai.parts import (
    PART,
    REQUEST,
    answered,
    asked_of,
    failed,
    is_result,
    left,
    opening,
    piece_of,
    summed,
    untold,
)
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.stamps import edges
from refold.replay.importers.values import Value, values

_LISTS = ("messages", "all_messages", "message_history")
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
                for listed, key, rest in conversations:
                    yield from _Conversation(listed, key or str(runs), rest).items()
                    runs += 1
            else:
                yield Unread(
                    position=value.position,
                    code="no_message",
                    problem="no message",
                    rest=json_text(value.value),
                )
        if loose:
            yield from _Conversation(loose, str(runs)).items()
        elif not runs:
            raise BadTranscript(source.name, "", "no messages of Pydantic AI in it")


PYDANTIC_AI = PydanticAI()


def _conversations(value: Value) -> Iterator[tuple[list[tuple[str, JSON]], str, str]]:
    """The conversations of a value, each with its name and what stands around it.

    They are its own messages, or those of the runs that it lists; a run without any is told with the first.
    """
    found = [(f"{value.position}.runs[{index}]", run) for index, run in enumerate(rows(value.value, "runs"))]
    spoken = [(place, run) for place, run in found if _listed(run, place)]
    around = {name: each for name, each in table(value.value).items() if name not in (*_LISTS, "runs")}
    if silent := [run for place, run in found if not _listed(run, place)]:
        around["runs"] = silent
    if listed := _listed(value.value, value.position):
        yield listed, "", json_text(around) if around else ""
        around = {}
    for place, run in spoken:
        own = {name: each for name, each in table(run).items() if name not in _LISTS}
        own |= {"around": around} if around else {}
        yield _listed(run, place), text(run, "id"), json_text(own) if own else ""
        around = {}


def _listed(value: JSON, position: str) -> list[tuple[str, JSON]]:
    name = next((name for name in _LISTS if name in table(value)), "")
    listed = rows(value, name) if name else rows(value)
    place = f"{position}.{name}" if name else position
    return [(f"{place}[{index}]", row) for index, row in enumerate(listed)]


class _Conversation:
    """One conversation: its messages with their places. Each repeats the ids of the first, which are told once."""

    def __init__(self, listed: Sequence[tuple[str, JSON]], key: str, rest: str = "") -> None:
        told: dict[str, JSON] = {name: table(listed[0][1]).get(name) for name in _IDS}
        told["state"] = "complete"
        self.listed: list[tuple[str, JSON]] = [(place, untold(row, told)) for place, row in listed]
        self.key, self.rest = key, rest
        self.labels = {name: label for name in _IDS if (label := text(told, name))}
        answers = (index for index, (_, row) in enumerate(listed) if text(row, "kind") == "response")
        self.first = next(answers, len(listed))

    def items(self) -> Iterator[Item]:
        """Beginning, what happened, end."""
        yield from self._began()
        for place, row in self.listed[self.first :]:
            yield from self._message(place, row)
        end, why = self._end()
        yield RunEnded(position=self.listed[-1][0], end=end, end_source=why, tally=self._tally())

    def _began(self) -> Iterator[Item]:
        given = self.listed[: self.first]
        begun = tuple(message for _, row in given for message in opening(row))
        head = [row for _, row in self.listed]
        model = next((text(row, "model_name") for row in head if text(row, "model_name")), "")
        yield RunBegan(
            position=given[0][0] if given else self.listed[0][0],
            at=instant(table(head[0]).get("timestamp")),
            key=self.labels.get("conversation_id", self.key),
            messages=begun,
            model=model,
            labels=self.labels,
            rest=self.rest,
        )
        for place, row in given:
            for index, part in enumerate(rows(row, "parts")):
                where = f"{place}.parts[{index}]"
                if text(part, "part_kind") not in ("system-prompt", "user-prompt"):
                    yield from asked_of(where, part, None)
                elif rest := left(part, PART):
                    yield Remarked(position=where, what="unmapped", rest=rest)
            if rest := left(row, (*REQUEST, "instructions")):  # which are among the opening messages
                yield Remarked(
                    position=place, at=instant(table(row).get("timestamp")), what="unmapped", rest=rest
                )

    def _message(self, place: str, row: JSON) -> Iterator[Item]:
        when = instant(table(row).get("timestamp"))
        match text(row, "kind"):
            case "response":
                yield answered(place, row, when)
            case "request":
                for index, part in enumerate(rows(row, "parts")):
                    yield from asked_of(f"{place}.parts[{index}]", part, when)
                if rest := left(row, REQUEST):
                    yield Remarked(position=place, at=when, what="unmapped", rest=rest)
            case kind:
                yield Unread(
                    position=place, code="no_message", problem=f"kind {kind[:40]!r}", rest=json_text(row)
                )

    def _end(self) -> tuple[str, str]:
        row = self.listed[-1][1]
        calls = [part for part in rows(row, "parts") if text(part, "part_kind") == "tool-call"]
        if text(row, "kind") == "response" and not calls:
            return "finished", "last message is a response without tool call"
        returned = [part for part in rows(row, "parts") if text(part, "part_kind") == "tool-return"]
        if any(text(part, "content") == _OUTPUT for part in returned):
            return "finished", "last message is the result of an output tool"
        return "open", "last message is a request or asks for tools"

    def _tally(self) -> Tally:
        messages = [row for _, row in self.listed]
        requests = [row for row in messages if text(row, "kind") == "request"]
        answers = [row for row in messages if text(row, "kind") == "response"]
        results = [row for row in requests if any(is_result(part) for part in rows(row, "parts"))]
        parts = [part for row in messages for part in rows(row, "parts")]
        pieces = tuple(piece for part in parts if (piece := piece_of(part)))
        asked = [call.id for piece in pieces for call in piece.calls]
        answered = [piece.call for piece in pieces if piece.role is Role.TOOL]
        first, last = edges(table(row).get("timestamp") for row in (*messages, *parts))
        return Tally(
            messages=len(requests) + len(answers),
            user_messages=len(requests) - len(results),
            assistant_messages=len(answers),
            tool_messages=len(results),
            tool_calls=_distinct(asked),
            tool_results=_distinct(answered),
            tool_errors=sum(failed(part) for part in parts),
            input_tokens=summed(answers, "input_tokens", "request_tokens"),
            cache_read_tokens=summed(answers, "cache_read_tokens"),
            cache_write_tokens=summed(answers, "cache_write_tokens"),
            output_tokens=summed(answers, "output_tokens", "response_tokens"),
            first_timestamp=first,
            last_timestamp=last,
        )


def _distinct(calls: Sequence[str]) -> int:
    """How many calls these ids name; one without an id is a call of its own."""
    return len({*calls} - {""}) + calls.count("")
