"""The command about other policies: what they would have decided over what was recorded."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import Everything, Output, StorePath, screen_of

whatif_app = typer.Typer(rich_markup_mode=None)

Policies = Annotated[
    list[Path] | None,
    typer.Option("--policy", help="Policy file (.toml, .yaml, .json), or a preset; several side by side."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="limits.step=20: change this of the recorded policy, or of --policy."),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--only", help="limits,guards,approvals: these rules of --policy, over the run's own policy."
    ),
]
PricesPath = Annotated[
    Path | None,
    typer.Option(
        "--prices", help="genai-prices, or a file: prices for answers of which the record has none."
    ),
]


@whatif_app.command("whatif", short_help="Ask what other policies would have decided.")
def _whatif(
    context: typer.Context,
    runs: Annotated[
        list[str] | None, typer.Argument(help="RUN or @last; a prefix of an id will do. With --view RUN@t7.")
    ] = None,
    *,
    policy: Policies = None,
    settings: Settings = None,
    only: Only = None,
    prices: PricesPath = None,
    everything: Everything = False,
    view: Annotated[
        bool, typer.Option("--view", help="Show what the model would have seen there, as a diff.")
    ] = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Ask what other policies would have decided over the same facts, and how far the record is evidence.

    With -o json: a line for each run and policy, then one of totals for each policy.
    """
    from refold.console.other_policies import WhatIfRequest
    from refold.console.whatif import whatif_command
    from refold.console.whatif_view import whatif_view_command

    request = WhatIfRequest(
        typed=runs or [],
        policies=[at if (at := places.expanded(each)).is_file() else each for each in policy or []],
        settings=settings or [],
        everything=everything,
        only=only,
        prices=prices and places.expanded(prices),
    )
    command = whatif_view_command if view else whatif_command
    return anyio.run(command, screen_of(context, output), places.store_place(store), request)
