"""Sessions as trees: which rows lead to the last one, and which were left when somebody went back and began anew.

The ids that link the rows may repeat: a row is the same as an earlier one only if it says the same.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from refold.importers.fields import JSON, json_text, text
from refold.importers.items import Unread
from refold.importers.session_rows import Noise, Row


class Branch(msgspec.Struct, frozen=True):
    """Rows off the path, all descended from `rows[0]`, whose parent `fork` is on the path."""

    fork: str
    rows: tuple[str, ...]


def path_to(parents: Mapping[str, str], last: str) -> frozenset[str]:
    """The row and its ancestors, as far as they are known. A circle ends where it closes."""
    found: dict[str, None] = {}
    while last in parents and last not in found:
        found[last] = None
        last = parents[last]
    return frozenset(found)


def branches(parents: Mapping[str, str], path: frozenset[str]) -> Iterator[Branch]:
    """The rows that leave the path, branch by branch. What hangs on nothing known belongs to none."""
    roots: dict[str, str] = dict.fromkeys(path, "")  # "": on the path, or on nothing
    members: dict[str, list[str]] = {}
    for row in parents:
        if row not in roots:
            _follow(row, parents, path, roots)
        if root := roots[row]:
            members.setdefault(root, []).append(row)
    for root, rows in members.items():
        ordered = (root, *(row for row in rows if row != root))
        yield Branch(parents[root], ordered)


def _follow(row: str, parents: Mapping[str, str], path: frozenset[str], roots: dict[str, str]) -> None:
    """Find the root of a row, and so of all between."""
    walked: dict[str, None] = {}
    while row not in roots and row in parents and row not in walked:
        walked[row] = None
        if parents[row] in path:
            roots.update(dict.fromkeys(walked, row))
            return
        row = parents[row]
    roots.update(dict.fromkeys(walked, roots.get(row, "")))


class Repeats(msgspec.Struct, frozen=True):
    """The numbers of rows whose id an earlier row has: `again` say the same as that one, `others` do not."""

    again: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()


def find_repeats(
    rows: Iterable[Row | Noise], name: str, ids: Collection[str], says: Callable[[JSON], JSON]
) -> Repeats:
    """Compare the rows that share one of these ids, which stand under `name`, by what each `says`."""
    known: dict[str, set[bytes]] = {}
    again, others = set[int](), set[int]()
    for row in rows if ids else ():
        if not isinstance(row, Row) or (id_ := text(row.value, name)) not in ids:
            continue
        digest = hashlib.blake2b(json_text(says(row.value)).encode(), digest_size=16).digest()
        if digests := known.setdefault(id_, set()):
            (again if digest in digests else others).add(row.number)
        digests.add(digest)
    return Repeats(frozenset(again), frozenset(others))


def diagnose_repeat(row: Row, name: str) -> Unread:
    """The diagnosis of a row whose id an earlier row with another message has."""
    problem = f"an earlier row has the id {text(row.value, name)[:80]!r} and another message: both are read"
    return row.place.odd("id_repeated", problem)
