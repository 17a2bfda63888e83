"""A log that somebody edited without computing its chain anew: whoever reads it is told, whatever the
command.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from console.conftest import Ran, look
from fuzz.asking import refold
from refold.console.app import COMMANDS
from refold.console.exports import ExportFormat
from refold.engine import Agent, ScriptedModel, call, say
from refold.replay.cuts import cut
from refold.store import SqliteStore
from refold.store.schema import SEQ_MASK
from support.edited import edited

RUN, FORK, OTHER, WAITS = "aa11", "ff22", "oo33", "ww44"
EDITED = 3
"""The event in which somebody changed something, of each run but `OTHER`: the model's first answer, with a
call.
"""

STANDING = "it is damaged"
AT = f"key & {SEQ_MASK}"
OF = f"key >> 32 IN (SELECT number FROM run WHERE id <> '{OTHER}')"


def swapped(one: int, other: int) -> Sequence[str]:
    """Two rows, each in the place of the other."""
    moves = ((one, 2**20), (other, one), (2**20, other))
    return [f"UPDATE event SET key = key + {to} - {of} WHERE {AT} = {of} AND {OF}" for of, to in moves]


EDITS: Mapping[str, Sequence[str]] = {
    "a word": [f"UPDATE event SET content = replace(content, 'path', 'pbth') WHERE {AT} = {EDITED} AND {OF}"],
    "a body": [
        f"UPDATE event SET body = replace(body, '\"at\":', '\"at\":1') WHERE {AT} = {EDITED} AND {OF}"
    ],
    "two rows swapped": swapped(EDITED, EDITED + 1),
    "a row gone": [f"DELETE FROM event WHERE {AT} = {EDITED} AND {OF}"],
}

AN_ADDRESS = f"@e{EDITED + 2}"
"""A place behind the edit."""

# For each command that reads a run, what is typed behind it. RUN stands for the run, FILE for one that is not
# there yet.
PERMISSIONS = Path(__file__).parents[1] / "support" / "rules.yaml"
READS: Mapping[str, Sequence[str]] = {
    "ls": ["", "--state completed", "--since 1d"],
    "show": ["RUN", "RUN --all", "RUN --raw", "RUN --filter type:tool", f"RUN{AN_ADDRESS}", f"RUN@e{EDITED}", "RUN@t2", "RUN@c1"],
    "view": ["RUN", "RUN@t2"],
    "state": ["RUN", f"RUN{AN_ADDRESS}"],
    "why": ["RUN", f"RUN{AN_ADDRESS}", "RUN@c2"],
    "diff": [f"RUN {OTHER}", f"{OTHER} RUN"],
    "grep": ["nothing RUN", "type:wait RUN", "type:wait --all", "--count nothing"],
    "stats": ["RUN", "", "--where turn:..1 RUN"],
    "whatif": ["RUN --policy hermes", "--all --policy hermes", "RUN@t2 --view --policy hermes"],
    "rules": ["RUN --policy LIST", "--all --policy LIST"],
    "touched": ["RUN"],
    "bisect": ["RUN --when steps>=9", f"RUN --versus {OTHER}"],
    "blame": ["RUN spent.steps"],
    "shrink": ["RUN --when steps>=1 --out FILE.db"],
    "verify": ["RUN", "--all"],
    "audit": ["RUN", "--all", "RUN --certificate FILE"],
    "testcase": ["RUN --out test_FILE.py"],
    "report": ["RUN --out FILE.html", "--all --out FILE"],
    "export": [f"RUN --to {shape} --out FILE" for shape in ExportFormat] + ["RUN", "RUN --no-content"],
    "pack": ["RUN --out FILE.zip"],
    "erase": ["RUN@e1 --why x --yes", f"RUN@e{EDITED} --why x --yes"],
    "doubts": ["RUN", ""],
    "resolve": ["RUN c1 happened"],
    "fork": ["RUN --model local:none"],
    "approvals": [WAITS, ""],
    "approve": [f"{WAITS} --all --detach", f"{WAITS} --all"],
    "reject": [f"{WAITS} --all --detach"],
    "edit": [f"{WAITS} c1 --arguments {{}} --detach"],
    "resume": [WAITS, f"{WAITS} --detach"],
    "cancel": [WAITS],
}  # fmt: skip

# The others, and why.
READ_NONE: Mapping[str, str] = {
    "run": "begins a run",
    "worker": "drives runs that want an engine; what keeps it from one it tells as of any run, and tries again",
    "graph": "prints a table",
    "seal": "signs heads: no event is read",
    "doctor": "reads heads of logs, and no event",
    "keygen": "makes a key",
    "unpack": "reads a bundle, which is checked as it is read",
    "import": "reads files; a run that is there is compared with what its file gives",
    "model fetch": "of models",
    "model list": "of models",
    "policy list": "of policies",
    "policy show": "of policies",
    "policy check": "of policies",
    "policy import": "of policies",
    "policy schema": "of policies",
}

ASKED = [f"{command} {words}".strip() for command, typed in READS.items() for words in typed]
OF_A_RUN = [asked for asked in ASKED if "RUN" in asked and not asked.startswith(("resolve", "whatif RUN@"))]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with a run, a fork of it behind the edit, another like it, and one that waits for approval."""
    path = tmp_path_factory.mktemp("written") / "runs.db"
    anyio.run(_written, path)
    return path.read_bytes()


async def _written(path: Path) -> None:
    def agent(*lines: str, policy: Mapping[str, object] | None = None) -> Agent:
        script = [call("look", path=each) for each in lines]
        return Agent(model=ScriptedModel([*script, say("Done.")]), tools=[look], store=store, policy=policy)

    asks = {"approvals": {"chain": [{"approver": "human"}]}}
    async with await SqliteStore.open(path, durability="process") as store:
        for run in (RUN, OTHER):
            await agent("a", "b").start("Look at all.", run_id=run).result()
        await agent("c").fork(RUN, await cut(store, RUN), fork_id=FORK).result()
        await agent("a", policy=asks).start("Look at all.", run_id=WAITS).result()


@pytest.fixture
def ask(written: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Asks of the store after these statements were run on its file."""
    path = tmp_path / "runs.db"
    monkeypatch.chdir(tmp_path)

    def asked(words: str, run: str, statements: Sequence[str]) -> Ran:
        path.write_bytes(written)
        edited(path, *statements)
        typed = [
            word.replace("RUN", run).replace("FILE", "made").replace("LIST", str(PERMISSIONS))
            for word in words.split()
        ]
        return refold(*typed, "--store", path)

    return asked


def named(ran: Ran) -> bool:
    """Whether an event is named that somebody edited, or that stands behind one and does not follow from it
    any more.
    """
    return any(f"event {seq}" in ran.out + ran.err for seq in range(EDITED, EDITED + 3))


def test_every_command_is_asked() -> None:
    """A command that is new says here whether it reads a run, and how it is asked."""
    assert sorted(COMMANDS) == sorted([*READS, *READ_NONE])


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("words", ASKED)
def test_no_command_is_silent(words: str, edit: str, ask: Callable[..., Ran]) -> None:
    """Of a log in which something was edited each command that reads it says so, with the event, and its exit
    code is that of damage.
    """
    ran = ask(words, RUN, EDITS[edit])
    assert ran.code in (3, 125), ran
    assert named(ran), ran


@pytest.mark.parametrize("words", OF_A_RUN)
def test_no_command_is_silent_of_a_fork(words: str, ask: Callable[..., Ran]) -> None:
    """What was edited in a run was edited in what was forked from it."""
    ran = ask(words, FORK, EDITS["a word"])
    assert ran.code in (3, 125), ran
    assert named(ran), ran


@pytest.mark.parametrize("words", ASKED)
def test_nothing_is_said_of_a_log_that_nobody_edited(words: str, ask: Callable[..., Ran]) -> None:
    """No command says of events that are as they were recorded that they are not."""
    ran = ask(words, RUN, [])
    assert ran.code != 3, ran
    assert STANDING not in ran.out + ran.err, ran


@pytest.mark.parametrize("words", [words for words in OF_A_RUN if not words.startswith("erase")])
def test_what_was_erased_was_not_edited(words: str, ask: Callable[..., Ran], tmp_path: Path) -> None:
    """Of a log in which words were erased nothing is said but that."""
    erasing = ask(f"erase RUN@e{EDITED} --why x --yes", RUN, [])
    assert 0 == erasing.code, erasing
    typed = [
        word.replace("RUN", RUN).replace("FILE", "made").replace("LIST", str(PERMISSIONS))
        for word in words.split()
    ]
    ran = refold(*typed, "--store", tmp_path / "runs.db")
    assert ran.code != 3, ran
    assert STANDING not in ran.out + ran.err, ran


def test_what_was_edited_can_still_be_looked_at(ask: Callable[..., Ran]) -> None:
    """Every event, and the one that was edited, are shown as they stand in the file, and said not to be what
    was recorded.
    """
    shown = ask(f"show RUN@e{EDITED}", RUN, EDITS["a word"])
    assert "pbth" in shown.out
    assert STANDING in shown.out
    listed = ask("show RUN --raw", RUN, EDITS["a word"])
    with closing(sqlite3.connect("runs.db")) as raw:
        (events,) = raw.execute("SELECT count(*) FROM event WHERE key >> 32 = 1").fetchone()
    assert events == len(listed.out.splitlines())
    assert STANDING in listed.err


def test_the_edit_of_another_run_is_not_told(ask: Callable[..., Ran]) -> None:
    """Who asks of a run that nobody edited is told nothing of others."""
    ran = ask(f"show {OTHER}", RUN, EDITS["a word"])
    assert (0, "") == (ran.code, ran.err)


@pytest.mark.parametrize(
    "words", ["ls", "ls --since 1d", "ls --sort steps --since 1d", "ls --state completed --since 1d"]
)
def test_a_beginning_that_was_edited_hides_no_other_run(words: str, ask: Callable[..., Ran]) -> None:
    """Of a run of which not even the first event is what was recorded it is said so, and the others are
    listed.
    """
    ran = ask(words, RUN, [f"UPDATE event SET body = replace(body, 'a', 'b') WHERE {AT} = 1 AND {OF}"])
    assert (3, True) == (ran.code, f"run {RUN}: DAMAGED" in ran.err and f"run {WAITS}: DAMAGED" in ran.err)
    assert OTHER in ran.out
