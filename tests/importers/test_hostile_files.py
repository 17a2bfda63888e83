"""Transcripts that were cut, damaged, shuffled or forged: imported as far as they go, or refused; nothing
else.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.registry import candidates
from refold.importers.source import BadTranscript, Source
from support.transcripts import FILES, WRITTEN, path_of, read


def plain(file: str) -> bytes:
    """The bytes of a transcript, unpacked."""
    with path_of(file).open("rb") as opened:
        return Source.opened(file, opened).whole()


def small() -> dict[str, bytes]:
    """Of each format its two smallest transcripts that say something."""
    sizes = {file: path_of(file).stat().st_size for file in FILES + WRITTEN}
    found: dict[str, bytes] = {}
    for name in sorted({file.split("/")[0] for file in sizes}):
        own = sorted((file for file in sizes if file.split("/")[0] == name), key=lambda file: sizes[file])
        found |= {file: plain(file) for file in own[:2]}
    return found


SMALL = small()
# What somebody may put in the place of something else, and JSON still be JSON.
FORGED = [
    (b"null", b"[]"),
    (b"true", b"null"),
    (b'{"', b'["x",{"'),
    (b":", b':5,"z":'),
    (b"[", b"[[],"),
    (b"202", b"-9e99"),
]

Change = tuple[str, int, int]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["cut", "flip", "drop", "twice", "shuffle", "forge"]),
        st.integers(0, 1 << 30),
        st.integers(0, 1 << 30),
    ),
    min_size=1,
    max_size=3,
)


def changed(data: bytes, change: Change) -> bytes:
    """The bytes after somebody did this to them."""
    kind, one, other = change
    first, last = sorted((one % (len(data) + 1), other % (len(data) + 1)))
    match kind:
        case "cut":
            return data[:first]
        case "flip":
            return data[:first] + bytes([other % 256]) + data[first + 1 :]
        case "drop":
            return data[:first] + data[last:]
        case "twice":
            return data[:last] + data[first:last] + data[last:]
        case "shuffle":
            lines = data.split(b"\n")
            place = one % len(lines)
            return b"\n".join([*lines[place:], *lines[:place]])
        case _:
            return forged(data, FORGED[one % len(FORGED)], other)


def forged(data: bytes, pair: Sequence[bytes], which: int) -> bytes:
    old, new = pair
    count = data.count(old)
    if not count:
        return data
    parts = data.split(old)
    place = which % count + 1
    return old.join(parts[:place]) + new + old.join(parts[place:])


@pytest.mark.parametrize("file", SMALL)
@given(changes=CHANGES)
def test_whatever_was_done_to_it_the_log_stands(file: str, changes: list[Change]) -> None:
    """A transcript that somebody changed is refused whole, or makes logs that audit clean; no other
    exception.
    """
    data = SMALL[file]
    for change in changes:
        data = changed(data, change)
    source = Source.of(file, data)
    candidates(source)
    try:
        found = read(source, file.split("/", maxsplit=1)[0])
    except BadTranscript:
        return
    assert all(audit.clean for audit in found.audits)
    assert "no_place" not in {problem.code for problem in found.problems}
