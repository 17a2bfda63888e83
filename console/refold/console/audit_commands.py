"""The command that audits."""

from pathlib import Path
from typing import Annotated

import typer

from refold.console import places
from refold.console.options import Everything, Output, StorePath, screen_of

audit_app = typer.Typer(rich_markup_mode=None)


@audit_app.command("audit")
def _audit(
    context: typer.Context,
    runs: Annotated[
        list[str] | None, typer.Argument(help="RUN or @last; a prefix of an id will do. Or a bundle's file.")
    ] = None,
    *,
    everything: Everything = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes for --all and bundles.", show_default="one a core"),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", help="Write what was found as a document; it must not exist."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Private Ed25519 key in PEM, to sign the certificate.")
    ] = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Derive every decision again and compare it with the log. With -o json: one line a run."""
    from refold.console.audits import AuditRequest, audit_command

    request = AuditRequest(
        typed=runs or [],
        everything=everything,
        jobs=jobs,
        certificate=places.expanded(certificate) if certificate else None,
        key=places.expanded(key) if key else None,
    )
    return audit_command(screen_of(context, output), places.store_place(store), request)
