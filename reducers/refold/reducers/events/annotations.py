"""Annotations: what is recorded beside the facts.

No decision reads them, except guards that read the permission mode in the source of an imported run.
"""

from refold.reducers.events.facts import Result
from refold.reducers.events.parts import Annotation, Content


class LateResult(Annotation, frozen=True, kw_only=True, tag="late_result"):
    """A result that nothing waited for any more, as the fact that it would have been.

    The content is here, in the shape of the fact's content; the fact's own content is None.
    """

    fact: Result
    content: Content | None = None


class Remark(Content, frozen=True, kw_only=True):
    """A text that was added beside the log."""

    text: str


class NoteAdded(Annotation, frozen=True, kw_only=True, tag="note_added"):
    """A user's note about event `seq`, or about the run."""

    by: str
    seq: int | None = None
    content: Remark | None = None


class ContentErased(Annotation, frozen=True, kw_only=True, tag="content_erased"):
    """The content of these events was erased."""

    seqs: tuple[int, ...]
    by: str
    why: str


class Diagnosed(Annotation, frozen=True, kw_only=True, tag="diagnosed"):
    """A problem found while reading, with its `code` and event; the content is the unusable text."""

    code: str
    problem: str
    seq: int | None = None
    content: Remark | None = None


class SourceRecorded(Annotation, frozen=True, kw_only=True, tag="source_recorded"):
    """The origin of an imported event: the format, the file's SHA-256, the line or position in it.

    `what` names something that the source recorded and that is not a fact here, including decisions of its
    harness: `compaction`, `limit:steps`, `guardrail`, `end:finished`. It is "" for the origin of the fact
    `seq`.
    """

    format: str
    source: str
    position: str
    seq: int | None = None
    what: str = ""
    content: Remark | None = None


class UnknownAnnotation(Annotation, frozen=True, kw_only=True, tag="unknown_annotation"):
    """An annotation of a kind that this version does not know.

    Readers keep its bytes and skip it; it is never written.
    """

    of: str
    body: bytes


ANNOTATIONS: tuple[type[Annotation], ...] = (
    LateResult,
    NoteAdded,
    ContentErased,
    Diagnosed,
    SourceRecorded,
)
