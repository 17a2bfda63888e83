"""Results and the calls that they answer: by the provider's id, and where that says nothing by their order."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from refold.importers.items import Item, Returned
from refold.reducers.messages import MessageCall


class Open(msgspec.Struct, frozen=True, gc=False):
    """A call that waits for its result: our id, the tool's name, the id that its provider gave it."""

    id: str
    name: str
    provider_id: str


class Paired(msgspec.Struct, frozen=True, gc=False):
    """What became of a result. `call` is ours, "" where it answers none; `code` and `problem` say what is odd."""

    call: str = ""
    name: str = ""
    code: str = ""
    problem: str = ""


def paired(calls: Sequence[Open], results: Sequence[Returned]) -> list[Paired]:
    """For each result the call that it answers. Each call has one result at most.

    First go the results whose id a call has; repeated ids in the order of the calls. What is left is the next open
    call's, of its tool if it names one: said as odd, unless the source names no ids at all.
    """
    free = _Free(calls)
    found = [free.of_id(result.id) for result in results]
    return [
        _next(free, result) if call is None else _pair(call, result)
        for call, result in zip(found, results, strict=True)
    ]


def refused_calls(calls: Sequence[MessageCall], items: Sequence[Item]) -> frozenset[int]:
    """The places of the calls that the results among these items say were refused."""
    results = [item for item in items if isinstance(item, Returned)]
    if not any(result.refused_by for result in results):
        return frozenset()
    waiting = [Open(f"{place}", call.name, call.id) for place, call in enumerate(calls)]
    pairs = zip(paired(waiting, results), results, strict=True)
    return frozenset(int(pair.call) for pair, result in pairs if pair.call and result.refused_by)


class _Free:
    """The calls that wait, in their order: all of them, by their providers' ids, by their tools. Each is given once."""

    def __init__(self, calls: Sequence[Open]) -> None:
        self._taken: set[str] = set()
        self._all = list(reversed(calls))  # the next one is the last of each list
        self._by_id: defaultdict[str, list[Open]] = defaultdict(list)
        self._by_name: defaultdict[str, list[Open]] = defaultdict(list)
        for call in self._all:
            self._by_id[call.provider_id].append(call)
            self._by_name[call.name].append(call)

    def has_id(self, id: str) -> bool:  # noqa: A002
        """Whether a call has this id, whether it waits or not."""
        return bool(id) and id in self._by_id

    def of_id(self, id: str) -> Open | None:  # noqa: A002
        """Take the next call of this id."""
        return self._next(self._by_id[id]) if self.has_id(id) else None

    def of_name(self, name: str) -> Open | None:
        """Take the next call of this tool, else the next of any."""
        same = self._next(self._by_name[name]) if name and name in self._by_name else None
        return same or self._next(self._all)

    def _next(self, calls: list[Open]) -> Open | None:
        # What one of the three gave stands in the others yet: each is passed over once.
        while calls:
            call = calls.pop()
            if call.id not in self._taken:
                self._taken.add(call.id)
                return call
        return None


def without_call(result: Returned) -> str:
    """What is said of a result that no call waits for."""
    tool = f", of the tool {result.name!r}" if result.name else ""
    return f"no call waits for the result of {result.id!r}{tool}"


def _next(free: _Free, result: Returned) -> Paired:
    if free.has_id(result.id):
        return Paired(code="result_repeated", problem=f"call {result.id!r} has its result already")
    call = free.of_name(result.name)
    if call is None:
        return Paired(code="result_without_call", problem=without_call(result))
    if not result.id:
        return _pair(call, result)
    problem = f"no call has the id {result.id!r}: taken for the result of the next call that waits"
    if other := _pair(call, result).problem:
        problem = f"{problem}; {other}"
    return Paired(call=call.id, name=call.name, code="paired_by_order", problem=problem)


def _pair(call: Open, result: Returned) -> Paired:
    if result.name in ("", call.name):
        return Paired(call=call.id, name=call.name)
    problem = f"the result names the tool {result.name!r}, its call {call.name!r}"
    return Paired(call=call.id, name=call.name, code="other_tool", problem=problem)
