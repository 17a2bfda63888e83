"""How long a run took: up to its last fact, whatever is noted about it later."""

from msgspec.structs import replace

from refold.reducers.events import ContentErased, SourceRecorded
from refold.reducers.folds import fold
from refold.reducers.limits import TimeLimit
from refold.reducers.meters import elapsed
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
    """A fork of a transcript without times did not last since 1970: how long it took is not known, and no figure."""
    run = Scenario({})
    run.answer("done", after=1)
    untimed = [replace(run.log[0], at=0), *run.log[1:]]  # what follows is of an engine, which knows the time
    assert 10**9 == spend_of(run.state).duration
    assert 0 == spend_of(fold(untimed)).duration
