"""Answers with very many calls: what they cost, and how many of them are read."""

import pytest

from refold.importers.derivation import facts
from refold.importers.derivation.facts import Open, pair_results
from refold.importers.items import Returned
from refold.reducers.events import Diagnosed, ToolReturned
from support.told import (
    END,
    answered,
    audited,
    began,
    derived,
    events,
    prompted,
    reply,
    result,
    returned,
    user,
)


def test_of_one_answer_so_many_calls_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """More calls than the most are kept beside the log with their results, which says so; what it derives
    stands.
    """
    monkeypatch.setattr(facts, "MOST_CALLS", 2)
    ids = ("p1", "p2", "p3")
    results = [returned(each, f"out {each}") for each in ids]
    seen = prompted(user("go"), reply("", *ids), *(result(each, f"out {each}") for each in ids))
    _, log = derived([began(user("go")), answered("", *ids), *results, seen, answered("done"), END])
    notes = [event for event in events(log) if isinstance(event, Diagnosed)]
    assert audited(log).clean
    assert 2 == len([event for event in events(log) if isinstance(event, ToolReturned)])
    assert {"too_many_calls", "result_without_call"} <= {note.code for note in notes}
    kept = " ".join(note.content.text for note in notes if note.content)
    assert "p3" in kept
    assert "out p3" in kept


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_pairing_is_not_quadratic() -> None:
    """A result is compared with the calls of its id, and not with every call."""
    calls = [Open(f"c{n}", "t", Counted(f"p{n}")) for n in range(400)]
    results = [Returned(position="", id=Counted(f"p{n}"), output="") for n in reversed(range(400))]
    Counted.compared = 0
    assert [call.id for call in reversed(calls)] == [pair.call for pair in pair_results(calls, results)]
    assert Counted.compared <= 10 * len(calls)
