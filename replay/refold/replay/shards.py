"""A store in parts, for processes or the workers of a cluster.

A shard is some runs of a store, or one bundle. A task is a picklable function from a shard to results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import NamedTuple, TypeVar

import msgspec

from refold.store.opening import store_address

SHARD = 20_000
"""Approximate number of events in a shard: one or two seconds of work, so that cores finish together."""

HELD = 50_000
"""Maximum number of events in a shard whose results go to memory, for tasks with a result per event."""

T = TypeVar("T")


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs of the store at `address`; for a bundle's file, `runs` is empty and means all of them."""

    address: str
    runs: tuple[str, ...] = ()
    events: int = 0

    @property
    def name(self) -> str:
        """Name of the shard for display, without passwords."""
        shown = store_address(self.address).shown
        if not self.runs:
            return shown
        first, *others = self.runs
        more = f" and {len(others)} more" if others else ""
        return f"{shown}: run {first}{more}"


class ShardEnd(NamedTuple):
    """End of a shard's results.

    `problem` says why it was not finished.
    """

    shard: Shard
    problem: str = ""


Task = Callable[[Shard], Iterable[T]]
"""Yields results for a shard. To be sent to a process, it must be a module function or a `partial` of one.
"""


def shards(
    address: str | PathLike[str],
    runs: Iterable[tuple[str, int]],
    size: int = SHARD,
    *,
    families: Mapping[str, str] | None = None,
) -> list[Shard]:
    """Split the runs of a store, each with its number of events, into shards of about `size` events.

    Runs of one family, if `families` is given, share a shard, at the position of the first of them.
    """
    found: list[Shard] = []
    names: list[str] = []
    events = 0
    for members in _group_families(runs, families or {}):
        names += [run for run, _ in members]
        events += sum(count for _, count in members)
        if events >= size:
            found.append(Shard(address=fspath(address), runs=tuple(names), events=events))
            names, events = [], 0
    return [*found, Shard(address=fspath(address), runs=tuple(names), events=events)] if names else found


def _group_families(
    runs: Iterable[tuple[str, int]], families: Mapping[str, str]
) -> Iterable[Sequence[tuple[str, int]]]:
    groups: dict[str, list[tuple[str, int]]] = {}
    for run, count in runs:
        groups.setdefault(families.get(run, run), []).append((run, count))
    return groups.values()
