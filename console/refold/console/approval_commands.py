"""The commands by which a person sees and answers what waits for approval."""

from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import (
    BaseUrl,
    By,
    Detach,
    Note,
    Output,
    Root,
    StorePath,
    Tools,
    WholeRun,
    screen_of,
)

approval_app = typer.Typer(rich_markup_mode=None)

Calls = Annotated[list[str] | None, typer.Argument(help="Calls, as `refold approvals RUN` lists them.")]
EveryCall = Annotated[bool, typer.Option("--all", help="All calls that wait.")]


@approval_app.command("approvals", short_help="List the calls that wait for approval.")
def _approvals(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(help="RUN or @last; without: all that waits for a person.")
    ] = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Show which calls of a run wait for approval, or all in the store that waits for a person.

    With -o json: one document; of a run of which no call waits, null.
    """
    screen, place = screen_of(context, output), places.store_place(store)
    if run is None:
        from refold.console.questions import asked_command

        return anyio.run(asked_command, screen, place)
    from refold.console.approvals import approvals_command

    return anyio.run(approvals_command, screen, place, run)


@approval_app.command("approve")
def _approve(
    context: typer.Context,
    run: WholeRun,
    calls: Calls = None,
    *,
    everything: EveryCall = False,
    note: Note = "",
    by: By = None,
    root: Root = None,
    tools: Tools = None,
    base_url: BaseUrl = None,
    detach: Detach = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Let calls that wait for approval run, and go on with the run. Output as `run`."""
    from refold.console.approvals import AnswerRequest, answer_command
    from refold.console.runs import ResumeRequest

    taking_up = ResumeRequest(run=run, base_url=base_url, root=root, tools=tools, detach=detach)
    request = AnswerRequest(
        taking_up=taking_up, answer="approve", calls=calls or [], everything=everything, note=note, by=by
    )
    return anyio.run(answer_command, screen_of(context, output), places.store_place(store), request)


@approval_app.command("reject")
def _reject(
    context: typer.Context,
    run: WholeRun,
    calls: Calls = None,
    *,
    everything: EveryCall = False,
    escalate: Annotated[
        bool, typer.Option("--escalate", help="Leave it to the next in the chain instead.")
    ] = False,
    terminate: Annotated[bool, typer.Option("--terminate", help="And end the run.")] = False,
    note: Note = "",
    by: By = None,
    root: Root = None,
    tools: Tools = None,
    base_url: BaseUrl = None,
    detach: Detach = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Refuse calls that wait for approval, and go on with the run. Output as `run`."""
    from refold.console.approvals import AnswerRequest, answer_command
    from refold.console.runs import ResumeRequest

    if escalate and terminate:
        raise typer.BadParameter("--escalate and --terminate: expected one of them")
    request = AnswerRequest(
        taking_up=ResumeRequest(run=run, base_url=base_url, root=root, tools=tools, detach=detach),
        answer="escalate" if escalate else "terminate" if terminate else "reject",
        calls=calls or [],
        everything=everything,
        note=note,
        by=by,
    )
    return anyio.run(answer_command, screen_of(context, output), places.store_place(store), request)


@approval_app.command("edit", short_help="Let a call run with other arguments.")
def _edit(
    context: typer.Context,
    run: WholeRun,
    call: Annotated[str, typer.Argument(help="The call that is to run otherwise.")],
    arguments: Annotated[str, typer.Option("--arguments", help="What it runs with: one JSON object.")],
    *,
    note: Note = "",
    by: By = None,
    root: Root = None,
    tools: Tools = None,
    base_url: BaseUrl = None,
    detach: Detach = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Let a call that waits for approval run with other arguments, and go on with the run. Output as `run`."""
    from refold.console.approvals import AnswerRequest, answer_command
    from refold.console.runs import ResumeRequest

    taking_up = ResumeRequest(run=run, base_url=base_url, root=root, tools=tools, detach=detach)
    request = AnswerRequest(taking_up=taking_up, answer=("edit", arguments), calls=[call], note=note, by=by)
    return anyio.run(answer_command, screen_of(context, output), places.store_place(store), request)
