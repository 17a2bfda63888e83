"""`refold diff`: where two runs differ; `bisect`: the first event where a condition holds; `blame`: changes
of a field.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from refold.console import addresses, descriptions, locations
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import Address, OtherStore, WholeRun, argument, option
from refold.console.screen import Column, Screen
from refold.reducers.errors import Inconclusive, WrongUse
from refold.replay import figures
from refold.replay.queries.blame import Blame, FieldChange, blame
from refold.replay.queries.diffs import Diff, Difference, FirstTrue, RunTotals, bisect, diff
from refold.replay.queries.divergence import Divergence, FieldDifference, divergence
from refold.replay.queries.rows import state_question

_NAME = 60  # characters of a name from a log
_COLUMNS = (
    Column("turn", right=True),
    Column("left", right=True),
    Column("right", right=True),
    Column("event"),
    Column("of"),
    Column("what", elastic=True),
)


@without_event_loop
async def diff_command(
    screen: Screen,
    place: StorePlace,
    left: WholeRun,
    right: Annotated[str, argument("The other run.")],
    *,
    most: Annotated[int, option("--most", "List at most this many differences.", min=1, max=100)] = 20,
    other_store: OtherStore = None,
) -> int:
    """Show where two runs diverge, and compare their totals.

    Exit code 1 if they differ, 125 if payloads were erased on one side.

    Example: refold diff RUN @last
    """
    second = locations.other_place(place, other_store)
    async with locations.reading(place) as store, locations.reading(second) as other:
        runs = await addresses.run_of(store, left), await addresses.run_of(other, right)
        found = await diff((store, other), runs)
    screen.result(found, lambda: _tell(screen, found, most))
    return 1 if found.differing else Inconclusive.exit_code if found.unknown else 0


def _tell(screen: Screen, found: Diff, most: int) -> None:
    left, right = found.left.run, found.right.run
    if found.differences:
        first = found.differences[0]
        screen.heading(f"left {left}, right {right}: they diverge in turn {first.turn}, {_where(first)}")
        screen.pairs(rows_of(first.fields, "  "))
        said = found.said
        if said is not None and said is not first and said != first:
            screen.heading(f"  first difference in a payload or a prompt: turn {said.turn}, {_where(said)}")
            screen.pairs(rows_of(said.fields, "  "))
        screen.say()
        screen.table(_COLUMNS, [_cells(each) for each in found.differences[:most]])
        if found.differing > most:
            screen.say(f"and {figures.count(found.differing - most)} more")
    else:
        screen.heading(f"left {left}, right {right}: no differences")
    if found.unknown:
        screen.say(
            f"unknown: the payloads of {figures.quantity(found.unknown, 'event')} were erased on one side"
        )
    screen.say()
    titles = [Column(""), Column("left", right=True), Column("right", right=True)]
    sides = zip(_NAMES, _side(found.left), _side(found.right), strict=True)
    screen.table(titles, list(map(list, sides)))


def _where(difference: Difference) -> str:
    of = f" of {descriptions.line(difference.name, _NAME)}" if difference.name else ""
    if difference.right is None:
        return f"{difference.kind}{of}: only left, e{difference.left}"
    if difference.left is None:
        return f"{difference.kind}{of}: only right, e{difference.right}"
    return f"{difference.kind}{of}: e{difference.left} and e{difference.right}"


def rows_of(fields: Iterable[FieldDifference], indent: str) -> list[tuple[str, str]]:
    """Return rows for the fields that differ between two events, a row for each side."""
    rows: list[tuple[str, str]] = []
    for field in fields:
        if field.erased:
            rows.append((f"{indent}{field.field}", "erased on one side: unknown"))
            continue
        before = "…" if field.start else ""
        where = f"from character {figures.count(field.place + 1)}" if field.place else ""
        rows.append((f"{indent}{field.field}", where))
        rows.append((f"{indent}  left", f"{before}{field.left}" if field.left else "(nothing)"))
        rows.append((f"{indent}  right", f"{before}{field.right}" if field.right else "(nothing)"))
    return rows


def _cells(difference: Difference) -> list[str]:
    left, right = (f"e{seq}" if seq else "-" for seq in (difference.left, difference.right))
    alone = "only right" if difference.left is None else "only left" if difference.right is None else ""
    what = alone or ", ".join(field.field for field in difference.fields)
    return [
        str(difference.turn),
        left,
        right,
        difference.kind,
        descriptions.line(difference.name, _NAME),
        what,
    ]


_NAMES = ("events", "turns", "messages", "tokens", "cost", "time", "end")


def _side(side: RunTotals) -> list[str]:
    return [
        figures.count(side.events),
        figures.count(side.turns),
        figures.count(side.messages),
        figures.count(side.tokens),
        figures.at_least(figures.dollars(side.cost_nanousd), side.unpriced),
        figures.seconds(side.elapsed),
        f"{side.agent_state} ({side.code})" if side.code else side.agent_state,
    ]


_VALUE = 120  # characters of a value in a table


@without_event_loop
async def bisect_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    *,
    when: Annotated[str | None, option("--when", "A condition, as 'spent_usd > 1.0 and steps >= 3'.")] = None,
    versus: Annotated[
        str | None, option("--versus", "Another run: find the first event that differs.")
    ] = None,
    other_store: OtherStore = None,
) -> int:
    """Find the first event after which a condition holds, or at which a run diverges from another.

    Example: refold bisect RUN --when 'spent_usd > 1.0'

    Exit code 1 if there is such an event.
    """
    if (when is None) == (versus is None):
        raise WrongUse("expected --when CONDITION or --versus RUN")
    if versus is not None:
        return await _compare_runs(screen, (place, locations.other_place(place, other_store)), (run, versus))
    question = state_question(when or "")
    async with locations.reading(place) as store:
        found = await bisect(store, await addresses.run_of(store, run), question)
    screen.result(found, lambda: _tell_first(screen, place, found))
    return 1 if found.seq else 0


async def _compare_runs(screen: Screen, stores: tuple[StorePlace, StorePlace], typed: tuple[str, str]) -> int:
    async with locations.reading(stores[0]) as store, locations.reading(stores[1]) as other:
        runs = await addresses.run_of(store, typed[0]), await addresses.run_of(other, typed[1])
        found = await divergence((store, other), runs)
    screen.result(found, lambda: _tell_divergence(screen, *stores, found))
    return 1 if found.fields else 0


def _tell_first(screen: Screen, place: StorePlace, found: FirstTrue) -> None:
    how = (
        "by binary search: once true, it stays true"
        if found.how == "halving"
        else "by checking every event: it may become false again"
    )
    asked = f"{how}; checked {figures.quantity(found.asked, 'time')}"
    if not found.seq:
        screen.heading(
            f"run {found.run}: never true in its {figures.quantity(found.events, 'event')}: {found.when}"
        )
        screen.pairs([("  found", asked)])
        return
    screen.heading(f"run {found.run}, event {found.seq}: {found.kind}, after which it is true: {found.when}")
    rows = [(f"  {field}", " -> ".join(map(_render_value, values))) for field, values in found.fields.items()]
    screen.pairs(
        [*rows, ("  turn", str(found.turn)), ("  when", figures.clock(found.at)), ("  found", asked)]
    )
    screen.say(f"  explain it: refold why {found.run}@e{found.seq}{place.option}")


def _tell_divergence(screen: Screen, place: StorePlace, other: StorePlace, found: Divergence) -> None:
    same = {
        "hashes": f"equal up to event {found.same}, by the hashes of their chains",
        "digests": f"in equal states up to event {found.same}, by their digests",
        "nothing": "no hash and no digest of a state in common: compared event by event",
    }[found.by]
    if not found.fields:
        screen.heading(f"run {found.left} and run {found.right} do not differ")
        screen.pairs([("  same", same)])
        return
    left, right = (f"e{seq}" if seq else "no event" for seq in found.seqs)
    kinds = " and ".join(dict.fromkeys(kind for kind in found.kinds if kind))
    screen.heading(f"run {found.left} ({left}) and run {found.right} ({right}) diverge: {kinds}")
    screen.pairs([("  same", f"{same}; {figures.quantity(found.looks, 'comparison')}")])
    screen.pairs(rows_of(found.fields, "  "))
    screen.say(f"  all differences: {_diff(place, other, found)}")


def _diff(place: StorePlace, other: StorePlace, found: Divergence) -> str:
    there = (
        ""
        if other == place
        else StorePlace(other.address, "--store").option.replace("--store", "--other-store", 1)
    )
    return f"refold diff {found.left} {found.right}{place.option}{there}"


@without_event_loop
async def blame_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    field: Annotated[
        str, argument("A field, as spent_usd or agent_state, or a path into the state, as window.ranges.")
    ],
    *,
    most: Annotated[int, option("--most", "List at most this many changes.", min=1, max=10_000)] = 20,
) -> int:
    """Show which events last changed a field of the state, the newest first.

    Example: refold blame RUN@e41 spent_usd
    """
    from refold.engine.compatibility import installed_guards  # late: `diff` needs no engine

    async with locations.reading(place) as store:
        run, upto = await addresses.place_of(store, run)
        found = await blame(store, run, field, upto, installed_guards(), most)
    screen.result(found, lambda: _tell_blame(screen, found))
    return 0


def _tell_blame(screen: Screen, found: Blame) -> None:
    times = "never changed" if not found.count else f"changed {figures.quantity(found.count, 'time')}"
    value = _render_answer(found.value) or "nothing"
    screen.heading(f"run {found.run}: after event {found.events}, {found.field} is {value}; {times}")
    columns = [Column("event", right=True), Column("turn", right=True), Column("kind")]
    columns += [Column("before", elastic=True), Column("after", elastic=True)]
    if found.changes:
        screen.table(columns, [_value_cells(change) for change in found.changes])
    if found.count > len(found.changes):
        screen.say(f"and {figures.count(found.count - len(found.changes))} before that")


def _value_cells(change: FieldChange) -> list[str]:
    return [
        f"e{change.seq}",
        f"t{change.turn}",
        change.kind,
        _render_answer(change.before),
        _render_answer(change.after),
    ]


def _render_answer(value: str) -> str:
    return figures.shorten(value, _VALUE - 1)


def _render_value(value: msgspec.Raw) -> str:
    text = bytes(value).decode()
    return _render_answer("" if text == "null" else text)
