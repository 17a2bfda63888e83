"""What is in doubt of two runs, and what of a finding does not rest on it."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from refold.reducers.state import RunState
from refold.replay.whatif.pair import Found
from refold.replay.whatif.shown import Parted
from refold.replay.whatif.verdict import Verdict

Effect = Literal["stops", "asks", "rests"]
"""What may be otherwise: the run may have ended by then; or something else have been asked of the world; or else what was
derived rests on it, and is no proof of anything."""


class Doubt(msgspec.Struct, frozen=True):
    """Something that a rule needed after the fact at event `seq`, and that the record does not say.

    `after` is the other run behind that fact, None: as it stands at last.
    """

    seq: int
    why: str
    effect: Effect
    after: RunState | None = None


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
        verdict=Verdict.INCONCLUSIVE,
        fact=first.seq,
        seq=first.seq,
        turn=other.spent.steps,
        parted=Parted("unknown", first.why),
        other=other,
        doubted=True,
    )
