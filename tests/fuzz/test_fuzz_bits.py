"""One bit of a store's file flipped, as a bad disk flips it: all events are told, or the damage is."""

import json
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from fuzz.asking import assert_sound, refold, within
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.reducers.errors import RefoldError
from refold.replay import verify
from refold.store import SqliteStore
from refold.store.seals import Kept, seal
from support.sealing import signing_key, write_key
from support.strategies import scaled

PAGE = 4096
RUNS = ("aa11", "bb22", "cc33")
PAGES = 32
"""The small file has no more than so many."""
KEY, LINE = "KEY", "LINE"
LEAF, INNER = 13, 5
"""What a page of a table begins with."""

Told = dict[str, int]
"""How many events of each run were told."""


class Sealed(NamedTuple):
    """The bytes of a closed store whose runs are sealed, what to hold it against, and how many events each
    run has.
    """

    data: bytes
    key: Path
    line: str
    told: Told

    def __repr__(self) -> str:
        return f"Sealed({len(self.data)} bytes)"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    return made(tmp_path_factory.mktemp("sealed"), RUNS)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    return made(tmp_path_factory.mktemp("large"), [f"{run}-{number}" for number in range(40) for run in RUNS])


def made(folder: Path, runs: Sequence[str]) -> Sealed:
    """A store of these runs, each of an agent that looked twice."""
    path = folder / "runs.db"
    for run in runs:
        model = ScriptedModel([call("look", path="a"), call("look", path=run * 100), say("Done.")])
        Agent(model=model, tools=[look], store=path).run_sync("Look.", run_id=run, seed=7)
    line = anyio.run(_seal, path)
    told = anyio.run(listed, path)
    assert set(runs) == told.keys()
    return Sealed(path.read_bytes(), write_key(folder / "key.pub", signing_key()), line, told)


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return path * 3


async def _seal(path: Path) -> str:
    async with await SqliteStore.open(path) as store:
        done = await seal(store, signing_key(), 10**18)
    return Kept(done.seal.size, done.seal.root).line


async def listed(path: Path) -> Told:
    """How many events can be read of each run that is listed."""
    told = Told()
    async with await SqliteStore.open(path, readonly=True) as store:
        async for chunk in store.runs():
            for run, _ in chunk:
                told[run] = sum([len(page) async for page in store.read(run)])
        await store.check()
    return told


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flipped")


def flipped(scratch: Path, data: bytes, bit: int | None) -> Path:
    """The file with this bit flipped, or with none, and nothing beside it."""
    for each in scratch.iterdir():
        each.unlink()
    changed = bytearray(data)
    if bit is not None:
        changed[bit // 8] ^= 1 << bit % 8
    path = scratch / "runs.db"
    path.write_bytes(changed)
    return path


def steering(data: bytes, number: int) -> Iterator[int]:
    """The bits of a page by which SQLite finds rows: its header, its list of rows, and how each row
    begins.
    """
    start = number * PAGE
    header = start + (100 if number == 0 else 0)
    count = int.from_bytes(data[header + 3 : header + 5], "big") if data[header] in (LEAF, INNER) else 0
    first = header + (8 if data[header] == LEAF else 12)
    rows = [int.from_bytes(data[at : at + 2], "big") for at in range(first, first + 2 * count, 2)]
    spans = [(header, first + 2 * count), *((start + row, start + row + 24) for row in rows)]
    for begin, end in spans:
        yield from range(begin * 8, min(end, start + PAGE) * 8)


def bits(data: bytes, number: int, few: int) -> list[int]:
    """Bits of a page: `few` in a build, most of them such as steer; all of them where there is time for
    it.
    """
    page = range(number * PAGE * 8, min(number * PAGE + PAGE, len(data)) * 8)
    most = scaled(few)
    if most >= len(page):
        return list(page)
    chance, steer = random.Random(number), sorted(set(steering(data, number)))
    chosen = chance.sample(steer, min(len(steer), most * 3 // 4))
    return chosen + chance.sample(page, most - len(chosen))


async def verified(path: Path) -> Told:
    """Every run that is listed, verified. Raises one of our errors where one is not whole."""
    told = Told()
    async with await SqliteStore.open(path, readonly=True) as store:
        async for chunk in store.runs():
            for run, _ in chunk:
                found = await verify(store, run)
                if found.problem is not None:
                    raise RefoldError(found.problem.problem)
                told[run] = found.events
        await store.check()  # it may be that no run is listed
    return told


def hidden(
    scratch: Path, sealed: Sealed, chosen: Iterable[int], ask: Callable[[Path], Awaitable[Told]]
) -> list[tuple[int, Told]]:
    """The bits that leave another number of events, and no error."""
    found = list[tuple[int, Told]]()
    for bit in chosen:
        path = flipped(scratch, sealed.data, bit)
        with within(), suppress(RefoldError):
            told = anyio.run(ask, path)
            if told != sealed.told:
                found.append((bit, told))
    return found


@pytest.mark.parametrize("number", range(PAGES))
def test_any_bit_of_a_small_file(number: int, sealed: Sealed, scratch: Path) -> None:
    """Whichever bit of a file is flipped, `verify` finds as many events as there were, or that something is
    wrong.
    """
    assert len(sealed.data) <= PAGES * PAGE
    if number * PAGE < len(sealed.data):
        assert [] == hidden(scratch, sealed, bits(sealed.data, number, 80), verified)


@pytest.mark.slow
def test_some_bits_of_a_larger_file(large: Sealed, scratch: Path) -> None:
    """Of a file of many runs, too: all events can be read, or the file is found to be damaged."""
    chance = random.Random(0)
    pages = [chance.randrange(len(large.data) // PAGE) for _ in range(20)]
    chosen = [bit for page in pages for bit in bits(large.data, page, 4)]
    assert [] == hidden(scratch, large, chosen, listed)


COMMANDS: dict[tuple[str, ...], Sequence[str]] = {
    ("ls",): RUNS,
    ("show", "aa11", "--raw"): ["aa11"],
    ("show", "bb22"): ["bb22"],
    ("audit", "--all", "--jobs", "1"): RUNS,
    ("audit", "cc33"): ["cc33"],
    ("verify", "--all"): RUNS,
    ("verify", "--all", "--key", KEY, "--seal", LINE): RUNS,
}
"""With the runs of which each tells."""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_any_bit_before_a_command(words: tuple[str, ...], sealed: Sealed, scratch: Path) -> None:
    """Whichever bit is flipped, a command that ends with exit code 0 has told of every event, or of the
    damage.
    """
    told = {run: sealed.told[run] for run in COMMANDS[words]}
    typed = [{KEY: str(sealed.key), LINE: sealed.line}.get(word, word) for word in words]
    assert told == asked(typed, flipped(scratch, sealed.data, None)), "nothing flipped"
    chosen = [bit for page in range(len(sealed.data) // PAGE) for bit in bits(sealed.data, page, 4)]
    for bit in chosen:
        assert asked(typed, flipped(scratch, sealed.data, bit)) in (told, None), bit


def asked(words: Sequence[str], path: Path) -> Told | None:
    """How many events of each run a command told of; None if it told of damage, or did not end with exit code
    0.
    """
    ran = refold(*words, "-o", "json", "--store", path)
    assert_sound(ran)
    if ran.code:
        return None
    if words[0] == "ls":
        listed = json.loads(ran.out)
        return (
            None if any(row["damaged"] for row in listed) else {row["run"]: row["events"] for row in listed}
        )
    if words[0] == "show" and "--raw" not in words:
        return {(row := json.loads(ran.out))["run"]: row["events"]}
    rows = [json.loads(line) for line in ran.out.splitlines()]
    if "--raw" in words:
        return {words[1]: len(rows)}
    return {row["run"]: row["events"] for row in rows if "run" in row}
