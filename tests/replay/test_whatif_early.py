"""How often `whatif` says DIVERGES before anything is otherwise: sound, but of less use the earlier it is."""

from collections import Counter

import pytest
from hypothesis import given, settings

from refold.reducers.parsing import parse
from refold.replay.whatif.verdict import Verdict
from support.shown_only import Life
from support.soundness import CASES, Case, asked_of, early, tempers
from support.strategies import each

UNTOLD = ("calls", "overflow")
"""In these lives the same may come of them, and no record tells. Their tools do not see what another did, and some take no
time: side by side or one by one is the same to them, and not in the world. What a failure was that a pattern took for an
overflow is not written down.
"""


@pytest.mark.slow
def test_evidence_seldom_ends_before_anything_is_otherwise() -> None:
    """Of the pairs that are said to diverge the lives of less than one in a hundred go on alike behind that place."""
    kinds, needless = Counter[str](), Counter[str]()

    @settings(max_examples=each(400))
    @given(case=CASES)
    def look(case: Case) -> None:
        policy, other = parse(case.policy), parse(case.other)
        for temper, facts in tempers(case.seed):
            recorded = Life(policy, temper, facts)
            found = asked_of(recorded, other)
            if found.verdict is Verdict.DIVERGES and found.kind not in UNTOLD:
                kinds[str(found.kind)] += 1
                needless[str(found.kind)] += early(found, recorded, Life(other, temper, facts + 60))

    look()
    assert kinds.total()
    assert needless.total() * 100 <= kinds.total(), needless
