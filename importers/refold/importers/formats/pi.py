"""Pi sessions: one entry per line. Since version 2, entries form a tree whose current leaf is the last one.

The texts around summaries and shell commands are copied from Pi (`messages.ts`), so that the prompt built
from them equals the prompt that the model received.

Going back to an earlier entry begins a new branch. The old branch becomes remarks, with a warning if it has
responses, calls or results. A compaction names the first entry that it keeps, so the prompt after it is known
exactly.
"""

import re
from collections.abc import Iterator

from refold.importers.content import take_call
from refold.importers.fields import (
    JSON,
    at,
    number,
    rows,
    table,
    take,
    take_cost,
    take_each,
    take_flag,
    take_if,
    take_number,
    take_text,
    take_words,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, RunEnded, Said
from refold.importers.registry import FormatMatch
from refold.importers.session import Session, SessionFormat
from refold.importers.session_rows import Noise, Row, cut_to_summary, since, unread_parts
from refold.importers.source import Source
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError

SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
BRANCH = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)

PARTS = frozenset({"text", "thinking", "toolCall", "image"})
"""Known types of parts in a message."""

_BESIDE = frozenset({"thinking", "toolCall"})

TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=("cacheRead",),
    cache_write=("cacheWrite",),
    beside=True,
)


def list_call_blocks(message: JSON) -> list[JSON]:
    """Return the blocks of a message that are calls."""
    return [block for block in rows(message, "content") if text(block, "type") == "toolCall"]


def is_cut(message: JSON) -> bool:
    """Return whether a response may be truncated: it has no call, and its token counts are zero.

    Pi writes the stop reason `stop` even if the stream broke off.
    """
    used = TOKENS.of(at(message, "usage"))
    return used is not None and used == Usage() and not list_call_blocks(message)


def error_of(name: str, content: str) -> ToolError | bool:
    """Return how a call failed, by the error text that Pi wrote."""
    if content == f"Tool {name} not found":
        return ToolError.UNKNOWN_TOOL
    return ToolError.BAD_ARGUMENTS if content.startswith(f'Validation failed for tool "{name}"') else True


def take_message_text(message: JSON) -> str:
    """Take the text of a message; an image becomes `[image]`."""
    return take_words(message, "content", beside=_BESIDE)


def take_answer(message: JSON) -> Message:
    """Take the text, reasoning and calls of a response out of its row."""
    content, calls, thoughts = take_message_text(message), list[MessageCall](), list[str]()
    for block in take_each(message, "content"):
        match text(block, "type"):
            case "toolCall":
                calls.append(take_call(block))
                take(block, "type")
            case "thinking" if thought := take_text(block, "thinking"):
                thoughts.append(thought)
                take(block, "type")
            case _:
                pass
    return Message(role=Role.ASSISTANT, text=content, reasoning="\n".join(thoughts), calls=tuple(calls))


def take_shell(message: JSON) -> str:
    """Take a shell command that the user ran, as the text that Pi sends to the model."""
    command, shown = take_text(message, "command"), take_text(message, "output")
    content = f"Ran `{command}`\n" + (f"```\n{shown}\n```" if shown else "(no output)")
    if take_flag(message, "cancelled"):
        return f"{content}\n\n(command cancelled)"
    if number(message, "exitCode"):
        return f"{content}\n\nCommand exited with code {take_number(message, 'exitCode')}"
    return content


_ENTRIES = (
    "message",
    "model_change",
    "thinking_level_change",
    "compaction",
    "custom",
    "custom_message",
    "branch_summary",
)
_HEADER = re.compile(rb'\s*\{\s*"type"\s*:\s*"session"')


class _Pi(Session):
    """A reader of one session.

    Messages by Pi itself do not request a response. A response without a stop reason may be truncated.
    """

    harness_prompts = False
    silent = "unknown"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.requests = 0

    def is_header(self, row: Row) -> bool:
        return text(row.value, "type") == "session"

    def is_conversation(self, row: Row) -> bool | None:
        kind = text(row.value, "type")
        return None if kind == "session" else kind == "message"

    def select_content(self, value: JSON) -> JSON:
        return {name: inner for name, inner in table(value).items() if name not in ("parentId", "timestamp")}

    def begin(self) -> RunBegan:
        header = self.head.value if self.head else None
        place = self.head.place if self.head else Place("line 1")
        self.times.see(at(header, "timestamp"), place.at)
        key, model = take_text(header, "id") or "session", take_text(header, "modelId")
        rest = self.head.rest() if self.head else ""
        return RunBegan(place.position, place.at, rest, key=key, model=model, agent="pi", cuts=None)

    def end(self, place: Place) -> RunEnded:
        return place.end(self.ending.end(), self.times.edges(), requests=self.requests)

    def main(self, row: Row) -> Iterator[Item | Noise]:
        match text(row.value, "type"):
            case "message":
                yield from self._message(row)
            case "compaction":
                yield from self._read_compaction(row)
            case "branch_summary" | "branchSummary":
                yield from self._branch(row)
            case "custom_message":
                yield self._say(row, take_message_text(row.value), "harness")
            case "model_change":
                yield row.noise("model_change")
            case what:
                yield row.noise(known=what in _ENTRIES)

    def _message(self, row: Row) -> Iterator[Item | Noise]:
        message = at(row.value, "message")
        kinds = (text(block, "type") for block in rows(message, "content"))
        yield from unread_parts(row, message, ("content", "command"), kinds, PARTS)
        match text(message, "role"):
            case "user":
                take(message, "role")
                yield self._say(row, take_message_text(message), "user")
            case "assistant":
                yield from self._answer(row, message)
            case "toolResult":
                yield self._result(row, message)
            case "bashExecution" if at(message, "excludeFromContext") is not True:
                # Sent to the model with the next prompt; it does not trigger a request.
                yield self._say(row, take_shell(message), "shell")
            case "custom" | "hookMessage":
                yield self._say(row, take_message_text(message), "harness")
            case _:
                yield row.noise()

    def _say(self, row: Row, content: str, by: str) -> Said:
        counts = None if by == "user" else UNCOUNTED  # Pi does not count its own entries as messages
        return row.place.with_counts(counts).message(content, by, rest=row.rest())

    def _answer(self, row: Row, message: JSON) -> Iterator[Item]:
        self.requests += 1
        stop, problem = text(message, "stopReason"), take_text(message, "errorMessage")
        cut = is_cut(message)
        if stop == "error" and not list_call_blocks(message):
            where, partial = row.place.with_counts(_count_answer(message)), take_message_text(message)
            yield where.failure(problem, partial=partial, rest=row.rest())
            return
        answer = take_answer(message)
        silent = not (answer.text or answer.calls or answer.reasoning)
        if not silent or stop != "aborted":
            take(message, "role")
            yield row.place.reply(
                answer,
                TOKENS.take(message, "usage"),
                stop="" if cut and stop == "stop" else take_text(message, "stopReason"),
                cost=take_cost(message, "usage", "cost", "total"),
                model=take_text(message, "model"),
                response=take_text(message, "responseId"),
                rest=row.rest(),
            )
        if stop == "aborted":
            where = row.place.with_counts(_count_answer(message) if silent else None)
            yield where.cancellation(problem, rest=row.rest() if silent else "")
        elif stop == "error":
            yield row.place.remark("error", {"errorMessage": problem})

    def _result(self, row: Row, message: JSON) -> Item:
        call, name = take_text(message, "toolCallId"), text(message, "toolName")
        content, failed = take_message_text(message), take_flag(message, "isError")
        take(message, "role")
        take_if(message, "toolName", self.ending.open.get(call))
        how = error_of(name, content) if failed else failed
        return row.place.result(call, content, name=name, failed=how, rest=row.rest())

    def _branch(self, row: Row) -> Iterator[Item]:
        """Yield the summary of an abandoned branch; Pi sends it to the model only from `branch_summary`."""
        if text(row.value, "type") == "branch_summary":
            yield self._say(row, BRANCH.format(take_text(row.value, "summary")), "harness")
        else:
            yield row.remark("subagent")

    def _read_compaction(self, row: Row) -> Iterator[Item]:
        """Yield a compaction: the summary, then the entries from the first kept one on."""
        yield row.remark("compaction")
        first, index = text(row.value, "firstKeptEntryId"), number(row.value, "firstKeptEntryIndex")
        found = self.numbers.get(first, None if index is None else index + 1)
        tail = since(found) if found is not None else ()
        yield cut_to_summary(row.place, SUMMARY.format(text(row.value, "summary")), tail=tail)


def _count_answer(message: JSON) -> Counted:
    """Return the counts of a response without text."""
    return Counted(assistant=1, usage=TOKENS.of(at(message, "usage")))


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match the header, or the entries of a file without one."""
    if any("payload" in row or "parentUuid" in row for row in found):
        return None
    roles = {text(row, "message", "role") for row in found if text(row, "type") == "message"}
    if any(text(row, "type") == "session" and "id" in row for row in found):
        return FormatMatch(90, "an entry of type session")
    if roles & {"user", "assistant", "toolResult"}:
        known = all(text(row, "type") in _ENTRIES for row in found)
        return FormatMatch(70 if known else 55, "entries of type message")
    return None


def _match_head(head: bytes) -> FormatMatch | None:
    """Match the first bytes of a header that is truncated."""
    return FormatMatch(25, "a truncated entry of type session") if _HEADER.match(head) else None


PI = SessionFormat("pi", _Pi, _match, _match_head)
