"""`refold testcase`: a pytest file that replays a run, and the run's log beside it."""

import re
import textwrap
from pathlib import Path
from string import Template
from typing import Annotated

import msgspec

from refold.console import addresses, places
from refold.console.options import WholeRun, new_file
from refold.console.places import StorePlace
from refold.console.screen import Screen, note
from refold.engine import Recording
from refold.engine.compatibility import installed_guards
from refold.engine.playback import Diverged
from refold.reducers.errors import RefoldError, WrongUse
from refold.replay import audit, figures
from refold.store import MemoryStore, packer
from refold.store.files import written_beside
from refold.store.protocol import Store

_TEST = Template('''\
"""Run $run, replayed: it fails at the first decision that would be another one now. Written by `refold testcase`.

What the model and the tools said comes from the log beside this file; neither is asked, and nothing reaches the network.
"""

from pathlib import Path

import anyio

$imports

RUN = "$run"
HEAD = "$head"  # the hash of its last event
LOG = Path(__file__).with_name("$log")


def test_$name(tmp_path: Path) -> None:
    """$says"""
    anyio.run(_replayed, tmp_path / "runs.db")


async def _replayed(path: Path) -> None:
    await unpack(LOG, path)
    async with await SqliteStore.open(path) as store:
        found = await verify(store, RUN)
        assert found.whole, found.problem or found.unweighable
        assert found.hash == HEAD, "this is another log than the test was written for"
        audited = await audit(store, RUN, installed_guards())
        assert not audited.damaged, audited.damaged
        for each in (*audited.findings, *audited.unreplayable):
            told = f"event {each.seq}: {each.kind} is {each.difference} {each.why}"
            assert each.derived == each.recorded, told
$play''')
_IMPORTS = """\
from refold.engine.compatibility import installed_guards
from refold.replay import audit, verify
from refold.store import SqliteStore
from refold.store.bundles import unpack"""
_PLAYED_IMPORTS = "from refold.engine import Recording\n" + _IMPORTS.replace(
    "import Sq", "import MemoryStore, Sq"
)
_PLAY = """\
        # And through the live engine: it raises `Diverged` at the first event that is another one.
        recording = await Recording.read(store, RUN, installed_guards())
        async with MemoryStore() as again:
            await recording.play(again)
"""


class Testcase(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, as JSON. `played`: through the live engine too; if not, `why`. `passes`: it does now."""

    run: str
    test: str
    log: str
    events: int
    played: bool
    why: str
    passes: bool


async def testcase_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    *,
    file: Annotated[Path, new_file("The test, as in tests/test_x.py; it must not exist.")],
) -> int:
    """Write a test that replays RUN and fails at its first different decision, with the log beside it as a bundle."""
    if not file.parent.is_dir():
        raise WrongUse(f"{file}: there is no folder {file.parent}; make it first, or name another")
    if not re.fullmatch(r"test_\w+\.py|\w+_test\.py", file.name, re.ASCII):
        raise WrongUse(
            f"{file}: expected test_NAME.py, with letters, digits and underscores: else pytest does not find it"
        )
    log = file.with_suffix(".zip")
    async with places.reading(place) as store:
        run = await addresses.run_of(store, run)
        found = await audit(store, run, installed_guards())
        why = await _unplayable(store, run) if found.clean else "its audit is not clean"
        head = await store.head(run)
        with written_beside(file) as partial:
            partial.write_text(_text(run, head.hash.hex(), file, played=not why), encoding="utf-8")
            packed = await packer.pack(store, [run], log)
    done = Testcase(
        run=run,
        test=str(file),
        log=packed.path,
        events=head.seq,
        played=not why,
        why=why,
        passes=found.clean,
    )
    screen.result(done, lambda: _tell(screen, done))
    return 0 if done.passes else 1


async def _unplayable(store: Store, run: str) -> str:
    """Why a run cannot be played through the live engine; "" if it can: it was, just now."""
    try:
        recording = await Recording.read(store, run, installed_guards())
        async with MemoryStore() as again:
            await recording.play(again)
    except Diverged as error:
        return _parts(error)
    except RefoldError as error:
        return str(error)
    return ""


def _parts(error: Diverged) -> str:
    as_told = f"other {', '.join(error.fields)}" if error.fields else f"not {error.recorded or 'nothing'}"
    return (
        f"an engine would record event {error.seq} otherwise ({error.played}, {as_told}), as is usual with runs "
        "that were imported or shrunk"
    )


def _text(run: str, head: str, file: Path, *, played: bool) -> str:
    shown = run if re.fullmatch(r"[\w.:-]{1,200}", run, re.ASCII) else None
    if shown is None:
        raise WrongUse(f"run {run!r}: its id cannot stand in a Python file")
    says = "Every decision follows from the facts"
    says += ", audited and played again." if played else "."
    return _TEST.substitute(
        run=shown,
        head=head,
        log=file.with_suffix(".zip").name,
        name=re.sub(r"\W", "_", f"run_{shown}", flags=re.ASCII),
        says=says,
        imports=_PLAYED_IMPORTS if played else _IMPORTS,
        play=_PLAY if played else "",
    )


def _tell(screen: Screen, done: Testcase) -> None:
    screen.say(
        f"{done.test}: replays run {done.run}, {figures.counted(done.events, 'event')}, from {done.log}"
    )
    if not done.played:
        note(textwrap.shorten(f"it audits only, and plays nothing through the engine: {done.why}", 300))
    if not done.passes:
        note(f"it fails now: refold audit {done.run} says where")
    note(f"next    python -m pytest {done.test}")
