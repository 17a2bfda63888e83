"""What `whatif` cannot judge of a record: words that were erased, guards that are not there, times that
nobody knows.
"""

import pytest
from msgspec.structs import replace

from refold.reducers.errors import DamagedLog
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.upper_bounds import UNTIMED
from refold.replay.whatif.verdict import Verdict
from support.following import looked_at, shown, unchained
from support.scenario import Scenario
from support.stories import Plain, erased, steps, told


def in_tokens(cap: int) -> Plain:
    """A pass that cuts every long message to so many tokens of a tokenizer."""
    return {"do": "trim_messages", "cap": cap, "codec": "bpe:o200k_base", "marker": "beside"}


UNJUDGED = [
    pytest.param(
        {}, {"guards": [{"guard": "keywords", "words": ["DONE"]}]}, "keywords", id="a guard that reads"
    ),
    pytest.param({}, {"estimator": "bytes4"}, "erased", id="an estimate of words"),
    pytest.param({}, {"history": [in_tokens(1)]}, "erased", id="a cut in tokens that nobody measured"),
    pytest.param({}, {"redact": ["x"]}, "erased", id="a pattern to look for"),
]


@pytest.mark.parametrize(("policy", "other", "why"), UNJUDGED)
def test_erased_words_that_are_needed(policy: Plain, other: Plain, why: str) -> None:
    """Where the other policy needs words that were erased, nothing is made up: it cannot be judged from
    there.
    """
    found = told(policy, erased, other)
    assert Verdict.INCONCLUSIVE is found.verdict
    assert why in found.why
    assert (found.why,) == found.unknown


def test_erased_words_that_are_not_needed() -> None:
    """A limit that counts needs no words: what was erased does not stand in the way of a verdict."""
    assert Verdict.STOPS is told({}, erased, {"limits": [{"type": "step", "value": 1}]}).verdict


def test_a_guard_that_is_not_installed() -> None:
    """A guard that is not there may have said anything, from the first event on."""
    scenario = Scenario({"guards": [{"guard": "repetition"}]})
    steps("ok")(scenario)
    comparison = Comparison("r1", lambda policy: policy, registry={})
    found = shown(comparison, scenario.log)
    assert (Verdict.INCONCLUSIVE, "guard repetition: not installed") == (found.verdict, found.why)


def test_a_deadline_while_nobody_may_have_been_there() -> None:
    """A deadline in a time for which nobody knows whether an engine had the run is not judged."""

    def story(run: Scenario) -> None:
        run.resume(downtime=20)
        run.answer("done", after=1)

    found = told({}, story, {"limits": [{"type": "time", "value": 10}]})
    assert (Verdict.INCONCLUSIVE, "unknown") == (found.verdict, found.kind)


def test_a_record_without_times() -> None:
    """Where nothing has a time, nobody can say whether a limit of time would have been reached."""
    found = told({}, steps("ok"), {"limits": [{"type": "time", "value": 10}]})
    assert (Verdict.INCONCLUSIVE, (UNTIMED,)) == (found.verdict, found.unknown)


def test_a_log_with_a_hole_is_damaged() -> None:
    """An event that is missing is said to be, by the number of the one after it."""
    scenario = Scenario({})
    comparison = Comparison("r1", parse({}))
    first, second = unchained(scenario.log[:2])
    with pytest.raises(DamagedLog, match="event 3"):
        looked_at(comparison, [first, replace(second, seq=3)])
