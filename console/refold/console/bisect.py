"""`refold bisect` and `refold blame`: which event made it so."""

from typing import Annotated

import msgspec

from refold.console import addresses, places
from refold.console.diff import rows_of
from refold.console.options import Address, OtherStore, WholeRun, argument, option
from refold.console.places import StorePlace, reads
from refold.console.screen import Column, Screen
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import WrongUse
from refold.replay import figures
from refold.replay.queries.blame import Blame, Change, blame
from refold.replay.queries.diffs import FirstTrue, bisect
from refold.replay.queries.divergence import Divergence, divergence
from refold.replay.queries.rows import state_question

_VALUE = 120  # characters of a value in a table


@reads
async def bisect_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    *,
    when: Annotated[str | None, option("--when", "A question, as 'spent_usd > 1.0 and steps >= 3'.")] = None,
    versus: Annotated[
        str | None, option("--versus", "Another run: find the first event that differs.")
    ] = None,
    other_store: OtherStore = None,
) -> int:
    """Find the first event after which something is true of a run, or at which it parts from another. Exit code 1 if so."""
    if (when is None) == (versus is None):
        raise WrongUse("expected --when QUESTION or --versus RUN")
    if versus is not None:
        return await _versus(screen, (place, places.other_place(place, other_store)), (run, versus))
    question = state_question(when or "")
    async with places.reading(place) as store:
        found = await bisect(store, await addresses.run_of(store, run), question)
    screen.result(found, lambda: _tell_first(screen, place, found))
    return 1 if found.seq else 0


async def _versus(screen: Screen, stores: tuple[StorePlace, StorePlace], typed: tuple[str, str]) -> int:
    async with places.reading(stores[0]) as store, places.reading(stores[1]) as other:
        runs = await addresses.run_of(store, typed[0]), await addresses.run_of(other, typed[1])
        found = await divergence((store, other), runs)
    screen.result(found, lambda: _tell_divergence(screen, *stores, found))
    return 1 if found.fields else 0


def _tell_first(screen: Screen, place: StorePlace, found: FirstTrue) -> None:
    how = (
        "by halving: once true it stays so"
        if found.how == "halving"
        else "by asking after every event: it may become false again"
    )
    asked = f"{how}; asked {figures.counted(found.asked, 'time')}"
    if not found.seq:
        screen.heading(
            f"run {found.run}: never true in its {figures.counted(found.events, 'event')}: {found.when}"
        )
        screen.pairs([("  found", asked)])
        return
    screen.heading(f"run {found.run}, event {found.seq}: {found.kind}, and then it is true: {found.when}")
    rows = [(f"  {field}", " -> ".join(map(_shown, values))) for field, values in found.fields.items()]
    screen.pairs(
        [*rows, ("  turn", str(found.turn)), ("  when", figures.clock(found.at)), ("  found", asked)]
    )
    screen.say(f"  why it came to that: refold why {found.run}@e{found.seq}{place.option}")


def _tell_divergence(screen: Screen, place: StorePlace, other: StorePlace, found: Divergence) -> None:
    same = {
        "hashes": f"equal up to event {found.same}, by the hashes of their chains",
        "digests": f"in equal states up to event {found.same}, by their digests",
        "nothing": "no hash and no digest of a state in common: compared event by event",
    }[found.by]
    if not found.fields:
        screen.heading(f"run {found.left} and run {found.right} say the same to their ends")
        screen.pairs([("  same", same)])
        return
    left, right = (f"e{seq}" if seq else "no event" for seq in found.seqs)
    kinds = " and ".join(dict.fromkeys(kind for kind in found.kinds if kind))
    screen.heading(f"run {found.left} ({left}) and run {found.right} ({right}) part: {kinds}")
    screen.pairs([("  same", f"{same}; {found.looks} looks")])
    screen.pairs(rows_of(found.fields, "  "))
    screen.say(f"  all that is different: {_diff(place, other, found)}")


def _diff(place: StorePlace, other: StorePlace, found: Divergence) -> str:
    there = (
        ""
        if other == place
        else StorePlace(other.path, "--store").option.replace("--store", "--other-store", 1)
    )
    return f"refold diff {found.left} {found.right}{place.option}{there}"


@reads
async def blame_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    field: Annotated[str, argument("As spent_usd, agent_state, or a path into the state: window.ranges.")],
    *,
    most: Annotated[int, option("--most", "How many changes at most.", min=1, max=10_000)] = 20,
) -> int:
    """Show which event last changed a field of the state, and which did before that."""
    async with places.reading(place) as store:
        run, upto = await addresses.place_of(store, run)
        found = await blame(store, run, field, upto, installed_guards(), most)
    screen.result(found, lambda: _tell_blame(screen, found))
    return 0


def _tell_blame(screen: Screen, found: Blame) -> None:
    times = "never changed" if not found.count else f"changed {figures.counted(found.count, 'time')}"
    value = _told(found.value) or "nothing"
    screen.heading(f"run {found.run}: after event {found.events}, {found.field} is {value}; {times}")
    columns = [Column("event", right=True), Column("turn", right=True), Column("kind")]
    columns += [Column("before", elastic=True), Column("after", elastic=True)]
    if found.changes:
        screen.table(columns, [_cells(change) for change in found.changes])
    if found.count > len(found.changes):
        screen.say(f"and {figures.count(found.count - len(found.changes))} before that")


def _cells(change: Change) -> list[str]:
    return [f"e{change.seq}", f"t{change.turn}", change.kind, _told(change.before), _told(change.after)]


def _told(value: str) -> str:
    return figures.cut(value, _VALUE - 1)


def _shown(value: msgspec.Raw) -> str:
    text = bytes(value).decode()
    return _told("" if text == "null" else text)
