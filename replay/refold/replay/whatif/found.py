"""What was found of two runs, and what of it stands where something was in doubt."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers.state import RunState
from refold.replay.whatif.shown import Parted
from refold.replay.whatif.unsaid import Doubt
from refold.replay.whatif.verdict import Spend, Verdict


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, as long as it is not known how the recorded run ends. `doubted`: it is none, for want of figures."""

    verdict: Verdict
    fact: int
    seq: int
    turn: int
    parted: Parted
    recorded: str | None
    derived: str | None
    other: RunState
    counted: Spend  # of what the recorded run spent, what the other would have, too
    exact: bool
    doubted: bool = False


def proven(found: Found | None, doubts: Sequence[Doubt], now: RunState) -> Found | None:
    """What was found (None: nothing yet) as far as it does not rest on what the record does not say.

    `doubts` are in the order of their events, `now` is the other run as it stands.
    """
    if not doubts:
        return found
    first, effects = doubts[0], {doubt.effect for doubt in doubts}
    if found is not None and found.verdict is Verdict.STOPS and effects == {"stops"}:
        return replace(found, exact=False)  # here, or before
    if found is not None and (found.verdict, found.fact, effects) == (Verdict.DIVERGES, first.seq, {"asks"}):
        return found  # in this, or in more
    other = first.after or now
    return Found(
        verdict=Verdict.UNJUDGED,
        fact=first.seq,
        seq=first.seq,
        turn=other.spent.steps,
        parted=Parted("unknown", first.why),
        recorded=None,
        derived=None,
        other=other,
        counted=Spend(),
        exact=True,
        doubted=True,
    )
