"""`refold cancel`: stops a run, whoever drives it, with nothing but its log."""

import msgspec

from refold.console import addresses, claims, doubts, places
from refold.console.evidence import changing
from refold.console.places import Place
from refold.console.screen import Screen, note
from refold.engine import RunResult, halt
from refold.engine.guards import installed_guards
from refold.replay.doubts import DoubtfulCall
from refold.replay.family import family_of


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands after somebody stopped it, as JSON. `in_doubt`: calls whose end nobody knows, of its children too."""

    run: str
    state: str
    code: str
    reason: str
    in_doubt: list[DoubtfulCall]


async def cancel_command(screen: Screen, place: Place, typed: str, why: str, by: str) -> int:
    """Stop a run and the child runs that it waits for; one that has ended stays so. Exit code 0: it has ended.

    An engine that drives it is fenced out, and can write nothing more.
    """
    async with places.reading(place) as store:
        run = await addresses.run_of(store, typed)
    async with changing(place) as store:
        with claims.told(place):
            result = await halt(store, run, why, by=by, registry=installed_guards())
        family = await family_of(store, run)
        calls = [call for each in family for call in await doubts.in_doubt(store, each)]
    _tell(screen, place, result, [call for call in calls if call.standing != "resolved"])
    return 0


def _tell(screen: Screen, place: Place, result: RunResult, calls: list[DoubtfulCall]) -> None:
    ended = result.outcome
    if screen.json:
        told = Cancelled(
            run=result.run, state=str(result.state), code=ended.code, reason=ended.reason, in_doubt=calls
        )
        screen.document(told)
        return
    screen.heading(f"run {result.run}: {result.state}, {ended.reason} ({ended.code})")
    if calls:
        screen.say("in doubt: nobody saw how these calls ended, and nobody will run them again")
        for call in calls:
            screen.say(f"  {call.call}  {call.tool}  run {call.run}")
    note(f"next    refold show {result.run}{place.option}")
