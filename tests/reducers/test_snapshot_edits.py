"""No edit of a snapshot changes what a run goes on with: it is refused, or the log does not bear it out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from refold.reducers import folds
from refold.reducers.events import Event, StateDigested, kind_of
from refold.reducers.evolution import FOUNDING
from refold.reducers.folds import fold
from refold.reducers.state import RunState
from support import golden

LOG = golden.events("a_digest_after_256_events")
SEQ = next(seq for seq, event in enumerate(LOG, 1) if isinstance(event, StateDigested))
FOUNDERS = [event for event in LOG[:SEQ] if kind_of(event) in FOUNDING]

Path = tuple[str | int, ...]


def kept() -> tuple[RunState, dict[str, Any]]:
    """The state at the digest, and its snapshot as JSON values."""
    state = fold(LOG[:SEQ])
    data = folds.encode_snapshot(state)
    assert data is not None
    return state, json.loads(data)


STATE, SNAPSHOT = kept()


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands in a JSON value."""
    if path:
        yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield from places(inner, (*path, key))


def others(value: Any) -> Iterator[Any]:
    """What could stand there instead."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, 0 if value else 2, None)
        case str():
            yield from (f"{value}x", "", "0" * len(value), None)
        case None:
            yield from (1, "x", [])
        case list():
            yield from (value[:-1], value[::-1], [*value, *value[:1]])
        case dict():
            yield {}
        case _:
            yield None


def edited(path: Path) -> Iterator[bytes]:
    """The snapshot with another value there."""
    within, last = _at(SNAPSHOT, path[:-1]), path[-1]
    before = within[last]
    for other in others(before):
        within[last] = other
        yield json.dumps(SNAPSHOT).encode()
    within[last] = before


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


EVERYWHERE = list(places(SNAPSHOT))
# A batch of 250 calls, and the answer that made them, have some thousand places: of these some will do.
MANY = dict.fromkeys(path for path in EVERYWHERE if path[1:2] in (("batch",), ("answer",)) and len(path) > 3)
PATHS = [*(path for path in EVERYWHERE if path not in MANY), *list(MANY)[::31]]


def continues(data: bytes, digested: Event) -> RunState | None:
    """The state that an engine would go on with; None: it folds the log instead."""
    try:
        state = folds.decode_snapshot(data)
    except folds.UnreadableSnapshot:
        return None
    return state if state.seq == SEQ and folds.snapshot_holds(state, digested, FOUNDERS) else None


def test_a_snapshot_that_nobody_edited_is_believed() -> None:
    """Else the tests below would show nothing."""
    assert STATE == continues(json.dumps(SNAPSHOT).encode(), LOG[SEQ - 1])
    assert 250 < len(PATHS)


@pytest.mark.parametrize("part", range(4))
def test_every_edit_is_refused(part: int) -> None:
    """Wherever something stands in it: what an engine would go on with is the state that the log comes to, or
    nothing.
    """
    tried = 0
    for path in PATHS[part::4]:
        for data in edited(path):
            tried += 1
            assert continues(data, LOG[SEQ - 1]) in (None, STATE), path
    assert 150 < tried
