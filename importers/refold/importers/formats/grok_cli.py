"""Grok CLI's `chat_history.jsonl`: what the model is shown, a row a message, a thought or a result; no times, no usage.

An answer is a row `assistant`, with the thoughts in the rows before it, or in its own `reasoning`. Calls that the provider
answered itself stand in rows of their own, `backend_tool_call`. A person's row says that the turn before it was interrupted;
`synthetic_reason` names what the harness put in. No result is marked as failed.

Counted: messages by their role; thoughts that no answer followed are an answer, too.
"""

from collections.abc import Iterator

from refold.importers.content import take_calls
from refold.importers.drafts import Draft
from refold.importers.fields import JSON, take_each, take_if, take_text, take_words, text
from refold.importers.items import Item, Place, RunBegan
from refold.importers.registry import Match
from refold.importers.session_rows import Noise, Row, Rows, first_rows, gathered
from refold.importers.source import Source, fits
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

_OWN = ("model_id", "model_fingerprint", "synthetic_reason", "prompt_index")
_LOOKED = 40


class GrokCli:
    """The importer of Grok CLI's chat histories."""

    name = "grok_cli"

    def match(self, source: Source) -> Match | None:
        """By what no other format's rows have: the model's id in an answer, why a message was put in, its prompt's number."""
        found = [row.value for row in first_rows(source, _LOOKED) if isinstance(row, Row)]
        typed = [row for row in found if text(row, "type") in ("user", "assistant") and "content" in row]
        if any(name in row for row in typed for name in _OWN):
            return Match(
                85, "rows of type user or assistant with content, and a prompt's number or a model's id"
            )
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gathered(_Reading(source).items())


GROK_CLI = GrokCli()


class _Reading:
    """One reading of a history."""

    def __init__(self, source: Source) -> None:
        self.name, self.rows = source.name, Rows(source)
        self.draft: Draft | None = None
        self.hosted: list[JSON] = []
        self.open: dict[str, str] = {}
        self.end = "open", "no prompt and no answer"
        models = (text(row.value, "model_id") for row in self.rows if isinstance(row, Row))
        self.model = next(filter(None, models), "")
        first = next((row for row in self.rows if isinstance(row, Row)), None)
        self.system = first if first is not None and text(first.value, "type") == "system" else None

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
        said = take_words(self.system.value, "content") if self.system else ""
        yield RunBegan(
            "line 1" if self.system is None else self.system.position,
            rest=self.system.rest() if self.system else "",
            key="session",
            messages=(Message(role=Role.SYSTEM, text=said),) if self.system else (),
            model=self.model,
            agent="grok-cli",
            unsaid=("tool_errors",),
        )
        line = 1
        for row in self.rows:
            line = row.line
            if isinstance(row, Noise):
                yield from self._ready()
                yield row
            elif self.system is None or row.number != self.system.number:
                yield from self._row(row)
        yield from self._ready()
        yield Place(f"line {line}").ended(self._end())

    def _row(self, row: Row) -> Iterator[Item | Noise]:
        match text(row.value, "type"):
            case "reasoning":
                self._thought(row)
            case "backend_tool_call":
                self.draft = self.draft or Draft(row)
                self.draft.grow(row, row.rest())
                self.hosted.append(row.value)
            case "assistant":
                self._answer(row)
                yield from self._ready()
            case "tool_result":
                yield from self._ready()
                yield self._result(row)
            case "user" | "system" as role:
                yield from self._ready()
                yield from self._said(row, role)
            case _:
                yield from self._ready()
                yield row.noise(known=False)

    def _thought(self, row: Row) -> None:
        self.draft = self.draft or Draft(row)
        for part in take_each(row.value, "summary"):
            self.draft.thoughts.append(take_text(part, "text"))
            take_if(part, "type", "summary_text")
        self.draft.grow(row, row.rest())

    def _answer(self, row: Row) -> None:
        self.draft = self.draft or Draft(row)
        self.draft.thoughts.append(take_text(row.value, "reasoning", "text"))
        self.draft.texts += [said] if (said := take_words(row.value, "content")) else []
        self.draft.calls += take_calls(row.value)
        take_if(row.value, "model_id", self.model)
        self.draft.grow(row, row.rest())

    def _ready(self) -> Iterator[Item | Noise]:
        draft, self.draft = self.draft, None
        if draft is None:
            return
        fits(self.name, draft.place.position, draft.size)
        self.open = {call.id: call.name for call in draft.calls}
        whole = text(draft.last.value, "type") == "assistant"
        self.end = (
            ("finished", "last answer has no call")
            if whole
            else ("open", "no answer behind the last thought")
        )
        model = text(draft.last.value, "model_id") or self.model
        yield draft.place.answered(draft.message(), model=model, rest=draft.rest)
        yield from draft.place.hosted([*self.hosted])
        self.hosted = []

    def _result(self, row: Row) -> Item:
        call, said = take_text(row.value, "tool_call_id"), take_words(row.value, "content")
        name = self.open.pop(call, "")
        self.end = "open", "last row is a result, no answer after it"
        return row.place.returned(call, said, name=name, rest=row.rest())

    def _said(self, row: Row, role: str) -> Iterator[Item]:
        self.end = "open", "last row is a prompt, no answer after it"
        if stopped := take_text(row.value, "prior_turn_interrupt"):
            yield row.place.cancelled(stopped)
        by = "harness" if role == "system" or row.value.get("synthetic_reason") else "user"
        said = take_words(row.value, "content")
        yield row.place.said(said, by, role=Role(role), rest=row.rest())

    def _end(self) -> tuple[str, str]:
        """How it ended, and what says so."""
        return ("open", f"{len(self.open)} tool call(s) without result at the end") if self.open else self.end
