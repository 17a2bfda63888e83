"""What an imported source records beside the facts, and what its import lost."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers import events as ev
from refold.reducers.source_marks import (
    CALL_UNREAD,
    CONTINUED,
    END,
    INFERRED,
    LEFT_BRANCH,
    SUBAGENT_ROWS,
)
from refold.reducers.state import RunState
from refold.replay import figures
from refold.replay.environment import read_source_row
from refold.store.protocol import Stored

_CUTS = frozenset({"compaction", "condensation", "microcompaction", "trim"})
_DECIDED = _CUTS | frozenset(
    {
        "approval",
        "cancelled",
        "end",
        "error",
        "gave_up",
        "guardrail",
        "hook",
        "limit",
        "permission_mode",
        "policy",
        "refusal",
        "retry",
        "rewound",
        "subagent",
    }
)
_TYPED: Mapping[str, str] = MappingProxyType(
    {
        "typed:taken_back": "typed, withdrawn before it was sent to the model",
        "typed:never_sent": "typed, not sent to the model",
        "typed:unknown": "typed; unknown whether it was sent to the model",
    }
)
_MODES = frozenset({"permission_mode", "policy"})
_QUOTED, _MESSAGES = 80, 5  # maximum characters of a message, and messages of one observation
_NAMED = frozenset({"score", "unmapped"})  # the source's own name follows their colon


class _SourceRow(msgspec.Struct):
    content: str


def is_decision(what: str) -> bool:
    """Return whether the source's harness decided something, or its model saw something not recorded here."""
    kind, _, word = what.partition(":")
    return kind in _DECIDED or (word == "unequal" and kind not in _NAMED)


def source_remark(event: ev.SourceRecorded) -> str:
    """Summarize a decision of the source, including user text that the model may not have seen."""
    if (sentence := _TYPED.get(event.what)) is not None:
        return sentence + (f": {quote(_content(event.content.text))}" if event.content else "")
    mode = read_source_row(event).get("permission_mode") if event.what in _MODES else None
    if mode is not None:
        return f"permission mode {quote(mode)}"
    return f"source: {event.what}" if is_decision(event.what) else ""


def context_remark(event: ev.ContextObserved) -> str:
    """Summarize how the source's harness changed the prompt."""
    return f"context: {figures.quantity(len(event.messages), 'message')} ({event.why or 'asked again'})"


def context_words(event: ev.ContextObserved) -> str:
    """Return the texts that joined the prompt, if a user's text is among them."""
    if "user" not in event.why.split() or event.content is None:
        return ""
    return ", ".join(quote(message.text) for message in event.content.messages[:_MESSAGES])


def quote(said: str) -> str:
    """Return the start of a user's text in quotation marks."""
    return f'"{said[:_QUOTED]}{"…" if len(said) > _QUOTED else ""}"'


def _content(row: str) -> str:
    try:
        return str(msgspec.json.decode(row.partition("\n")[0], type=_SourceRow).content)
    except msgspec.DecodeError:
        return row


def cuts(what: str) -> bool:
    """Return whether the event concerns the next prompt."""
    return what in _CUTS


class SourceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals counted by the source for a whole run; None if missing. `cost` is in US dollars."""

    input: int | None = msgspec.field(default=None, name="tokens_sent")
    output: int | None = msgspec.field(default=None, name="tokens_received")
    answers: int | None = msgspec.field(default=None, name="api_calls")
    cost: float | None = msgspec.field(default=None, name="instance_cost")


class _SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    model_stats: SourceTotals | None = None


def source_totals(event: ev.Event, before: SourceTotals | None = None) -> SourceTotals | None:
    """Return the source's own totals after `event`: SWE-agent and mini-swe-agent write them at the end."""
    match event:
        case ev.SourceRecorded(what=what, content=ev.Remark(text=text)) if what.startswith(END):
            return next(filter(None, map(_totals, text.split("\n"))), before)
        case _:
            return before


def _totals(line: str) -> SourceTotals | None:
    """Parse totals from an imported line of arbitrary JSON. 0 means not counted."""
    try:
        stats = msgspec.json.decode(line, type=_SourceInfo).model_stats
    except (msgspec.MsgspecError, RecursionError):
        return None
    told = {name: value for name, value in msgspec.structs.asdict(stats).items() if value} if stats else {}
    return SourceTotals(**told) if told else None


class SourceEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the source ended an imported run.

    `end` is `finished`, `limit:steps`, …, `continues`; "" if unknown. `said` is the source's own text, None
    if erased. For `continues`, events up to `after` are shared with the run `run`, which continues it.
    """

    end: str = ""
    said: str | None = ""
    run: str = ""
    after: int = 0

    def brief(self, unanswered: int) -> str:
        """Return the end in a few words, for a column: `open, 2 calls unanswered`."""
        words = f"continued in {self.run}" if self.run else self.end.replace(":", ": ", 1)
        words = "end unknown" if words == "unknown" else words
        return (
            f"{words}, {figures.quantity(unanswered, 'call')} unanswered" if words and unanswered else words
        )

    def sentence(self, unanswered: tuple[str, ...]) -> str:
        """Return the end as a sentence; `unanswered` are the names of calls without a result."""
        if not self.end:
            return ""
        kind, _, which = self.end.partition(":")
        told = _SENTENCES.get(kind, f"the source recorded {self.end}") + (
            f": {which}" if kind == "limit" else ""
        )
        if self.run:
            told = f"continued in run {self.run}, which shares events up to {self.after}"
        elif unanswered:
            calls = "1 call has" if len(unanswered) == 1 else f"{len(unanswered)} calls have"
            told += f"; {calls} no result ({_list_names(unanswered)})"
        elif self.said is None:
            told += " (its record was erased)"
        elif self.said:
            told += f" ({self.said})"
        return told


_SENTENCES = {
    "finished": "finished, according to its source",
    "limit": "ended by a limit of its harness",
    "cancelled": "stopped by the user",
    "guardrail": "ended by a guardrail of its harness",
    "error": "ended by an error",
    "open": "unfinished in its source",
    "unknown": "its source does not record how it ended",
}
_MOST_NAMED = 5


def unanswered(state: RunState) -> tuple[str, ...]:
    """Return the names of calls without a result, in order."""
    return tuple(call.name for call in (state.batch.calls if state.batch else ()) if call.result is None)


def list_end_fields(state: RunState, end: SourceEnd) -> dict[str, Any]:
    """Return the summary fields about the source's end: code, sentence, and what was left open."""
    calls = unanswered(state)
    says = {"source_end": end.end, "source_says": end.sentence(calls), "continued_in": end.run}
    return {**says, "unanswered": calls}


def export_end(state: RunState, end: SourceEnd) -> dict[str, str]:
    """Return the text fields of these for an export; empty if no source ended the run."""
    return {name: said for name, said in list_end_fields(state, end).items() if name != "unanswered" and said}


def _list_names(calls: tuple[str, ...]) -> str:
    more = len(calls) - _MOST_NAMED
    return ", ".join([*calls[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def source_end(stored: Stored, event: ev.Event, before: SourceEnd) -> SourceEnd:
    """Return how the source ended the run after `event`; the last statement counts.

    A fork's continuation is not ended by the source.
    """
    match event:
        case ev.SourceRecorded(what=what) if what.startswith(END):
            erased = stored.erased
            return _parse_end(event, what.removeprefix(END), erased=erased)
        case ev.RunForked():
            return SourceEnd()
        case _:
            return before


def _parse_end(event: ev.SourceRecorded, end: str, *, erased: bool) -> SourceEnd:
    if end.startswith(CONTINUED):
        return SourceEnd(end="continues", run=end.removeprefix(CONTINUED), after=event.seq or 0)
    if erased:
        return SourceEnd(end=end, said=None)
    first = event.content.text.partition("\n")[0] if event.content else ""
    return SourceEnd(
        end=end, said="" if first.startswith("{") else first
    )  # the rest of the record follows it


_CUT = "it is cut off or damaged"
_NO_RUN = "a part contains no known run"

LOST: Mapping[str, str] = MappingProxyType(
    {
        "requests_missing": "it counts more model requests than it contains",
        "calls_missing": "it counts more calls than it contains",
        "result_without_call": "a result has no call",
        "other_tool": "a result names another tool than its call",
        "too_many_calls": "a response has more calls than are read",
        "unknown_part": "a message has a part of an unknown kind",
        CALL_UNREAD: "something may be a call, and is not read as one",
        "no_place": "something has no place in the run",
        "not_json": "a line is not JSON",
        "no_object": "a line is JSON, but not an object",
        "too_long": "a line is too long",
        "too_deep": "a part is nested too deeply",
        "too_many_rows": "it has more rows than are read",
        "changed": "it changed while it was read",
        "cut": _CUT,
        "cut_off": _CUT,
        "cut_document": _CUT,
        "no_message": "a row is not a message",
        "no_messages": "a part has no messages",
        "no_part": "a part of a message is of an unknown kind",
        "no_role": "a message has no role",
        "other_span": "two spans have the same id",
        "no_span": "a row is not a span",
        LEFT_BRANCH: "an abandoned branch is in no run",
        SUBAGENT_ROWS: "the actions of a subagent are in no run",
        "no_run": _NO_RUN,
        "no_history": _NO_RUN,
        "no_steps": _NO_RUN,
        "no_trace": _NO_RUN,
    }
)
"""Description of each diagnosis code that reports lost data."""


SAID_ALL_THE_SAME = frozenset(
    {
        "result_missing",
        INFERRED,
        "half_pair",
        "not_shown",
        "paired_by_order",
        "id_repeated",
        "newer_version",
        "repeated",
        "result_repeated",
    }
)
"""Diagnosis codes after which no data is missing from the facts."""


def is_lost(event: ev.Event) -> bool:
    """Return whether the event reports that data of the source may be missing from the facts."""
    return isinstance(event, ev.Diagnosed) and event.code not in SAID_ALL_THE_SAME


def describe_loss(code: str) -> str:
    """Describe what may be missing, with the code; a generic text for an unknown code."""
    said = LOST.get(code, "it was not read completely")
    return f"data of the source may be missing: {said} ({code})"
