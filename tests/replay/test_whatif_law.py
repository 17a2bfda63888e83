"""The law of `whatif` over the transcripts: what must touch a run leaves none as it was, and nothing unknown
is zero.
"""

import pytest

from refold.replay.whatif.verdict import Verdict
from support.transcripts import manifest
from support.whatif_law import KINDS, Found, found, never, unjudged

pytestmark = pytest.mark.slow

TOUCHING = [name for name, kind in KINDS.items() if kind.touches is not never]
MOST_UNJUDGED = {
    "half of the tokens that its file has": 4,
    "no batch of which every call failed": 43,
    "more tokens than any run has": 76,
    "more money than any run costs": 126,
    "more time than any run takes": 53,
    "half of the context": 97,
    "what the tools leave of the context": 68,
    "two batches that only read": 101,
    "no call of its tools": 18,
    "the preset prod": 52,
    "the preset dev": 56,
}
"""Of how many runs that are whole nobody can say under the policy of each kind; of kinds that are not here of
none.
"""
NOT_WHOLE = 16
"""Runs in which the model was never asked, or of which something could not be read, or is in no fact."""


def said(kind: str) -> list[Found]:
    """What is said of all whole runs under the policy of one kind."""
    return [each for each in found() if each.kind == kind and each.counted.whole]


def test_what_was_not_read_is_never_agreed_with() -> None:
    """Of a run in which the model was never asked, or of which something was not read, no policy is said to
    agree.
    """
    partial = [each for each in found() if not each.counted.whole]
    assert NOT_WHOLE * len(KINDS) == len(partial)
    assert [] == [each.file for each in partial if each.whatif.verdict is Verdict.AGREE]


@pytest.mark.parametrize("kind", TOUCHING)
def test_a_policy_that_touches_a_run_never_agrees(kind: str) -> None:
    """No run goes on as it was under a policy that it breaks."""
    touched = [each for each in said(kind) if each.must]
    assert touched
    assert [] == [each.file for each in touched if each.whatif.verdict is Verdict.AGREE]


def test_every_transcript_with_calls_is_touched_by_a_refusal_of_them() -> None:
    """The manifest, which no importer of ours has counted, names the same files as those in which a call is
    refused.
    """
    calls = {row["file"]: row["tool_calls"] for row in manifest()}
    known = {file for file, count in calls.items() if count != "-"}
    rejected = [each for each in found() if each.kind == "every call is rejected"]
    refused = {each.file for each in rejected if each.whatif.verdict is not Verdict.AGREE}
    partial = {each.file for each in rejected if not each.counted.whole}
    assert {file for file in known if int(calls[file])} - partial == (refused & known) - partial
    assert partial <= refused


@pytest.mark.parametrize("kind", KINDS)
def test_how_many_runs_cannot_be_judged(kind: str) -> None:
    """No more runs than these are of no use under a policy of this kind, and none where it needs only what is
    known.
    """
    assert MOST_UNJUDGED.get(kind, 0) >= unjudged(kind)


def test_whose_tokens_are_known_is_judged_by_them() -> None:
    """A limit that no run reaches is agreed with where every answer's tokens are known, and else cannot be
    judged.
    """
    for each in said("more tokens than any run has"):
        unknown = each.counted.partly or each.counted.failures
        assert (Verdict.INCONCLUSIVE if unknown else Verdict.AGREE) is each.whatif.verdict, each.file


def test_whose_prices_are_known_is_judged_by_them() -> None:
    """The same, of a limit of money."""
    for each in said("more money than any run costs"):
        unknown = each.counted.unpriced or each.counted.failures
        assert (Verdict.INCONCLUSIVE if unknown else Verdict.AGREE) is each.whatif.verdict, each.file


def test_whose_times_are_known_is_judged_by_them() -> None:
    """The same, of a limit of time: a file without one instant in it is never said to be within it."""
    timed = {row["file"]: row["first_timestamp"] != "-" for row in manifest()}
    for each in said("more time than any run takes"):
        if each.counted.answers and not timed[each.file]:
            assert Verdict.INCONCLUSIVE is each.whatif.verdict, each.file


def test_whose_failures_are_known_is_judged_by_them() -> None:
    """A guard against failures judges what the source marks as such; where it marks nothing, nobody can
    say.
    """
    silent = {row["file"] for row in manifest() if row["file"].startswith(("atif", "swe_agent", "tau_bench"))}
    assert {"-"} == {row["tool_errors"] for row in manifest() if row["file"] in silent}
    for each in said("no batch of which every call failed"):
        counted, unjudged_ = each.counted, each.whatif.verdict is Verdict.INCONCLUSIVE
        assert (counted.unmarked == counted.results) or each.file not in silent
        if counted.unmarked in (0, counted.results + counted.failed):
            assert (counted.unmarked > 0) is unjudged_, each.file


def test_what_is_not_known_is_named() -> None:
    """Whatever cannot be judged says in words what the record lacks."""
    for each in found():
        assert (each.whatif.verdict is not Verdict.INCONCLUSIVE) or each.whatif.unknown, each
