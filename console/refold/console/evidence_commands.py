"""The commands about evidence: seals, verification, erasing, bundles."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import Everything, Output, StorePath, screen_of

evidence_app = typer.Typer(rich_markup_mode=None)

Bundle = Annotated[Path, typer.Argument(help="A bundle, as `refold pack` writes it.")]


@evidence_app.command("verify")
def _verify(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help="RUN or @last; a prefix of an id will do. Or the file of a bundle, or of a certificate."
        ),
    ] = None,
    *,
    everything: Everything = False,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", help="Public key, by which seals, or certificates, may be signed."),
    ] = None,
    seal: Annotated[
        list[str] | None, typer.Option("--seal", help="A line that `refold seal` printed.")
    ] = None,
    all_sealed: Annotated[
        bool, typer.Option("--all-sealed", help="125 if any event of them is under no seal.")
    ] = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Check that logs, or bundles, are whole and unedited. With -o json: one line a run or bundle, then one of the seals."""
    from refold.console.verification import VerifyRequest, verify_command

    request = VerifyRequest(
        typed=runs or [],
        everything=everything,
        keys=[places.expanded(each) for each in key or []],
        lines=seal or [],
        all_sealed=all_sealed,
    )
    return anyio.run(verify_command, screen_of(context, output), places.store_place(store), request)


@evidence_app.command("seal", short_help="Sign the heads of all runs.")
def _seal(
    context: typer.Context,
    *,
    key: Annotated[Path, typer.Option("--key", help="Private Ed25519 key in PEM.")],
    seal: Annotated[
        list[str] | None, typer.Option("--seal", help="A line printed before: sign only what begins with it.")
    ] = None,
    last_key: Annotated[
        list[Path] | None,
        typer.Option("--last-key", help="Public key of the last seal, after a change of keys."),
    ] = None,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Sign the heads of all runs of the store, and print a line to keep where its writer cannot reach."""
    from refold.console.evidence import seal_command

    place, lines, last = places.store_place(store), seal or [], [*map(places.expanded, last_key or [])]
    return anyio.run(seal_command, screen_of(context, output), place, places.expanded(key), lines, last)


@evidence_app.command("keygen", short_help="Make a key to sign with.")
def _keygen(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="Where to write the private key; the public one goes to FILE.pub.")
    ],
    output: Output = None,
) -> int:
    """Make an Ed25519 key to sign with. No file is ever written over."""
    from refold.console.evidence import keygen_command

    return keygen_command(screen_of(context, output), places.expanded(file))


@evidence_app.command("erase", short_help="Erase what an event said.")
def _erase(
    context: typer.Context,
    event: Annotated[str, typer.Argument(help="RUN@e41: whose content is to go.")],
    *,
    why: Annotated[str, typer.Option("--why", help="Why: recorded for good, so no word of what is erased.")],
    by: Annotated[
        str | None, typer.Option("--by", help="Who says so.", show_default="your login name")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask; needed where there is no terminal.")
    ] = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Erase what an event said, for good, once it was shown and you said yes. Place, size and the chain of hashes stay."""
    from refold.console.erasure import EraseRequest, erase_command

    request = EraseRequest(typed=event, why=why, by=by, yes=yes)
    return anyio.run(erase_command, screen_of(context, output), places.store_place(store), request)


@evidence_app.command("pack", short_help="Put runs into a file that verifies offline.")
def _pack(
    context: typer.Context,
    runs: Annotated[list[str], typer.Argument(help="RUN or @last; a prefix of an id will do.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The bundle's file; it must not exist.")],
    tree: Annotated[bool, typer.Option("--tree", help="With the runs that their calls started.")] = False,
    store: StorePath = None,
) -> int:
    """Put runs into one file that verifies offline, with the seal that covers them."""
    from refold.console.evidence import PackRequest, pack_command

    request = PackRequest(typed=runs, tree=tree, file=places.expanded(output))
    return anyio.run(pack_command, screen_of(context, None), places.store_place(store), request)


@evidence_app.command("unpack", short_help="Make a store of a bundle.")
def _unpack(
    context: typer.Context,
    bundle: Bundle,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The new store's file; it must not exist.")],
) -> int:
    """Make a store of a bundle's runs, to show, audit and replay them."""
    from refold.console.evidence import unpack_command

    return anyio.run(
        unpack_command, screen_of(context, None), places.expanded(bundle), places.expanded(output)
    )
