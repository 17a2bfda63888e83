"""A run of more turns than a table has: what is printed is whole, and is printed as it is read."""

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.big_run import write
from bench.workload import RUN
from console.conftest import Refold
from refold.console import show
from refold.console.screen import Screen
from refold.replay.timeline import Timeline, timeline, turns
from refold.store import SqliteStore
from refold.store.protocol import Record

MESSAGES = 75  # 30 turns
AT_ONCE = 8  # turns of a table, here


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run of 30 turns, which waits for its model."""
    path = tmp_path_factory.mktemp("long") / "runs.db"
    anyio.run(write, path, MESSAGES)
    return path


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "_TURNS", AT_ONCE)


def whole(path: Path) -> Timeline:
    """The run's timeline as one value."""

    async def read() -> Timeline:
        async with await SqliteStore.open(path, readonly=True) as store:
            return (await timeline(store, RUN))[0]

    return anyio.run(read)


def test_every_turn_stands_in_a_table_once(refold: Refold, long: Path) -> None:
    """Tables follow each other, each with its head, and no turn is lost or told twice between them."""
    ran = refold("show", RUN, "--store", long)
    lines = ran.out.splitlines()
    steps = [int(found[1]) for line in lines if (found := re.match(r" *(\d+)  \S", line))]
    told = whole(long)
    assert [turn.step for turn in told.turns] == steps
    assert -(-len(told.turns) // AT_ONCE) == sum(
        line.split()[:3] == ["turn", "what", "the"] for line in lines
    )
    assert (0, ["events", "1", "to", str(told.events)]) == (ran.code, lines[-1].split())


def test_the_document_is_the_timeline(refold: Refold, long: Path) -> None:
    """What is printed turn by turn is one JSON document, with every turn and every field of the run."""
    told: dict[str, Any] = json.loads(refold("show", RUN, "-o", "json", "--store", long).out)
    expected = whole(long)
    assert [turn.first for turn in expected.turns] == [turn["first"] for turn in told["turns"]]
    assert [*expected.__struct_fields__, "changes", "children"] == list(told)


def test_a_run_without_a_turn_is_a_document_too(refold: Refold, long: Path, tmp_path: Path) -> None:
    """Before the first request there are no turns, and that is said in both forms."""
    begun = tmp_path / "begun.db"

    async def copy() -> None:
        async with (
            await SqliteStore.open(long, readonly=True) as read,
            await SqliteStore.open(begun) as write_,
        ):
            (first,) = await read.read_some(RUN, [1])
            record = Record(
                at=first.at, kind=first.kind, body=first.body, content=first.content, salt=first.salt
            )
            await write_.append(RUN, 0, await write_.lease(RUN, holder="a test"), [record])

    anyio.run(copy)
    told = json.loads(refold("show", RUN, "-o", "json", "--store", begun).out)
    assert ([], 1) == (told["turns"], told["events"])
    assert "turn " not in refold("show", RUN, "--store", begun).out


def test_turns_are_printed_while_the_log_is_read(
    refold: Refold, long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more turns are held than a table has: the first table is out before the last turn was read."""
    read, printed = 0, list[int]()
    table = Screen.table

    async def counted(*args: Any) -> Any:
        nonlocal read
        async for turn in turns(*args):
            read += 1
            yield turn

    def told(self: Screen, *args: Any) -> None:
        printed.append(read)
        table(self, *args)

    monkeypatch.setattr(show, "turns", counted)
    monkeypatch.setattr(Screen, "table", told)
    refold("show", RUN, "--store", long)
    assert [8, 16, 24, 30] == printed


def test_what_a_model_saw_is_put_together_from_the_log(refold: Refold, long: Path) -> None:
    """The words of a window are looked up where they stand, however long the log before them is."""
    view = json.loads(refold("view", RUN, "-o", "json", "--store", long).out)
    last = whole(long).turns[-1]
    texts = [message["text"] for message in view["request"]["messages"] if message.get("text")]
    assert (last.step, last.first, "unknown") == (view["step"], view["seq"], view["sent"])
    assert MESSAGES == len(texts)


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        pytest.param(["show"], 1, id="show"),
        pytest.param(["show", "-o", "json"], 1, id="show as JSON"),
        pytest.param(["audit"], 1, id="audit"),
        pytest.param(["verify"], 1, id="verify"),
        pytest.param(["report", "--out", "page.html"], 1, id="report"),
        pytest.param(["export", "--to", "markdown"], 2, id="a ticket, whose head says how the run ended"),
    ],
)
def test_how_often_a_log_is_read(
    refold: Refold,
    long: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    passes: int,
) -> None:
    """What a command tells of a run it finds in one pass over its log, as long as a table holds its turns."""
    read = list[str]()
    reading = SqliteStore.read

    def counted(self: SqliteStore, run: str, *places: Any, **how: Any) -> Any:
        read.append(run)
        return reading(self, run, *places, **how)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(show, "_TURNS", 1000)
    monkeypatch.setattr(SqliteStore, "read", counted)
    assert 0 == refold(words[0], RUN, *words[1:], "--store", long).code
    assert [RUN] * passes == read
