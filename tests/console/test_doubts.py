"""`doubts`, `resolve` and `cancel`: an operator settles calls with an unknown outcome."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import EVIL, Refold
from console.paying import PAID, TOOLS, crash
from console.test_hostile import dangerous
from refold.console.doubts import DoubtTally
from refold.console.screen import Screen
from refold.engine import say
from refold.replay import DoubtfulCall
from refold.store import SqliteStore
from support.wording import not_in_doubt

Scripted = Callable[[list[Any]], None]


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def logged(refold: Refold, store: Path, run: str) -> list[dict[str, Any]]:
    """The run's events, bodies and contents."""
    return [*map(json.loads, refold("show", run, "--raw", "--store", store).out.splitlines())]


def told(refold: Refold, store: Path, run: str) -> list[str]:
    """What the model was told of the call."""
    return [
        each["content"]["output"] for each in logged(refold, store, run) if each["kind"] == "tool_returned"
    ]


def held(store: Path, run: str) -> None:
    """An engine of another machine takes the run."""

    async def hold() -> None:
        async with await SqliteStore.open(store) as opened:
            await opened.lease(run, holder="far.example:77:x.1:abcd", seconds=90)

    anyio.run(hold)


def sound(refold: Refold, store: Path) -> bool:
    return [0, 0] == [refold(word, "--all", "--store", store).code for word in ("verify", "audit")]


def test_nothing_in_doubt(refold: Refold, store: Path, waiting: str) -> None:
    """Where no call is in doubt that is the only line, and the exit code is 0."""
    ran = refold("doubts", "--store", store)
    assert (0, "0 unresolved\n", "") == (ran.code, ran.out, ran.err)
    assert {"unresolved": 0, "runs": 0, "oldest": 0, "calls": [], "unread": []} == json.loads(
        refold("doubts", "-o", "json", "--store", store).out
    )


def test_doubts_on_a_terminal(refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in a row can be typed, however narrow the terminal is."""
    crash(store, "pay-2")
    crash(store, "pay-1")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(Screen, "live", True)
    _, row, *_ = refold("doubts", "--store", store).out.splitlines()
    run, call = row.split()[:2]
    monkeypatch.undo()
    assert 0 == refold("resolve", run, call, "unknown", "--store", store).code


@pytest.mark.parametrize(
    ("since", "oldest"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([0], None, id="no record says since when: unknown, and not since 1970"),
        pytest.param([0, 40, 60], 60, id="the oldest of those that are known"),
    ],
)
def test_for_how_long(since: list[int], oldest: int | None) -> None:
    """Counted from the first instant that is known."""
    tally = DoubtTally(everything=False)
    tally.take([DoubtfulCall(run="r", call=f"c{at}", tool="pay", since=at, standing="open") for at in since])
    assert oldest == tally.document(100).oldest


def test_doubts(refold: Refold, store: Path, finished: str) -> None:
    """Calls are listed oldest first, with what to type; the last line counts them; exit code 1."""
    runs = [crash(store, "pay-2"), crash(store, "pay-1")]
    ran = refold("doubts", "--store", store)
    assert 1 == ran.code
    head, *rows, last = ran.out.splitlines()
    assert head.startswith("run    call  tool  since")
    assert [(run, "c1", "pay") for run in runs] == [tuple(row.split()[:3]) for row in rows]
    assert [f"refold resolve {run} c1 {{happened,did-not,unknown}} --store {store}" for run in runs] == [
        row[row.index("refold") :] for row in rows
    ]
    assert re.fullmatch(r"2 unresolved in 2 runs, the oldest for [0-9.]+ s", last)
    assert "1 unresolved in 1 run, " in refold("doubts", "pay-1", "--store", store).out
    assert 0 == refold("doubts", finished, "--store", store).code


def test_doubts_as_json(refold: Refold, store: Path) -> None:
    """One document, for monitoring: how many, for how long, and which."""
    crash(store, "pay-1")
    ran = refold("doubts", "-o", "json", "--store", store)
    found = json.loads(ran.out)
    assert (1, 1, 1) == (ran.code, found["unresolved"], found["runs"])
    (call,) = found["calls"]
    assert ("pay-1", "c1", "pay", "open") == tuple(call[name] for name in ("run", "call", "tool", "standing"))
    assert 0 < found["oldest"] <= time.time_ns() - call["since"] < 600 * 10**9


def test_what_an_engine_has_is_not_in_doubt(refold: Refold, store: Path) -> None:
    """While an engine lives that has the run, its calls may still end well; nobody else may say how."""
    crash(store, "pay-1")
    held(store, "pay-1")
    assert 0 == refold("doubts", "--store", store).code
    ran = refold("resolve", "pay-1", "c1", "happened", "--store", store)
    assert 4 == ran.code
    assert "run pay-1 is driven by process 77 on far.example" in ran.err


@pytest.mark.parametrize(
    ("ending", "paid", "begins"),
    [
        pytest.param("happened", [30], "in_doubt: ", id="happened: it is not paid again"),
        pytest.param("did-not", [30, 30], "paid 30", id="did not: it is paid now"),
        pytest.param("unknown", [30], "in_doubt: ", id="unknown: it is not paid again"),
    ],
)
@pytest.mark.parametrize("whom", ["tell", "ask"])
def test_resolve(
    ending: str, paid: list[int], begins: str, whom: str, refold: Refold, scripted: Scripted, store: Path
) -> None:
    """What a person says is recorded without model and tools; a worker goes on from it."""
    crash(store, "pay-1", doubt=whom)
    ran = refold(
        "resolve",
        "pay-1",
        "c1",
        ending,
        "--by",
        f"ann {EVIL}",
        "--why",
        f"I looked {EVIL}",
        "--store",
        store,
    )
    assert (0, "pay-1\n") == (ran.code, ran.out), ran.err
    assert "the run waits for a worker" in ran.err
    assert f"refold resume pay-1 --store {store}" in ran.err
    assert set() == dangerous(ran.out + ran.err)
    assert 0 == refold("doubts", "--store", store).code
    scripted([say("Good.")])
    assert 0 == refold("worker", "--until-idle", *TOOLS, "--store", store).code
    assert paid == PAID
    assert [begins] == [text[: len(begins)] for text in told(refold, store, "pay-1")]
    assert sound(refold, store)
    settled = refold("doubts", "--all", "--store", store)
    assert (0, "0 unresolved") == (settled.code, settled.out.splitlines()[-1])
    assert f"{ending.replace('-', '_')}, by ann" in settled.out
    assert set() == dangerous(settled.out)


def test_a_person_is_asked(refold: Refold, scripted: Scripted, store: Path) -> None:
    """Under a policy that asks, the run waits, says for what, and takes no message for an answer."""
    crash(store, "pay-1", doubt="ask")
    scripted([])
    assert 0 == refold("worker", "--until-idle", *TOOLS, "--store", store).code
    ran = refold("approvals", "--store", store)
    assert ["pay-1", "outcome", "of", "calls", "c1", "pay", '{"cents":30}', "refold", "doubts", "pay-1"] == [
        word for word in ran.out.splitlines()[1].split() if not re.match(r"20\d\d-|\d\d:", word)
    ]
    ran = refold("resume", "pay-1", "--store", store)
    assert 1 == ran.code
    assert "waits for an operator to settle c1" in ran.err
    assert "refold resolve pay-1 c1 {happened,did-not,unknown}" in ran.err
    ran = refold("resume", "pay-1", "--message", "It is paid.", "--store", store)
    assert 2 == ran.code
    assert "not for a message: use `refold resolve" in ran.err
    assert "asked" == json.loads(refold("doubts", "-o", "json", "--store", store).out)["calls"][0]["standing"]
    assert 0 == refold("resolve", "pay-1", "c1", "happened", "--store", store).code
    scripted([say("Good.")])
    assert 0 == refold("resume", "pay-1", *TOOLS, "--store", store).code
    assert [30] == PAID
    assert sound(refold, store)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["pay-1", "c9", "happened"], not_in_doubt("c9", "c1"), id="another call"),
        pytest.param(["pay-1", "c1", "perhaps"], "perhaps", id="another word"),
        pytest.param(["pay-1@e3", "c1", "happened"], "expected a run without a place", id="a place in a run"),
        pytest.param(["nobody", "c1", "happened"], "matches no run", id="another run"),
    ],
)
def test_what_cannot_be_resolved(words: list[str], says: str, refold: Refold, store: Path) -> None:
    """It is said, and nothing is written."""
    crash(store, "pay-1")
    before = refold("show", "pay-1", "--raw", "--store", store).out
    ran = refold("resolve", *words, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert says in ran.err
    assert before == refold("show", "pay-1", "--raw", "--store", store).out


def test_a_second_word_comes_too_late(refold: Refold, scripted: Scripted, store: Path) -> None:
    """What a person said, and a worker is to go on from or went on from to a result, stays so."""
    crash(store, "pay-1")
    refold("resolve", "pay-1", "c1", "did-not", "--store", store)
    for _ in range(2):
        ran = refold("resolve", "pay-1", "c1", "happened", "--store", store)
        assert 2 == ran.code
        assert "call 'c1' is settled already: did_not, by " in ran.err
        scripted([say("Good.")])
        assert 0 == refold("worker", "--until-idle", *TOOLS, "--store", store).code


@pytest.fixture(params=["the model was told", "the run was cancelled"])
def told_run(request: pytest.FixtureRequest, refold: Refold, scripted: Scripted, store: Path) -> str:
    """A run that has ended, and whose log says of a payment that nobody knows."""
    run = crash(store, "pay-1", redact=["account [0-9]+"])
    if request.param == "the run was cancelled":
        refold("cancel", run, "--store", store)
    else:
        scripted([say("Good.")])
        refold("worker", "--until-idle", *TOOLS, "--store", store)
    return run


def test_what_was_told_is_not_resolved(refold: Refold, store: Path, told_run: str) -> None:
    """A payment stays listed although the model was informed or the run was cancelled."""
    ran = refold("doubts", "--store", store)
    assert 1 == ran.code
    _, row, last = ran.out.splitlines()
    assert last.startswith("1 unresolved in 1 run, ")
    assert "recorded as unknown" in row
    assert row.endswith(f"refold resolve {told_run} c1 {{happened,did-not,unknown}} --store {store}")


@pytest.mark.parametrize("ending", ["happened", "did-not", "unknown"])
def test_a_person_finds_out_afterwards(ending: str, refold: Refold, store: Path, told_run: str) -> None:
    """An operator's answer is a note on the call: it is resolved, nothing else changes or runs."""
    before = logged(refold, store, told_run)
    words = ["--by", f"ann of account 8 {EVIL}", "--why", f"see account 4711 {EVIL}"]
    ran = refold("resolve", told_run, "c1", ending, *words, "--store", store)
    assert (0, f"{told_run}\n") == (ran.code, ran.out), ran.err
    assert "the model is not informed, and nothing runs" in ran.err
    assert set() == dangerous(ran.out + ran.err)
    *same, note = logged(refold, store, told_run)
    assert before == same
    assert ("note_added", "tool_returned") == (note["kind"], same[note["body"]["seq"] - 1]["kind"])
    assert "see [REDACTED]" in note["content"]["text"]
    assert note["body"]["by"].startswith("ann of [REDACTED]")
    assert note["body"]["by"].isprintable()
    assert [30] == PAID
    assert (0, "0 unresolved\n") == refold("doubts", "--store", store)[:2]
    settled = refold("doubts", "--all", "--store", store)
    assert re.search(rf"{ending.replace('-', '_')}, by ann .*, 20\d\d-", settled.out)
    assert set() == dangerous(settled.out)
    assert 0 == refold("worker", "--until-idle", *TOOLS, "--store", store).code
    assert sound(refold, store)


def test_whoever_went_on_is_told_of_it(refold: Refold, scripted: Scripted, store: Path) -> None:
    """A completed run names its unresolved calls at its end; `show` has later findings."""
    run = crash(store, "pay-1")
    scripted([say("Perhaps it is paid.")])
    ran = refold("resume", run, *TOOLS, "--store", store)
    assert (0, True) == (ran.code, "doubts  c1 (pay): outcome unknown" in ran.out)
    assert f"refold doubts {run} --store {store}" in ran.err
    scripted([])
    assert ["c1"] == json.loads(refold("resume", run, "-o", "json", "--store", store).out)["doubts"]
    assert 0 == refold("resolve", run, "c1", "happened", "--by", "ann", "--store", store).code
    assert "by ann: it happened" in refold("show", run, "--store", store).out


def test_the_last_word_counts(refold: Refold, store: Path, told_run: str) -> None:
    """The last answer counts; once its note is erased, the one before it does."""
    seqs = list[int]()
    for ending in ("happened", "did-not"):
        ran = refold("resolve", told_run, "c1", ending, "-o", "json", "--store", store)
        seqs.append(json.loads(ran.out)["events"])

    def said() -> tuple[int, str, str | None]:
        ran = refold("doubts", "--all", "-o", "json", "--store", store)
        (call,) = json.loads(ran.out)["calls"]
        return ran.code, call["standing"], call["doubt"]

    assert (0, "resolved", "did_not") == said()
    for seq, left in zip(reversed(seqs), [(0, "resolved", "happened"), (1, "told", None)], strict=True):
        assert 0 == refold("erase", f"{told_run}@e{seq}", "--why", "mistyped", "--yes", "--store", store).code
        assert left == said()


def test_a_note_for_a_run_that_an_engine_has(refold: Refold, store: Path, told_run: str) -> None:
    """It is refused, as every word for such a run."""
    held(store, told_run)
    before = refold("show", told_run, "--raw", "--store", store).out
    ran = refold("resolve", told_run, "c1", "happened", "--store", store)
    assert 4 == ran.code
    assert f"run {told_run} is driven by process 77 on far.example" in ran.err
    assert before == refold("show", told_run, "--raw", "--store", store).out


def test_the_oldest_of_several_runs() -> None:
    """The age counts from the oldest call, in any order of the runs."""
    calls = [DoubtfulCall(run=f"r{at}", call="c1", tool="pay", since=at, standing="told") for at in (5, 3, 9)]
    tally = DoubtTally(everything=False)
    for call in calls:
        tally.take([call])
    tally.take([])
    found = tally.document(10)
    assert (3, 3, 7, ["r3", "r5", "r9"]) == (
        found.unresolved,
        found.runs,
        found.oldest,
        [call.run for call in found.calls],
    )


def test_a_log_that_cannot_be_read(refold: Refold, store: Path, waiting: str) -> None:
    """It keeps nobody from the others: they are told first, then it is, with exit code 3."""
    crash(store, "pay-1")

    async def spoil() -> None:
        async with await SqliteStore.open(store) as opened:
            from refold.store.protocol import Record

            lease = await opened.lease("bad", holder="a forger")
            await opened.append("bad", 0, lease, [Record(at=1, kind="state_changed", body=b"{}")])

    anyio.run(spoil)
    for word, shown in (("doubts", "1 unresolved in 1 run"), ("approvals", waiting)):
        ran = refold(word, "--store", store)
        assert 3 == ran.code
        assert shown in ran.out
        assert "bad" in ran.err
        assert ["bad"] == json.loads(refold(word, "-o", "json", "--store", store).out)["unread"]
    assert "; 1 run could not be read" in refold("doubts", "--store", store).out


def test_cancel(refold: Refold, store: Path) -> None:
    """A run is ended with nothing but its log, and the calls whose end nobody saw are named."""
    crash(store, "pay-1")
    held(store, "pay-1")
    ran = refold("cancel", "pay-1", "--why", f"too much {EVIL}", "--by", "ann", "--store", store)
    assert 0 == ran.code, ran.err
    head, *rest = ran.out.splitlines()
    assert "run pay-1: CANCELLED by ann" == head
    assert ["  c1  pay  run pay-1"] == rest[1:]
    assert set() == dangerous(ran.out + ran.err)
    assert sound(refold, store)
    shown = refold("show", "pay-1", "--all", "--store", store).out
    assert "by ann: too much" in shown
    assert [30] == PAID


def test_cancel_as_json(refold: Refold, store: Path) -> None:
    """One document: how the run stands, and what is in doubt."""
    crash(store, "pay-1")
    found = json.loads(refold("cancel", "pay-1", "-o", "json", "--store", store).out)
    assert ("pay-1", "CANCELLED", "cancelled") == tuple(found[name] for name in ("run", "state", "code"))
    assert ["c1"] == [call["call"] for call in found["in_doubt"]]


def test_cancel_after_the_end(refold: Refold, store: Path, finished: str) -> None:
    """A run that has ended stays as it is."""
    before = refold("show", finished, "--raw", "--store", store).out
    ran = refold("cancel", finished, "--store", store)
    assert 0 == ran.code
    assert ran.out.startswith(f"run {finished}: COMPLETED, ")
    assert before == refold("show", finished, "--raw", "--store", store).out


def test_everything_that_waits(refold: Refold, store: Path, waiting: str, finished: str) -> None:
    """Without a run, `approvals` lists pending approvals with what to type, not those of ended runs."""
    ran = refold("approvals", "--store", store)
    (_, row) = ran.out.splitlines()
    assert row.startswith(f"{waiting}  20")
    assert row.endswith(f"a message  And now?  refold resume {waiting} --message TEXT")
    found = json.loads(refold("approvals", "-o", "json", "--store", store).out)
    assert (1, [waiting]) == (found["count"], [each["run"] for each in found["waiting"]])
