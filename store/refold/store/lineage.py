"""Forks: where the log of a run goes on from another's. Pure.

A fork's log begins right behind an event of its parent's: its first event is number N + 1, names the parent, N and the
hash of event N, and is chained to that hash. So what came before is stored once, and what verifies the fork verifies
its prefix. Nothing else tells of the lineage: there is no table that could be lost, or could say otherwise.

The parent is the run that has event N in its own log. Hence each step of a lineage leads to a smaller number, and a
lineage ends, whatever a forged log says.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from refold.reducers.errors import DamagedLog, WrongUse
from refold.store.checks import can_name
from refold.store.protocol import Origin

FORKED = "run_forked"
"""The kind of a fork's first event, the only one of which a store reads the body."""

MOST_ANCESTORS = 64
"""How many runs may stand behind a fork, each a fork of the one before it."""


class OwnLog(NamedTuple):
    """A run's own log: numbers of its first and last event, and of a fork where it goes on from."""

    first: int
    last: int
    origin: Origin | None


class LogPart(NamedTuple):
    """A part of a log, read in the own log of `run`: the events with `after < seq <= upto`."""

    run: str
    after: int
    upto: int


class _Forked(msgspec.Struct, frozen=True):
    parent: str
    parent_seq: int
    parent_hash: str


_DECODER = msgspec.json.Decoder(_Forked)


def origin_of(first: int, kind: str, body: bytes) -> Origin | None:
    """Where a log goes on from whose first event is number `first`; None for one with a beginning of its own.

    None too for a body that no fork can have: a reader of the log will miss the events before it.
    """
    if first <= 1 or kind != FORKED:
        return None
    try:
        said = _DECODER.decode(body)
        hashed = bytes.fromhex(said.parent_hash)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    there = said.parent_seq == first - 1 and can_name(said.parent)
    return Origin(run=said.parent, seq=said.parent_seq, hash=hashed) if there else None


def traced(run: str, own: Callable[[str], OwnLog | None]) -> list[Origin]:
    """Where the runs before `run` were left, the oldest first; none for a run with a beginning of its own.

    `own` looks a run's own log up; None: it has no events. Raises `DamagedLog` for a lineage that leads nowhere.
    """
    found, at = list[Origin](), own(run)
    while at is not None and at.origin is not None:
        origin, parent = at.origin, own(at.origin.run)
        if parent is None or not parent.first <= origin.seq <= parent.last:
            raise DamagedLog(run, at.first, f"{_named(origin)}, which is not in this store")
        if len(found) == MOST_ANCESTORS:
            raise DamagedLog(run, at.first, f"more than {MOST_ANCESTORS} runs stand behind it")
        found.append(origin)
        at = parent
    return found[::-1]


def pieces(run: str, last: int, lineage: Sequence[Origin]) -> list[LogPart]:
    """The parts of the run's whole log in order, up to event `last`."""
    found, after = list[LogPart](), 0
    for origin in lineage:
        found.append(LogPart(origin.run, after, origin.seq))
        after = origin.seq
    return [*found, LogPart(run, after, last)]


def check_origin(run: str, origin: Origin, hashed: bytes | None, depth: int) -> None:
    """Refuse a fork of what is not there. Raises `WrongUse`.

    `hashed` is the hash of that event in the parent's own log, None if it has none; `depth` how many runs would stand
    behind the fork.
    """
    if hashed is None:
        raise WrongUse(f"run {run}: {_named(origin)}, which this store does not have in that run's own log")
    if hashed != origin.hash:
        raise WrongUse(
            f"run {run}: {_named(origin)}, which has the hash {hashed.hex()} and not the one named"
        )
    if depth > MOST_ANCESTORS:
        raise WrongUse(
            f"run {run}: {MOST_ANCESTORS} runs stand behind {origin.run} already; fork an earlier one"
        )


def check_link(run: str, origin: Origin, hashed: object) -> None:
    """Raise `DamagedLog` unless the event that a fork goes on from has the hash that it says, and is there."""
    if hashed != origin.hash:
        has = (
            f"has the hash {hashed.hex()} and not the one named"
            if isinstance(hashed, bytes)
            else "is not there"
        )
        raise DamagedLog(run, origin.seq + 1, f"{_named(origin)}, which {has}")


def inherited(run: str, seq: int, owner: str) -> WrongUse:
    """That an event of a fork is its parent's, who alone can have it erased."""
    return WrongUse(
        f"event {seq} of run {run} is one of run {owner}, which it was forked from: erase it there"
    )


def _named(origin: Origin) -> str:
    return f"it goes on from event {origin.seq} of run {origin.run}"
