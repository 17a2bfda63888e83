"""Marks that importers write into a log: facts missing in the source, and how its runs are related.

Readers of a log look for them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from refold.reducers.events import Event, ModelResponded, Remark, SourceRecorded

END = "end:"
"""The prefix of `what` in the record of a run's end.

It is the last record of an import; a later one supersedes it.
"""

UNCALLED = "uncalled"
"""The mark on a result whose call is missing in the source: something ran, but it is unknown what."""

HOSTED = "hosted_call"
"""The mark on a response with a call that was not run by the harness, or that has an unknown form."""

INFERRED = "calls_inferred"
"""The diagnosis of a run with calls that are known only by their results."""

UNNAMED = "unknown"
"""The name given to such a call, since neither its tool nor its arguments are known."""

CALL_UNREAD = "call_unread"
"""The diagnosis of something that may be a call but is not read as one."""

LEFT_BRANCH = "left_branch"
"""The diagnosis of responses, calls or results on an abandoned branch that are part of no imported run."""

SUBAGENT_ROWS = "subagent_rows"
"""The diagnosis of a subagent's responses, calls or results in its parent's source that are part of no run.
"""

BEGAN = "began:"
"""The prefix of a mark on a result: its call started the run with the key that follows.

That run may be in another file.
"""

PARENT_LABEL = "source.parent"
"""The label of a run that another run of the same source started.

Its value is that run's key, "" if the file does not name it.
"""

SYSTEM_LABEL = "source.system"
"""The label of a run whose source records no exact system prompt.

Its value is `template` if the harness omits parts of the recorded template.
"""

NO_SUMMARY = "compaction:not_recorded"
"""The mark for a compaction whose summary is missing in the source."""

ASKED_FOR_SUMMARY = "compaction:asked"
"""The mark after a response that is a compaction's summary: the request for it is missing in the source."""

LACKS: Mapping[str, str] = MappingProxyType(
    {
        NO_SUMMARY: "the summary that a compaction before this left is not in the source",
        ASKED_FOR_SUMMARY: "this answer is a compaction's summary, and what asked for it is not in the source",
    }
)
"""For each such mark, what the derived request lacks compared with the one that was sent."""

BRANCH_LABEL = "source.branch"
"""The label of a run that was abandoned as a branch of `source.parent`; the value says how, as `rewound`."""

FORK_LABEL = "source.fork"
"""The label with the position in the source of the last row that such a run shares with the other."""

CONTINUED = "continued:"
"""The mark of an end, after `END`: a later import has the rest, in the run with the id that follows."""

_PARTIAL = "usage partial"
"""The mark on a response whose usage is a lower bound."""


def lacks_tokens(event: Event) -> bool:
    """Return whether the event records that a response's token count is unknown or partial."""
    match event:
        case ModelResponded(usage=usage):
            return not (usage.input or usage.output)
        case SourceRecorded(content=Remark(text=text)):
            return text == _PARTIAL or text.startswith(f"{_PARTIAL}\n")
        case _:
            return False
