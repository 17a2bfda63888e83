"""A log that was made anew, written into a store: its records, chained, under the ids that its facts name."""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers.events import Annotation, Decision, Event, Fact, NoteAdded, Remark, RunForked, RunStarted
from refold.replay.shrink.rederivation import Log, Written
from refold.store.protocol import Head, Record, Store

_HOLDER = "refold shrink"


async def write(store: Store, log: Log, note: str) -> str:
    """Write the log, and a note behind it that says what it is. The id of its run; of a fork, the runs behind it too.

    The store has none of these runs. Raises what `Store.append` raises.
    """
    run, head = "", Head(seq=0, hash=b"")
    remark = NoteAdded(at=log.events[-1].at, by=_HOLDER, content=Remark(text=note))
    for group in _groups([*log.events, Written(remark, remark.at, b"")]):
        first = group[0].event
        if isinstance(first, RunForked):
            first = replace(first, parent=run, parent_hash=head.hash.hex())
            group = [group[0]._replace(event=first), *group[1:]]  # noqa: PLW2901 - the hash is known here only
        run = first.run if isinstance(first, RunStarted | RunForked) else run
        lease = await store.lease(run, holder=_HOLDER)
        head = await store.append(run, head.seq, lease, [_record(each) for each in group])
        await store.release(lease)
    return run


def _groups(events: Sequence[Written]) -> list[list[Written]]:
    found = list[list[Written]]()
    for each in events:
        if not isinstance(each.event, Decision):
            found.append([])
        found[-1].append(each)
    return found


def _record(each: Written) -> Record:
    encoded = codec.encode(each.event)
    blinded = encoded.content is not None and _is_blinded(each.event)
    return Record(
        at=each.at,
        kind=encoded.kind,
        body=encoded.body,
        content=encoded.content,
        salt=each.salt if blinded else b"",
    )


def _is_blinded(event: Event) -> bool:
    return isinstance(event, Fact | Annotation)
