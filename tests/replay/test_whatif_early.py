"""How often `whatif` says DIVERGES before anything is otherwise: sound, but of less use the earlier it is."""

from collections import Counter

import pytest
from hypothesis import given, settings

from refold.reducers.parser import parse
from refold.replay.whatif.verdict import Verdict
from support.shown_only import Life
from support.soundness import CASES, Case, asked_of, early, tempers
from support.strategies import scaled


@pytest.mark.slow
def test_evidence_seldom_ends_before_anything_is_otherwise() -> None:
    """Of a hundred pairs of lives fewer than one is said to diverge and then goes on alike behind that place.

    Half of those are calls that were run side by side, and would have been one after another. The tools of
    these lives do not see what another did, and some take no time: the same comes of it there, and not in the
    world.
    """
    pairs, needless = 0, Counter[str]()

    @settings(max_examples=scaled(200))
    @given(case=CASES)
    def look(case: Case) -> None:
        nonlocal pairs
        policy, other = parse(case.policy), parse(case.other)
        for temper, facts in tempers(case.seed):
            recorded = Life(policy, temper, facts)
            found = asked_of(recorded, other)
            pairs += 1
            if found.verdict is Verdict.DIVERGES:
                needless[str(found.kind)] += early(found, recorded, Life(other, temper, facts + 60))

    look()
    assert needless.total() * 100 < pairs, needless
