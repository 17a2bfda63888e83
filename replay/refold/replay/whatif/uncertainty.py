"""Data that a record lacks and a rule needs, and what a divergence proves without it."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from refold.reducers.state import RunState
from refold.replay.whatif.mismatches import Mismatch
from refold.replay.whatif.pair import DivergencePoint
from refold.replay.whatif.verdict import Verdict

Effect = Literal["stops", "asks", "rests"]
"""Possible effect of unknown data: the run stops earlier, it requests something else, or the result depends
on the unknown and proves nothing.
"""


class Uncertainty(msgspec.Struct, frozen=True):
    """Data that a rule needed after the fact at event `seq` and that the record lacks.

    `after` is the other run after that fact; None means its latest state.
    """

    seq: int
    why: str
    effect: Effect
    after: RunState | None = None


def prove(
    found: DivergencePoint | None, doubts: Sequence[Uncertainty], now: RunState
) -> DivergencePoint | None:
    """Reduce a divergence (None: not found yet) to what does not depend on unknown data.

    `doubts` are in event order, `now` is the current state of the other run.
    """
    if not doubts:
        return found
    first, effects = doubts[0], {doubt.effect for doubt in doubts}
    if found is not None and found.verdict is Verdict.STOPS and effects == {"stops"}:
        return replace(found, exact=False)  # here, or before
    if found is not None and (found.verdict, found.fact, effects) == (Verdict.DIVERGES, first.seq, {"asks"}):
        return found  # in this, or in more
    other = first.after or now
    return DivergencePoint(
        verdict=Verdict.INCONCLUSIVE,
        fact=first.seq,
        seq=first.seq,
        turn=other.spent.steps,
        mismatch=Mismatch("unknown", first.why),
        other=other,
        doubted=True,
    )
