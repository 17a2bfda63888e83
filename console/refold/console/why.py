"""`refold why`: what every limit and guard saw at an event, and said."""

from collections.abc import Mapping

from refold.console import addresses, places
from refold.console.options import Address
from refold.console.places import StorePlace, reads
from refold.console.screen import Column, Screen
from refold.engine.compatibility import installed_guards
from refold.reducers.limits import LimitUnit
from refold.replay import figures
from refold.replay.why import Opinion, Reasons, why

_COLUMNS = (Column("before"), Column("place"), Column("who"), Column("said"), Column("saw"))


@reads
async def why_command(screen: Screen, place: StorePlace, run: Address) -> int:
    """Show what every limit and guard saw at an event and said, by default at the last: RUN@e41."""
    async with places.reading(place) as store:
        run, seq = await addresses.place_of(store, run)
        found = await why(store, run, seq, installed_guards())
    screen.result(found, lambda: _tell(screen, found))
    return 0


def _tell(screen: Screen, found: Reasons) -> None:
    of = "" if found.seq == found.fact else f", which followed from event {found.fact} ({found.fact_kind})"
    screen.heading(f"run {found.run}, event {found.seq}: {found.kind}{of}")
    screen.pairs([("says", found.says)])
    if found.opinions:
        screen.table(_COLUMNS, [_row(opinion, found) for opinion in found.opinions])
    else:
        screen.say("no limit and no guard was asked")
    then = enumerate(zip(found.decisions, found.told, strict=True), found.fact + 1)
    rows = [f"e{seq} {kind}: {said}" for seq, (kind, said) in then]
    screen.facts({"then": tuple(rows or ["nothing was decided"])}, indent="")


def _row(opinion: Opinion, found: Reasons) -> list[str]:
    # What was asked before the n-th decision stands beside the event that the decision became.
    before = f"e{found.fact + 1 + opinion.before}"
    return [before, opinion.place, opinion.who, ", ".join(opinion.said), _saw(opinion.saw)]


def _saw(saw: Mapping[str, str | int]) -> str:
    """`3 of 12 steps`, as the page says it; of a guard its own numbers."""
    used, unit, value = saw.get("used"), saw.get("unit"), saw.get("value")
    if not isinstance(used, int) or unit not in set(LimitUnit):
        return " ".join(f"{key}={value}" for key, value in saw.items())
    of = LimitUnit(unit)
    amount = figures.amount(used, of)
    if not isinstance(value, int):
        return f"{amount}, unlimited"
    told = figures.at_least(amount.removesuffix(f" {of}"), bool(saw.get("unknown")))
    return f"{told} of {figures.amount(value, of)}"
