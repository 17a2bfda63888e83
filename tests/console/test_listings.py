"""The commands that read a log: what they print, as text and as JSON, and their exit codes."""

import json
import re
import sqlite3
from pathlib import Path

import anyio
import pytest

from console.conftest import Refold
from refold.console import app
from refold.console.app import COMMANDS
from refold.store import SqliteStore
from refold.store.protocol import Record


def test_ls(refold: Refold, store: Path, waiting: str) -> None:
    """The newest run comes first, each with its state."""
    ran = refold("ls", "--store", store)
    head, *rows = ran.out.splitlines()
    assert ["run", "started", "(UTC)", "state", "turns", "tokens", "cost", "model", "task"] == head.split()
    assert [("bb33", "WAITING_FOR_INPUT"), ("aa22", "MAX_STEPS"), ("aa11", "COMPLETED")] == [
        (row.split()[0], row.split()[3]) for row in rows
    ]
    assert 0 == ran.code


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        pytest.param([], ["bb33", "aa22", "aa11"], id="all"),
        pytest.param(["aa"], ["aa22", "aa11"], id="by prefix"),
        pytest.param(["--most", "1"], ["bb33"], id="the newest"),
    ],
)
def test_ls_as_json(words: list[str], runs: list[str], refold: Refold, store: Path, waiting: str) -> None:
    """One array of runs."""
    assert runs == [
        run["run"] for run in json.loads(refold("-o", "json", "ls", *words, "--store", store).out)
    ]


def test_show_has_a_row_a_turn(refold: Refold, store: Path, finished: str) -> None:
    """Each turn with its calls, how they ended, and the end with its reason."""
    lines = refold("show", finished, "--store", store).out.splitlines()
    rows = [re.split(r"  +", line.strip()) for line in lines if re.match(r" {2,}(\d|look|act)", line)]
    assert ["1", "look", "act", "2", "3"] == [row[0].split()[0] for row in rows]
    assert ["raised 77 B"] == [cell for row in rows for cell in row if cell.startswith("raised")]
    assert "COMPLETED: the model finished its turn (end_turn)" in lines


def test_show_tells_the_limit(refold: Refold, store: Path, limited: str) -> None:
    """A limit that ended the run is named, with what was used and what was allowed."""
    out = refold("show", limited, "--store", store).out
    assert "limit    step: 2 of 2 steps" in out
    assert "limit:step: stop (step_limit)" in out


def test_show_as_json(refold: Refold, store: Path, finished: str) -> None:
    """One document, with the turns and the end."""
    told = json.loads(refold("show", finished, "-o", "json", "--store", store).out)
    assert [1, 2, 3] == [turn["step"] for turn in told["turns"]]
    assert ["ok", "raised"] == [call["result"] for call in told["turns"][0]["calls"]]
    assert ("COMPLETED", "end_turn", 17) == (told["agent_state"], told["code"], told["events"])


@pytest.mark.parametrize("words", [["--all"], ["--follow"], ["--all", "--follow"]], ids=" ".join)
def test_show_every_event(words: list[str], refold: Refold, store: Path, finished: str) -> None:
    """A line an event, in order; to follow a run that has ended ends."""
    lines = refold("show", finished, *words, "--store", store).out.splitlines()
    assert [f"e{number}" for number in range(1, 18)] == [line.split()[0] for line in lines]


def test_show_raw(refold: Refold, store: Path, finished: str) -> None:
    """Every record as it is stored: header, body, content, hash."""
    lines = [
        json.loads(line) for line in refold("show", finished, "--raw", "--store", store).out.splitlines()
    ]
    assert list(range(1, 18)) == [line["seq"] for line in lines]
    assert {"run", "seq", "at", "kind", "body", "content", "content_digest", "salt", "hash"} == set(lines[0])
    assert ("run_started", "run_started") == (lines[0]["kind"], lines[0]["body"]["kind"])


def test_view_is_what_was_sent(refold: Refold, store: Path, finished: str) -> None:
    """The messages of the request of a turn, proved by the digest of the request as sent."""
    view = json.loads(refold("view", f"{finished}@t2", "-o", "json", "--store", store).out)
    roles = [message["role"] for message in view["request"]["messages"]]
    assert (["user", "assistant", "tool", "tool"], "agrees", 2) == (roles, view["sent"], view["step"])


def test_view_before_any_request(refold: Refold, store: Path, finished: str) -> None:
    """At the first event nothing had been asked yet, and that is said."""
    ran = refold("view", f"{finished}@e1", "--store", store)
    assert 2 == ran.code
    assert "no request was made up to that event" in ran.err


def test_verify(refold: Refold, store: Path, finished: str) -> None:
    """A whole log: how much was checked, and what that does not prove."""
    ran = refold("verify", finished, "--store", store)
    assert 0 == ran.code
    assert "run aa11: intact" in ran.out
    assert "17 events, 7 with a payload" in ran.out
    assert "not sealed" in ran.out


def test_audit(refold: Refold, store: Path, waiting: str) -> None:
    """Every decision of every run agrees."""
    ran = refold("audit", "--all", "-o", "json", "--store", store)
    assert 0 == ran.code
    assert [0, 0, 0] == [json.loads(line)["differences"] for line in ran.out.splitlines()]


@pytest.mark.parametrize("command", ["verify", "audit"])
def test_one_bad_name_judges_nothing(command: str, refold: Refold, store: Path, waiting: str) -> None:
    """All names are looked up before the first run is judged."""
    ran = refold(command, "aa11", "zz", "--store", store)
    assert (2, "") == (ran.code, ran.out)


@pytest.mark.parametrize("words", [[], ["aa11", "--all"]], ids=["neither", "both"])
def test_judging_wants_runs_or_all(words: list[str], refold: Refold, store: Path, waiting: str) -> None:
    """Exactly one of RUN... and --all."""
    assert 2 == refold("verify", *words, "--store", store).code


def tamper(store: Path, statement: str) -> None:
    """Change rows as somebody with the `sqlite3` shell could."""
    with sqlite3.connect(store) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f'DROP TRIGGER "{name}"')
        connection.execute(statement)
    connection.close()


def test_a_damaged_log(refold: Refold, store: Path, waiting: str) -> None:
    """`verify` names the event and exits with 3; the other runs are judged all the same."""
    key = "(SELECT key FROM event WHERE kind = 'tools_dispatched' ORDER BY key LIMIT 1)"
    columns = (
        sqlite3.connect(store).execute("SELECT sql FROM sqlite_schema WHERE name = 'event'").fetchone()[0]
    )
    name = "key" if " key " in columns or "key INTEGER" in columns else "id"
    tamper(
        store, f"UPDATE event SET body = replace(body, 'c2', 'c9') WHERE {name} = {key.replace('key', name)}"
    )
    ran = refold("verify", "--all", "--store", store)
    assert 3 == ran.code
    assert "run aa11: DAMAGED" in ran.out
    assert "event 4 (tools_dispatched)" in ran.out
    assert "refold state aa11@e3 --store" in ran.out
    assert "run bb33: intact" in ran.out


def changed(source: Path, target: Path, run: str, seq: int, old: bytes, new: bytes) -> None:
    """Copy a run with one body changed and the whole chain computed anew: only an audit can tell."""

    async def copy() -> None:
        async with await SqliteStore.open(source) as read, await SqliteStore.open(target) as write:
            records: list[Record] = []
            async for chunk in read.read(run):
                for each in chunk:
                    body = each.body.replace(old, new) if each.seq == seq else each.body
                    records.append(
                        Record(at=each.at, kind=each.kind, body=body, content=each.content, salt=each.salt)
                    )
            await write.append(run, 0, await write.lease(run, holder="a forger"), records)

    anyio.run(copy)


def test_a_decision_that_does_not_follow(refold: Refold, store: Path, limited: str, tmp_path: Path) -> None:
    """`audit` says where, what kind of difference, both sides, and how to see the state before it."""
    other = tmp_path / "other.db"
    changed(store, other, limited, 2, b'"attempt":1', b'"attempt":2')
    ran = refold("audit", limited, "--store", other)
    assert 1 == ran.code
    assert "first at event 2: model_requested is changed, caused by event 1" in ran.out
    assert re.search(r"attempt\n +recorded +2\n +derived +1\n", ran.out)
    assert f"refold state {limited}@e1 --store {other}" in ran.out


@pytest.mark.parametrize("command", [["ls"], ["show", "@last"], ["verify", "--all"]], ids=" ".join)
def test_nothing_is_made_by_looking(command: list[str], refold: Refold, tmp_path: Path) -> None:
    """A store that is named and not there is an error, and is not there afterwards."""
    ran = refold(*command, "--store", tmp_path / "none.db")
    assert (2, "") == (ran.code, ran.out)
    assert "none.db: the file does not exist" in ran.err
    assert [] == list(tmp_path.iterdir())


def test_before_the_first_run(refold: Refold, tmp_path: Path) -> None:
    """The default store need not be there: it has no runs yet."""
    ran = refold("ls")
    assert (0, "") == (ran.code, ran.out)
    assert "no runs" in ran.err
    assert 2 == refold("show", "@last").code
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_is_no_store(refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kind of file is named, with the variable that led there, and is not touched."""
    (tmp_path / "x").write_text("no database, but long enough to look like one" * 40)
    monkeypatch.setenv("REFOLD_STORE", str(tmp_path / "x"))
    ran = refold("ls")
    assert 2 == ran.code
    assert "is not an SQLite database" in ran.err
    assert "REFOLD_STORE" in ran.err


def test_graph(refold: Refold) -> None:
    """The diagram is Mermaid, with every state."""
    assert "stateDiagram-v2" in refold("graph").out
    assert "WAITING_FOR_TOOL" in json.loads(refold("graph", "-o", "json").out)["mermaid"]


def test_model_list(refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model is listed with the file where it would be."""
    monkeypatch.setenv("REFOLD_MODELS", str(tmp_path))
    (entry,) = json.loads(refold("model", "list", "-o", "json").out)
    assert ("smollm2-135m", False) == (entry["name"], entry["fetched"])
    assert 2 == refold("model", "fetch", "gpt-9").code


@pytest.mark.parametrize("words", [["bogus"], ["show"], ["ls", "--bogus"], ["-o", "xml", "ls"]], ids=" ".join)
def test_wrong_use(words: list[str], refold: Refold) -> None:
    """What cannot be parsed exits with 2, says how to use it, and prints no result."""
    ran = refold(*words)
    assert (2, "") == (ran.code, ran.out)
    assert ["Usage: refold", "refold: "] == [
        line[:13] if n == 0 else line[:8] for n, line in enumerate(ran.err.splitlines())
    ]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        pytest.param(
            "runs", "no such command 'runs': did you mean 'ls'? `refold -h`", id="another program's word"
        ),
        pytest.param("check", "did you mean 'verify'?", id="a word that is none of ours"),
        pytest.param("shwo", "did you mean 'show'?", id="a slip"),
        pytest.param("zzz", "no such command 'zzz'; `refold -h` lists", id="nothing like it"),
    ],
)
def test_what_there_is_instead(typed: str, said: str, refold: Refold) -> None:
    """A command that there is not is refused with the one that was meant, where that is known."""
    ran = refold(typed)
    assert (2, "") == (ran.code, ran.out)
    assert said in ran.err


def test_no_word_of_others_hides_a_command() -> None:
    """What is understood as another command is none itself, and means one that there is."""
    assert set(app.MEANT).isdisjoint(COMMANDS)
    assert set(app.MEANT.values()) <= set(COMMANDS)


def test_the_help_has_each_command_once(refold: Refold) -> None:
    """Whatever can be typed stands in one section of the help."""
    told = [
        line.split()[0] for line in refold("-h").out.splitlines() if line.startswith("  ") and line.strip()
    ]
    names = {words.partition(" ")[0] for words in COMMANDS}
    assert sorted(names) == sorted(word for word in told if word in names)


def test_why_names_what_allowed_it_too(refold: Refold, store: Path, limited: str) -> None:
    """Each limit that was asked stands in a row with what it said, and what was decided then stands below."""
    shown = json.loads(refold("-o", "json", "why", limited, "--store", store).out)
    ran = refold("why", f"{limited}@e{shown['fact']}", "--store", store)
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["summary", "c2", "ok,"] == rows[1][:3]
    assert ["before", "place", "who", "verdict", "measured"] == rows[2]
    assert any(["limit:step", "reached"] == row[2:4] for row in rows)
    assert [kind for kind in shown["decisions"] if f" {kind}: " in ran.out] == shown["decisions"]
    assert shown["told"][-1] in ran.out.splitlines()[-1]
    assert 0 == ran.code


def test_why_of_what_is_no_event(refold: Refold, store: Path, limited: str) -> None:
    """An event past the end is refused by the numbers that there are."""
    ran = refold("why", f"{limited}@e9999", "--store", store)
    assert (2, True) == (ran.code, "has events 1 to" in ran.err)
