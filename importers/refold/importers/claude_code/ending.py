"""How a Claude Code session ended: by the last row of its main conversation."""

from refold.importers.claude_code.printed import end_by, is_result
from refold.importers.claude_code.rows import (
    Kind,
    blocks,
    command_name,
    failure,
    results,
)
from refold.importers.fields import JSON, text
from refold.importers.stops import end_of
from refold.reducers.vocabulary import FailureClass

_OVER = frozenset({"stop_hook_summary", "turn_duration"})
"""Subtypes of rows that the harness writes once a turn is over."""


class Ending:
    """How the main conversation ends: by its last row, local commands and the harness's own words skipped."""

    def __init__(self) -> None:
        self.last: Kind = "other"
        self.row: JSON = None
        self.command = ""
        self.result: JSON = None
        self.response = self.stop = ""
        self.calls: list[str] = []
        self.answered: set[str] = set()
        self.spoke = self.thought = self.over = False

    def see(self, row: JSON, found: Kind) -> None:
        """Go on by a row of the main conversation."""
        if found == "command" or text(row, "subtype") == "local_command":
            self.command = command_name(row) or self.command
        self.over = self.over or _ends_turn(row)
        self.result = row if is_result(row) else self.result
        if found in ("command", "synthetic", "other"):
            return
        self.last, self.row, self.command, self.over = found, row, "", False
        self.result = None
        self.answered.update(text(result, "tool_use_id") for result in results(row))
        if found == "answer":
            self._answer(row)

    def _answer(self, row: JSON) -> None:
        response = text(row, "message", "id")
        if response != self.response or not response:
            self.response, self.calls, self.stop, self.spoke, self.thought = response, [], "", False, False
            self.answered = set()
        self.stop = text(row, "message", "stop_reason") or self.stop
        for block in blocks(row):
            match text(block, "type"):
                case "tool_use":
                    self.calls.append(text(block, "id"))
                case "text":
                    self.spoke = True
                case "thinking" | "redacted_thinking":
                    self.thought = True
                case _:
                    pass

    def end(self) -> tuple[str, str]:
        """The end, and what says so."""
        if self.result is not None:
            return end_by(self.result)
        pending = sum(call not in self.answered for call in self.calls)
        match self.last:
            case "interrupt":
                marker = (
                    next(iter(text(blocks(self.row)[0], "text").strip().splitlines()), "")
                    if blocks(self.row)
                    else ""
                )
                return "cancelled", f"last row: {marker[:80]}"
            case "failed":
                return self._failed()
            case "prompt" | "meta" | "summary":
                return "open", "last row is a prompt, no answer after it"
            case "other":
                return "open", "no message in the file"
            case _ if pending:
                return "open", f"{pending} tool call(s) without result at the end"
            case "result":
                return "open", "last row is a tool result, no answer after it"
            case _ if self.thought and not self.spoke and not self.calls:
                return "open", "last response has only thinking: cut while it was being written"
            case _:
                return self._finished()

    def _failed(self) -> tuple[str, str]:
        failed, _, status = failure(self.row)
        source = (
            f"last row is a synthetic API error ({status})" if status else "last row is a synthetic API error"
        )
        return "limit:rate" if failed is FailureClass.RATE_LIMIT else "error", source

    def _finished(self) -> tuple[str, str]:
        """Rows are written block by block: only a stop reason, or the harness's own word, says that no other was to come."""
        stop = f"; stop_reason={self.stop}" if self.stop else "; no row says why it stopped"
        stop = "; then the turn was over" if self.over and not self.stop else stop
        command = f"; then the local command {self.command}" if self.command else ""
        end = "finished" if self.over and not self.stop else end_of(self.stop)
        return end, f"last response is text without tool call{stop}{command}"


def _ends_turn(row: JSON) -> bool:
    """Whether the harness says by it that a turn is over: its `Stop` hooks ran, or it says how long the turn took."""
    return text(row, "data", "hookEvent") == "Stop" or text(row, "subtype") in _OVER
