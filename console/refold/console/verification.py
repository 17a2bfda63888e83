"""`refold verify`: runs of a store by themselves or under seals, and bundles. The worst verdict is the exit code."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from refold.console import addresses, certificates, figures, places, verdicts
from refold.console.addresses import NoSuchRun
from refold.console.places import Place
from refold.console.screen import Screen
from refold.console.verdicts import worst
from refold.engine.guards import installed_guards
from refold.reducers.errors import CannotJudge, Damaged, RefoldError, WrongUse
from refold.replay import Verification, Verifier, verify
from refold.replay.evidence import Evidence, SealedRun, check_seals, sealed_runs, with_seals
from refold.store import bundles
from refold.store.bundles import DamagedBundle, UnjudgedBundle
from refold.store.keys import read_public_key
from refold.store.protocol import Store
from refold.store.seals import Kept, kept
from refold.store.verify_bundle import NOTHING_SEALED, Bundle, PackedRun, key_id, told, unproved


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `refold verify`: `keys` are public keys' files, `lines` what `refold seal` printed.

    `all_sealed`: what is under no seal cannot be judged.
    """

    typed: Sequence[str]
    everything: bool = False
    keys: Sequence[Path] = ()
    lines: Sequence[str] = ()
    all_sealed: bool = False


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of the store among what was typed."""

    runs: Sequence[str]
    everything: bool


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was sealed up to event `seq`, and that the store no longer has."""

    run: str
    seq: int


class Unsealed(msgspec.Struct, frozen=True, kw_only=True):
    """A run of which the events from `first` to `last` are under no seal."""

    run: str
    first: int
    last: int


class Sealing(msgspec.Struct, frozen=True, kw_only=True):
    """What the seals of a store show, as JSON: of `runs` that were checked, with `events`, so many are sealed.

    `compared` entries of the log of heads were held against those runs.
    """

    seals: Evidence
    runs: int
    sealed_runs: int
    events: int
    sealed_events: int
    compared: int
    gone: tuple[Gone, ...]
    not_sealed: tuple[Unsealed, ...]
    cannot_prove: tuple[str, ...]


class CheckedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of a bundle, as JSON. `sealed_events` are those up to the sealed head of each run."""

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


async def verify_command(screen: Screen, place: Place, request: VerifyRequest) -> int:
    """Verify what was named. The exit code; raises what `judging.judge_command` does."""
    if request.all_sealed and not request.keys and not request.lines:
        raise WrongUse("--all-sealed: expected a --key by which seals may be signed, or a line by --seal")
    keys, lines = [*map(read_public_key, request.keys)], [*map(kept, request.lines)]
    files = _bundles(request.typed)
    papers = _certificates(request.typed)
    named = [each for each in request.typed if each not in files and each not in papers]
    chosen = Chosen(runs=named, everything=request.everything)
    codes = [_verify_bundle(screen, path, request, keys, lines) for path in files.values()]
    codes += [certificates.verify_certificate(screen, path, keys) for path in papers.values()]
    if (files or papers) and not chosen.runs and not chosen.everything:
        return worst(codes)
    if keys or lines:
        code = await _verify_sealed(screen, place, chosen, keys, lines, whole=request.all_sealed)
        return worst([*codes, code])
    every, judge = chosen.everything, verdicts.verify_run
    return worst([*codes, await verdicts.judge_command(screen, place, chosen.runs, judge, everything=every)])


def _bundles(typed: Sequence[str]) -> dict[str, Path]:
    """Those of the words that name bundles: by what the file begins with, or by their ending if there is no such file."""
    paths = {each: path for each in typed if (path := places.file_of(each)) is not None}
    return {each: path for each, path in paths.items() if path.suffix == ".zip" or bundles.is_bundle(path)}


def _certificates(typed: Sequence[str]) -> dict[str, Path]:
    """Those of the words that name certificates of audits."""
    paths = {each: path for each in typed if (path := places.file_of(each)) is not None}
    return {each: path for each, path in paths.items() if certificates.named(path)}


# --- runs under seals


async def _verify_sealed(
    screen: Screen,
    place: Place,
    request: Chosen,
    keys: Sequence[bytes],
    lines: Sequence[Kept],
    *,
    whole: bool,
) -> int:
    verdicts.check_choice(request.runs, everything=request.everything)
    async with places.reading(place) as store:
        sizes, damage = await verdicts.all_runs(store) if request.everything else ([], None)
        runs = [run for run, _ in sizes]
        lost = dict[str, NoSuchRun]()
        for each in request.runs:
            await _resolve(store, each, runs, lost)
        evidence = await check_seals(store, keys, lines)
        # The words too: one that was a run's whole id may be the beginning of another's now.
        asked = None if request.everything else {*runs, *request.runs}
        sealed = await sealed_runs(store, evidence, asked)
        for each in lost.keys() - sealed.keys():
            raise lost[each]
        judge = _Judge(sealed)
        codes = [await verdicts.judged(screen, place, store, run, judge) for run in dict.fromkeys(runs)]
    found = judge.result(evidence, sorted(sealed.keys() - set(runs)))
    if screen.json:
        screen.document(found)
    else:
        _tell_seals(screen, found, whole=whole)
    if damage is not None:
        raise damage
    if not sealed or (whole and found.not_sealed):
        codes.append(CannotJudge.exit_code)
    return worst([*codes, 0 if evidence.holds and not found.gone else Damaged.exit_code])


async def _resolve(store: Store, typed: str, runs: list[str], lost: dict[str, NoSuchRun]) -> None:
    """The run that was typed. One that is not there may have been sealed, and deleted since."""
    try:
        runs.append(await addresses.run_of(store, typed))
    except NoSuchRun as error:
        lost[typed] = error


class _Judge:
    """Verifies runs one after the other, each under its seals, and adds up what was covered."""

    def __init__(self, sealed: Mapping[str, SealedRun]) -> None:
        self._sealed = sealed
        self._runs = self._sealed_runs = self._events = self._sealed_events = 0
        self._not_sealed = list[Unsealed]()

    async def __call__(self, screen: Screen, place: Place, store: Store, run: str) -> int:
        sealed = self._sealed.get(run, SealedRun())
        found = with_seals(await verify(store, run, installed_guards(), sealed=sealed.seq), sealed)
        self._runs += 1
        self._events += found.events
        self._not_sealed += _not_sealed(found)
        if found.whole and found.sealed:
            self._sealed_runs += 1
            self._sealed_events += found.sealed
        return verdicts.tell_verification(screen, place, found)

    def result(self, evidence: Evidence, gone: Sequence[str]) -> Sealing:
        return Sealing(
            seals=evidence,
            runs=self._runs,
            sealed_runs=self._sealed_runs,
            events=self._events,
            sealed_events=self._sealed_events,
            compared=sum(each.heads for each in self._sealed.values()),
            gone=tuple(Gone(run=run, seq=self._sealed[run].seq) for run in gone),
            not_sealed=tuple(self._not_sealed),
            cannot_prove=evidence.cannot_prove,
        )


def _not_sealed(found: Verification) -> list[Unsealed]:
    sealed = found.sealed or 0
    return [Unsealed(run=found.run, first=sealed + 1, last=found.events)] if sealed < found.events else []


def _unsealed_rows(unsealed: Sequence[Unsealed]) -> list[tuple[str, str]]:
    return [("  unsealed", f"run {each.run}: events {each.first} to {each.last}") for each in unsealed]


def _verdict(found: Sealing) -> str:
    if not found.seals.holds or found.gone:
        return "DO NOT HOLD"
    if not found.seals.seals:
        return "there are none"
    return "hold" if found.compared else "hold, and cover none of these runs: cannot be judged"


def _tell_seals(screen: Screen, found: Sealing, *, whole: bool) -> None:
    seals = found.seals
    screen.heading(f"the seals: {_verdict(found)}")
    rows = [("  wrong", each) for each in seals.problems]
    rows += [("  wrong", f"and {seals.more} more")] if seals.more else []
    rows += [
        ("  gone", f"run {each.run}: sealed up to event {each.seq}, and not in the store")
        for each in found.gone
    ]
    against = [f"key {each}" for each in seals.keys] + ([f"{seals.lines} kept lines"] if seals.lines else [])
    rows += [
        ("  checked", f"{seals.seals} seals over {seals.entries} entries, against {', '.join(against)}"),
        (
            "  covered",
            f"{seals.trusted} of {seals.entries} entries, of which {found.compared} are heads of these runs",
        ),
        ("  runs", f"{found.sealed_runs} of {found.runs} sealed and whole"),
        (
            "  events",
            f"{figures.count(found.sealed_events)} of {figures.count(found.events)} sealed and whole",
        ),
    ]
    rows += _unsealed_rows(found.not_sealed) if whole else []
    rows += [("  newest", f"{seals.newest}, {figures.clock(seals.at)}")] if seals.newest else []
    rows += [("  unproved" if not n else "", each) for n, each in enumerate(found.cannot_prove)]
    screen.pairs(rows)


# --- bundles


def _verify_bundle(
    screen: Screen, path: Path, request: VerifyRequest, keys: Sequence[bytes], lines: Sequence[Kept]
) -> int:
    try:
        with bundles.reading(path, keys) as bundle:
            runs = [_run_of(bundle, run) for run in bundle.runs]
            bundle.check_rest()
            _compare(bundle, path, lines)
    except (Damaged, CannotJudge) as error:
        return _tell_problem(screen, path, error)
    wrong = next((run for run in runs if run.problem), None)
    if wrong is not None and wrong.problem is not None:
        problem = f"run {wrong.run} event {wrong.problem.seq} ({wrong.problem.kind}): {wrong.problem.problem}"
        kind = UnjudgedBundle if wrong.newer else DamagedBundle
        return _tell_problem(screen, path, kind(str(path), problem))
    unsealed = [each for run in runs for each in _not_sealed(run)] if request.all_sealed else []
    ours = bundles.verifier_of(bundle) != bundles.UNKNOWN_VERIFIER
    _tell_bundle(screen, path, bundle, runs, unsealed)
    return CannotJudge.exit_code if unsealed or not ours else 0


def _run_of(bundle: Bundle, run: PackedRun) -> Verification:
    """Verify a run of a bundle: what the bundle says of it was checked before, its events are now."""
    proof = bundle.proofs.get(run.id)
    sealed = SealedRun(seq=proof.seq, heads=1) if proof else SealedRun()
    verifier = Verifier(run.id, installed_guards(), sealed=sealed.seq)
    good = True
    for owner, upto, line in bundle.behind(run):
        if line.seq > upto:
            verifier.notice(bundles.stored_of(owner, line), upto)
        else:
            good = good and verifier.take(bundles.stored_of(owner, line))
    for line in bundle.lines(run):
        good = good and verifier.take(bundles.stored_of(run, line))
    return with_seals(verifier.result(), sealed)


def _compare(bundle: Bundle, path: Path, lines: Sequence[Kept]) -> None:
    if lines and bundle.seal and not bundle.proofs:
        raise UnjudgedBundle(str(path), NOTHING_SEALED)
    for line in lines:
        if bundle.seal is None or bundle.seal.size != line.size:
            over = f"over {bundle.seal.size} entries" if bundle.seal else "not there"
            raise UnjudgedBundle(
                str(path), f"its seal is {over}, so it cannot be compared with {line.line[:24]}…"
            )
        if bundle.seal.root != line.root:
            raise DamagedBundle(
                str(path), f"its seal has another root than {line.line[:24]}…, which was kept"
            )


def _tell_problem(screen: Screen, path: Path, error: RefoldError) -> int:
    if screen.json:
        screen.document(CheckedBundle(bundle=str(path), whole=False, problem=str(error)))
    else:
        verdict = "DAMAGED" if isinstance(error, Damaged) else "cannot be judged"
        screen.heading(f"bundle {path}: {verdict}")
        screen.say(f"  {error}")
    return error.exit_code


def _tell_bundle(
    screen: Screen, path: Path, bundle: Bundle, runs: Sequence[Verification], unsealed: Sequence[Unsealed]
) -> None:
    verifier = bundles.verifier_of(bundle)
    if not screen.json:
        screen.heading(f"bundle {path}: whole")
        screen.pairs(
            [
                *((f"  {name}", value) for name, value in told(bundle)),
                *_unsealed_rows(unsealed),
                ("  verifier", verifier),
            ]
        )
        for each in runs:
            screen.say(f"  run {each.run}: whole, {figures.count(each.events)} events, {each.agent_state}")
        return
    seal = bundle.seal
    document = CheckedBundle(
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
    screen.document(document)
