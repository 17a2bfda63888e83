"""The command line: what can be typed, and which function does it. Nothing else happens here.

Each command returns its exit code. `-o` may stand before the command or after it.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.approval_commands import approval_app
from refold.console.audit_commands import audit_app
from refold.console.evidence_commands import evidence_app
from refold.console.export_commands import export_app
from refold.console.fork_commands import forking_app
from refold.console.import_commands import import_app
from refold.console.options import (
    Address,
    BaseUrl,
    Detach,
    Output,
    Root,
    StorePath,
    Tools,
    WholeRun,
)
from refold.console.options import screen_of as _screen
from refold.console.policy_commands import policy_app
from refold.console.query_commands import query_app
from refold.console.report_commands import report_app
from refold.console.screen import Screen
from refold.console.whatif_commands import whatif_app
from refold.console.worker_commands import worker_app

app = typer.Typer(
    name="refold",
    help="Run LLM agents on an append-only log, and replay, verify and audit what they did.",
    epilog="Exit codes: 0 agrees or COMPLETED, 1 differs or another end, 2 wrong use, 3 damaged log, "
    "4 the world failed, 125 cannot be judged, 130 Ctrl-C.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
model_app = typer.Typer(help="The embedded models' weights.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(model_app, name="model")
app.add_typer(approval_app)
app.add_typer(evidence_app)
app.add_typer(audit_app)
app.add_typer(export_app)
app.add_typer(forking_app)
app.add_typer(import_app)
app.add_typer(report_app)
app.add_typer(query_app)
app.add_typer(whatif_app)
app.add_typer(worker_app)
app.add_typer(policy_app, name="policy")


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        from importlib.metadata import version

        Screen().say(f"refold {version('refold')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    output: Output = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where errors come from.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback has done it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = {"output": output, "debug": debug}


@app.command("run")
def _run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="What the agent is to do.")],
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", help="provider:model; also REFOLD_MODEL.", show_default=places.DEFAULT_MODEL),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Policy file (.toml, .yaml, .json), or a preset.")
    ] = None,
    root: Root = None,
    tools: Tools = None,
    base_url: BaseUrl = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="name=value, recorded with the run.")
    ] = None,
    detach: Detach = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Start an agent on TASK and stay with it to its end.

    With -o json: a line {"type": "recorded", "seq", "event"} for each event, and a last line {"type": "result", ...}.
    """
    from refold.console.runs import RunRequest, labels_of, run_command

    request = RunRequest(
        task=task,
        model=places.model_name(model),
        base_url=places.base_url(base_url, places.model_name(model)),
        environment=places.environment(model, base_url),
        policy=policy,
        root=root,
        tools=tools,
        system=system,
        labels=labels_of(label or []),
        detach=detach,
    )
    return anyio.run(run_command, _screen(context, output), places.store_place(store), request)


@app.command("resume", short_help="Go on with a run where its log ends.")
def _resume(
    context: typer.Context,
    run: WholeRun,
    *,
    message: Annotated[
        str | None, typer.Option("--message", help="Answer for a run that waits for one.")
    ] = None,
    root: Root = None,
    tools: Tools = None,
    base_url: BaseUrl = None,
    detach: Detach = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Go on with a run where its log ends, under its own model and policy. Output as `run`."""
    from refold.console.runs import ResumeRequest, resume_command

    request = ResumeRequest(
        run=run, message=message, base_url=base_url, root=root, tools=tools, detach=detach
    )
    return anyio.run(resume_command, _screen(context, output), places.store_place(store), request)


@app.command("ls")
def _ls(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(help="Only runs whose id begins so.")] = "",
    most: Annotated[int, typer.Option("--most", min=1, help="How many at most, the newest first.")] = 20,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """List the runs of the store, the newest first. With -o json: one array."""
    from refold.console.listings import ls_command

    return anyio.run(ls_command, _screen(context, output), places.store_place(store), prefix, most)


@app.command("show")
def _show(
    context: typer.Context,
    run: Address,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every event, a line each.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Every event as it is stored, as JSON lines.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with events to come, until the end.")
    ] = False,
    asked: Annotated[
        str, typer.Option("--filter", help="Only events that fit, a line each: as type:tool error:true.")
    ] = "",
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Show what happened in a run: a row a turn, then how it ended.

    With -o json: one document with `turns`; with --all, --raw, --follow or --filter, JSON lines as --raw.
    """
    from refold.console.listings import events_command, show_command

    screen, place = _screen(context, output), places.store_place(store)
    if every or raw or follow or asked:
        return anyio.run(partial(events_command, raw=raw, follow=follow, asked=asked), screen, place, run)
    return anyio.run(show_command, screen, place, run)


@app.command("state", short_help="Show the state after an event.")
def _state(context: typer.Context, run: Address, store: StorePath = None, output: Output = None) -> int:
    """Show the state that the log folds to after an event, by default the last. -o json has all of it."""
    from refold.console.inspection import state_command

    return anyio.run(state_command, _screen(context, output), places.store_place(store), run)


@app.command("view", short_help="Show what the model saw at a turn.")
def _view(
    context: typer.Context,
    run: Address,
    *,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Under this policy: file or preset. Told as a diff.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="limits.step=20: change this of the recorded policy, or of --policy."),
    ] = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Show exactly what the model saw at a turn, by default the last, checked against what was sent."""
    screen, place = _screen(context, output), places.store_place(store)
    if policy is not None or settings:
        from refold.console.other_policies import WhatIfRequest
        from refold.console.whatif_view import whatif_view_command

        request = WhatIfRequest(typed=[run], policies=[policy] if policy else [], settings=settings or [])
        return anyio.run(whatif_view_command, screen, place, request)
    from refold.console.inspection import view_command

    return anyio.run(view_command, screen, place, run)


@app.command("why", short_help="Show what limits and guards saw and said.")
def _why(context: typer.Context, run: Address, store: StorePath = None, output: Output = None) -> int:
    """Show what every limit and guard saw at an event and said, by default at the last: RUN@e41."""
    from refold.console.reasons import why_command

    return anyio.run(why_command, _screen(context, output), places.store_place(store), run)


@app.command("graph")
def _graph(context: typer.Context, output: Output = None) -> int:
    """Print the machine of an agent's states as a Mermaid diagram. With -o json: {"mermaid": ...}."""
    from refold.engine.live_machine import mermaid

    screen = _screen(context, output)
    if screen.json:
        screen.document({"mermaid": mermaid()})
    else:
        screen.styled(mermaid())
    return 0


@model_app.command("fetch")
def _fetch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which model.")] = "smollm2-135m",
    *,
    check: Annotated[bool, typer.Option("--check", help="Check the digest of what is there, too.")] = False,
    output: Output = None,
) -> int:
    """Fetch a model's weights into the user's cache, and print where they are."""
    from refold.console.weights import fetch_command

    return fetch_command(_screen(context, output), name, check=check)


@model_app.command("list")
def _list(context: typer.Context, output: Output = None) -> int:
    """List the embedded models, and whether their weights are on this machine."""
    from refold.console.weights import list_command

    return list_command(_screen(context, output))
