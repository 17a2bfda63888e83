"""Audits of logs that no store has: events as the records that an engine would make of them."""

from collections.abc import Iterable, Sequence

from refold.reducers import codec
from refold.reducers.events import Annotation, Event, Fact
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import Audit, Auditor
from refold.store.chain import GENESIS, extend
from refold.store.protocol import Head, Record, Stored
from support.following import looked_at

RUN = "r"


def records(events: Iterable[Event]) -> list[Record]:
    """The events, encoded; what was decided on a fact has its instant."""
    made, at = list[Record](), 0
    for event in events:
        at = max(at, event.at) if isinstance(event, Fact | Annotation) else at
        one = codec.encode(event)
        made.append(Record(at=at, kind=one.kind, body=one.body, content=one.content))
    return made


def chained(log: Sequence[Record]) -> list[Stored]:
    """The records as a store gives them back."""
    return extend(RUN, Head(seq=0, hash=GENESIS), log)


def audited(events: Iterable[Event], registry: Registry = BUILTIN) -> Audit:
    """What an audit finds in these events. Raises what `Auditor.take` raises."""
    return looked_at(Auditor(RUN, registry), chained(records(events)))
