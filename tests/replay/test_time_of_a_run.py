"""How long a run, and each of its turns, took: up to its last fact, whatever is noted about it later."""

import pytest
from msgspec.structs import replace

from refold.reducers.events import (
    Annotation,
    ContentErased,
    Diagnosed,
    Event,
    LateResult,
    NoteAdded,
    SourceRecorded,
    ToolReturned,
)
from refold.reducers.events.annotations import (
    ANNOTATIONS,
)
from refold.reducers.folds import fold
from refold.reducers.limits import TimeLimit
from refold.reducers.meters import elapsed
from refold.replay.exports.otlp import Spans
from refold.replay.queries.stats import Counter
from refold.replay.reader import Follower, Step
from refold.replay.timeline import Teller, TurnRow
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict, spend_of
from support.following import shown
from support.scenario import Scenario

_LATER = 10**18  # nanoseconds: some thirty years


def test_a_note_takes_no_time_of_the_run() -> None:
    """An erasure long after the end makes a run no longer: not for a limit, and not in a verdict."""
    run = Scenario({})
    run.answer("", ("look", "{}"), after=2)
    run.result("c1")
    run.answer("done", after=1)
    notes = [
        ContentErased(at=run.state.at + _LATER, seqs=(1,), by="ann", why="a name"),
        SourceRecorded(at=run.state.at + _LATER, format="f", source="00", position="1", what="trim"),
    ]
    state = fold([*run.log, *notes])
    assert [3 * 10**9] * 2 == [elapsed(TimeLimit(value=9), each) for each in (run.state, state)]
    comparison = Comparison("r1", lambda policy: policy)
    found = shown(comparison, [*run.log, *notes])
    assert (Verdict.AGREE, 3 * 10**9) == (found.verdict, found.until.duration)


def test_how_long_a_run_took_that_began_at_no_known_instant() -> None:
    """A fork of a transcript without times did not last since 1970: how long it took is not known, and no
    figure.
    """
    run = Scenario({})
    run.answer("done", after=1)
    untimed = [replace(run.log[0], at=0), *run.log[1:]]  # what follows is of an engine, which knows the time
    assert 10**9 == spend_of(run.state).duration
    assert 0 == spend_of(fold(untimed)).duration


LATER = _LATER + 1_700_000_000 * 10**9
NOTES: tuple[Annotation, ...] = (
    LateResult(at=LATER, fact=ToolReturned(at=LATER, call="c1")),
    NoteAdded(at=LATER, by="ann"),
    ContentErased(at=LATER, seqs=(1,), by="ann", why="a name"),
    Diagnosed(at=LATER, code="odd", problem="odd"),
    SourceRecorded(at=LATER, format="f", source="00", position="1", what="trim"),
)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_no_annotation_takes_time_of_a_turn(note: Annotation) -> None:
    """Behind the end of a run an annotation of any kind changes no duration: of a turn, of the run, of a
    span.
    """
    run = Scenario({})
    run.answer("", ("look", "{}"), after=2)
    run.result("c1")
    run.answer("done", after=1)
    log, noted = run.log, [*run.log, note]
    assert (
        [2 * 10**9, 10**9] == [each.duration for each in told(log)] == [each.duration for each in told(noted)]
    )
    counted = [shown(Counter(), each).elapsed for each in (log, noted)]
    assert counted[0] == counted[1]
    assert shown(Ending(), log) == shown(Ending(), noted)


def test_every_kind_of_annotation_was_tried() -> None:
    """A new kind of annotation is missing above until somebody says how long it takes."""
    assert set(ANNOTATIONS) <= {type(each) for each in NOTES}


def told(log: list[Event]) -> list[TurnRow]:
    """All turns of a log."""
    rows = list[TurnRow]()
    last = shown(Teller(rows.append), log)
    return [*rows, *last]


class Ending(Follower[str]):
    """When the span of the run ended."""

    folds = True

    def __init__(self) -> None:
        self._spans = Spans("r1")

    def take(self, step: Step) -> None:
        self._spans.take(step)

    def result(self) -> str:
        return str(self._spans.root()["endTimeUnixNano"])
