"""Marks by which an import says what its source lacks, and how its runs belong together.

Readers of a log look for them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from refold.reducers.events import Event, ModelResponded, Remark, SourceRecorded

END = "end:"
"""How the record of a run's end says so: the last that an import writes of a run. A later one supersedes it.
"""

UNCALLED = "uncalled"
"""How an import remarks on the result of a call that its source does not have: something ran, and nobody
knows what.
"""

HOSTED = "hosted_call"
"""How an import remarks on what an answer holds of a call that it did not leave to its harness, or not in a
known form.
"""

INFERRED = "calls_inferred"
"""The diagnosis of a run with calls that are known by their results only."""

UNNAMED = "unknown"
"""The name that such a call is given: nobody knows what was called, or with which arguments."""

CALL_UNREAD = "call_unread"
"""The diagnosis of what may be a call, and is not read as one."""

LEFT_BRANCH = "left_branch"
"""The diagnosis of answers, calls or results on a branch that somebody left by going back, which are in no
run.
"""

SUBAGENT_ROWS = "subagent_rows"
"""The diagnosis of answers, calls or results of a subagent that stand in its parent's source, and are in no
run.
"""

BEGAN = "began:"
"""How an import remarks, with a result, that its call began the run whose key follows.

It may be in another file.
"""

PARENT_LABEL = "source.parent"
"""The label of a run that another of its source began: the key of that one, "" if its file does not name it.
"""

SYSTEM_LABEL = "source.system"
"""The label of a run whose source records no system prompt as it was sent: `template`, of which the harness
leaves parts out.
"""

NO_SUMMARY = "compaction:not_recorded"
"""How an import remarks that the summary which a compaction left is not in the source."""

ASKED_FOR_SUMMARY = "compaction:asked"
"""How an import remarks, behind an answer that is a compaction's summary, that what asked for it is not in
the source.
"""

LACKS: Mapping[str, str] = MappingProxyType(
    {
        NO_SUMMARY: "the summary that a compaction before this left is not in the source",
        ASKED_FOR_SUMMARY: "this answer is a compaction's summary, and what asked for it is not in the source",
    }
)
"""What a request lacks here of what was sent, by such remarks."""

BRANCH_LABEL = "source.branch"
"""The label of a run that was part of another, `source.parent`, until somebody left it: how, as `rewound`."""

FORK_LABEL = "source.fork"
"""Where in its source such a run forks from the other: the position of the last row that both have."""

GOES_ON = "goes_on:"
"""How an end says, behind `END`, that a later import has the rest: in the run whose id follows."""

_PARTIAL = "usage partial"
"""What an import notes beside an answer whose usage is a lower bound."""


def lacks_tokens(event: Event) -> bool:
    """Whether it says that an answer's tokens are not known, or only a part of them."""
    match event:
        case ModelResponded(usage=usage):
            return not (usage.input or usage.output)
        case SourceRecorded(content=Remark(text=text)):
            return text == _PARTIAL or text.startswith(f"{_PARTIAL}\n")
        case _:
            return False
