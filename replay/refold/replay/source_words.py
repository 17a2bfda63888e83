"""What an imported source records beside the facts, and what its import lost."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers import events as ev
from refold.reducers.source_marks import (
    CALL_UNREAD,
    END,
    GOES_ON,
    INFERRED,
    LEFT_BRANCH,
    SUBAGENT_ROWS,
)
from refold.reducers.state import RunState
from refold.replay import figures
from refold.replay.environment import stated
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
        "typed:taken_back": "typed, taken back before the model was told",
        "typed:never_sent": "typed, never reached the model",
        "typed:unknown": "typed, and whether it reached the model is not known",
    }
)
_MODES = frozenset({"permission_mode", "policy"})
_QUOTED, _MESSAGES = 80, 5  # maximum characters of a message, and messages of one observation
_NAMED = frozenset({"score", "unmapped"})  # the source's own name follows their colon


class _SourceRow(msgspec.Struct):
    content: str


def decided(what: str) -> bool:
    """Return whether the source's harness decided something, or its model saw something not recorded here."""
    kind, _, word = what.partition(":")
    return kind in _DECIDED or (word == "unequal" and kind not in _NAMED)


def source_remark(event: ev.SourceRecorded) -> str:
    """Summarize a decision of the source, including user text that the model may not have seen."""
    if (sentence := _TYPED.get(event.what)) is not None:
        return sentence + (f": {quoted(_content(event.content.text))}" if event.content else "")
    mode = stated(event).get("permission_mode") if event.what in _MODES else None
    if mode is not None:
        return f"permission mode {quoted(mode)}"
    return f"source: {event.what}" if decided(event.what) else ""


def context_remark(event: ev.ContextObserved) -> str:
    """Summarize how the source's harness changed the prompt."""
    return f"context: {figures.counted(len(event.messages), 'message')} ({event.why or 'asked again'})"


def context_words(event: ev.ContextObserved) -> str:
    """Return the texts that joined the prompt, if a user's text is among them."""
    if "user" not in event.why.split() or event.content is None:
        return ""
    return ", ".join(quoted(message.text) for message in event.content.messages[:_MESSAGES])


def quoted(said: str) -> str:
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

    `end` is `finished`, `limit:steps`, …, `goes_on`; "" if unknown. `said` is the source's own text, None if
    erased. For `goes_on`, events up to `after` are shared with the run `run`, which continues it.
    """

    end: str = ""
    said: str | None = ""
    run: str = ""
    after: int = 0

    def brief(self, unanswered: int) -> str:
        """Return the end in a few words, for a column: `open, 2 calls unanswered`."""
        words = f"goes on in {self.run}" if self.run else self.end.replace(":", ": ", 1)
        words = "end unknown" if words == "unknown" else words
        return f"{words}, {figures.counted(unanswered, 'call')} unanswered" if words and unanswered else words

    def sentence(self, unanswered: tuple[str, ...]) -> str:
        """Return the end as a sentence; `unanswered` are the names of calls without a result."""
        if not self.end:
            return ""
        kind, _, which = self.end.partition(":")
        told = _SENTENCES.get(kind, f"the source says {self.end}") + (f": {which}" if kind == "limit" else "")
        if self.run:
            told = f"the source went on: up to event {self.after} it is in run {self.run} too, which has the rest"
        elif unanswered:
            calls = "1 call has" if len(unanswered) == 1 else f"{len(unanswered)} calls have"
            told += f"; {calls} no result ({_named(unanswered)})"
        elif self.said is None:
            told += " (where it says so was erased)"
        elif self.said:
            told += f" ({self.said})"
        return told


_SENTENCES = {
    "finished": "finished, by its source",
    "limit": "ended by a limit of its harness",
    "cancelled": "a person stopped it",
    "guardrail": "a guardrail of its harness ended it",
    "error": "an error ended it",
    "open": "the source ends open",
    "unknown": "the source does not say how it ended",
}
_MOST_NAMED = 5


def unanswered(state: RunState) -> tuple[str, ...]:
    """Return the names of calls without a result, in order."""
    return tuple(call.name for call in (state.batch.calls if state.batch else ()) if call.result is None)


def told_of(state: RunState, end: SourceEnd) -> dict[str, Any]:
    """Return the summary fields about the source's end: code, sentence, and what was left open."""
    calls = unanswered(state)
    says = {"source_end": end.end, "source_says": end.sentence(calls), "goes_on_in": end.run}
    return {**says, "unanswered": calls}


def exported(state: RunState, end: SourceEnd) -> dict[str, str]:
    """Return the text fields of these for an export; empty if no source ended the run."""
    return {name: said for name, said in told_of(state, end).items() if name != "unanswered" and said}


def _named(calls: tuple[str, ...]) -> str:
    more = len(calls) - _MOST_NAMED
    return ", ".join([*calls[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def source_end(stored: Stored, event: ev.Event, before: SourceEnd) -> SourceEnd:
    """Return how the source ended the run after `event`; the last statement counts.

    A fork's continuation is not ended by the source.
    """
    match event:
        case ev.SourceRecorded(what=what) if what.startswith(END):
            erased = stored.erased
            return _ended(event, what.removeprefix(END), erased=erased)
        case ev.RunForked():
            return SourceEnd()
        case _:
            return before


def _ended(event: ev.SourceRecorded, end: str, *, erased: bool) -> SourceEnd:
    if end.startswith(GOES_ON):
        return SourceEnd(end="goes_on", run=end.removeprefix(GOES_ON), after=event.seq or 0)
    if erased:
        return SourceEnd(end=end, said=None)
    first = event.content.text.partition("\n")[0] if event.content else ""
    return SourceEnd(
        end=end, said="" if first.startswith("{") else first
    )  # the rest of the record follows it


_CUT = "it is cut short, or damaged"
_NO_RUN = "a part of it holds no run that is known"

LOST: Mapping[str, str] = MappingProxyType(
    {
        "requests_missing": "it counts more requests to the model than it has",
        "calls_missing": "it counts more calls than it has",
        "result_without_call": "it has a result whose call it does not have",
        "other_tool": "it has a result of another tool than was called",
        "too_many_calls": "an answer in it has more calls than are read",
        "unknown_part": "a message in it has a part of a kind that is not known",
        CALL_UNREAD: "something in it may be a call, and is not read as one",
        "no_place": "something of it has no place in the run",
        "not_json": "a line of it is no JSON",
        "no_object": "a line of it is JSON, but no object",
        "too_long": "a line of it is too long to be read",
        "too_deep": "a part of it is nested too deep to be read",
        "too_many_rows": "it has more rows than are read",
        "changed": "it was changed while it was read",
        "cut": _CUT,
        "cut_off": _CUT,
        "cut_document": _CUT,
        "no_message": "a row of it is no message",
        "no_messages": "a part of it has no messages",
        "no_part": "a part of a message in it is of no known kind",
        "no_role": "something in it is said by nobody",
        "other_span": "a span of it has the id of another span",
        "no_span": "a row of it is no span",
        LEFT_BRANCH: "what was done on a branch that somebody left is in no run",
        SUBAGENT_ROWS: "what a subagent did is in no run",
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


def lost(code: str) -> str:
    """Describe what may be missing, with the code; a generic text for an unknown code."""
    said = LOST.get(code, "it was not wholly read")
    return f"something of the source may be in no fact: {said} ({code})"
