"""`refold verify`: runs of a store, with or without signed checkpoints, and bundles.

The worst verdict is the exit code.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import addresses, locations, proofs, verdicts
from refold.console.addresses import NoSuchRun, check_choice, select_runs
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import Everything, option, words
from refold.console.screen import Screen, worst
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, Inconclusive, RefoldError, WrongUse
from refold.replay import Verification, Verifier, figures, verify
from refold.replay.evidence import Evidence, SealedRun, check_seals, sealed_runs, with_seals
from refold.replay.reader import follow_all
from refold.replay.verification import Prefix
from refold.store import bundles
from refold.store.bundles import DamagedBundle, UnjudgedBundle
from refold.store.files import read_public_key
from refold.store.protocol import Store, Stored
from refold.store.seals import Kept, parse_kept_line
from refold.store.verify_bundle import NOTHING_SEALED, Bundle, PackedRun, key_id, list_results, unproved


class Unsealed(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose events from `first` to `last` are covered by no signed checkpoint."""

    run: str
    first: int
    last: int


class Sealing(msgspec.Struct, frozen=True, kw_only=True):
    """What the signed checkpoints of a store cover, as JSON: how many of the `runs` and `events` that were
    checked.

    `compared`: log heads that were compared with those runs. `gone`: runs that a checkpoint covers up to
    event `seq`, and that the store no longer has.
    """

    seals: Evidence
    runs: int
    sealed_runs: int
    events: int
    sealed_events: int
    compared: int
    gone: tuple[Prefix, ...]
    not_sealed: tuple[Unsealed, ...]
    cannot_prove: tuple[str, ...]


class CheckedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a bundle, as JSON. `sealed_events` counts the events up to each run's signed head."""

    bundle: str
    whole: bool
    problem: str = ""
    runs: tuple[Verification, ...] = ()
    seal: str = ""
    key: str = ""
    sealed_runs: int = 0
    sealed_events: int = 0
    not_sealed: tuple[Unsealed, ...] = ()
    verifier: str = ""
    cannot_prove: tuple[str, ...] = ()


@without_event_loop
async def verify_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[
        list[str],
        words("RUN or @last (ids may be prefixes), or the file of a bundle or a certificate."),
    ],
    *,
    everything: Everything = False,
    key: Annotated[
        list[Path], option("--key", "Public key of signed checkpoints or certificates; may be repeated.")
    ],
    seal: Annotated[
        list[str], option("--seal", "A line that `refold seal` printed: its entries must still be there.")
    ],
    all_sealed: Annotated[
        bool, option("--all-sealed", "125 if any event is not covered by a signed checkpoint.")
    ] = False,
) -> int:
    """Check that logs or bundles are intact, and list what cannot be proven.

    With --key or --seal, also check signed checkpoints (see `refold seal`). With --store, compare a
    certificate with the runs it names.

    Example: refold verify --all --key seal.pub

    With -o json: one line per run or bundle, then one for the checkpoints.
    """
    if all_sealed and not key and not seal:
        raise WrongUse(
            "--all-sealed: expected --key (the public key of signed checkpoints), or --seal (a printed line)"
        )
    keys, lines = [*map(read_public_key, key)], [*map(parse_kept_line, seal)]
    files, papers, named = _sort_arguments(runs)
    codes = [_verify_bundle(screen, path, keys, lines, all_sealed=all_sealed) for path in files]
    codes += [await proofs.verify_certificate(screen, path, keys, place) for path in papers]
    if codes and not named and not everything:
        return worst(codes)
    if not keys and not lines:
        code = await verdicts.judge_command(screen, place, named, verdicts.verify_run, everything=everything)
        return worst([*codes, code])
    check_choice(named, everything=everything)
    return worst([*codes, await _verify_sealed(screen, place, named, keys, lines, all_sealed=all_sealed)])


def _sort_arguments(typed: Sequence[str]) -> tuple[list[Path], list[Path], list[str]]:
    """Sort the arguments into files of bundles, files of certificates, and runs."""
    paths = {each: path for each in typed if (path := locations.file_of(each)) is not None}
    # A bundle is recognised by its first bytes, or by its suffix if the file does not exist.
    files = {each: at for each, at in paths.items() if at.suffix == ".zip" or bundles.is_bundle(at)}
    papers = {each: at for each, at in paths.items() if proofs.is_certificate_file(at)}
    return [*files.values()], [*papers.values()], [e for e in typed if e not in files and e not in papers]


# --- runs under seals


async def _verify_sealed(
    screen: Screen,
    place: StorePlace,
    named: Sequence[str],
    keys: Sequence[bytes],
    lines: Sequence[Kept],
    *,
    all_sealed: bool,
) -> int:
    """Verify the typed runs, or else all, against signed checkpoints."""
    async with locations.reading(place) as store:
        runs, damage = ([], None) if named else await select_runs(store, ())
        lost = dict[str, NoSuchRun]()
        for each in named:
            await _resolve(store, each, runs, lost)
        evidence = await check_seals(store, keys, lines)
        # As typed, too: the full id of a deleted run may now be a prefix of another.
        sealed = await sealed_runs(store, evidence, {*runs, *named} if named else None)
        for each in lost.keys() - sealed.keys():
            raise lost[each]
        judge = _Judge(sealed)
        codes = [await verdicts.judge_run(screen, place, store, run, judge) for run in dict.fromkeys(runs)]
    if len(runs) > 1 and not screen.json:
        verdicts.tell_codes(screen, codes)
    found = judge.result(evidence, sorted(sealed.keys() - set(runs)))
    screen.result(found, lambda: _tell_seals(screen, found, whole=all_sealed))
    if damage is not None:
        raise damage
    if not sealed or (all_sealed and found.not_sealed):
        codes.append(Inconclusive.exit_code)
    return worst([*codes, 0 if evidence.holds and not found.gone else Damaged.exit_code])


async def _resolve(store: Store, typed: str, runs: list[str], lost: dict[str, NoSuchRun]) -> None:
    """Resolve a run as typed. A run that is not found may have been signed and deleted since."""
    try:
        runs.append(await addresses.run_of(store, typed))
    except NoSuchRun as error:
        lost[typed] = error


class _Judge:
    """Verifies runs one by one against their checkpoints, and collects what is covered."""

    def __init__(self, sealed: Mapping[str, SealedRun]) -> None:
        self._sealed = sealed
        self._found: list[Verification] = []

    async def __call__(self, screen: Screen, place: StorePlace, store: Store, run: str) -> int:
        sealed = self._sealed.get(run, SealedRun())
        found = with_seals(await verify(store, run, installed_guards(), sealed=sealed.seq), sealed)
        self._found.append(found)
        return verdicts.tell_verification(screen, place, found)

    def result(self, evidence: Evidence, gone: Sequence[str]) -> Sealing:
        covered = [each.sealed for each in self._found if each.whole and each.sealed]
        return Sealing(
            seals=evidence,
            runs=len(self._found),
            sealed_runs=len(covered),
            events=sum(each.events for each in self._found),
            sealed_events=sum(covered),
            compared=sum(each.heads for each in self._sealed.values()),
            gone=tuple(Prefix(run=run, seq=self._sealed[run].seq) for run in gone),
            not_sealed=tuple(each for found in self._found for each in _find_uncovered(found)),
            cannot_prove=evidence.cannot_prove,
        )


def _find_uncovered(found: Verification) -> list[Unsealed]:
    sealed = found.sealed or 0
    return [Unsealed(run=found.run, first=sealed + 1, last=found.events)] if sealed < found.events else []


def _unsealed_lines(unsealed: Sequence[Unsealed]) -> list[str]:
    return [f"run {each.run}: events {each.first} to {each.last}" for each in unsealed]


def _verdict(found: Sealing) -> str:
    if not found.seals.holds or found.gone:
        return "INVALID"
    if not found.seals.seals:
        return "none"
    return "valid" if found.compared else "valid, but none covers these runs: inconclusive"


def _tell_seals(screen: Screen, found: Sealing, *, whole: bool) -> None:
    seals = found.seals
    screen.heading(f"signed checkpoints: {_verdict(found)}")
    against = [f"key {each}" for each in seals.keys] + (
        [figures.quantity(seals.lines, "kept line")] if seals.lines else []
    )
    entries, sealed = figures.quantity(seals.entries, "entry"), figures.count(found.sealed_events)
    screen.facts(
        {
            "wrong": [*seals.problems, *([f"and {seals.more} more"] if seals.more else [])],
            "gone": [
                f"run {each.run}: covered up to event {each.seq}, but not in the store" for each in found.gone
            ],
            "checked": f"{figures.quantity(seals.seals, 'signed checkpoint')} over {entries}, against {', '.join(against)}",
            "covered": f"{seals.trusted} of {entries}; {figures.quantity(found.compared, 'log head')} of these runs compared",
            "runs": f"{found.sealed_runs} of {found.runs} covered and intact",
            "events": f"{sealed} of {figures.count(found.events)} covered and intact",
            "uncovered": _unsealed_lines(found.not_sealed) if whole else None,
            "newest": f"{seals.newest}, {figures.clock(seals.at)}" if seals.newest else None,
            "unproved": found.cannot_prove,
        }
    )


# --- bundles


def _verify_bundle(
    screen: Screen, path: Path, keys: Sequence[bytes], lines: Sequence[Kept], *, all_sealed: bool
) -> int:
    try:
        with bundles.open_bundle(path, keys) as bundle:
            runs = [_run_of(bundle, run) for run in bundle.runs]
            bundle.check_rest()
            _compare(bundle, path, lines)
        _check_runs(path, runs)
    except (Damaged, Inconclusive) as error:
        return _tell_problem(screen, path, error)
    unsealed = [each for run in runs for each in _find_uncovered(run)] if all_sealed else []
    seal, verifier = bundle.seal, bundles.verifier_of(bundle)
    found = CheckedBundle(
        bundle=str(path),
        whole=True,
        runs=tuple(runs),
        seal=Kept(seal.size, seal.root).line if seal else "",
        key=key_id(seal.key) if seal else "",
        sealed_runs=len(bundle.proofs),
        sealed_events=bundle.sealed_events,
        not_sealed=tuple(unsealed),
        verifier=verifier,
        cannot_prove=tuple(unproved(bundle)),
    )
    screen.result(found, lambda: _tell_bundle(screen, bundle, found))
    return Inconclusive.exit_code if unsealed or verifier == bundles.UNKNOWN_VERIFIER else 0


def _check_runs(path: Path, runs: Sequence[Verification]) -> None:
    for run in sorted(runs, key=lambda each: not each.damaged):  # damage is the worst verdict
        if run.problem is not None:
            problem = f"run {run.run} event {run.problem.seq} ({run.problem.kind}): {run.problem.problem}"
            raise (DamagedBundle if run.damaged else UnjudgedBundle)(str(path), problem)
        if run.unweighed:
            raise UnjudgedBundle(str(path), f"run {run.run}: {run.unweighable}")


def _run_of(bundle: Bundle, run: PackedRun) -> Verification:
    """Verify a run's events. The bundle's own index was checked when it was opened."""
    proof = bundle.proofs.get(run.id)
    sealed = SealedRun(seq=proof.seq, heads=1) if proof else SealedRun()
    verifier = Verifier(run.id, sealed=sealed.seq)
    records = _records(bundle, run, verifier)
    follow_all(records, verifier, registry=installed_guards())
    if verifier.problem is not None:
        raise verifier.problem
    deque(records, maxlen=0)  # read on after a wrong event: reading checks the bundle's own digests
    return with_seals(verifier.result(), sealed)


def _records(bundle: Bundle, run: PackedRun, verifier: Verifier) -> Iterator[Stored]:
    for owner, upto, line in bundle.behind(run):
        if line.seq > upto:
            verifier.notice(bundles.stored_of(owner, line), upto)
        else:
            yield bundles.stored_of(owner, line)
    for line in bundle.lines(run):
        yield bundles.stored_of(run, line)


def _compare(bundle: Bundle, path: Path, lines: Sequence[Kept]) -> None:
    if lines and bundle.seal and not bundle.proofs:
        raise UnjudgedBundle(str(path), NOTHING_SEALED)
    for line in lines:
        if bundle.seal is None or bundle.seal.size != line.size:
            it = (
                f"its signed checkpoint covers {figures.quantity(bundle.seal.size, 'entry')}"
                if bundle.seal
                else "it has no signed checkpoint"
            )
            raise UnjudgedBundle(str(path), f"{it}, so {line.line[:24]}… cannot be compared")
        if bundle.seal.root != line.root:
            raise DamagedBundle(
                str(path), f"the root of its signed checkpoint is not that of the kept line {line.line[:24]}…"
            )


def _tell_problem(screen: Screen, path: Path, error: RefoldError) -> int:
    verdict = "DAMAGED" if isinstance(error, Damaged) else "inconclusive"
    found = CheckedBundle(bundle=str(path), whole=False, problem=str(error))
    screen.result(found, lambda: screen.block(f"bundle {path}: {verdict}", f"  {error}"))
    return error.exit_code


def _tell_bundle(screen: Screen, bundle: Bundle, found: CheckedBundle) -> None:
    screen.heading(f"bundle {found.bundle}: intact")
    rows = [*list_results(bundle), *(("uncovered", each) for each in _unsealed_lines(found.not_sealed))]
    screen.pairs((f"  {name}", value) for name, value in [*rows, ("verifier", found.verifier)])
    for each in found.runs:
        screen.say(f"  run {each.run}: intact, {figures.quantity(each.events, 'event')}, {each.agent_state}")
