"""Logs shown to followers: events that no store has, or records of any kind."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from refold.reducers import codec
from refold.reducers.events import Annotation, Event, Fact
from refold.reducers.guards import Registry
from refold.replay.reader import NO_GUARDS, Follower, follow_all
from refold.store.protocol import Stored

Found = TypeVar("Found")


def unchained(events: Iterable[Event], run: str = "r1") -> Iterator[Stored]:
    """The events as records, without the hashes that only `verify` reads."""
    at = 0
    for seq, event in enumerate(events, 1):
        at = max(at, event.at) if isinstance(event, Fact | Annotation) else at
        one = codec.encode(event)
        yield Stored(
            run=run, seq=seq, hash=b"", at=at, kind=one.kind, body=one.body, content=one.content, salt=b""
        )


def shown(follower: Follower[Found], log: Iterable[Event]) -> Found:
    """What a follower finds in these events. Raises what keeps it from their end."""
    return looked_at(follower, unchained(log))


def looked_at(follower: Follower[Found], records: Iterable[Stored], registry: Registry = NO_GUARDS) -> Found:
    """What a follower finds in these records. Raises what keeps it from their end."""
    follow_all(records, follower, registry=registry)
    if follower.problem is not None:
        raise follower.problem
    return follower.result()
