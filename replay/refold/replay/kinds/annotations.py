"""The rows of annotations: none is compared, for none has an effect."""

from refold.reducers.events import (
    ContentErased,
    Diagnosed,
    LateResult,
    NoteAdded,
    SourceRecorded,
    UnknownAnnotation,
)
from refold.replay.kinds import sentences
from refold.replay.kinds.arguments import brief
from refold.replay.kinds.details import EventDetails, words
from refold.replay.kinds.row import Kind, Weight, decisive
from refold.replay.kinds.sentences import SHOWN
from refold.replay.source_words import decided, source_remark


def _weight(event: SourceRecorded) -> Weight:
    return "decisive" if decided(event.what) else "routine"


ANNOTATIONS = (
    Kind(of=LateResult, type="note", says=sentences.late, marks="this", speaker="late", weight=decisive, compared=False),
    Kind(of=NoteAdded, type="note", says=lambda event: event.by,
         quotes=lambda event: brief(event.content.text if event.content else None, SHOWN), texts=("content.text",), speaker="note",
         marks="this", mark=sentences.noted,
         details=lambda event, _: EventDetails(by=event.by), compared=False),
    Kind(of=ContentErased, type="note", says=sentences.erased, quotes=lambda event: brief(event.why, SHOWN), texts=("why",),
         details=lambda event, _: EventDetails(by=event.by), compared=False),
    Kind(of=Diagnosed, type="note", says=lambda event: brief(event.code, SHOWN), quotes=lambda event: brief(event.problem, SHOWN),
         marks="this", mark=lambda event: f"odd: {event.code}", texts=("problem", "content.text"),
         details=lambda event, _: EventDetails(reason=words(event.code)), weight=decisive, compared=False),
    Kind(of=SourceRecorded, type="note", says=sentences.recorded, marks="this", mark=source_remark, texts=("content.text",),
         details=lambda event, _: EventDetails(name=words(event.what), reason=words(event.format)), weight=_weight, compared=False),
    Kind(of=UnknownAnnotation, type="note", says=lambda _: "this version does not know what it says", compared=False),
)  # fmt: skip
