"""The commands that ask questions of logs: grep, bisect, blame, diff, stats."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import Address, Everything, Output, Runs, StorePath, WholeRun, screen_of

query_app = typer.Typer(rich_markup_mode=None)

OtherStore = Annotated[
    Path | None, typer.Option("--other-store", help="The store of the second run.", show_default="the same")
]


@query_app.command("grep", short_help="Find events in runs.")
def _grep(
    context: typer.Context,
    filter: Annotated[  # noqa: A002 - the name that is typed
        str, typer.Argument(help='As type:tool name:bash error:true tokens>2000 "rm -rf".')
    ],
    runs: Runs = None,
    *,
    everything: Everything = False,
    most: Annotated[int | None, typer.Option("--most", min=1, help="Stop after so many.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many there are in each run.")] = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Find events by a filter, in the runs that are named or in all. Exit code 1 if there is none.

    With -o json: a line an event.
    """
    from refold.console.grep import GrepRequest, grep_command

    request = GrepRequest(asked=filter, typed=runs or [], everything=everything, most=most, count=count)
    return anyio.run(grep_command, screen_of(context, output), places.store_place(store), request)


@query_app.command("bisect", short_help="Find the first event after which something is true.")
def _bisect(
    context: typer.Context,
    run: WholeRun,
    *,
    when: Annotated[
        str | None, typer.Option("--when", help="A question, as 'spent_usd > 1.0 and steps >= 3'.")
    ] = None,
    versus: Annotated[
        str | None, typer.Option("--versus", help="Another run: find the first event that differs.")
    ] = None,
    other_store: OtherStore = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Find the first event after which something is true of a run, or at which it parts from another. Exit code 1 if so."""
    from refold.console.bisection import BisectRequest, bisect_command

    place = places.store_place(store)
    other = place if other_store is None else places.store_place(other_store)
    request = BisectRequest(run=run, when=when, versus=versus, other=other)
    return anyio.run(bisect_command, screen_of(context, output), place, request)


@query_app.command("blame", short_help="Show which events changed a field of the state.")
def _blame(
    context: typer.Context,
    run: Address,
    field: Annotated[
        str, typer.Argument(help="As spent_usd, agent_state, or a path into the state: window.ranges.")
    ],
    *,
    most: Annotated[int, typer.Option("--most", min=1, max=10_000, help="How many changes at most.")] = 20,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Show which event last changed a field of the state, and which did before that."""
    from refold.console.bisection import blame_command

    return anyio.run(blame_command, screen_of(context, output), places.store_place(store), run, field, most)


@query_app.command("diff", short_help="Show where two runs part.")
def _diff(
    context: typer.Context,
    left: Annotated[str, typer.Argument(help="RUN or @last; a prefix of an id will do.")],
    right: Annotated[str, typer.Argument(help="The other one.")],
    *,
    most: Annotated[int, typer.Option("--most", min=1, max=100, help="How many differences at most.")] = 20,
    other_store: OtherStore = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Show where two runs part, and what they came to. Exit code 1 if they differ, 125 if words are gone on one side."""
    from refold.console.diffs import diff_command

    place = places.store_place(store)
    other = place if other_store is None else places.store_place(other_store)
    return anyio.run(diff_command, screen_of(context, output), (place, other), (left, right), most)


@query_app.command("stats", short_help="Count what was done in runs.")
def _stats(
    context: typer.Context,
    runs: Runs = None,
    *,
    everything: Everything = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Count what was done in the runs that are named, or in all: ends, tools, errors, latencies, tokens, cost.

    With -o json: one document.
    """
    from refold.console.statistics import stats_command

    screen, place = screen_of(context, output), places.store_place(store)
    return anyio.run(stats_command, screen, place, runs or [], everything)
