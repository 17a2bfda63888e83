"""What an import diagnosed of its source, as a sentence: why something of it may be in no fact."""

from collections.abc import Mapping
from types import MappingProxyType

from refold.reducers.events import Diagnosed, Event
from refold.replay.source_words import CALL_UNREAD, INFERRED, LEFT_BRANCH, SUBAGENT_ROWS

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
"""By the code of the diagnosis, what it says of the source."""


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
"""Diagnoses after which all that the source says is in a fact all the same."""


def is_lost(event: Event) -> bool:
    """Whether an import says by it that something of its source may be in no fact."""
    return isinstance(event, Diagnosed) and event.code not in SAID_ALL_THE_SAME


def lost(code: str) -> str:
    """That something of a source may be in no fact, and why, with the code behind it; of a code that is not known only that."""
    said = LOST.get(code, "it was not wholly read")
    return f"something of the source may be in no fact: {said} ({code})"
