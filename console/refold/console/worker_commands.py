"""The commands about runs that others drive: workers, calls in doubt, and the way to stop a run."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Literal

import anyio
import typer

from refold.console import places
from refold.console.options import BaseUrl, By, Note, Output, Root, StorePath, Tools, WholeRun, screen_of
from refold.store.protocol import LEASE_SECONDS

worker_app = typer.Typer(rich_markup_mode=None)


class Ending(StrEnum):
    """How a call ended whose end nobody saw, as it is typed."""

    HAPPENED = "happened"
    DID_NOT = "did-not"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "Ending | None":
        """As the log and `doubts -o json` write it."""
        return cls.DID_NOT if value == "did_not" else None


_SAYS: dict[Ending, Literal["happened", "did_not", "unknown"]] = {
    Ending.HAPPENED: "happened",
    Ending.DID_NOT: "did_not",
    Ending.UNKNOWN: "unknown",
}


@worker_app.command("worker", short_help="Drive the runs that want an engine, many at once.")
def _worker(
    context: typer.Context,
    *,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="How many runs side by side.")] = 8,
    lease: Annotated[
        float,
        typer.Option(
            "--lease", min=0.5, help="Seconds without a sign of life after which others take a run over."
        ),
    ] = LEASE_SECONDS,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no run is left to drive; 1 if some could not be.")
    ] = False,
    root: Root = None,
    tools: Tools = None,
    base_url: BaseUrl = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Drive the runs of the store that want an engine: queued, abandoned or answered ones.

    A line for each that is taken up, put down, failed or lost. With -o json: JSON lines.
    """
    from refold.console.workers import WorkerRequest, worker_command

    request = WorkerRequest(
        at_once=at_once, lease=lease, until_idle=until_idle, base_url=base_url, root=root, tools=tools
    )
    return anyio.run(worker_command, screen_of(context, output), places.store_place(store), request)


@worker_app.command("doubts")
def _doubts(
    context: typer.Context,
    runs: Annotated[list[str] | None, typer.Argument(help="RUN or @last; without: all of the store.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="What has been settled, too.")] = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """List the calls whose end nobody knows, the oldest first. Exit code 1 if there are some.

    The last line counts them. With -o json: one document with `unresolved`, `oldest` (ns) and the calls.
    """
    from refold.console.doubts import doubts_command

    listed = partial(doubts_command, everything=everything)
    return anyio.run(listed, screen_of(context, output), places.store_place(store), runs or [])


@worker_app.command("resolve", short_help="Say how a call ended whose end nobody saw.")
def _resolve(
    context: typer.Context,
    run: WholeRun,
    call: Annotated[str, typer.Argument(help="The call, as `refold doubts` lists it.")],
    ending: Annotated[
        Ending, typer.Argument(help="How it ended; after did-not a call without a result runs once more.")
    ],
    *,
    note: Note = "",
    by: By = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Say how a call ended whose end nobody saw, and leave the run to a worker or `refold resume`.

    Of a call whose result is that nobody knows it is a note in the log: the model is not told, and nothing runs.
    """
    from refold.console.doubts import ResolveRequest, resolve_command

    request = ResolveRequest(run=run, call=call, doubt=_SAYS[ending], note=note, by=by)
    return anyio.run(resolve_command, screen_of(context, output), places.store_place(store), request)


@worker_app.command("cancel", short_help="Stop a run at once, whoever drives it.")
def _cancel(
    context: typer.Context,
    run: WholeRun,
    *,
    why: Annotated[str, typer.Option("--why", help="Recorded with the cancellation.")] = "",
    by: By = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Stop a run at once, whoever drives it: no model, tool or policy is needed. Its engine is fenced out."""
    from refold.console.approvals import login
    from refold.console.cancellation import cancel_command

    screen, place = screen_of(context, output), places.store_place(store)
    return anyio.run(cancel_command, screen, place, run, why, by or login())
