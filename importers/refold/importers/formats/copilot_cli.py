"""GitHub Copilot CLI sessions: events of a type with `data`, a line each, as the runtime wrote them when they happened.

An answer may be several rows, a row a call or a piece: they are one where nothing came back between them, and where no other
`apiCallId` says that they are two; nor, in a file that tells of no turn, another `messageId`. Calls stand in the answer (`toolRequests`) and again where they begin; what the model is
shown of a result is its `content`, of a failed one the error's message. Of what a person said it is shown
`transformedContent`. Sub-agents write into the same file: their rows name the agent, or the call that began it. A compaction
runs beside the conversation: its summary stands for what was there when it began. The first system prompt is the run's; each
turn writes it anew.

Counted: the rows of the main agent. An answer tells its output tokens only; those of the input stand in `session.shutdown`,
sub-agents included, for the time since the start or the last resumption: they hold where there was but one such time, and
the file ends with it.
"""

from collections.abc import Iterator

from refold.importers.answers import summed
from refold.importers.content import take_calls
from refold.importers.cuts import BEGINNING, only, since, summed_up
from refold.importers.drafts import Draft
from refold.importers.fields import (
    JSON,
    Times,
    at,
    rows,
    table,
    take_flag,
    take_if,
    take_number,
    take_text,
    take_words,
    text,
)
from refold.importers.items import Counted, Item, Place, Quality, RunBegan, Tokens
from refold.importers.registry import Match
from refold.importers.session_rows import Noise, Row, Rows, first_rows, gathered
from refold.importers.source import Source, fits
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
"""Events of the groups in which calls stand: another one of them may be a call of a kind that is not known."""
_REMARKS = {
    "permission.requested": "approval",
    "permission.completed": "approval",
    "session.compaction_start": "compaction",
    "session.mode_changed": "permission_mode",
    "session.truncation": "trim",
}
_SPEAKS = (
    "user.message", "system.notification", "tool.execution_complete", "session.error", "abort", "session.compaction_start",
    "session.compaction_complete"
)  # fmt: skip
_USED = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
_LOOKED = 20


class CopilotCli:
    """The importer of Copilot CLI's event files."""

    name = "copilot_cli"

    def match(self, source: Source) -> Match | None:
        """By its header, or by events of its types that hold data."""
        found = [row.value for row in first_rows(source, _LOOKED) if isinstance(row, Row)]
        if any(text(row, "data", "producer") == "copilot-agent" for row in found):
            return Match(98, "a session.start of copilot-agent")
        if any(
            text(row, "type") in _EVENTS and isinstance(row.get("data"), dict) and "id" in row
            for row in found
        ):
            return Match(85, "events with data, as assistant.message")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gathered(_Reading(source).items())


COPILOT_CLI = CopilotCli()


class _Answer(Draft):
    """An answer of which rows may follow, and the rows without meaning between them."""

    def __init__(self, first: Row) -> None:
        super().__init__(first)
        self.api, self.model, self.response, self.named = "", "", "", ""
        self.hosted: JSON = None
        self.between: list[Item | Noise] = []

    def add(self, row: Row) -> None:
        """Take one more row in."""
        data = at(row.value, "data")
        self.hosted = self.hosted or at(data, "serverTools")
        self.texts += [said] if (said := take_text(data, "content")) else []
        self.thoughts.append(take_text(data, "reasoningText"))
        self.calls += take_calls(data, "toolRequests")
        self.api, self.model = self.api or text(data, "apiCallId"), self.model or text(data, "model")
        self.named = self.named or text(data, "messageId")
        self.response = self.response or self.api or take_text(data, "messageId")
        take_if(data, "apiCallId", self.response)
        take_if(data, "model", self.model)
        if (got := take_number(data, "outputTokens")) is not None:  # each piece tells those of all
            self.usage = Usage(output=max(got, self.usage.output if self.usage else 0))
        self.grow(row, row.rest())


class _Reading:
    """One reading of a session."""

    def __init__(self, source: Source) -> None:
        self.name, self.rows, self.times = source.name, Rows(source), Times()
        self.draft: _Answer | None = None
        self.names: dict[str, str] = {}
        self.open: dict[str, None] = {}
        self.mark = 0
        self.model, self.failing, self.end = "", False, ("open", "no prompt and no answer")
        self.head: Row | None = None
        self.system = ""
        self.metrics: list[JSON] = []
        self.turns = False
        self._look_ahead()

    def _look_ahead(self) -> None:
        """The header, the first system prompt, and what each model used, where one shutdown at the end sums up all of it."""
        periods, last = 0, None
        for row in (row for row in self.rows if isinstance(row, Row)):
            last, kind = row.value, text(row.value, "type")
            periods += kind in ("session.shutdown", "session.resume")
            self.turns = self.turns or kind == "assistant.turn_start"
            if kind == "session.start":
                self.head = self.head or row
            elif kind == "system.message" and text(last, "data", "role") == "system":
                self.system = self.system or text(last, "data", "content")
        if periods == 1 and text(last, "type") == "session.shutdown":
            self.metrics = [*table(last, "data", "modelMetrics").values()]

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
        yield self._began()
        line = 1
        for row in self.rows:
            line = row.line
            if isinstance(row, Row) and _is_main(row) and text(row.value, "type") == "assistant.message":
                yield from self._answer(row)
            elif self.draft is not None and not (
                isinstance(row, Row) and _is_main(row) and text(row.value, "type") in _SPEAKS
            ):
                self.draft.between += self._told(row)
            else:
                yield from self._ready()
                yield from self._told(row)
        yield from self._ready()
        yield Place(f"line {line}").ended(self._end(), self.times.edges(), self._used())

    def _began(self) -> RunBegan:
        data = at(self.head.value, "data") if self.head else None
        place = self.head.place if self.head else Place("line 1")
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
            labels={name: label for name, label in labels.items() if label},
            unsaid=() if self.metrics else ("input_tokens", "cache_read_tokens", "cache_write_tokens"),
        )

    def _ready(self) -> Iterator[Item | Noise]:
        draft, self.draft = self.draft, None
        if draft is None:
            return
        self.failing = False
        fits(self.name, draft.place.position, draft.size)
        self.open = dict.fromkeys(call.id for call in draft.calls)
        self.end = "finished", "last answer has no call"
        self.model = draft.model or self.model
        quality: Quality = "partial" if draft.usage else ""
        yield draft.place.answered(
            draft.message(),
            draft.usage,
            quality=quality,
            model=self.model,
            response=draft.response,
            rest=draft.rest,
        )
        yield from draft.place.hosted({"serverTools": draft.hosted})
        yield from draft.between

    def _answer(self, row: Row) -> Iterator[Item | Noise]:
        if self.draft is not None and self._is_another(self.draft, row.value):
            yield from self._ready()
        self.times.see(row.value.get("timestamp"), row.at)
        self.draft = self.draft or _Answer(row)
        self.draft.add(row)

    def _is_another(self, draft: _Answer, row: JSON) -> bool:
        """Whether a row is of another answer than the draft: by the id of its call, else by its message's, where turns are told.

        Where turns begin, pieces of one answer may have messages of their own; where none does, each message is an answer.
        """
        api, message = text(row, "data", "apiCallId"), text(row, "data", "messageId")
        if api and draft.api:
            return api != draft.api
        return not self.turns and bool(message and draft.named) and message != draft.named

    def _told(self, row: Row | Noise) -> Iterator[Item | Noise]:
        if isinstance(row, Noise):
            yield row
            return
        kind, data = text(row.value, "type"), at(row.value, "data")
        self.times.see(row.value.get("timestamp"), row.at)
        if self.head is not None and row.number == self.head.number:
            return
        if not _is_main(row):
            yield row.noise("subagent", apart=_apart(kind, data))
        else:
            self.model = text(data, "newModel") or self.model
            yield from self._event(row, kind, data)

    def _event(self, row: Row, kind: str, data: JSON) -> Iterator[Item | Noise]:
        match kind:
            case "user.message":
                shown = "transformedContent" if text(data, "transformedContent") else "content"
                by = "user" if text(data, "source") in ("", "user") else "harness"
                yield self._said(row, take_text(data, shown), by)
            case "system.notification":
                yield self._said(row, take_text(data, "content"), "harness")
            case "tool.execution_complete" if at(data, "isUserRequested") is not True:
                yield self._result(row, data)
            case "session.error":
                yield self._failed(row, data)
            case "abort":
                self.end = "cancelled", "last event: abort"
                yield row.place.cancelled(take_text(data, "reason"), rest=row.rest())
            case "session.compaction_complete" if summary := text(data, "summaryContent"):
                yield row.remarked("compaction")
                head, tail = only([BEGINNING]), since(self.mark + 1)
                yield summed_up(row.place, summary, head=head, tail=tail)
            case _:
                if kind == "tool.execution_start":
                    self.names[text(data, "toolCallId")] = text(data, "toolName")
                elif kind == "session.compaction_start":
                    self.mark = row.number
                known = kind in _TURNS or kind.partition(".")[0] in _KINDS
                yield row.noise(_REMARKS.get(kind, "unmapped"), known=known)

    def _said(self, row: Row, said: str, by: str) -> Item:
        self.end = "open", "last message is a prompt, no answer after it"
        return row.place.said(said, by, rest=row.rest())

    def _result(self, row: Row, data: JSON) -> Item:
        call, code = take_text(data, "toolCallId"), text(data, "error", "code")
        self.open.pop(call, None)
        self.end = "open", "last event of the conversation is a result, no answer after it"
        success, name = take_flag(data, "success"), self.names.get(call, "")
        broke = success is False
        output = take_text(data, "error", "message") if broke else take_words(data, "result", "content")
        failed = _ERRORS.get(code, ToolError.RAISED) if broke else None if success is None else False
        return row.place.returned(call, output, name=name, failed=failed, rest=row.rest())

    def _failed(self, row: Row, data: JSON) -> Item | Noise:
        """A failed request. None was made while calls are open; and what tells that all attempts failed is no other."""
        self.end = "error", f"last event: session.error of type {text(data, 'errorType')[:40]}"
        if self.open or (self.failing and text(data, "errorType") != "model_call"):
            return row.noise("error")
        self.failing = True
        problem, status = take_text(data, "message"), take_number(data, "statusCode")
        return row.place.failed(problem, status=status, rest=row.rest())

    def _end(self) -> tuple[str, str]:
        """How it ended, and what says so."""
        if self.open and self.end[0] in ("finished", "open"):
            return "open", f"{len(self.open)} tool call(s) without result at the end"
        return self.end

    def _used(self) -> Tokens | None:
        """The tokens as its shutdowns sum them up."""
        if not self.metrics:
            return None
        used = [at(each, "usage") for each in self.metrics]
        sent, read, written, got = (summed(used, name) for name in _USED)
        return sent, read, written, got


def _apart(kind: str, data: JSON) -> Counted | None:
    """What an event of a subagent holds of what its model did."""
    match kind:
        case "assistant.message":
            return Counted(assistant=1, calls=len(rows(data, "toolRequests")))
        case "tool.execution_complete":
            return Counted(results=1)
        case _:
            return None


def _is_main(row: Row) -> bool:
    return not (text(row.value, "agentId") or text(row.value, "data", "parentToolCallId"))
