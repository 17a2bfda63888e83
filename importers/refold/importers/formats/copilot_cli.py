"""GitHub Copilot CLI sessions: one typed event with `data` per line, written by the runtime as it happens.

A response may have several rows, one for each call or piece of text. They are one response if no result is
between them and `apiCallId` is the same; in a file without turn events, `messageId` must be the same, too.
Calls are in the response (`toolRequests`) and again where they start. The model receives the `content` of a
result, the error message of a failed one, and the `transformedContent` of a user message. Subagents write to
the same file: their rows name the agent, or the call that started it. A compaction runs concurrently: its
summary replaces the messages from before its start. The run's system prompt is the first one; each turn
repeats it.

Counts: the rows of the main agent. A response records only its output tokens. Input tokens are in
`session.shutdown`, including those of subagents, since the start or the last resumption. They are used only
if there was one such period and it ends the file.
"""

from collections.abc import Iterator

from refold.importers.content import take_calls
from refold.importers.fields import (
    JSON,
    at,
    labels_of,
    rows,
    table,
    take_flag,
    take_if,
    take_number,
    take_text,
    take_words,
    text,
)
from refold.importers.items import Counted, Item, Place, Quality, RunBegan, RunEnded, Tokens
from refold.importers.registry import FormatMatch
from refold.importers.session import Draft, End, Session, SessionFormat
from refold.importers.session_rows import BEGINNING, Noise, Row, cut_to_summary, list_ranges, since
from refold.importers.source import Source, fits
from refold.importers.usage import sum_counts
from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Role, ToolError

_ERRORS = {"timeout": ToolError.TIMEOUT, "denied": ToolError.CANCELLED, "rejected": ToolError.CANCELLED}
_EVENTS = (
    "session.start",
    "user.message",
    "assistant.message",
    "assistant.turn_start",
    "tool.execution_start",
)
_KINDS = frozenset({
    "abort", "auto_mode_switch", "command", "elicitation", "exit_plan_mode", "external_tool", "hook", "mcp",
    "model", "permission", "sampling", "session", "skill", "subagent", "system", "user", "user_input"
})  # fmt: skip
_TURNS = frozenset({
    "assistant.intent", "assistant.message", "assistant.message_delta", "assistant.reasoning",
    "assistant.reasoning_delta", "assistant.streaming_delta", "assistant.turn_end", "assistant.turn_start",
    "assistant.usage", "tool.execution_complete", "tool.execution_partial_result", "tool.execution_progress",
    "tool.execution_start", "tool.user_requested"
})  # fmt: skip
"""Known events of the groups that hold calls. An unknown event of these groups may be a call."""
_REMARKS = {
    "permission.requested": "approval",
    "permission.completed": "approval",
    "session.compaction_start": "compaction",
    "session.mode_changed": "permission_mode",
    "session.truncation": "trim",
}
_PAUSING_EVENTS = (
    "user.message", "system.notification", "tool.execution_complete", "session.error", "abort", "session.compaction_start",
    "session.compaction_complete"
)  # fmt: skip
_USED = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")


class _Answer(Draft):
    """An unfinished response; `between` holds the other rows from between its rows."""

    def __init__(self, first: Row) -> None:
        super().__init__(first)
        self.api, self.model, self.response, self.message_id = "", "", "", ""
        self.hosted: JSON = None
        self.between: list[Item | Noise] = []

    def add(self, row: Row) -> None:
        """Add a row to the response."""
        data = at(row.value, "data")
        self.hosted = self.hosted or at(data, "serverTools")
        self.texts += [content] if (content := take_text(data, "content")) else []
        self.thoughts.append(take_text(data, "reasoningText"))
        self.calls += take_calls(data, "toolRequests")
        self.api, self.model = self.api or text(data, "apiCallId"), self.model or text(data, "model")
        self.message_id = self.message_id or text(data, "messageId")
        self.response = self.response or self.api or take_text(data, "messageId")
        take_if(data, "apiCallId", self.response)
        take_if(data, "model", self.model)
        if (got := take_number(data, "outputTokens")) is not None:  # each piece has the total
            self.usage = Usage(output=max(got, self.usage.output if self.usage else 0))
        self.grow(row, row.rest())


class _CopilotCli(Session):
    id = ""

    def __init__(self, source: Source) -> None:
        self.system, self.turns = "", False
        self.periods, self.last = 0, dict[str, JSON]()
        super().__init__(source)
        self.draft: _Answer | None = None
        self.names: dict[str, str] = {}
        self.mark, self.failing = 0, False
        self.metrics = self._metrics()

    def _metrics(self) -> list[JSON]:
        """Return the usage of each model if one shutdown at the end covers the whole session."""
        sums = self.periods == 1 and text(self.last, "type") == "session.shutdown"
        return [*table(self.last, "data", "modelMetrics").values()] if sums else []

    def is_header(self, row: Row) -> bool:
        return text(row.value, "type") == "session.start"

    def look(self, row: Row) -> None:
        """Record the first system prompt, whether there are turn events, and the last row.

        The last row may be a shutdown with the total tokens.
        """
        self.last, kind = row.value, text(row.value, "type")
        self.periods += kind in ("session.shutdown", "session.resume")
        self.turns = self.turns or kind == "assistant.turn_start"
        if kind == "system.message" and text(self.last, "data", "role") == "system":
            self.system = self.system or text(self.last, "data", "content")

    def begin(self) -> RunBegan:
        data = at(self.head.value, "data") if self.head else None
        place = self.head.place if self.head else Place("line 1")
        self.times.see(at(self.head.value, "timestamp") if self.head else None, place.at)
        key, self.model = take_text(data, "sessionId") or "session", take_text(data, "selectedModel")
        labels = {"version": take_text(data, "copilotVersion"), "cwd": take_text(data, "context", "cwd")}
        return RunBegan(
            place.position,
            place.at,
            self.head.rest() if self.head else "",
            key=key,
            messages=(Message(role=Role.SYSTEM, text=self.system),) if self.system else (),
            model=self.model,
            agent="copilot-cli",
            cuts=None,
            labels=labels_of(labels),
            unsaid=() if self.metrics else ("input_tokens", "cache_read_tokens", "cache_write_tokens"),
        )

    def main(self, row: Row) -> Iterator[Item | Noise]:
        kind, ours = text(row.value, "type"), _is_main(row)
        if ours and kind == "assistant.message":
            yield from self._answer(row)
            return
        if ours and kind in _PAUSING_EVENTS:
            yield from self.pause()
        found_items = self._read_row(row, kind, ours=ours)
        if self.draft is not None:
            self.draft.between += found_items
        else:
            yield from found_items

    def beside(self, noise: Noise) -> Iterator[Item | Noise]:
        """Hold back a line that is not a row: it does not end a response."""
        if self.draft is not None:
            self.draft.between.append(noise)
        else:
            yield noise

    def pause(self) -> Iterator[Item | Noise]:
        draft, self.draft = self.draft, None
        if draft is None:
            return
        self.failing = False
        fits(self.source.name, draft.place.position, draft.size)
        self.model = draft.model or self.model
        quality: Quality = "partial" if draft.usage else ""
        yield draft.place.reply(
            draft.message(),
            draft.usage,
            quality=quality,
            model=self.model,
            response=draft.response,
            rest=draft.rest,
        )
        yield from draft.place.hosted_calls({"serverTools": draft.hosted})
        yield from draft.between

    def _answer(self, row: Row) -> Iterator[Item | Noise]:
        if self.draft is not None and self._is_another(self.draft, row.value):
            yield from self.pause()
        self.draft = self.draft or _Answer(row)
        self.draft.add(row)

    def _is_another(self, draft: _Answer, row: JSON) -> bool:
        """Return whether a row belongs to another response than the draft.

        `apiCallId` decides if both have one. Otherwise, in a file without turn events, each `messageId` is a
        response. With turn events, pieces of one response may have different message ids.
        """
        api, message = text(row, "data", "apiCallId"), text(row, "data", "messageId")
        if api and draft.api:
            return api != draft.api
        return not self.turns and bool(message and draft.message_id) and message != draft.message_id

    def _read_row(self, row: Row, kind: str, *, ours: bool) -> Iterator[Item | Noise]:
        data = at(row.value, "data")
        if ours:
            self.model = text(data, "newModel") or self.model
            yield from self._event(row, kind, data)
        else:
            yield row.noise("subagent", apart=_count_activity(kind, data))

    def _event(self, row: Row, kind: str, data: JSON) -> Iterator[Item | Noise]:
        match kind:
            case "user.message":
                shown = "transformedContent" if text(data, "transformedContent") else "content"
                by = "user" if text(data, "source") in ("", "user") else "harness"
                yield row.place.message(take_text(data, shown), by, rest=row.rest())
            case "system.notification":
                yield row.place.message(take_text(data, "content"), "harness", rest=row.rest())
            case "tool.execution_complete" if at(data, "isUserRequested") is not True:
                yield self._result(row, data)
            case "session.error":
                yield self._read_error(row, data)
            case "abort":
                yield row.place.cancellation(take_text(data, "reason"), rest=row.rest())
            case "session.compaction_complete" if summary := text(data, "summaryContent"):
                yield row.remark("compaction")
                head, tail = list_ranges([BEGINNING]), since(self.mark + 1)
                yield cut_to_summary(row.place, summary, head=head, tail=tail)
            case _:
                yield self._other(row, kind, data)

    def _other(self, row: Row, kind: str, data: JSON) -> Noise:
        """Return noise for a row that is not an event of the run."""
        if kind == "tool.execution_start":
            self.names[text(data, "toolCallId")] = text(data, "toolName")
        elif kind == "session.compaction_start":
            self.mark = row.number
        known = kind in _TURNS or kind.partition(".")[0] in _KINDS
        return row.noise(_REMARKS.get(kind, "unmapped"), known=known)

    def _result(self, row: Row, data: JSON) -> Item:
        call, code = take_text(data, "toolCallId"), text(data, "error", "code")
        success, name = take_flag(data, "success"), self.names.get(call, "")
        broke = success is False
        output = take_text(data, "error", "message") if broke else take_words(data, "result", "content")
        failed = _ERRORS.get(code, ToolError.RAISED) if broke else None if success is None else False
        return row.place.result(call, output, name=name, failed=failed, rest=row.rest())

    def _read_error(self, row: Row, data: JSON) -> Item | Noise:
        """Return a failed request.

        An error while calls are open is not one, nor is the report after one that all attempts failed.
        """
        if self.ending.open or (self.failing and text(data, "errorType") != "model_call"):
            return row.noise("error")
        self.failing = True
        problem, status = take_text(data, "message"), take_number(data, "statusCode")
        return row.place.failure(problem, status=status, rest=row.rest())

    def ends(self, item: Item | Noise) -> End | None:
        """Return the end `error` for an error row, even if it is not a failed request."""
        return ("error", "last request failed") if isinstance(item, Noise) and item.what == "error" else None

    def end(self, place: Place) -> RunEnded:
        return place.end(self.ending.end(), self.times.edges(), self._read_tokens())

    def _read_tokens(self) -> Tokens | None:
        """Return the total tokens that the shutdown records."""
        if not self.metrics:
            return None
        used = [at(each, "usage") for each in self.metrics]
        sent, read, written, got = (sum_counts(used, name) for name in _USED)
        return sent, read, written, got


def _count_activity(kind: str, data: JSON) -> Counted | None:
    """Return the responses, calls and results in an event of a subagent."""
    match kind:
        case "assistant.message":
            return Counted(assistant=1, calls=len(rows(data, "toolRequests")))
        case "tool.execution_complete":
            return Counted(results=1)
        case _:
            return None


def _is_main(row: Row) -> bool:
    return not (text(row.value, "agentId") or text(row.value, "data", "parentToolCallId"))


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match the header, or events of known types with data."""
    if any(text(row, "data", "producer") == "copilot-agent" for row in found):
        return FormatMatch(98, "a session.start event of copilot-agent")
    if any(
        text(row, "type") in _EVENTS and isinstance(row.get("data"), dict) and "id" in row for row in found
    ):
        return FormatMatch(85, "events with data, such as assistant.message")
    return None


COPILOT_CLI = SessionFormat("copilot_cli", _CopilotCli, _match)
