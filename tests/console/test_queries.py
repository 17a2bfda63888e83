"""The commands that ask questions of logs: what they print, as text and as JSON, and their exit codes."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from console.conftest import EVIL, Refold, record
from console.test_listings import tamper
from refold.engine import calls, say

# What would reach a terminal from `EVIL`, were it printed as it is.
RAW = "\x1b\x07\x9b\u202e\u2066"


@pytest.fixture
def twins(store: Path, finished: str) -> tuple[str, str]:
    """Two runs that part in their second turn."""
    both = calls(("look", {"path": "a.md"}), ("act", {}), text=f"First {EVIL}")
    record(store, [both, calls(("look", {"path": "c.md"})), say("Done.")], f"Task {EVIL}", run_id="aa99")
    return finished, "aa99"


def lines(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "found", "code"),
    [
        pytest.param(["kind:tools_dispatched", "aa11"], ["e4", "e11"], 0, id="in a run"),
        pytest.param(["kind:tools_dispatched name:act"], ["aa11@e4"], 0, id="in all"),
        pytest.param(["kind:tools_dispatched name:act", "--all"], ["aa11@e4"], 0, id="in all, said so"),
        pytest.param(["kind:run_started", "aa11", "aa22"], ["aa11@e1", "aa22@e1"], 0, id="in two"),
        pytest.param(
            ["kind:run_started", "--most", "2"], ["bb33@e1", "aa22@e1"], 0, id="no more than so many"
        ),
        pytest.param(["name:nothing"], [], 1, id="nothing"),
        pytest.param(["kind:state_changed", "--count", "aa11", "aa22"], ["5", "5"], 0, id="counted"),
    ],
)
def test_grep(
    words: list[str], found: list[str], code: int, refold: Refold, store: Path, waiting: str
) -> None:
    """A line an event that was found, by its address; exit code 1 where there is none."""
    ran = refold("grep", *words, "--store", store)
    assert (found, code, "") == ([line.split()[0] for line in ran.out.splitlines()], ran.code, ran.err)


def test_grep_shows_what_was_looked_for(refold: Refold, store: Path, finished: str) -> None:
    """Of a text that was looked for, what stands around it is shown, made harmless."""
    ran = refold("grep", "owned kind:tool_returned", finished, "--store", store)
    assert "owned" in ran.out
    assert not set(RAW) & set(ran.out)
    assert "\\x1b[31mred" in ran.out


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        pytest.param("git push", "2 words, matched anywhere; for the phrase: '\"git push\"'", id="two bare words"),
        pytest.param("cp a.txt b/c", "3 words, matched anywhere; for the phrase: '\"cp a.txt b/c\"'", id="three, with a path"),
        pytest.param('"git push"', "", id="a phrase"),
        pytest.param("push", "", id="one word"),
        pytest.param("push type:tool", "", id="a field"),
        pytest.param("push or pull", "", id="a keyword"),
        pytest.param("push -kind:run_started", "", id="what is left out"),
    ],
)  # fmt: skip
def test_a_phrase_without_quotes(query: str, hint: str, refold: Refold, store: Path, finished: str) -> None:
    """A shell removes quotes: for several bare words, and for nothing else, stderr has a hint how a phrase is
    typed.
    """
    ran = refold("grep", query, finished, "--store", store)
    assert hint in ran.err
    assert bool(hint) == ("for the phrase" in ran.err)
    assert "for the phrase" not in ran.out


def test_grep_as_json(refold: Refold, store: Path, finished: str) -> None:
    """A line an event: its row, and an excerpt with the place of what was looked for."""
    ran = refold("grep", '"[bold]" kind:tool_returned', finished, "-o", "json", "--store", store)
    first = lines(ran.out)[0]
    shown = first["excerpt"]
    assert "[bold]" == shown["text"][shown["start"] : shown["end"]]
    assert ("aa11", "tool_returned", "tool") == (first["run"], first["kind"], first["type"])
    assert "text" not in first
    counted = refold("grep", "error:true", "--count", "-o", "json", "--store", store)
    assert [{"run": "aa11", "count": 1}] == lines(counted.out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["grep", "naem:act"], "unknown field 'naem' (did you mean name?)", id="a field"),
        pytest.param(["grep", "rm -rf"], 'write "-rf" to search for this text', id="a minus"),
        pytest.param(["grep", "a", "aa11", "--all"], "RUN or --all, not both", id="runs and all"),
        pytest.param(["grep", "a", "zz"], "matches no run in this store", id="no run"),
        pytest.param(["bisect", "aa11"], "expected --when CONDITION or --versus RUN", id="no question"),
        pytest.param(
            ["bisect", "aa11", "--when", "x", "--versus", "aa11"], "expected --when", id="two questions"
        ),
        pytest.param(["bisect", "aa11", "--when", "stps > 1"], "did you mean steps?", id="a name"),
        pytest.param(["blame", "aa11", "stps"], "did you mean steps?", id="a field of the state"),
        pytest.param(["diff", "aa11", "zz"], "matches no run in this store", id="no other run"),
        pytest.param(["show", "aa11", "--filter", "tokens>x"], "expected a number", id="a filter of show"),
    ],
)
def test_wrong_use(words: list[str], said: str, refold: Refold, store: Path, limited: str) -> None:
    """What cannot be asked is refused with exit code 2, nothing on stdout, and the way out."""
    ran = refold(*words, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert said in ran.err


def test_show_with_a_filter(refold: Refold, store: Path, finished: str) -> None:
    """Only the events that fit, as `show --all` and `show --raw` print them."""
    ran = refold("show", finished, "--filter", "kind:tools_dispatched", "--store", store)
    assert ["e4", "e11"] == [line.split()[0] for line in ran.out.splitlines()]
    every = refold("show", finished, "--all", "--store", store).out.splitlines()
    assert ran.out.splitlines() == [line for line in every if line.split()[0] in ("e4", "e11")]
    raw = refold("show", finished, "--filter", "kind:model_responded turn:2", "-o", "json", "--store", store)
    assert [10] == [line["seq"] for line in lines(raw.out)]


def test_bisect(refold: Refold, store: Path, finished: str) -> None:
    """The event, the fields around it, and how it was found; exit code 1, as `git bisect run` reads it."""
    ran = refold("bisect", finished, "--when", "calls >= 3 and ended == false", "--store", store)
    assert (1, "") == (ran.code, ran.err)
    head, *rest = ran.out.splitlines()
    assert "run aa11, event 10: model_responded, after which it is true" in head
    assert "  calls  2 -> 3" in rest
    assert any("by checking every event" in line for line in rest)
    assert any(f"refold why aa11@e10 --store {store}" in line for line in rest)
    halved = refold("bisect", finished, "--when", "calls >= 3", "--store", store)
    assert "by binary search" in halved.out


def test_bisect_where_it_is_never_so(refold: Refold, store: Path, finished: str) -> None:
    """Where it never became true: exit code 0, and how far was looked."""
    ran = refold("bisect", finished, "--when", "calls > 30", "--store", store)
    assert 0 == ran.code
    assert "never true in its 17 events: calls > 30" in ran.out


def test_bisect_as_json(refold: Refold, store: Path, finished: str) -> None:
    """One document with the values around the event; `seq` is null where there is none."""
    ran = refold("bisect", finished, "--when", "calls >= 3", "-o", "json", "--store", store)
    (told,) = lines(ran.out)
    assert (10, "halving", {"calls": [2, 3]}) == (told["seq"], told["how"], told["fields"])
    never = refold("bisect", finished, "--when", "calls > 30", "-o", "json", "--store", store)
    assert (None, {}) == (lines(never.out)[0]["seq"], lines(never.out)[0]["fields"])


def test_bisect_versus(refold: Refold, store: Path, twins: tuple[str, str]) -> None:
    """Where two runs part, by which kind of event, and in what; the same run does not part from itself."""
    ran = refold("bisect", twins[0], "--versus", twins[1], "--store", store)
    assert 1 == ran.code
    assert "run aa11 (e10) and run aa99 (e10) diverge: model_responded" in ran.out
    assert "arguments" in ran.out
    assert f"refold diff aa11 aa99 --store {store}" in ran.out
    same = refold("bisect", twins[0], "--versus", twins[0], "--store", store)
    assert 0 == same.code
    assert "equal up to event 17, by the hashes" in same.out
    told = lines(refold("bisect", *twins[:1], "--versus", twins[1], "-o", "json", "--store", store).out)
    assert [10, 10] == told[0]["seqs"]


def test_bisect_versus_another_store(refold: Refold, store: Path, tmp_path: Path, finished: str) -> None:
    """A copy in another store is held against the original: the event that somebody changed is found by
    hashes.
    """
    other = tmp_path / "copy.db"
    with sqlite3.connect(store) as here, sqlite3.connect(other) as there:
        here.backup(there)
    here.close()
    there.close()
    words = ("bisect", finished, "--versus", finished, "--other-store", other, "--store", store)
    ran = refold(*words)
    assert 0 == ran.code
    assert "do not differ" in ran.out


def test_blame(refold: Refold, store: Path, finished: str) -> None:
    """The events that changed a field, the newest first, with its values; up to an event if one is named."""
    ran = refold("blame", finished, "calls", "--store", store)
    assert (0, "") == (ran.code, ran.err)
    head, _, *rows = ran.out.splitlines()
    assert "run aa11: after event 17, calls is 3; changed 2 times" == head
    assert [["e10", "t2", "model_responded", "2", "3"], ["e3", "t1", "model_responded", "0", "2"]] == [
        row.split() for row in rows
    ]
    upto = refold("blame", f"{finished}@e5", "calls", "--store", store)
    assert "after event 5, calls is 2; changed 1 time" in upto.out
    told = lines(refold("blame", finished, "agent_state", "--most", "1", "-o", "json", "--store", store).out)
    assert (5, 1) == (told[0]["count"], len(told[0]["changes"]))


def test_diff(refold: Refold, store: Path, twins: tuple[str, str]) -> None:
    """The first difference first, then the others, then what each run came to; nothing of it moves the
    terminal.
    """
    ran = refold("diff", *twins, "--store", store)
    assert (1, "") == (ran.code, ran.err)
    head, *rest = ran.out.splitlines()
    assert "left aa11, right aa99: they diverge in turn 2, model_responded: e10 and e10" == head
    assert any(line.split()[:4] == ["2", "e10", "e10", "model_responded"] for line in rest)
    assert ["events", "17", "17"] in [line.split() for line in rest]
    assert not set(RAW) & set(ran.out)


def test_diff_of_the_same(refold: Refold, store: Path, finished: str) -> None:
    """A run says the same as itself: exit code 0."""
    ran = refold("diff", finished, finished, "--store", store)
    assert 0 == ran.code
    assert "no differences" in ran.out


def test_diff_as_json(refold: Refold, store: Path, twins: tuple[str, str]) -> None:
    """One document with both sides and the differences."""
    (told,) = lines(refold("diff", *twins, "-o", "json", "--store", store).out)
    assert ("aa11", "aa99") == (told["left"]["run"], told["right"]["run"])
    assert told["differing"] == len(told["differences"])
    assert told["differences"][0] == told["said"]


def test_diff_of_erased_words(refold: Refold, store: Path, tmp_path: Path, finished: str) -> None:
    """Where words are gone on one side and nothing else differs, nobody can judge: exit code 125."""
    other = tmp_path / "copy.db"
    here, there = sqlite3.connect(store), sqlite3.connect(other)
    here.backup(there)
    here.close()
    there.close()
    assert (
        0
        == refold(
            "erase", f"{finished}@e7", "--why", "private", "--by", "ann", "--yes", "--store", other
        ).code
    )
    ran = refold("diff", finished, finished, "--other-store", other, "--store", store)
    assert 125 == ran.code
    assert "unknown: the payloads of 1 event were erased on one side" in ran.out


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        pytest.param("nobody-ever-said-this", 125, True, id="it may have been among what was erased"),
        pytest.param("type:model nobody-ever-said-this", 125, True, id="an event of this kind was erased"),
        pytest.param(
            "kind:state_changed nobody-ever-said-this", 1, False, id="no event of this kind was erased"
        ),
        pytest.param("type:model", 0, False, id="words are not asked for"),
    ],
)
def test_grep_among_erased_words(
    refold: Refold, store: Path, finished: str, asked: str, code: int, told: bool
) -> None:
    """Where the words are gone nobody says that there is none."""
    whole = refold("grep", "nobody-ever-said-this", finished, "--store", store)
    assert (1, "") == (whole.code, whole.err)
    erasing = ["--why", "private", "--by", "ann", "--yes", "--store", store]
    answered = next(
        each
        for each in lines(
            refold("grep", "kind:model_responded", finished, "-o", "json", "--store", store).out
        )
    )
    assert 0 == refold("erase", f"{finished}@e{answered['seq']}", *erasing).code
    ran = refold("grep", asked, finished, "--store", store)
    assert (code, told) == (ran.code, "not searched: 1 event whose payload was erased" in ran.err)


def test_stats(refold: Refold, store: Path, waiting: str) -> None:
    """All runs of the store are counted: how they ended, their tools, what went wrong."""
    ran = refold("stats", "--store", store)
    assert (0, "") == (ran.code, ran.err)
    rows = [line.split() for line in ran.out.splitlines()]
    assert "runs        3, with" in ran.out
    assert ["COMPLETED", "(end_turn)", "1"] in rows
    assert ["MAX_STEPS", "(step_limit)", "1"] in rows
    assert ["open", "1"] in rows
    assert any(row[:4] == ["act", "1", "1", "raised"] for row in rows)
    assert any(row[:3] == ["look", "3", "0"] or row[:2] == ["look", "4"] for row in rows)


def test_stats_of_what_fits(refold: Refold, store: Path, finished: str) -> None:
    """Only events that fit are counted; how the run ended, and how long it took, is told of the whole."""
    (whole,) = lines(refold("stats", finished, "-o", "json", "--store", store).out)
    (part,) = lines(
        refold("stats", finished, "--where", "type:tool turn:1", "-o", "json", "--store", store).out
    )
    assert {"tool_returned", "tools_dispatched"} == set(part["counts"]["kinds"])
    assert 0 < part["counts"]["events"] < whole["counts"]["events"]
    for name in ("ends", "elapsed", "runs"):
        assert whole["counts"][name] == part["counts"][name]


def test_stats_as_json(refold: Refold, store: Path, waiting: str) -> None:
    """One document: counts that can be merged, and quantiles."""
    (told,) = lines(refold("stats", "aa11", "aa22", "-o", "json", "--store", store).out)
    assert (2, {"raised": 1}) == (told["counts"]["runs"], told["counts"]["tools"]["act"]["errors"])
    assert told["counts"]["tools"]["look"]["returned"] == told["tools"]["look"]["count"]
    assert told["answers"]["p50"] <= told["answers"]["p99"] <= told["answers"]["longest"]


def damaged(store: Path, run: str, seq: int) -> None:
    """Somebody makes the body of an event unreadable."""
    number = f"(SELECT number FROM run WHERE id = '{run}')"
    tamper(store, f"UPDATE event SET body = '{{' WHERE key = ({number} << 32 | {seq})")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["grep", "kind:run_started"], "@e1", id="grep"),
        pytest.param(["grep", "kind:run_started", "--count"], "aa11", id="grep --count"),
        pytest.param(["stats"], "runs        2", id="stats"),
        pytest.param(["stats", "-o", "json"], '"damaged":{"aa11"', id="stats as JSON"),
    ],
)
def test_a_damaged_log_among_others(
    words: list[str], said: str, refold: Refold, store: Path, limited: str
) -> None:
    """Of a log that cannot be read to its end what stands before counts, it is named on stderr, and the code
    is 3.
    """
    damaged(store, "aa11", 9)
    ran = refold(*words, "--store", store)
    assert 3 == ran.code
    assert said in ran.out
    assert "run aa11: DAMAGED" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["bisect", "aa11", "--when", "calls > 30"], id="bisect"),
        pytest.param(["blame", "aa11", "calls"], id="blame"),
        pytest.param(["diff", "aa11", "aa22"], id="diff"),
    ],
)
def test_a_damaged_log(words: list[str], refold: Refold, store: Path, limited: str) -> None:
    """What needs the whole log does not answer for a part of it: the event is named, and the code is 3."""
    damaged(store, "aa11", 9)
    ran = refold(*words, "--store", store)
    assert 3 == ran.code
    assert "event 9" in ran.err


def test_a_damaged_event_is_shown_whatever_the_filter(refold: Refold, store: Path, finished: str) -> None:
    """A filter never hides that an event cannot be read."""
    damaged(store, finished, 9)
    ran = refold("show", finished, "--filter", "kind:run_started", "--store", store)
    assert ["e1", "e9"] == [line.split()[0] for line in ran.out.splitlines()]
