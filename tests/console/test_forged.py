"""Logs that somebody wrote with care: their chain holds, and what is in them could not have happened."""

import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from console.conftest import Ran, Refold, record
from console.test_listings import tamper
from refold.engine import call, say
from refold.reducers.errors import RefoldError, WrongUse
from refold.reducers.vocabulary import MOST_DIGITS
from refold.store import SqliteStore
from refold.store.protocol import DamagedStore, Record, Stored, UnknownRun
from refold.store.scans import FileScan

LINE = "run r9: intact"
FORGED_NAME = f"x\n{LINE}"


def forged(store: Path, run: str, target: Path, edit: Callable[[list[Record]], list[Record]]) -> None:
    """Copy a run, its records edited and the whole chain computed anew."""

    async def copy() -> None:
        async with await SqliteStore.open(store) as read, await SqliteStore.open(target) as write:
            records = [
                Record(at=each.at, kind=each.kind, body=each.body, content=each.content, salt=each.salt)
                async for chunk in read.read(run)
                for each in chunk
            ]
            await write.append(run, 0, await write.lease(run, holder="a forger"), edit(records))

    anyio.run(copy)


def numbers_grown(records: list[Record]) -> list[Record]:
    """Durations, costs, sizes and counts of tokens are as long as they can be, and their sums are longer."""
    fields = rb'"(duration|size|chars|tokens|input|output|cost_nanousd|input_tokens)":\d+'
    return [replace(each, body=re.sub(fields, rb'"\1":' + b"9" * MOST_DIGITS, each.body)) for each in records]


def waiting_for_ever(records: list[Record]) -> list[Record]:
    """The first model failed, and the next attempt is 1e290 s later."""
    failed = b'{"kind":"model_failed","at":%d,"request":2,"failure":"overloaded"}' % records[2].at
    delay = 10 ** (MOST_DIGITS - 1)
    later = b'{"kind":"retry_scheduled","attempt":2,"failure":"overloaded","delay":%d,"until":%d}'
    later %= (delay, delay + records[2].at)
    made = [("model_failed", failed), ("retry_scheduled", later)]
    return [*records[:2], *(Record(at=records[2].at, kind=kind, body=body) for kind, body in made)]


@pytest.mark.parametrize("edit", [numbers_grown, waiting_for_ever], ids=["all numbers", "a wait"])
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["show", "aa11"],
        ["show", "aa11", "--all"],
        ["state", "aa11"],
        ["view", "aa11"],
        ["verify", "aa11"],
        ["audit", "aa11"],
    ],
    ids=" ".join,
)
def test_every_number_is_shown(
    words: list[str],
    form: str,
    edit: Callable[[list[Record]], list[Record]],
    refold: Refold,
    store: Path,
    finished: str,
    tmp_path: Path,
) -> None:
    """No number is too large for any command."""
    forged(store, finished, tmp_path / "forged.db", edit)
    ran = refold(*words, "-o", form, "--store", tmp_path / "forged.db")
    assert ran.code in (0, 1, 3 if words[0] in ("verify", "audit") else 1), ran.err
    assert "cannot be read" not in ran.out
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words", [["verify", "aa11"], ["verify", "--all"], ["audit", "aa11"], ["audit", "--all"]], ids=" ".join
)
def test_a_size_that_was_made_smaller(
    words: list[str], refold: Refold, store: Path, finished: str, tmp_path: Path
) -> None:
    """A log whose tool said less, by its sizes, than by its words is damaged, whoever is asked."""

    def smaller(records: list[Record]) -> list[Record]:
        forge = b'"size":{"chars":1,"tokens":1'
        return [
            replace(each, body=re.sub(rb'"size":{"chars":\d+,"tokens":\d+', forge, each.body))
            if each.kind == "tool_returned"
            else each
            for each in records
        ]

    forged(store, finished, tmp_path / "forged.db", smaller)
    ran = refold(*words, "--store", tmp_path / "forged.db")
    assert 3 == ran.code
    assert "DAMAGED" in ran.out
    assert "a size in its body is not that of its content: size.chars is 1" in ran.out


@pytest.mark.parametrize("most", [640, 0], ids=["few digits", "any"])
def test_no_setting_of_python_counts(
    most: int, refold: Refold, store: Path, finished: str, tmp_path: Path
) -> None:
    """How many digits this Python reads and writes makes no difference to a verdict, and is left as it
    was.
    """
    forged(store, finished, tmp_path / "forged.db", numbers_grown)
    words = ["audit", finished, "-o", "json", "--store", tmp_path / "forged.db"]
    expected, before = refold(*words), sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(most)
        assert expected == refold(*words)
        assert most == sys.get_int_max_str_digits()
    finally:
        sys.set_int_max_str_digits(before)


def test_a_wait_is_told(refold: Refold, store: Path, finished: str, tmp_path: Path) -> None:
    """A wait that nobody lives to see the end of says how long it is."""
    forged(store, finished, tmp_path / "forged.db", waiting_for_ever)
    assert "over 10^30 h later" in refold("show", finished, "--store", tmp_path / "forged.db").out


def test_a_request_that_nothing_asked_for(refold: Refold, store: Path, finished: str, tmp_path: Path) -> None:
    """There is no view of a turn that the state before it would not have begun."""

    def cancelled(records: list[Record]) -> list[Record]:
        asked = Record(
            at=records[0].at,
            kind="cancel_requested",
            body=b'{"kind":"cancel_requested","at":%d,"by":"x"}' % records[0].at,
        )
        return [records[0], asked, *records[1:2]]

    forged(store, finished, tmp_path / "forged.db", cancelled)
    ran = refold("view", finished, "--store", tmp_path / "forged.db")
    assert (3, "") == (ran.code, ran.out)
    assert "run aa11 event 3: a request was made here" in ran.err


@pytest.mark.parametrize("command", ["ls", "verify", "audit"])
def test_a_run_whose_id_is_damaged(command: str, refold: Refold, store: Path, waiting: str) -> None:
    """The others are told all the same, and then the damage: exit code 3."""
    tamper(store, "UPDATE run SET id = CAST(x'ff72' AS TEXT) WHERE id = 'aa22'")
    ran = refold(*_all(command), "--store", store)
    assert 3 == ran.code
    assert all(run in ran.out for run in ("aa11", "bb33"))
    assert "run number 2" in ran.err


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "error", [DamagedStore("x.db", "its page is gone"), UnknownRun("aa22")], ids=["page", "id"]
)
@pytest.mark.parametrize(("command", "code"), [("ls", 3), ("verify", 3), ("audit", 3)])
def test_a_run_that_cannot_be_read(
    command: str,
    code: int,
    error: RefoldError,
    form: str,
    refold: Refold,
    store: Path,
    waiting: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as damaged, and those after it are told all the same."""
    read = SqliteStore.read

    def broken(self: SqliteStore, run: str, *place: Any, checked: bool) -> AsyncIterator[Sequence[Stored]]:
        if run == "aa22":
            raise error
        return read(self, run, *place, checked=checked)

    records = FileScan.records

    def scanned(self: FileScan, run: str) -> Iterator[Stored]:
        if run == "aa22":
            raise error
        yield from records(self, run)

    monkeypatch.setattr(SqliteStore, "read", broken)
    monkeypatch.setattr(FileScan, "records", scanned)
    ran = refold(*_all(command), "-o", form, "--store", store)
    assert code == ran.code
    assert all(run in ran.out for run in ("aa11", "aa22", "bb33"))
    assert str(error) in ran.out
    assert ([f"run aa22: DAMAGED: {error}"] if command == "ls" else []) == ran.err.splitlines()


@pytest.mark.parametrize("command", ["verify", "audit"])
def test_a_bad_plugin_damages_no_log(
    command: str, refold: Refold, store: Path, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with this installation is said once, and of no run."""

    def taken() -> None:
        raise WrongUse("the guard 'mine' has a name that is taken")

    for module in ("verdicts", "audit"):
        monkeypatch.setattr(f"refold.console.{module}.installed_guards", taken)
    ran = refold(*_all(command), "--store", store)
    assert (2, "", "refold: the guard 'mine' has a name that is taken\n") == ran


def _all(command: str) -> list[str]:
    return [command] if command == "ls" else [command, "--all"]


@pytest.fixture
def lying(store: Path, tmp_path: Path) -> Path:
    """A store with a run aa11 where every name that somebody chose holds a line of ours, and a tab."""
    limits = [{"type": "step", "value": 1, "name": "LIE"}]
    record(store, [call("look", path="x")], f"Task\n{LINE}", run_id="aa11", policy={"limits": limits})
    lie = json.dumps(f"x\n{LINE}\t")[1:-1].encode()

    def lies(records: list[Record]) -> list[Record]:
        names = rb"LIE|(?<=\")(look|scripted|COMPLETED|c1)(?=\")"
        return [replace(each, body=re.sub(names, lambda _: lie, each.body)) for each in records]

    forged(store, "aa11", tmp_path / "lying.db", lies)
    return tmp_path / "lying.db"


@pytest.mark.parametrize(
    "words",
    [["ls"], ["show"], ["show", "--all"], ["show", "--raw"], ["state"], ["view"], ["verify"], ["audit"], ["resume"]],
    ids=" ".join,
)  # fmt: skip
def test_no_value_makes_a_line(words: list[str], refold: Refold, lying: Path) -> None:
    """A value of several lines is shown as one: it cannot pretend to be a line of ours."""
    place = [] if words == ["ls"] else ["aa11"]
    ran = refold(words[0], *place, *words[1:], "--store", lying)
    assert LINE in ran.out or words[0] in ("verify", "audit")
    assert not imitated(ran)


def test_no_value_makes_a_line_while_it_runs(
    refold: Refold, scripted: Callable[[list[Any]], None], tmp_path: Path
) -> None:
    """Nor does one in a run that is watched, or in the command that started it."""
    scripted([call(FORGED_NAME), say(f"Said\n{LINE}")])
    store = tmp_path / FORGED_NAME
    ran = refold("run", f"Task\n{LINE}", "--label", f"a={FORGED_NAME}", "--store", store)
    assert 0 == ran.code
    assert f"x\\n{LINE}" in ran.out
    assert not imitated(ran)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(f"{FORGED_NAME}.json", "{}}", id="file name"),
        pytest.param("p.json", json.dumps({"schema": "refold/v1", FORGED_NAME: 1}), id="key"),
        pytest.param(
            "p.json", json.dumps({"schema": "refold/v1", "limits": [{"type": FORGED_NAME}]}), id="value"
        ),
        pytest.param("p.toml", f'schema = "refold/v1"\n"x\\n{LINE}" = 1', id="key in TOML"),
        pytest.param("p.json", f'{{"x\\n{LINE}": 1, "x\\n{LINE}": 2}}', id="key twice"),
        pytest.param("p.yaml", f'"x\\n{LINE}": 1\n"x\\n{LINE}": 2', id="key twice in YAML"),
    ],
)
def test_no_complaint_makes_a_line(name: str, text: str, refold: Refold, tmp_path: Path) -> None:
    """What a complaint quotes stays in its line."""
    (tmp_path / name).write_text(text)
    ran = refold("run", "Go", "--policy", tmp_path / name, "--store", tmp_path / FORGED_NAME)
    assert (2, "") == (ran.code, ran.out)
    assert f"x\\n{LINE}" in ran.err
    assert 1 == len(ran.err.splitlines())


def test_the_way_out_makes_no_line(refold: Refold, store: Path, waiting: str) -> None:
    """A complaint of several lines has those that we wrote, and no others."""
    ran = refold("show", "zz", "--store", store)
    assert 2 == ran.code
    assert ["refold:", "  bb33", "  aa22", "  aa11"] == [line[:7].rstrip() for line in ran.err.splitlines()]


def imitated(ran: Ran) -> bool:
    """Whether a line of the output begins as one of ours that we did not write."""
    return any(line.startswith(LINE) for line in (ran.out + ran.err).splitlines())
