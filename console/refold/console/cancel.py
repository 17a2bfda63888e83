"""`refold cancel`: stops a run, whatever drives it, with nothing but its log."""

from typing import Annotated

import msgspec

from refold.console import addresses, claims, doubts, places
from refold.console.next_steps import standing_of
from refold.console.options import By, WholeRun, option
from refold.console.places import StorePlace, changing
from refold.console.screen import Screen, note
from refold.engine import halt
from refold.engine.compatibility import installed_guards
from refold.replay.doubts import DoubtfulCall, is_unresolved
from refold.replay.family import family_of


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands after it was stopped, as JSON. `in_doubt`: calls whose end is not known, of its children too."""

    run: str
    state: str
    code: str
    reason: str
    in_doubt: list[DoubtfulCall]


async def cancel_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    *,
    why: Annotated[str, option("--why", "Recorded with the cancellation.")] = "",
    by: By,
) -> int:
    """Stop a run and the runs that its calls started, at once: no model, tool or policy is needed.

    An engine that drives it is fenced out, and can write nothing more. One that has ended stays as it is.
    """
    async with places.reading(place) as store:
        run = await addresses.run_of(store, run)
    async with changing(place) as store:
        with claims.told(place):
            result = await halt(store, run, why, by=by, registry=installed_guards())
        family = await family_of(store, run)
        calls = [call for each in family for call in await doubts.in_doubt(store, each)]
    left = Cancellation(**standing_of(result), in_doubt=[call for call in calls if is_unresolved(call)])
    screen.result(left, lambda: _tell(screen, place, left))
    return 0


def _tell(screen: Screen, place: StorePlace, left: Cancellation) -> None:
    screen.heading(f"run {left.run}: {left.state}, {left.reason} ({left.code})")
    if left.in_doubt:
        screen.say("in doubt: how these calls ended is not known, and they are not run again")
        for call in left.in_doubt:
            screen.say(f"  {call.call}  {call.tool}  run {call.run}")
    note(f"next    refold show {left.run}{place.option}")
