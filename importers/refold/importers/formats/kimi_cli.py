"""Kimi CLI sessions: `wire.jsonl` (the events of the session) or `context.jsonl` (the prompt).

In a wire file, a step is one response: its parts and calls, then its usage. Results may precede the usage;
they are yielded after the response. The file does not record whether a user or an error interrupted a step,
nor the messages that remain after a compaction. A context file has no times, no usage, and no status of
results. A compaction rewrites it.

Counts: in a wire file, turns and the input typed meanwhile, steps with content, and results; in a context
file, messages by role. Input tokens exclude cached ones.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.importers.content import find_call_mark, take_call, take_calls
from refold.importers.fields import (
    JSON,
    at,
    json_text,
    rest,
    table,
    take,
    take_each,
    take_flag,
    take_if,
    take_number,
    take_part,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.items import Counted, Item, Place, RequestFailed, RunBegan, RunEnded
from refold.importers.registry import FormatMatch
from refold.importers.session import Draft, End, Session, SessionFormat
from refold.importers.session_rows import Noise, Row, lines
from refold.importers.source import Source, fits
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message
from refold.reducers.vocabulary import FailureClass, Role

_TOKENS = UsageNames(
    input=("input_other",),
    output=("output",),
    cache_read=("input_cache_read",),
    cache_write=("input_cache_creation",),
    beside=True,
)
_MARKS = ("_system_prompt", "_checkpoint", "_usage")
_ROLES = ("user", "system", "assistant", "tool")
_IMPLIED_TYPES = ("ContentPart", "ToolCall", "ToolCallPart", "StatusUpdate", "ToolResult", "TurnBegin")
"""Row types that follow from the type of the item."""
_STOPPED = "unknown", "last step was interrupted by a user or an error"
_INTERRUPTED = "interrupted by a user or an error; the source does not record which"
_REMARKS = {
    "ApprovalRequest": "approval",
    "ApprovalResponse": "approval",
    "ApprovalRequestResolved": "approval",
    "CompactionBegin": "compaction",
    "CompactionEnd": "compaction",
    "HookTriggered": "hook",
    "HookResolved": "hook",
    "SubagentEvent": "subagent",
}
_KINDS = frozenset({
    *_REMARKS, "BtwBegin", "BtwEnd", "HookRequest", "MCPLoadingBegin", "MCPLoadingEnd", "Notification", "PlanDisplay",
    "QuestionRequest", "StatusUpdate", "StepBegin", "ToolCallRequest", "TurnEnd"
})  # fmt: skip


class _KimiStep(Draft):
    """An unfinished step; `between` holds results and remarks from between its rows."""

    def __init__(self, first: Row) -> None:
        super().__init__(first)
        self.response, self.between = "", list[Item | Noise]()
        self.last_part = first

    def add(self, row: Row, kind: str, payload: JSON) -> None:
        """Add a row to the step."""
        match kind:
            case "ContentPart" if text(payload, "type") == "think":
                self.thoughts.append(_take_thought(payload))
            case "ContentPart":
                self.texts.append(take_part(payload))
            case "ToolCall":
                self.calls.append(take_call(payload))
            case "ToolCallPart" if self.calls:
                last = self.calls[-1]
                self.calls[-1] = replace(
                    last, arguments=last.arguments + take_text(payload, "arguments_part")
                )
            case _:
                self.usage = _TOKENS.take(payload, "token_usage")
                self.response = take_text(payload, "message_id")
                self.grow(row, _encode_rest(row))
                return
        self.grow(row, _encode_rest(row))
        self.last_part = row

    @property
    def place(self) -> Place:
        """Return its position, and the time of its last part: the usage may follow later results."""
        return Place(lines(self.first.line, self.last.line), self.last_part.at)


class _KimiCli(Session):
    """A reader of both files."""

    id = ""

    def __init__(self, source: Source) -> None:
        self.system: Row | None = None
        self.first: Row | None = None
        self.wire = False
        super().__init__(source)
        self.step: _KimiStep | None = None
        self.names: dict[str, str] = {}
        self.moments: list[float] = []

    def look(self, row: Row) -> None:
        self.first = self.first or row
        self.system = self.system or (row if text(row.value, "role") == "_system_prompt" else None)
        self.wire = self.wire or "role" not in row.value

    def begin(self) -> RunBegan:
        system = text(self.system.value, "content") if self.system else ""
        version = text(self.first.value, "protocol_version") if self.first else ""
        return RunBegan(
            self.system.position if self.system else "line 1",
            key="session",
            messages=(Message(role=Role.SYSTEM, text=system),) if system else (),
            agent="kimi-cli",
            labels={"version": version} if version else {},
            unsaid=() if self.wire else ("tool_errors",),
        )

    def main(self, row: Row) -> Iterator[Item | Noise]:
        if "role" in row.value:
            yield from self._read_context_row(row)
        else:
            yield from self._read_wire_row(
                row, text(row.value, "message", "type"), at(row.value, "message", "payload")
            )

    def ends(self, item: Item | Noise) -> End | None:
        """Return `open` for a step that was retried, and `unknown` for one that was interrupted."""
        match item:
            case Noise(what="interrupted"):
                return _STOPPED
            case RequestFailed(message=message) if message == _INTERRUPTED:
                return _STOPPED
            case RequestFailed():
                return "open", "last request failed and was retried"
            case _:
                return None

    def end(self, place: Place) -> RunEnded:
        edges = (str(self.moments[0]), str(self.moments[-1])) if self.moments else None
        return place.end(self.ending.end(), edges)

    def _read_context_row(self, row: Row) -> Iterator[Item | Noise]:
        """Yield the items of a row of a context file."""
        role = text(row.value, "role")
        if role not in _ROLES:
            yield row.noise(known=role in _MARKS)
            return
        content = take_words(row.value, "content", beside=frozenset({"think"}))
        take(row.value, "role")
        match role:
            case "assistant":
                thoughts = [_take_thought(part) for part in take_each(row.value, "content")]
                calls = take_calls(row.value)
                self.names |= {call.id: call.name for call in calls}
                thought = "\n".join(filter(None, thoughts))
                answer = Message(role=Role.ASSISTANT, text=content, reasoning=thought, calls=calls)
                yield row.place.reply(answer, rest=rest(row.value))
            case "tool":
                yield self._make_result(row, take_text(row.value, "tool_call_id"), content)
            case _:
                by = "harness" if role == "system" or content.startswith("<system") else "user"
                yield row.place.message(content, by, role=Role(role), rest=rest(row.value))

    def _read_wire_row(self, row: Row, kind: str, payload: JSON) -> Iterator[Item | Noise]:
        """Yield the items of a row of a wire file."""
        self._see_moment(row)
        match kind:
            case "ContentPart" | "ToolCall" | "ToolCallPart":
                self.step = self.step or _KimiStep(row)
                self.step.add(row, kind, payload)
                self.names |= {call.id: call.name for call in self.step.calls[-1:]}
            case "StatusUpdate" if table(payload, "token_usage"):
                self.step = self.step or _KimiStep(row)
                self.step.add(row, kind, payload)
            case "ToolResult":
                yield from self.beside(self._read_result(row, payload))
            case "TurnBegin" | "SteerInput":
                yield from self.pause()
                yield row.place.message(take_words(payload, "user_input"), rest=_encode_rest(row))
            case "StepInterrupted":
                yield from self._read_interruption(row)
            case "StepRetry":
                yield from self.pause()
                problem, status = take_text(payload, "error_type"), take_number(payload, "status_code")
                yield row.place.failure(problem, status=status, rest=_encode_rest(row))
            case _:
                yield from self._other(row, kind, payload)

    def _see_moment(self, row: Row) -> None:
        if row.at is not None and isinstance(written := row.value.get("timestamp"), int | float):
            self.moments = [min([*self.moments, written]), max([*self.moments, written])]

    def _other(self, row: Row, kind: str, payload: JSON) -> Iterator[Item | Noise]:
        """Yield noise for a row of a wire file that is not an event of the run."""
        if kind in ("StepBegin", "TurnEnd"):
            yield from self.pause()
        known = kind in _KINDS or text(row.value, "type") == "metadata"
        apart = Counted(calls=1) if kind == "SubagentEvent" and find_call_mark(at(payload, "event")) else None
        yield from self.beside(row.noise(_REMARKS.get(kind, "unmapped"), known=known, apart=apart))

    def beside(self, noise: Item | Noise) -> Iterator[Item | Noise]:
        """Hold back items from between the rows of a step until after the step."""
        if self.step is None:
            yield noise
        else:
            self.step.between.append(noise)

    def pause(self) -> Iterator[Item | Noise]:
        step, self.step = self.step, None
        if step is None:
            return
        fits(self.source.name, step.place.position, step.size)
        self.names |= {call.id: call.name for call in step.calls}
        yield step.place.reply(step.message(), step.usage, response=step.response, rest=step.rest)
        yield from step.between

    def _read_interruption(self, row: Row) -> Iterator[Item | Noise]:
        """Yield an interrupted step: a response if it has calls or usage, otherwise a failed request."""
        step = self.step
        if step is not None and (step.calls or step.usage):
            yield from self.pause()
            yield row.noise("interrupted")
        else:
            self.step = None
            where = replace(row.place, position=lines(step.first.line, row.line)) if step else row.place
            partial, between = (step.message().text, step.between) if step else ("", ())
            step = step or _KimiStep(row)
            step.left += [json_text({"think": thought}) for thought in step.thoughts]
            step.grow(row, _encode_rest(row))
            yield where.failure(_INTERRUPTED, FailureClass.OTHER, partial=partial, rest=step.rest)
            yield from between

    def _read_result(self, row: Row, payload: JSON) -> Item:
        failed, call = take_flag(payload, "return_value", "is_error"), take_text(payload, "tool_call_id")
        return self._make_result(row, call, _take_result_text(payload, failed=failed is True), failed=failed)

    def _make_result(self, row: Row, call: str, content: str, *, failed: bool | None = None) -> Item:
        name = self.names.get(call, "")
        return row.place.result(call, content, name=name, failed=failed, rest=_encode_rest(row))


def _encode_rest(row: Row) -> str:
    """Return JSON text of the remaining fields of a row, without its time and implied types."""
    message = row.value.get("message")
    take_time(row.value, "timestamp")
    take_if(message, "type", *_IMPLIED_TYPES)
    take_if(message, "payload", {})
    return rest(row.value)


def _take_thought(part: JSON) -> str:
    if text(part, "type") != "think":
        return ""
    take_if(part, "type", "think")
    return take_text(part, "think")


def _take_result_text(payload: JSON, *, failed: bool) -> str:
    """Take a result's text as the model received it: the tool's message in a tag, then the output."""
    remark, output = (
        take_text(payload, "return_value", "message"),
        take_words(payload, "return_value", "output"),
    )
    remark_text = f"ERROR: {remark}" if failed else remark
    return "\n".join(
        [*([f"<system>{remark_text}</system>"] if remark_text else []), *([output] if output else [])]
    )


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match messages of a wire file, or the special roles of a context file."""
    if any({"type", "payload"} <= table(row, "message").keys() and "timestamp" in row for row in found):
        return FormatMatch(95, "messages of a wire file")
    if any(text(row, "role") in _MARKS for row in found):
        return FormatMatch(95, "rows of a context file")
    bare = len(found) == 1 and found[0].keys() == {"type", "protocol_version"}
    return FormatMatch(60, "the header of a wire file") if bare else None


KIMI_CLI = SessionFormat("kimi_cli", _KimiCli, _match)
