"""Audits of logs that are in no store: events as the records that an engine would append."""

from collections.abc import Iterable, Sequence

from refold.reducers import codec
from refold.reducers.events import Annotation, Event, Fact
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import Audit, Auditor
from refold.replay.reader import NO_GUARDS, follow_all
from refold.store.chain import GENESIS, extend
from refold.store.protocol import Head, Record, Stored

RUN = "r"


def records(events: Iterable[Event]) -> list[Record]:
    """Encode events. A decision gets the instant of its fact."""
    made, at = list[Record](), 0
    for event in events:
        at = max(at, event.at) if isinstance(event, Fact | Annotation) else at
        one = codec.encode(event)
        made.append(Record(at=at, kind=one.kind, body=one.body, content=one.content))
    return made


def chained(log: Sequence[Record]) -> list[Stored]:
    """Return the records as a store returns them, with numbers and hashes."""
    return extend(RUN, Head(seq=0, hash=GENESIS), log)


def audit_events(events: Iterable[Event], guards: Registry = BUILTIN) -> Audit:
    """Audit a log of events, as `refold.replay.audit` does with a stored one.

    Args:
        events: the log, from `run_started` on.
        guards: the installed guards, by kind.

    Raises:
        DamagedLog: the events are not a valid log.
        NewerLog: the log was written by a newer version.
    """
    auditor = Auditor(RUN, guards)
    follow_all(chained(records(events)), auditor, registry=NO_GUARDS)
    if auditor.problem is not None:
        raise auditor.problem
    return auditor.result()
