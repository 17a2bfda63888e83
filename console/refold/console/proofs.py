"""`refold seal`, `keygen`, `pack` and `unpack`, and certificates."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import addresses, locations
from refold.console.audit import code_of, imported_row, named_rows
from refold.console.locations import StorePlace, changing, without_event_loop
from refold.console.options import argument, format_problem, new_file, option
from refold.console.screen import Screen, note, worst
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive, WrongUse
from refold.replay import figures
from refold.replay.bulk import RunFinding
from refold.replay.certificate import (
    NO_OTHERS,
    THESE_LOGS,
    BadCertificate,
    Certificate,
    ComparedStore,
    UnsignedCertificate,
    compare,
    is_certificate,
    read,
)
from refold.replay.doubts import family_of
from refold.replay.evidence import NOT_TRUE
from refold.store import files, packer, seals
from refold.store.unpacking import unpack
from refold.store.verify_bundle import key_id


class SealReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What `seal` did, as JSON. Keep `line`; `at` is in nanoseconds since the epoch, `key` the public
    key's id.
    """

    line: str
    at: int
    key: str
    added: int
    runs: int
    broken: tuple[seals.BrokenRun, ...]


async def seal_command(
    screen: Screen,
    place: StorePlace,
    *,
    key: Annotated[Path, option("--key", "Private Ed25519 key in PEM.")],
    seal: Annotated[
        list[str], option("--seal", "A line printed before: sign only a log of heads that extends it.")
    ],
    last_key: Annotated[
        list[Path], option("--last-key", "Public key of the last signed checkpoint, after a change of keys.")
    ],
) -> int:
    """Sign a checkpoint of all runs: the head of each log. Prints a line to keep where the store's writer
    cannot reach it.

    Example: refold seal --key seal.pem --seal "$(cat last-line)"
    """
    signing, kept = files.read_signing_key(key), [*map(seals.parse_kept_line, seal)]
    before = [*map(files.read_public_key, last_key)]
    async with changing(place) as store:
        done = await seals.seal(store, signing, time.time_ns(), kept, before)
    line = seals.Kept(done.seal.size, done.seal.root).line
    id_ = key_id(done.seal.key)
    sealed = SealReceipt(
        line=line, at=done.seal.at, key=id_, added=done.added, runs=done.runs, broken=done.broken
    )
    screen.result(sealed, lambda: _tell_sealed(screen, sealed, done.seal.size))
    for each in done.broken:
        note(
            f"NOT signed: run {each.run} event {each.seq} was signed with the hash {each.hash}, but {each.problem}"
        )
    return Damaged.exit_code if done.broken else 0


def _tell_sealed(screen: Screen, sealed: SealReceipt, entries: int) -> None:
    screen.say(sealed.line)
    named = f"key {sealed.key}, {figures.clock(sealed.at)}"
    new = f"{figures.quantity(sealed.added, 'new log head')} of {figures.quantity(sealed.runs, 'run')}"
    note(f"{new}, {figures.quantity(entries, 'entry')} signed; {named}")


def keygen_command(
    screen: Screen,
    file: Annotated[Path, argument("Where to write the private key; the public one goes to FILE.pub.")],
) -> int:
    """Create an Ed25519 key to sign with: FILE and FILE.pub. Existing files are never overwritten.

    Example: refold keygen seal.pem
    """
    key = key_id(files.make_key(file))
    rows = [
        ("private", f"{file}: sign with it; keep it where agents cannot read it"),
        ("public", f"{files.public_path(file)}: verify with it; give it to your auditors"),
        ("key", key),
    ]
    made = {"private": str(file), "public": str(files.public_path(file)), "key": key}
    screen.result(made, lambda: screen.pairs(rows))
    return 0


@without_event_loop
async def pack_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], argument("RUN or @last; ids may be prefixes.")],
    *,
    file: Annotated[Path | None, new_file("The bundle's file; it must not exist.", shows="RUN.zip")] = None,
    tree: Annotated[bool, option("--tree", "Include the runs that their calls started.")] = False,
) -> int:
    """Write runs to a bundle: one file that verifies offline, with the signed checkpoint that covers them.

    Example: refold pack RUN --out incident.zip
    """
    async with locations.reading(place) as store:
        named = await addresses.runs_of(store, runs)
        others = f"-and-{len(named) - 1}" if len(named) > 1 else ""
        file = file or locations.default_file(f"{named[0]}{others}", ".zip")
        if tree:
            named = [each for run in named for each in await family_of(store, run)]
        packed = await packer.pack(store, named, file)
    screen.result(packed, lambda: _tell_packed(screen, packed))
    return 0


def _tell_packed(screen: Screen, packed: packer.Packed) -> None:
    screen.heading(f"{packed.path}: {figures.quantity(packed.size, 'byte')}")
    sealed = (
        f"{packed.sealed} of them covered by the newest signed checkpoint"
        if packed.sealed
        else "none of them covered by a signed checkpoint"
    )
    runs = f"{packed.runs}, with {figures.quantity(packed.events, 'event')}; {sealed}"
    screen.pairs([("  runs", runs), ("  sha256", packed.sha256)])


async def unpack_command(
    screen: Screen,
    bundle: Annotated[Path, argument("A bundle, as `refold pack` writes it.")],
    *,
    file: Annotated[
        str, new_file("The new store: a file that does not exist, or postgresql://HOST/DATABASE.")
    ],
) -> int:
    """Create a store from a bundle's runs, to show, audit and replay them, or add them to a database.

    Example: refold unpack incident.zip --out incident.db
    """
    if problem := format_problem(file):
        raise WrongUse(f"--out: {problem}")
    unpacked = await unpack(bundle, file)
    told = f"{figures.quantity(unpacked.runs, 'run')} with {figures.quantity(unpacked.events, 'event')}, unchanged"
    screen.result(unpacked, lambda: screen.say(f"{unpacked.path}: {told}"))
    if not screen.json:
        note("the signed checkpoint stays in the bundle: refold verify BUNDLE --key FILE.pub")
    return 0


_MOST = 1 << 28
"""Largest certificate that is read, in bytes: a run takes about 150."""
_TOLD = 20
"""Runs of each kind that are listed as text."""


class CheckedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A checked certificate, as JSON. `key`: the id of the key that signed it, "" if not signed.

    `compared`: the signature was checked against a given key. `store`: how its runs compare with the given
    store.
    """

    certificate: str
    whole: bool
    problem: str = ""
    key: str = ""
    compared: bool = False
    found: Certificate | None = None
    store: ComparedStore | None = None
    cannot_prove: tuple[str, ...] = ()


def is_certificate_file(path: Path) -> bool:
    """Return whether the file starts like a certificate."""
    try:
        with path.open("rb") as file:
            return is_certificate(file.read(64))
    except (OSError, ValueError):
        return False


async def verify_certificate(screen: Screen, path: Path, keys: Sequence[bytes], place: StorePlace) -> int:
    """Check a certificate's digest and signature; compare its runs with the store at `place` if --store names
    it.

    Returns the worst exit code of the audit and of the comparison.
    """
    try:
        with path.open("rb") as file:
            certificate, key = read(str(path), file.read(_MOST), keys)
    except (BadCertificate, UnsignedCertificate) as error:
        checked = CheckedCertificate(certificate=str(path), whole=False, problem=str(error))
        screen.result(checked, lambda: _tell(screen, checked))
        return Damaged.exit_code if isinstance(error, BadCertificate) else Inconclusive.exit_code
    except OSError as error:
        raise ExternalFailure(f"{path}: cannot be read: {error.strerror or error}") from error
    store, unused = None, place.chosen == locations.STORE
    if place.chosen == "--store":
        async with locations.reading(place) as opened:
            store = await compare(certificate, opened, place.shown, installed_guards())
    signer = key_id(bytes.fromhex(key)) if key else ""
    checked = CheckedCertificate(
        certificate=str(path),
        whole=True,
        key=signer,
        found=certificate,
        compared=bool(keys),
        store=store,
        cannot_prove=_limits_of_proof(signer, store, compared=bool(keys), unused=unused),
    )
    screen.result(checked, lambda: _tell(screen, checked))
    return worst([code_of(certificate.totals), _code(store)])


def _code(store: ComparedStore | None) -> int:
    if store is None:
        return 0
    return Damaged.exit_code if store.differing else Inconclusive.exit_code if store.unjudged else 0


def _limits_of_proof(
    signer: str, store: ComparedStore | None, *, compared: bool, unused: bool
) -> tuple[str, ...]:
    """Return what the certificate does not prove."""
    found = [] if store else [THESE_LOGS]
    if unused:
        found.append(
            f"that its logs are those of the store in {locations.STORE}: only a store named by --store is compared"
        )
    if not signer:
        found.append("who wrote it: it is not signed")
    elif not compared:
        found.append(f"whose key {signer} is: pass the signer's public key with --key")
    if store and (store.others or store.grown):
        found.append("that runs and events that it does not name are intact")
    return (*found, NO_OTHERS, NOT_TRUE)


def _tell(screen: Screen, checked: CheckedCertificate) -> None:
    found, store = checked.found, checked.store
    if found is None:
        screen.heading(f"certificate {checked.certificate}: INVALID")
        screen.say(f"  {checked.problem}")
        return
    totals = found.totals
    verdict = "clean" if found.clean else "NOT CLEAN"
    if store and _code(store):
        verdict += (
            ", and THE STORE DIFFERS"
            if store.differing
            else ", and the comparison with the store is inconclusive"
        )
    screen.heading(f"certificate {checked.certificate}: {verdict}")
    rows = [
        ("  signed", _signer(checked)),
        ("  made", f"{_day(found.at)} by refold {found.refold}, decision rules up to {found.rules}"),
        ("  runs", f"{figures.count(totals.runs)}, {figures.count(totals.clean)} of them clean"),
        ("  heads", f"{figures.count(found.logs)} logs, sha256 {found.heads}"),
    ]
    rows += [*imported_row(totals.imported), *named_rows(totals), *(_store_rows(store) if store else [])]
    screen.pairs([*rows, *(("  unproved", each) for each in checked.cannot_prove)])


def _store_rows(store: ComparedStore) -> list[tuple[str, str]]:
    """Return the comparison with the store, and a row for each run that is not as audited."""
    kinds = [
        ("same as audited", store.same),
        ("grown", len(store.grown)),
        ("different", len(store.differing)),
    ]
    kinds += [("inconclusive", len(store.unjudged)), ("not in the certificate", store.others)]
    told = ", ".join(f"{figures.count(count)} {word}" for word, count in kinds if count) or "no runs"
    lists = {"grown": store.grown, "DIFFERS": store.differing, "inconclusive": store.unjudged}
    rows = [(f"  {word}", each) for word, runs in lists.items() for each in _first(runs)]
    return [("  store", f"{store.store}: {told}"), *rows]


def _first(runs: Sequence[RunFinding]) -> list[str]:
    more = [f"and {figures.count(len(runs) - _TOLD)} more"] if len(runs) > _TOLD else []
    return [*(f"{each.name}: {each.why}" for each in runs[:_TOLD]), *more]


def _signer(checked: CheckedCertificate) -> str:
    if not checked.key:
        return "no"
    return f"by key {checked.key}{', as given' if checked.compared else ''}"


def _day(at: int) -> str:
    try:
        return datetime.fromtimestamp(at // 1_000_000_000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{at} ns after 1970"
