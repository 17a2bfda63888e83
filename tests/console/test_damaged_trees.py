"""Runs that stand on others, and something happened to those: every command says that it is damage."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from console.conftest import look
from fuzz.asking import assert_sound, refold
from refold.engine import Agent, ScriptedModel, call, say
from refold.reducers.meters import child_run_id
from refold.replay.cuts import cut
from refold.store import SqliteStore
from refold.store.schema import SEQ_MASK
from support.edited import edited

FORK, PARENT, FIRST, BOSS = "ff33", "pp22", "gg11", "bb44"
CHILD = child_run_id(BOSS, "c1")

Attack = tuple[str, ...]
"""Statements that an editor runs on the file."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with a run, a fork of it, a fork of that; and a run that started another."""
    path = tmp_path_factory.mktemp("written") / "runs.db"
    anyio.run(_written, path)
    return path.read_bytes()


async def _written(path: Path) -> None:
    async with await SqliteStore.open(path, durability="process") as store:
        agent = Agent(model=ScriptedModel([call("look", path="a"), say("Done.")]), tools=[look], store=store)
        await agent.start("Look.", run_id=FIRST).result()
        for parent, fork in ((FIRST, PARENT), (PARENT, FORK)):
            at = await cut(store, parent)
            await _agent(store).fork(parent, at, fork_id=fork).result()
        leaf = Agent(model=ScriptedModel([say("leaf")]), name="leaf", store=store)
        script = ScriptedModel([call("ask_leaf", task="x"), say("root")])
        await (
            Agent(model=script, tools=[leaf.as_tool("ask_leaf")], store=store)
            .start("Go.", run_id=BOSS)
            .result()
        )


def _agent(store: SqliteStore) -> Agent:
    return Agent(model=ScriptedModel([call("look", path="c"), say("Other.")]), tools=[look], store=store)


def sql(*statements: str) -> Attack:
    return statements


def own(run: str) -> str:
    """The events of a run's own log, as a condition."""
    return f"key >> 32 = (SELECT number FROM run WHERE id = '{run}')"


def body(run: str, kind: str, old: str, new: str) -> Attack:
    """Words in the body of a run's events of this kind changed: what stands between is any text."""
    return sql(
        f"UPDATE event SET body = json_set(body, '$.{old}', {new}) WHERE kind = '{kind}' AND {own(run)}"
    )


def said(run: str, text: str) -> Attack:
    """Another body for the event that makes a run a fork."""
    return sql(f"UPDATE event SET body = '{text}' WHERE kind = 'run_forked' AND {own(run)}")


def without(run: str) -> Attack:
    return sql(f"DELETE FROM event WHERE {own(run)}", f"DELETE FROM run WHERE id = '{run}'")


def without_events(run: str, condition: str = "1") -> Attack:
    return sql(f"DELETE FROM event WHERE {own(run)} AND {condition}")


SEQ = f"(key & {SEQ_MASK})"
LAST = f"(SELECT max(key) FROM event WHERE {own(PARENT)})"

FORKS: dict[str, Attack] = {
    "its parent is gone": without(PARENT),
    "the first of them is gone": without(FIRST),
    "its parent has no events": without_events(PARENT),
    "its parent is cut off": without_events(PARENT, f"key > (SELECT min(key) FROM event WHERE {own(PARENT)})"),
    "the first is cut off": without_events(FIRST, f"{SEQ} > 3"),
    "the first begins later": without_events(FIRST, f"{SEQ} < 3"),
    "the first has a gap": without_events(FIRST, f"{SEQ} = 3"),
    "its parent has a gap": without_events(PARENT, f"key = (SELECT min(key) FROM event WHERE {own(PARENT)}) + 1"),
    "its parent lost its beginning": without_events(PARENT, "kind = 'run_forked'"),
    "it lost its beginning": without_events(FORK, "kind = 'run_forked'"),
    "its parent has another id": sql(f"UPDATE run SET id = 'zz99' WHERE id = '{PARENT}'"),
    "its parent's id is none": sql(f"UPDATE run SET id = '' WHERE id = '{PARENT}'"),
    "its parent has another number": sql(f"UPDATE run SET number = 77 WHERE id = '{PARENT}'"),
    "its own parent": body(FORK, "run_forked", "parent", f"'{FORK}'"),
    "a circle": body(PARENT, "run_forked", "parent", f"'{FORK}'"),
    "a parent that nobody can name": body(FORK, "run_forked", "parent", "char(27)"),
    "no parent": body(FORK, "run_forked", "parent", "''"),
    "a parent that is a number": body(FORK, "run_forked", "parent", "7"),
    "another place": body(FORK, "run_forked", "parent_seq", "2"),
    "a place before all": body(FORK, "run_forked", "parent_seq", "-1"),
    "a place beyond all": body(FORK, "run_forked", "parent_seq", "9223372036854775807"),
    "a place that is text": body(FORK, "run_forked", "parent_seq", "'5'"),
    "another hash": body(FORK, "run_forked", "parent_hash", f"'{'00' * 32}'"),
    "a hash that is none": body(FORK, "run_forked", "parent_hash", "'zz'"),
    "a hash of its parent's": body(PARENT, "run_forked", "parent_hash", "'00'"),
    "no body": said(FORK, ""),
    "a body that is no JSON": said(FORK, "{"),
    "a body that is a list": said(PARENT, "[]"),
    "a body that nests": said(PARENT, "[" * 5000),
    "another kind": sql(f"UPDATE event SET kind = 'note_added' WHERE kind = 'run_forked' AND {own(FORK)}"),
    "its parent of another kind": sql(f"UPDATE event SET kind = 'x' WHERE kind = 'run_forked' AND {own(PARENT)}"),
    "the first of another kind": sql(f"UPDATE event SET kind = 'run_forked' WHERE kind = 'run_started' AND {own(FIRST)}"),
    "an event of its parent's changed": sql(f"UPDATE event SET body = '{{}}' WHERE {own(FIRST)} AND {SEQ} = 3"),
    "a hash in its lineage changed": sql(f"UPDATE event SET hash = x'00' WHERE {own(FIRST)} AND {SEQ} = 3"),
}  # fmt: skip

CHILDREN: dict[str, Attack] = {
    "the child is gone": without(CHILD),
    "the child is cut off": without_events(CHILD, f"{SEQ} > 2"),
    "the child has a gap": without_events(CHILD, f"{SEQ} = 2"),
    "the child has no beginning": without_events(CHILD, f"{SEQ} = 1"),
    "the boss is gone": without(BOSS),
    "the boss is cut off": without_events(BOSS, f"{SEQ} > 3"),
    "its own child": body(BOSS, "child_ended", "run", f"'{BOSS}'"),
    "a child that nobody can name": body(BOSS, "child_ended", "run", "char(10)"),
    "no child": body(BOSS, "child_ended", "run", "''"),
    "another hash": body(BOSS, "child_ended", "head_hash", "'00'"),
    "another place": body(BOSS, "child_ended", "head_seq", "9223372036854775807"),
    "its own boss": body(CHILD, "run_started", "parent.run", f"'{CHILD}'"),
    "a boss that nobody can name": body(CHILD, "run_started", "parent.run", "char(27)"),
}

OUT, TEST = "OUT", "TEST"
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "RUN"), ("show", "RUN", "--all"), ("show", "RUN", "--raw"), ("show", "RUN@t2"), ("show", "RUN@e4"), ("state", "RUN"),
    ("state", "RUN@e4"), ("view", "RUN"), ("view", "RUN@t2"), ("why", "RUN"), ("why", "RUN@e4"), ("approvals", "RUN"), ("approvals",),
    ("verify", "RUN"), ("verify", "--all"), ("audit", "RUN"), ("audit", "--all", "--jobs", "1"), ("audit", "RUN", "--certificate", OUT),
    ("export", "RUN"), ("export", "RUN", "--to", "markdown"), ("export", "RUN", "--to", "openai"), ("export", "RUN", "--to", "otel"),
    ("export", "--all"), ("shrink", "RUN", "--out", OUT, "--when", "steps > 0"), ("testcase", "RUN", "--out", TEST), ("report", "RUN", "--out", OUT),
    ("grep", "type:tool", "RUN"), ("grep", "type:tool", "--all"), ("bisect", "RUN", "--when", "steps > 90"), ("bisect", "RUN", "--versus", FIRST),
    ("blame", "RUN", "steps"), ("diff", "RUN", FIRST), ("stats", "RUN"), ("stats", "--all"), ("whatif", "RUN", "--policy", "hermes"),
    ("whatif", "--all", "--policy", "hermes"), ("whatif", "RUN@t2", "--view", "--policy", "hermes"), ("doubts", "RUN"), ("doubts",), ("pack", "RUN", "--out", OUT),
    ("pack", "RUN", "--tree", "--out", OUT), ("fork", "RUN"), ("fork", "RUN@e4"), ("resume", "RUN"), ("cancel", "RUN", "--why", "now"),
    ("erase", "RUN@e4", "--why", "asked"), ("resolve", "RUN", "c1", "happened"), ("approve", "RUN", "--all"), ("reject", "RUN", "--all"),
    ("worker", "--until-idle"), ("ls",),
)  # fmt: skip


def typed(words: Sequence[str], run: str, folder: Path) -> list[str]:
    files = {OUT: folder / "out", TEST: folder / "test_out.py"}
    return [str(files.get(word, word.replace("RUN", run))) for word in words]


CORE = [("show", "RUN"), ("verify", "RUN"), ("audit", "RUN"), ("pack", "RUN", "--tree", "--out", OUT)]
"""What is asked of every tree."""
TELLING = {
    "its parent is gone", "the first is cut off", "a circle", "another hash", "a parent that nobody can name", "a place beyond all"
}  # fmt: skip
"""Attacks before every command."""
ELSEWHERE = {("ls",), ("approvals",), ("doubts",), ("worker", "--until-idle")}
"""Of these each looks at many runs, and reads as much of each as it needs."""


@pytest.fixture
def path(tmp_path: Path, written: bytes) -> Path:
    path = tmp_path / "runs.db"
    path.write_bytes(written)
    return path


@pytest.mark.parametrize("words", CORE, ids=" ".join)
@pytest.mark.parametrize("run", [FORK, PARENT, FIRST, BOSS, CHILD])
def test_a_whole_tree(run: str, words: tuple[str, ...], path: Path, tmp_path: Path) -> None:
    """Nothing is said against a tree to which nothing happened."""
    assert 0 == refold(*typed(words, run, tmp_path), "--store", path).code


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_on_a_fork_of_a_damaged_tree(
    words: tuple[str, ...], written: bytes, tmp_path: Path
) -> None:
    """Whatever happened to what a fork stands on, every command that reads it says so, with exit code 3."""
    for attack in sorted(TELLING):
        path = tmp_path / attack / "runs.db"
        path.parent.mkdir()
        path.write_bytes(written)
        edited(path, *FORKS[attack])
        ran = refold(*typed(words, FORK, path.parent), "--store", path)
        assert_sound(ran)
        assert ran.code == 3 or words in ELSEWHERE, (attack, ran)


@pytest.mark.parametrize("attack", FORKS)
def test_any_damaged_fork(attack: str, path: Path, tmp_path: Path) -> None:
    """Whatever happened to what a fork stands on is found by whoever judges or packs it: exit code 3."""
    edited(path, *FORKS[attack])
    for words in CORE[1:]:
        ran = refold(*typed(words, FORK, tmp_path), "--store", path)
        assert_sound(ran)
        assert 3 == ran.code or (words[0] == "audit" and attack.startswith("a hash in its lineage")), (
            words,
            ran,
        )


@pytest.mark.parametrize("attack", CHILDREN)
def test_any_damaged_family(attack: str, path: Path, tmp_path: Path) -> None:
    """Whatever happened to a run that another started, or to that one, no command takes it for a fault of its
    own.
    """
    edited(path, *CHILDREN[attack])
    for run in (BOSS, CHILD):
        for words in (
            *CORE,
            ("cancel", "RUN", "--why", "now"),
            ("report", "RUN", "--out", TEST),
            ("resume", "RUN"),
        ):
            assert_sound(refold(*typed(words, run, tmp_path), "--store", path))
