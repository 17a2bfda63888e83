"""Grok CLI's `chat_history.jsonl`: the prompt, one row per message, reasoning or result.

Rows have no times and no usage. A response is a row `assistant`, with the reasoning in the rows before it or
in its own `reasoning`. Rows `backend_tool_call` are provider-hosted calls. A user row records that the turn
before it was interrupted; `synthetic_reason` marks messages by the harness. The status of results is not
recorded.

Counts: messages by role; reasoning without a following response counts as a response.
"""

from collections.abc import Iterator

from refold.importers.content import take_calls
from refold.importers.fields import JSON, take_each, take_if, take_text, take_words, text
from refold.importers.items import Item, RunBegan
from refold.importers.registry import FormatMatch
from refold.importers.session import Draft, Session, SessionFormat
from refold.importers.session_rows import Noise, Row
from refold.importers.source import Source, fits
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

_OWN = ("model_id", "model_fingerprint", "synthetic_reason", "prompt_index")


class _GrokCli(Session):
    id = ""

    def __init__(self, source: Source) -> None:
        self.started = False
        super().__init__(source)
        self.draft: Draft | None = None
        self.hosted: list[JSON] = []

    def is_header(self, row: Row) -> bool:
        """Return whether it is the first row, and a system prompt."""
        return not self.started and text(row.value, "type") == "system"

    def look(self, row: Row) -> None:
        self.started = True
        self.model = self.model or text(row.value, "model_id")

    def begin(self) -> RunBegan:
        content = take_words(self.head.value, "content") if self.head else ""
        return RunBegan(
            self.head.position if self.head else "line 1",
            rest=self.head.rest() if self.head else "",
            key="session",
            messages=(Message(role=Role.SYSTEM, text=content),) if self.head else (),
            model=self.model,
            agent="grok-cli",
            unsaid=("tool_errors",),
        )

    def main(self, row: Row) -> Iterator[Item | Noise]:
        kind = text(row.value, "type")
        if kind in ("reasoning", "backend_tool_call", "assistant"):
            self.draft = self.draft or Draft(row)
            self._grow(self.draft, row, kind)
        if kind not in ("reasoning", "backend_tool_call"):
            yield from self.pause()
        match kind:
            case "reasoning" | "backend_tool_call" | "assistant":
                pass
            case "tool_result":
                yield self._result(row)
            case "user" | "system" as role:
                yield from self._read_message(row, role)
            case _:
                yield row.noise(known=False)

    def _grow(self, draft: Draft, row: Row, kind: str) -> None:
        match kind:
            case "reasoning":
                for part in take_each(row.value, "summary"):
                    draft.thoughts.append(take_text(part, "text"))
                    take_if(part, "type", "summary_text")
            case "assistant":
                draft.thoughts.append(take_text(row.value, "reasoning", "text"))
                draft.texts += [content] if (content := take_words(row.value, "content")) else []
                draft.calls += take_calls(row.value)
                take_if(row.value, "model_id", self.model)
            case _:
                self.hosted.append(row.value)
        draft.grow(row, row.rest())

    def pause(self) -> Iterator[Item | Noise]:
        draft, self.draft = self.draft, None
        if draft is None:
            return
        fits(self.source.name, draft.place.position, draft.size)
        model = text(draft.last.value, "model_id") or self.model
        yield draft.place.reply(draft.message(), model=model, rest=draft.rest)
        yield from draft.place.hosted_calls([*self.hosted])
        self.hosted = []

    def _result(self, row: Row) -> Item:
        call, content = take_text(row.value, "tool_call_id"), take_words(row.value, "content")
        return row.place.result(call, content, name=self.ending.open.get(call), rest=row.rest())

    def _read_message(self, row: Row, role: str) -> Iterator[Item]:
        if stopped := take_text(row.value, "prior_turn_interrupt"):
            yield row.place.cancellation(stopped)
        by = "harness" if role == "system" or row.value.get("synthetic_reason") else "user"
        content = take_words(row.value, "content")
        yield row.place.message(content, by, role=Role(role), rest=row.rest())


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match keys that only this format has: a model id, `synthetic_reason`, the number of a prompt."""
    typed = [row for row in found if text(row, "type") in ("user", "assistant") and "content" in row]
    if any(name in row for row in typed for name in _OWN):
        return FormatMatch(85, "rows of type user or assistant with content, and prompt_index or model_id")
    return None


GROK_CLI = SessionFormat("grok_cli", _GrokCli, _match, rows=40)
