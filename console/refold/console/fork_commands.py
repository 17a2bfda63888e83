"""The commands that make something new of a log: a fork, a smaller log, a test."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import (
    Address,
    BaseUrl,
    By,
    Detach,
    Output,
    Root,
    StorePath,
    Tools,
    WholeRun,
    screen_of,
)

forking_app = typer.Typer(rich_markup_mode=None)


@forking_app.command("fork", short_help="Go on live from a prefix of a run, differently.")
def _fork(
    context: typer.Context,
    run: Address,
    *,
    say: Annotated[str, typer.Option("--say", help="A message to the model, before it goes on.")] = "",
    edit: Annotated[
        list[str] | None,
        typer.Option("--edit", help="CALL=TEXT or CALL=@FILE: the result of a call, made up."),
    ] = None,
    by: By = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Another policy: a file, or a preset.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Another model, provider:model.")] = None,
    base_url: BaseUrl = None,
    root: Root = None,
    tools: Tools = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="name=value, recorded with the fork.")
    ] = None,
    detach: Detach = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Start a new run that goes on from event or turn of RUN, by default from the last place that can be. RUN stays as it is.

    What is not given is as it was in RUN: policy, model, tools. Output as `run`.
    """
    from refold.console.forks import ForkRequest, edits_of, fork_command
    from refold.console.runs import labels_of

    request = ForkRequest(
        typed=run,
        say=say,
        edits=edits_of(edit or []),
        by=by,
        model=model,
        base_url=base_url,
        policy=policy,
        root=root,
        tools=tools,
        labels=labels_of(label or []),
        detach=detach,
    )
    return anyio.run(fork_command, screen_of(context, output), places.store_place(store), request)


@forking_app.command("shrink", short_help="Make the smallest log that still shows something.")
def _shrink(
    context: typer.Context,
    run: WholeRun,
    *,
    file: Annotated[Path, typer.Option("-o", "--output", help="The new store's file; it must not exist.")],
    when: Annotated[
        str | None, typer.Option("--when", help="That this held of a state: 'spent_usd > 1.0'.")
    ] = None,
    audit_differs: Annotated[
        bool, typer.Option("--audit-differs", help="That the first different decision differs so.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option("--check", help="That this command, given REFOLD_STORE, ends with exit code 0."),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many logs are tried at most.")] = 10_000,
    store: StorePath = None,
) -> int:
    """Leave out of RUN's facts whatever can be left out, and derive its decisions anew: a new, smaller, valid log.

    It is written into a store of its own. RUN stays as it is.
    """
    from refold.console.minimal_logs import ShrinkRequest, shrink_command

    request = ShrinkRequest(
        run=run,
        file=places.expanded(file),
        when=when,
        audit_differs=audit_differs,
        check=check,
        most=most,
    )
    return anyio.run(shrink_command, screen_of(context, None), places.store_place(store), request)


@forking_app.command("testcase", short_help="Write a pytest file that replays a run.")
def _testcase(
    context: typer.Context,
    run: WholeRun,
    *,
    file: Annotated[
        Path, typer.Option("-o", "--output", help="The test, as in tests/test_x.py; it must not exist.")
    ],
    store: StorePath = None,
) -> int:
    """Write a test that replays RUN and fails at its first different decision, with the log beside it as a bundle."""
    from refold.console.testcases import testcase_command

    screen, place = screen_of(context, None), places.store_place(store)
    return anyio.run(testcase_command, screen, place, run, places.expanded(file))
