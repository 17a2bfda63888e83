"""What of the remarks of an imported source is worth a word beside what was derived: its own decisions."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from refold.reducers.events import ContextObserved, Event, RunForked, SourceRecorded

_END = "end:"

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
_QUOTED, _MESSAGES = 80, 5  # characters of a message, messages of one observation
_NAMED = frozenset({"score", "unmapped"})  # what follows their colon is the source's own word


class _Row(msgspec.Struct):
    content: str


def decided(what: str) -> bool:
    """Whether the source's own harness decided something there, or its model was shown what cannot be shown here."""
    kind, _, word = what.partition(":")
    return kind in _DECIDED or (word == "unequal" and kind not in _NAMED)


def source_remark(event: SourceRecorded) -> str:
    """What the source decided there, in a few words; of what somebody typed that the model may not know, these too."""
    if (sentence := _TYPED.get(event.what)) is not None:
        return sentence + (f": {_quoted(_content(event.content.text))}" if event.content else "")
    return f"source: {event.what}" if decided(event.what) else ""


def context_remark(event: ContextObserved) -> str:
    """How the source's harness changed what its model is shown; with the words, if a person's are among them."""
    counted = f"context: {len(event.messages)} messages ({event.why or 'asked again'})"
    if "user" not in event.why.split() or event.content is None:
        return counted
    return f"{counted}: {', '.join(_quoted(message.text) for message in event.content.messages[:_MESSAGES])}"


def _quoted(said: str) -> str:
    """The beginning of somebody's words, in quotation marks."""
    return f'"{said[:_QUOTED]}{"…" if len(said) > _QUOTED else ""}"'


def _content(row: str) -> str:
    try:
        return str(msgspec.json.decode(row.partition("\n")[0], type=_Row).content)
    except msgspec.DecodeError:
        return row


def cuts(what: str) -> bool:
    """Whether it is about what the next request shows."""
    return what in _CUTS


def source_end(event: Event, before: str = "") -> str:
    """How its source ended the run, once `event` is known too: `finished`, `limit:steps`; "" while nothing said so.

    What goes on from there is another run's, and no source ended it.
    """
    match event:
        case SourceRecorded(what=what) if what.startswith(_END):
            return what.removeprefix(_END)
        case RunForked():
            return ""
        case _:
            return before
