"""`refold why`: what every limit and guard saw at an event, and said."""

from refold.console import addresses, places
from refold.console.places import Place
from refold.console.screen import Column, Screen
from refold.engine.guards import installed_guards
from refold.replay.why import Opinion, Reasons, why

_COLUMNS = (Column("before"), Column("place"), Column("who"), Column("said"), Column("saw"))


async def why_command(screen: Screen, place: Place, typed: str) -> int:
    """Show why a run went on as it did at an event, by default the last fact or decision. Exit code 0."""
    async with places.reading(place) as store:
        run, seq = await addresses.place_of(store, typed)
        found = await why(store, run, seq, installed_guards())
    if screen.json:
        screen.document(found)
    else:
        _tell(screen, found)
    return 0


def _tell(screen: Screen, found: Reasons) -> None:
    of = "" if found.seq == found.fact else f", which followed from event {found.fact} ({found.fact_kind})"
    screen.heading(f"run {found.run}, event {found.seq}: {found.kind}{of}")
    if found.opinions:
        screen.table(_COLUMNS, [_row(opinion, found) for opinion in found.opinions])
    else:
        screen.say("no limit and no guard was asked")
    screen.say(f"then: {', '.join(found.decisions) or 'nothing was decided'}")


def _row(opinion: Opinion, found: Reasons) -> list[str]:
    # What was asked before the n-th decision stands beside the event that the decision became.
    before = f"e{found.fact + 1 + opinion.before}"
    saw = " ".join(f"{key}={value}" for key, value in opinion.saw.items())
    return [before, opinion.place, opinion.who, ", ".join(opinion.said), saw]
