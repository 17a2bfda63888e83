"""Annotations: worth keeping, without effect on the state."""

from refold.reducers.events.base import Annotation, Content
from refold.reducers.events.facts import ModelFailed, ModelResponded, SummaryReturned, ToolReturned

Result = ModelResponded | ModelFailed | ToolReturned | SummaryReturned
"""The facts that something under way waits for."""

RESULTS = (ModelResponded, ModelFailed, ToolReturned, SummaryReturned)
"""The same, to ask what a fact is: a union takes ten times as long."""


class LateResult(Annotation, frozen=True, kw_only=True, tag="late_result"):
    """A result for which nothing waited any more: the fact that it would have been.

    What was said is the content, in the shape that the fact's own would have; the fact's is None.
    """

    fact: Result
    content: Content | None = None


class Remark(Content, frozen=True, kw_only=True):
    """What somebody wrote beside the log."""

    text: str


class NoteAdded(Annotation, frozen=True, kw_only=True, tag="note_added"):
    """A person's note about event `seq`, or about the run."""

    by: str
    seq: int | None = None
    content: Remark | None = None


class ContentErased(Annotation, frozen=True, kw_only=True, tag="content_erased"):
    """The content of these events was erased."""

    seqs: tuple[int, ...]
    by: str
    why: str


class Diagnosed(Annotation, frozen=True, kw_only=True, tag="diagnosed"):
    """Something found wrong while reading: `code`, and where; what could not be used is the content."""

    code: str
    problem: str
    seq: int | None = None
    content: Remark | None = None


class SourceRecorded(Annotation, frozen=True, kw_only=True, tag="source_recorded"):
    """Where an imported event came from: the format, the file's SHA-256, the line or position in it.

    `what` names something that the source recorded and that is no fact here, its own decisions among it:
    `compaction`, `limit:steps`, `guardrail`, `end:finished`. "" for the origin of the fact `seq`.
    """

    format: str
    source: str
    position: str
    seq: int | None = None
    what: str = ""
    content: Remark | None = None


class UnknownAnnotation(Annotation, frozen=True, kw_only=True, tag="unknown_annotation"):
    """An annotation of a kind that this version does not know: kept as bytes, skipped. Never written."""

    of: str
    body: bytes


ANNOTATIONS: tuple[type[Annotation], ...] = (
    LateResult,
    NoteAdded,
    ContentErased,
    Diagnosed,
    SourceRecorded,
)
