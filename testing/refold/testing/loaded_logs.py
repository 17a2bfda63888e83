"""Logs for comparisons: from recordings, stores, bundles and transcripts."""

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from refold.engine.clock import new_salts
from refold.engine.compatibility import installed_guards
from refold.engine.journal import record
from refold.engine.playback import Diverged, Recording
from refold.importers.registry import UnknownFormat, detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers import codec
from refold.reducers.errors import RefoldError, WrongUse
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.replay import audit, verify
from refold.store import open_memory
from refold.store.bundles import NotABundle, is_bundle, open_bundle, stored_of
from refold.store.opening import is_recording, open_here, open_recording
from refold.store.protocol import Lease, Store
from refold.store.recordings import DamagedRecording, RecordedRun, read_recording, record_of, recorded_run
from refold.testing.places import READ

_DATABASE = b"SQLite format 3\0"
Result = TypeVar("Result")


class LoadedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its child runs. `imported`: another harness made it, and its decisions were derived."""

    runs: Sequence[RecordedRun]
    registry: Registry

    @property
    def recordings(self) -> list[Recording]:
        """The runs, decoded."""
        return [recording_of(each, self.registry) for each in self.runs]

    @property
    def imported(self) -> bool:
        """Whether the run comes from a transcript."""
        return SOURCE_LABEL in self.recordings[0].opening.labels

    async def store(self) -> Store:
        """Return a store in memory with the runs."""
        return await fill_store(self.runs)

    async def check(self, *, played: bool) -> str:
        """Return why the run is not intact, or which decision does not follow from its facts; "" if all is
        well.

        `played`: the engine must record the same log from the same facts.
        """
        store = await self.store()
        for each in self.runs:
            problem = await _check(store, each.run, self.registry)
            if problem:
                return problem
        return await self.play() if played else ""

    async def play(self) -> str:
        """Play the facts of each run through the engine; return the first difference, or ""."""
        for recording in self.recordings:
            try:
                await recording.play(open_memory())
            except Diverged as error:
                other = f", with another {', '.join(error.fields)}" if error.fields else ""
                return (
                    f"run {error.run}: the engine records a different event {error.seq} "
                    f"({error.played}{other}), as for runs that were imported or shrunk"
                )
            except RefoldError as error:
                return str(error)
        return ""


async def _check(store: Store, run: str, registry: Registry) -> str:
    found = await verify(store, run)
    if not found.whole:
        problem = found.problem
        why = (
            found.unweighable
            if problem is None
            else f"event {problem.seq} ({problem.kind}): {problem.problem}"
        )
        return f"run {run} is not intact: {why}"
    audited = await audit(store, run, registry)
    if audited.damaged:
        return f"run {run}: {audited.damaged}"
    for finding in (*audited.findings, *audited.unreplayable):
        if finding.derived != finding.recorded:
            return (
                f"run {run}: event {finding.seq}: {finding.kind} is {finding.difference} {finding.why}\n"
                f"  recorded  {finding.recorded}\n  derived   {finding.derived}"
            )
    return ""


async def fill_store(runs: Sequence[RecordedRun]) -> Store:
    """Return a store in memory with these runs."""
    store = open_memory()
    for each in runs:
        lease: Lease = await store.lease(each.run, holder="refold.testing")
        await store.append(each.run, 0, lease, each.records)
        await store.release(lease)
    return store


def recording_of(run: RecordedRun, registry: Registry = BUILTIN) -> Recording:
    """Decode a run."""
    events = [
        (codec.decode(each.kind, each.body, each.content, run=run.run, seq=seq), each.salt)
        for seq, each in enumerate(run.records, start=1)
    ]
    return Recording(run.run, events, registry)


def read_intact(path: Path) -> list[RecordedRun]:
    """Read a recording, and verify its events.

    Raises:
        NotARecording: As `read_recording`.
        DamagedRecording: A line cannot be read, or an event was edited.
    """
    runs = read_recording(path)
    store = open_recording(path)
    for each in runs:
        found = _run_here(verify(store, each.run))
        if found.problem is not None:
            where = f"run {each.run}, event {found.problem.seq} ({found.problem.kind})"
            raise DamagedRecording(
                str(path), f"{where}: {found.problem.problem}: the file was edited; record it again"
            )
    return runs


def how_to_show(path: Path) -> str:
    """Return the command that shows a place of a file: a template with `place` and `recording`."""
    if is_recording(path) or _is_database(path):
        return "refold show {place} --store {recording}"
    verb = (
        "unpack {recording} --out runs.db"
        if is_bundle(path) and _is_packed(path)
        else "import {recording} --store runs.db"
    )
    return f"refold {verb}; refold show {{place}} --store runs.db"


def load_log(path: Path, run: str = "") -> LoadedLog:
    """Load a run from a file, with its child runs.

    Args:
        path: A recording, a store, a bundle or a transcript.
        run: Its id or the first characters; needed if the file has several top-level runs.

    Raises:
        WrongUse: The file has no such run, or several.
    """
    families = families_of(load_runs(path))
    chosen = [each for each in families if each.runs[0].run.startswith(run)]
    exact = [each for each in chosen if each.runs[0].run == run]
    if len(exact or chosen) != 1:
        named = ", ".join(sorted(each.runs[0].run for each in chosen or families)[:5])
        what = (
            f"several runs begin with {run!r}"
            if chosen and run
            else "several runs"
            if chosen
            else f"no run {run!r}"
        )
        raise WrongUse(f"{path}: {what}: choose one by run=, such as {named}")
    return (exact or chosen)[0]


def families_of(runs: Iterable[RecordedRun]) -> list[LoadedLog]:
    """Group runs: each that no other of them started, with the runs below it."""
    every = list(runs)
    known = {each.run: each for each in every}
    registry = installed_guards()
    families: dict[str, list[RecordedRun]] = {}
    for each in every:
        top, seen = each, {each.run}
        while (above := known.get(parent_of(top))) is not None and above.run not in seen:
            top = above
            seen.add(top.run)
        families.setdefault(top.run, [top] if top is not each else []).append(each)
    return [
        LoadedLog(runs=list({each.run: each for each in family}.values()), registry=registry)
        for family in families.values()
    ]


def load_runs(path: Path) -> Iterator[RecordedRun]:
    """Yield the runs of a recording, a store, a bundle or a transcript, or of all of them in a folder."""
    return (run for _, run in load_files(path))


def load_files(path: Path) -> Iterator[tuple[Path, RecordedRun]]:
    """Yield the runs of a file, or of all files in a folder, each with its file.

    In a folder, files of other kinds are left out.
    """
    if not path.is_dir():
        yield from ((path, run) for run in _load_file(path))
        return
    for file in sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file()):
        try:
            for run in _load_file(file):
                yield file, run
        except UnknownFormat:
            continue


def _load_file(path: Path) -> Iterator[RecordedRun]:
    if is_recording(path):
        READ.add(str(path))
        yield from read_intact(path)
    elif is_bundle(path) and _is_packed(path):
        yield from _bundled(path)
    elif _is_database(path):
        yield from _stored(path)
    else:
        yield from _imported(path)


_SUFFIXES = frozenset({".jsonl", ".db", ".zip", ".json", ".eval", ".zst", ".gz"})


class _Parent(msgspec.Struct):
    run: str = ""


class _Opening(msgspec.Struct):
    parent: _Parent | str | None = None


def parent_of(run: RecordedRun) -> str:
    """Return the run that started this one, "" if none did."""
    parent = msgspec.json.decode(run.records[0].body, type=_Opening).parent
    return parent.run if isinstance(parent, _Parent) else ""


def _is_packed(path: Path) -> bool:
    """Return whether a zip file is a bundle: some transcripts are zip files, too."""
    try:
        with open_bundle(path):
            return True
    except NotABundle:
        return False


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_DATABASE)) == _DATABASE


def _stored(path: Path) -> Iterator[RecordedRun]:
    async def read() -> list[RecordedRun]:
        async with open_here(path) as store:
            names = [name async for chunk in store.runs() for name, _ in chunk]
            return [await recorded_run(store, name) for name in names]

    yield from _run_here(read())


def _run_here(reading: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine over a store that reads in this thread and never waits."""
    try:
        reading.send(None)
    except StopIteration as done:
        found: Result = done.value
        return found
    raise AssertionError("a store that reads in the calling thread waited")


def _bundled(path: Path) -> Iterator[RecordedRun]:
    with open_bundle(path) as bundle:
        for run in bundle.runs:
            records = [record_of(stored_of(run, line)) for line in bundle.lines(run)]
            yield RecordedRun(run=run.id, seed=0, records=records)
        bundle.check_rest()


def _imported(path: Path) -> Iterator[RecordedRun]:
    with path.open("rb") as file:
        source = Source.opened(path.name, file)
        found = detect_format(source)
        reading = Transcript(source, importer(found.format), found)
        for run in reading.runs():
            records = [
                record(each.event, each.at, each.salt) for group in run.derive(new_salts(0)) for each in group
            ]
            if not records:
                raise RefoldError(f"{path}: run {run.run} has no events")
            yield RecordedRun(run=run.run, seed=0, records=records)
