"""The gate: of what stands in a log nothing is edited unseen, the chain computed anew, but for what the log
alone says of the world.

What that is, `support.testimony` lists; a seal tells of an edit there, too. `python
tests/support/testimony.py 20000` edits more.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers.errors import Damaged, RefoldError
from refold.reducers.events import Fact, ModelRequested, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.sizes import sized
from refold.reducers.state import NEW
from refold.replay import audit, verify
from refold.replay.evidence import check_seals, sealed_runs
from refold.store import SqliteStore
from refold.store.protocol import Record, Stored
from refold.store.seals import seal
from support import edits, golden, testimony
from support.edited import edited
from support.forging import recorded, write
from support.sealing import signing_key

PARTS, EACH = 4, 150


def test_whole_logs_of_every_kind() -> None:
    """Nothing is wrong with a log before it is edited: else the tests below would show nothing."""
    kinds = {record.kind for log in testimony.logs().values() for record in log}
    assert set(golden.names()) <= set(testimony.logs())
    assert 70 < len(testimony.logs())
    assert testimony.BODY.keys() - kinds <= {"child_ended"}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_edit_goes_unseen(part: int) -> None:
    """One value, header or place changed: `verify` or `audit` says so, or it is something that the log alone
    says.
    """
    told = 0
    for log, made in testimony.some(Random(part), EACH):
        said = edits.told(made.stored())
        told += bool(said)
        assert said or all(map(testimony.testimony, made.edits)), (made.edits, len(log))
    assert EACH // 2 < told


@pytest.mark.parametrize("part", range(PARTS))
def test_no_two_edits_hide_each_other(part: int) -> None:
    """Several at once are told as well, unless one of them at least is something that the log alone says."""
    for log, made in testimony.some(Random(100 + part), EACH, most=4):
        assert edits.told(made.stored()) or any(map(testimony.testimony, made.edits)), (made.edits, len(log))


@pytest.mark.parametrize("part", ["body", "content"])
@pytest.mark.parametrize("name", golden.names())
def test_no_decision_is_edited_unseen(name: str, part: str) -> None:
    """Of what was decided there is no field that could be another: it follows from the facts."""
    log, editor = testimony.logs()[name], testimony.editor(Random(name))
    for place, record in enumerate(log):
        if record.kind in testimony.DECIDED and getattr(record, part) is not None:
            records = list(log)
            edit = editor.put(records, place, part)
            assert records[place] == record or edits.told(edits.chained(records)), (edit, place + 1)


def reworded(log: Sequence[Record], random: Random) -> tuple[int, list[Record]] | None:
    """The log in which one fact says something else, with sizes and digest of that: its number, and the
    records.
    """
    editor = testimony.editor(random)
    place = random.choice([at for at, record in enumerate(log) if record.kind in MESSAGES])
    records, state = list(log), NEW
    for record in log[:place]:
        state = evolve(state, codec.decode(record.kind, record.body))
    editor.put(records, place, "content")
    try:
        fact = codec.decode(log[place].kind, log[place].body, records[place].content)
        assert isinstance(fact, Fact)
        records[place] = recorded(sized(fact, state.policy, log[place].salt), log[place].at, log[place].salt)
    except RefoldError:
        return None
    return (place + 1, records) if records[place] != log[place] else None


MESSAGES = frozenset({"run_started", "tool_returned", "input_received", "summary_returned"})
REQUESTED = kind_of(ModelRequested)


@pytest.mark.parametrize("part", range(PARTS))
def test_other_words_with_their_sizes_are_told_by_the_next_request(part: int) -> None:
    """Whoever rewrites a message whole is told by each request that shows it: its view's digest follows no
    more.
    """
    random, tried = Random(part), 0
    for log in list(testimony.logs().values())[part::PARTS]:
        made = reworded(log, random)
        if made is None:
            continue
        seq, records = made
        shown = any(record.kind == REQUESTED for record in log[seq:])
        tried += shown
        assert not shown or edits.told(edits.chained(records)), seq
    assert 10 < tried


def overwritten(path: Path, run: str, stored: Sequence[Stored]) -> None:
    """Put other events in the place of a run's, as who knows the file's tables can."""
    edited(path, f"DELETE FROM event WHERE key >> 32 = (SELECT number FROM run WHERE id = '{run}')")
    with closing(sqlite3.connect(path)) as raw, raw:
        (number,) = raw.execute("SELECT number FROM run WHERE id = ?", (run,)).fetchone()
        rows = [
            (
                number << 32 | each.seq,
                each.at,
                each.kind,
                each.hash,
                each.content_digest,
                each.salt or None,
                each.body.decode(),
                None if each.content is None else each.content.decode(),
            )
            for each in stored
        ]
        raw.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


@pytest.mark.anyio
@pytest.mark.parametrize("part", range(PARTS))
async def test_a_seal_tells_of_what_the_log_alone_says(tmp_path: Path, part: int) -> None:
    """In a file that was sealed it is told that an edit was made of which neither `verify` nor `audit` can
    say anything.
    """
    key = signing_key()
    made = [
        (log, one)
        for log, one in testimony.some(Random(200 + part), EACH)
        if not edits.told(one.stored()) and all(record.kind != "run_forked" for record in log)
    ]
    assert 3 < len(made)
    for number, (log, one) in enumerate(made[:5]):
        path = tmp_path / f"{number}.db"
        async with await SqliteStore.open(path) as store:
            await write(store, edits.RUN, log)
            await seal(store, key, now=2 * 10**18)
        overwritten(path, edits.RUN, one.stored())
        async with await SqliteStore.open(path, readonly=True) as store:
            found = await sealed_runs(store, await check_seals(store, [key.public]))
            assert not await told(store), one.edits
        assert found[edits.RUN].problem is not None, one.edits


async def told(store: SqliteStore) -> bool:
    """Whether `verify` or `audit` says that something is wrong with the run in this file."""
    try:
        found, judged = await verify(store, edits.RUN), await audit(store, edits.RUN)
    except (Damaged, RefoldError):
        return True
    return not (found.whole and judged.clean)


def test_what_was_never_called_stays_uncalled() -> None:
    """Another name for a call that waits, and nothing else: no engine runs the other tool without being
    told.
    """
    log = testimony.logs()["two_tools_then_an_answer"][:5]
    (effect, _), *_ = edits.continues(edits.chained(log)).effects
    name = getattr(effect, "name", "")
    other = replace(log[2], body=log[2].body.replace(f'"{name}"'.encode(), b'"act"', 1))
    assert log[2] != other
    assert "the digest in its body" in edits.told(edits.chained([*log[:2], other, *log[3:]]))
