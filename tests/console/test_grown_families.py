"""A session that went on, and the sub-agents in its file: each of them goes on in its own run, whatever the
others do.
"""

from pathlib import Path

import pytest

from console.conftest import Refold
from console.test_child_runs import Written, by_key, children, imported, shown
from console.test_grown_sessions import sound
from console.test_repeated_imports import listed, note


def session() -> Written:
    return Written("Go.").asks("t1")


def agent() -> Written:
    return Written("Do t1.", "a1").says("Hm.")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def test_while_an_agent_works_its_session_is_the_same_run(refold: Refold, store: Path, file: Path) -> None:
    """The file grows, and nothing of it is the session's: its end stands further down, and is the end that it
    was.
    """
    before = by_key(imported(refold, store, session().reports("t1", agent()).to(file)))
    grown = session().reports("t1", agent().says("Well.").says("Done."))
    (one, child) = imported(refold, store, grown.to(file))
    assert before == by_key([one, child])
    assert (True, 0, False) == (one["whole"], one["added"], child["whole"])
    done = grown.hears("t1", "a1").says()
    assert before == by_key(imported(refold, store, done.to(file)))
    assert set(before.values()) == set(listed(refold, store))
    for run in before.values():
        sound(refold, store, run)


def test_each_file_of_a_session_that_ended_so_before_is_found_to_be_there(
    refold: Refold, store: Path, file: Path
) -> None:
    """An older file adds nothing, and neither does the same."""
    texts = [
        session().reports("t1", agent()),
        session().reports("t1", agent().says("Well.")),
        session().reports("t1", agent().says("Well.")).hears("t1", "a1").says(),
    ]
    for text in texts:
        imported(refold, store, text.to(file))
    runs = listed(refold, store)
    for text in (*texts, *reversed(texts)):
        for run in imported(refold, store, text.to(file)):
            assert (True, 0, 0) == (run["whole"], run["added"], run["differs"])
    assert runs == listed(refold, store)


@pytest.mark.parametrize("why", ["a note", "an answer that was cut"])
def test_agents_of_a_session_that_became_another_run_are_no_other_runs(
    refold: Refold, store: Path, file: Path, why: str
) -> None:
    """Only what cannot be the same run is copied: an agent stays the child that it was, and the newer run
    lists it.
    """
    whole = session().reports("t1", agent()).hears("t1", "a1")
    if why == "a note":
        before = by_key(imported(refold, store, whole.to(file)))
        note(store, before["s"])
        grown = whole.says("Well.")
    else:
        cut = session().reports("t1", agent()).hears("t1", "a1").asks("t2")
        before = by_key(imported(refold, store, cut.to(file)))
        grown = whole.asks("t2", "t3")
    after = by_key(imported(refold, store, grown.to(file)))
    assert (before["s"] != after["s"], before["s/a1"]) == (True, after["s/a1"])
    assert [("c1", after["s/a1"])] == children(refold, store, after["s"])
    assert before["s"] == shown(refold, store, after["s/a1"])["parent"]["run"]
    stats = refold("stats", "-o", "json", "--store", store)
    assert "1 run left out" in stats.err
    for run in (*before.values(), *after.values()):
        sound(refold, store, run)
    again = imported(refold, store, file)
    assert all(run["whole"] and not run["differs"] and not run["damaged"] for run in again)
