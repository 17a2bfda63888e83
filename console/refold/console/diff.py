"""`refold diff`: where two runs part, and what each came to."""

from collections.abc import Iterable
from typing import Annotated

from refold.console import addresses, descriptions, places
from refold.console.options import OtherStore, WholeRun, argument, option
from refold.console.places import StorePlace, reads
from refold.console.screen import Column, Screen
from refold.reducers.errors import CannotJudge
from refold.replay import figures
from refold.replay.queries.diffs import Diff, Difference, RunTotals, diff
from refold.replay.queries.divergence import FieldDifference

_NAME = 60  # characters of a name that a log chose
_COLUMNS = (
    Column("turn", right=True),
    Column("left", right=True),
    Column("right", right=True),
    Column("event"),
    Column("of"),
    Column("what", elastic=True),
)


@reads
async def diff_command(
    screen: Screen,
    place: StorePlace,
    left: WholeRun,
    right: Annotated[str, argument("The other one.")],
    *,
    most: Annotated[int, option("--most", "How many differences at most.", min=1, max=100)] = 20,
    other_store: OtherStore = None,
) -> int:
    """Show where two runs part, and what they came to. Exit code 1 if they differ, 125 if words are gone on one side."""
    second = places.other_place(place, other_store)
    async with places.reading(place) as store, places.reading(second) as other:
        runs = await addresses.run_of(store, left), await addresses.run_of(other, right)
        found = await diff((store, other), runs)
    screen.result(found, lambda: _tell(screen, found, most))
    return 1 if found.differing else CannotJudge.exit_code if found.unknown else 0


def _tell(screen: Screen, found: Diff, most: int) -> None:
    left, right = found.left.run, found.right.run
    if found.differences:
        first = found.differences[0]
        screen.heading(f"left {left}, right {right}: they part in turn {first.turn}, {_where(first)}")
        screen.pairs(rows_of(first.fields, "  "))
        said = found.said
        if said is not None and said is not first and said != first:
            screen.heading(
                f"  first that changed what was said, or what the model saw: turn {said.turn}, {_where(said)}"
            )
            screen.pairs(rows_of(said.fields, "  "))
        screen.say()
        screen.table(_COLUMNS, [_cells(each) for each in found.differences[:most]])
        if found.differing > most:
            screen.say(f"and {figures.count(found.differing - most)} more")
    else:
        screen.heading(f"left {left}, right {right}: they say the same")
    if found.unknown:
        screen.say(f"unknown: the words of {figures.counted(found.unknown, 'event')} are gone on one side")
    screen.say()
    titles = [Column(""), Column("left", right=True), Column("right", right=True)]
    screen.table(titles, list(_sides(found.left, found.right)))


def _where(difference: Difference) -> str:
    of = f" of {descriptions.line(difference.name, _NAME)}" if difference.name else ""
    if difference.right is None:
        return f"{difference.kind}{of}: only left, e{difference.left}"
    if difference.left is None:
        return f"{difference.kind}{of}: only right, e{difference.right}"
    return f"{difference.kind}{of}: e{difference.left} and e{difference.right}"


def rows_of(fields: Iterable[FieldDifference], indent: str) -> list[tuple[str, str]]:
    """The fields in which two events differ, a row for each side."""
    rows: list[tuple[str, str]] = []
    for field in fields:
        if field.erased:
            rows.append((f"{indent}{field.field}", "erased on one side: unknown"))
            continue
        before = "…" if field.start else ""
        where = f"from character {figures.count(field.place + 1)} on" if field.place else ""
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


def _sides(left: RunTotals, right: RunTotals) -> Iterable[list[str]]:
    for name, one, other in zip(_NAMES, _side(left), _side(right), strict=True):
        yield [name, one, other]


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
