"""`refold audit`: named runs, or whole stores and bundles on all cores, and certificates."""

import gc
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from refold.console import addresses, descriptions, locations, verdicts
from refold.console.addresses import all_runs, check_choice
from refold.console.executors import ExecutorOptions, start_workers
from refold.console.locations import StorePlace
from refold.console.options import Everything, option, words
from refold.console.processes import Unchecked, progress
from refold.console.screen import Screen, note, worst
from refold.console.verdicts import NotJudged
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive, WrongUse
from refold.replay import figures
from refold.replay.bulk import AuditedRun, RunFinding, Totals, audit_all
from refold.replay.certificate import Certificate, Heads, format_certificate
from refold.replay.shards import SHARD, Shard, shards
from refold.store.bundles import is_bundle
from refold.store.files import SigningKey, read_signing_key, write_atomically
from refold.store.sequential import at_once

SHARD_OF_A_STORE = SHARD
"""Events that a process audits in one piece."""

_TOLD = 20
"""Runs that are printed in full as text; of more runs only those that are not clean."""


def audit_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN or @last (ids may be prefixes), or a bundle's file.")],
    *,
    everything: Everything = False,
    executor: ExecutorOptions,
    certificate: Annotated[
        Path | None,
        option("--certificate", "Write the results to this file as a certificate; it must not exist."),
    ] = None,
    key: Annotated[
        Path | None, option("--key", "Private Ed25519 key in PEM, to sign the certificate.")
    ] = None,
) -> int:
    """Derive every decision again from the facts and compare it with the log.

    Example: refold audit --all

    With -o json: one line per run.
    """
    _check_certificate(certificate, key)
    bundles = _bundles_of(runs)
    files = list(dict.fromkeys(bundles.values()))
    if not (everything or files or certificate is not None or executor.on_cluster):
        return at_once(verdicts.judge_command(screen, place, runs, verdicts.audit_run, everything=False))
    installed_guards()  # report invalid guards once, before any run
    signing = read_signing_key(key) if key else None
    named = [each for each in runs if each not in bundles]
    sizes: list[tuple[str, int]] = []
    damage: Damaged | None = None
    if named or everything or not files:
        certified = certificate is not None
        sizes, damage = at_once(_sizes(place, named, everything=everything, certified=certified))
    work = [
        *shards(place.address, sizes, SHARD_OF_A_STORE),
        *(Shard(address=str(path), events=SHARD) for path in files),
    ]
    if not work:
        if damage is not None:
            raise damage
        note(f"{descriptions.line(place.shown)} has no runs")
    teller, heads = _AuditReport(screen, place, whole=len(sizes) + len(files) <= _TOLD), Heads()
    totals = _audit_runs(teller, heads, work, executor)
    if certificate is not None:
        _certify(screen, certificate, totals, heads, signing)
    if damage is not None:
        raise damage
    return code_of(totals)


def _check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise `WrongUse` for a key without a certificate, and for a certificate that exists."""
    if key is not None and certificate is None:
        raise WrongUse("--key signs a certificate: name its file with --certificate")
    if certificate is not None and os.path.lexists(certificate):
        raise WrongUse(f"{certificate}: already exists, and is not overwritten: choose another name")


def _bundles_of(runs: Sequence[str]) -> dict[str, Path]:
    """Return the bundle files among the arguments, by argument."""
    files = {each: locations.file_of(each) for each in runs}
    return {each: path.resolve() for each, path in files.items() if path is not None and is_bundle(path)}


async def _sizes(
    place: StorePlace, named: Sequence[str], *, everything: bool, certified: bool
) -> tuple[list[tuple[str, int]], Damaged | None]:
    """Return the runs to audit, each with its number of events, and the damage that hides others."""
    check_choice(named, everything=everything)
    async with locations.reading(place) as store:
        if certified:
            await store.check()
        if everything:
            return await all_runs(store)
        runs = await addresses.runs_of(store, named)
        return [(run, (await store.head(run)).seq) for run in runs], None


def _audit_runs(
    teller: "_AuditReport", heads: Heads, work: Sequence[Shard], executor: ExecutorOptions
) -> Totals:
    began = time.monotonic()
    with progress("auditing", sum(shard.events for shard in work)) as step:

        def seen(shard: Shard, judged: Sequence[AuditedRun]) -> None:
            heads.add(judged)
            teller.take(shard, judged)
            step(shard.events)

        # An audit creates no reference cycles: garbage collection would only cost time.
        with start_workers(executor, work, gc.disable) as workers:
            totals = audit_all(work, workers, installed_guards, seen)
    teller.finish(totals, time.monotonic() - began)
    return totals


def code_of(totals: Totals) -> int:
    """Return the exit code of the worst verdict."""
    codes: list[tuple[Sequence[RunFinding], int]] = [
        (totals.damaged, Damaged.exit_code),
        (totals.unchecked, ExternalFailure.exit_code),
        (totals.differing, 1),
        (totals.unjudged, Inconclusive.exit_code),
    ]
    return worst([0, *(code for found, code in codes if found)])


class _AuditReport:
    """Prints runs as they come: all of them if `whole`, else only the first that are not clean."""

    def __init__(self, screen: Screen, place: StorePlace, *, whole: bool) -> None:
        self._screen, self._place, self._whole, self._told = screen, place, whole, 0

    def take(self, shard: Shard, judged: Sequence[AuditedRun]) -> None:
        """Print the runs of a finished shard."""
        for each in judged:
            name = {"bundle" if each.run == shard.address else "run": each.run}
            found = each.audit or NotJudged(**name, cannot_judge=each.unjudged, damaged=each.damaged)
            if self._screen.json:
                self._screen.document(found)
            elif self._whole or (each.verdict != "clean" and self._told < _TOLD):
                self._told += 1
                if isinstance(found, NotJudged):
                    verdicts.tell_not_judged(self._screen, found)
                else:
                    verdicts.tell_audit(self._screen, self._place, found)

    def finish(self, totals: Totals, seconds: float) -> None:
        """Print the totals, or as JSON the parts that were not checked."""
        if not self._screen.json:
            _tell(self._screen, totals, seconds)
            return
        for each in totals.unchecked:
            self._screen.document(Unchecked(part=each.name, unchecked=each.why))


def _tell(screen: Screen, totals: Totals, seconds: float) -> None:
    rate = figures.count(int(totals.events / max(seconds, 1e-9)))
    decisions = (
        f"{figures.quantity(totals.decisions, 'decision')} from {figures.quantity(totals.facts, 'fact')}"
    )
    screen.heading(_verdict(totals))
    rows = [
        ("  derived", decisions),
        ("  logs", f"{figures.quantity(totals.events, 'event')}, {_versions(totals)}"),
        *imported_row(totals.imported),
        ("  took", f"{seconds:.1f} s, {rate} events/s"),
    ]
    screen.pairs([*rows, *named_rows(totals)])


def imported_row(runs: int) -> list[tuple[str, str]]:
    """Return a row about imported runs, if there are any."""
    said = "decisions were derived at import, not made by a live agent"
    return [("  imported", f"{figures.quantity(runs, 'run')}: {said}")] if runs else []


def named_rows(totals: Totals) -> list[tuple[str, str]]:
    """Return a row for each run that is not clean."""
    titles = {
        "differs": totals.differing,
        "damaged": totals.damaged,
        "inconclusive": totals.unjudged,
        "NOT CHECKED": totals.unchecked,
    }
    return [(f"  {title}", f"{each.name}: {each.why}") for title, found in titles.items() for each in found]


def _verdict(totals: Totals) -> str:
    runs = figures.quantity(totals.runs, "run")
    if totals.clean == totals.runs and not totals.unchecked:
        return f"{runs}: every decision follows from the facts"
    return f"{runs}: {figures.count(totals.clean)} of them clean, NOT ALL"


def _versions(totals: Totals) -> str:
    versions = ", ".join(f"{each} ({figures.quantity(count, 'run')})" for each, count in totals.rules.items())
    policies = len(totals.policies)
    return f"rules version {versions or 'none'}, {figures.quantity(policies, 'policy')}"


def _certify(screen: Screen, path: Path, totals: Totals, heads: Heads, key: SigningKey | None) -> None:
    from importlib.metadata import version

    runs, root = heads.certified()
    certificate = Certificate(
        refold=version("refold"),
        guards={kind: guard.version for kind, guard in sorted(installed_guards().items())},
        at=time.time_ns(),
        logs=len(runs),
        heads=root,
        runs=runs,
        totals=totals,
    )
    with write_atomically(path) as beside:
        beside.write_bytes(format_certificate(certificate, key))
    if not screen.json:
        how = "signed" if key else "not signed"
        screen.say(f"  certificate: {path}, {how}; `refold verify {path} --store STORE` checks it")
