"""Imported runs in `ls`, `show`, `why`, `view`, `stats`, tickets and reports: how their source ended them,
and what it did not tell.
"""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from console.conftest import Refold
from console.report.conftest import reported
from refold.importers.source import Source
from refold.reducers.messages import Usage
from support.transcripts import path_of
from support.wording import UNSENT

LIMITED = "mini_swe_agent/generated-step-limit.traj.json.zst"
SAID = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "nothing"},
    {"role": "assistant", "content": "Nothing is there."},
]


@pytest.fixture
def untold(refold: Refold, store: Path, tmp_path: Path) -> str:
    """A run of a transcript that tells no times, no tokens, no model, no tools and no end."""
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(SAID))
    assert 0 == refold("import", file, "--store", store).code
    return str(listed(refold, store)[0]["run"])


@pytest.fixture
def limited(refold: Refold, store: Path) -> str:
    """A run that its harness stopped at a limit of steps."""
    assert 0 == refold("import", path_of(LIMITED), "--store", store).code
    return str(listed(refold, store)[0]["run"])


def listed(refold: Refold, store: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(refold("ls", "--store", store, "-o", "json").out)
    return found


CUT = [
    "swe_agent/swe-smith-pandas-53856.traj.zst",
    "openhands/v0-interactions.json.zst",
    "gemini_cli/two-prompts.json.zst",
    "inspect/iterative-time-limit.json.zst",
]


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("part", [0.5, 0.8, 0.95])
def test_a_record_that_breaks_off_did_not_finish(
    name: str, part: float, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """Whatever the rest of the file says of an end: of a document that was cut nobody has seen how it goes
    on.
    """
    with path_of(name).open("rb") as packed:
        whole = Source.opened(name, packed).whole()
    file = tmp_path / name.rpartition("/")[2].removesuffix(".zst")
    file.write_bytes(whole[: int(len(whole) * part)])
    assert 1 == refold("import", file, "--store", store).code
    for row in listed(refold, store):
        assert "open" == row["source_end"]
        assert "is truncated" in row["source_says"] or row["unanswered"]


def test_how_its_source_ended_a_run_is_told(refold: Refold, store: Path, limited: str) -> None:
    """`ls`, `show`, exports, a page and `stats` say by what the source ended a run that is still open
    here.
    """
    says = "ended by a limit of its harness: steps (info.exit_status=LimitsExceeded)"
    (line,) = [line for line in refold("ls", "--store", store).out.splitlines() if limited in line]
    assert "  limit: steps  " in line
    assert "WAITING" not in line
    shown = refold("show", limited, "--store", store).out.splitlines()
    assert says in shown
    assert "derived  WAITING_FOR_INPUT" in shown
    document = json.loads(refold("show", limited, "--store", store, "-o", "json").out)
    row = listed(refold, store)[0]
    for told in (document, row):
        assert ("limit:steps", says, []) == (told["source_end"], told["source_says"], told["unanswered"])
    ticket = refold("export", limited, "--to", "markdown", "--store", store).out
    assert f"- Ended: `{says}`\n- Derived state: WAITING_FOR_INPUT\n" in ticket
    for format_ in ("otel", "openai"):
        assert says in refold("export", limited, "--to", format_, "--store", store).out
    about = reported(store, limited).about
    assert ("limit:steps", says) == (about.source_end, about.source_says)
    counted = json.loads(refold("stats", limited, "--store", store, "-o", "json").out)["counts"]
    assert {"limit:steps": 1} == counted["source_ends"]
    assert "ended by source" in refold("stats", limited, "--store", store).out


def test_an_end_of_ours_is_not_hidden_by_a_sources(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Where the machine has ended too, `ls` and `show` have both."""
    assert 0 == refold("import", path_of("claude_code/interrupted.jsonl"), "--store", store).code
    assert "cancelled (CANCELLED)" in refold("ls", "--store", store).out
    shown = refold("show", "@last", "--store", store).out
    assert "stopped by the user (" in shown
    assert "CANCELLED: cancelled by " in shown


@pytest.mark.parametrize(
    ("calls", "brief", "says"),
    [
        pytest.param(["Bash"], "open, 1 call unanswered", "1 call has no result (Bash)", id="one"),
        pytest.param(
            ["Bash", "Read"], "open, 2 calls unanswered", "2 calls have no result (Bash, Read)", id="two"
        ),
        pytest.param(
            list("abcdefg"),
            "open, 7 calls unanswered",
            "7 calls have no result (a, b, c, d, e, and 2 more)",
            id="many",
        ),
    ],
)
def test_calls_without_a_result_are_named(
    refold: Refold, store: Path, tmp_path: Path, calls: list[str], brief: str, says: str
) -> None:
    """Where a source ends with calls under way, how many and which ones."""
    made = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in calls]
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([SAID[0], {"role": "assistant", "content": "", "tool_calls": made}]))
    assert 0 == refold("import", file, "--store", store).code
    assert brief in refold("ls", "--store", store).out
    assert f"unfinished in its source; {says}" in refold("show", "@last", "--store", store).out
    assert calls == listed(refold, store)[0]["unanswered"]


def test_what_nobody_recorded_is_no_number(refold: Refold, store: Path, untold: str) -> None:
    """No times, tokens and prices are not shown as 0 or as 1970, wherever they stand."""
    report = reported(store, untold)
    assert (Usage(), "-", 0) == (report.about.usage, report.figures.duration, report.about.started)
    (line,) = [line for line in refold("ls", "--store", store).out.splitlines() if untold in line]
    assert ["finished", "2", "-", "-"] == line.split()[2:6]
    shown = refold("show", untold, "--store", store).out
    assert "tokens unknown" in shown
    assert "time unknown" in shown
    ticket = refold("export", untold, "--to", "markdown", "--store", store).out
    assert "1970-" not in ticket
    assert "- When: `no times were recorded`\n" in ticket
    assert "- Tokens: not recorded\n" in ticket
    stats = refold("stats", untold, "--store", store).out
    assert 2 == stats.count("time unknown")
    assert "0 s" not in stats


def test_times_that_nobody_knows_are_null_in_exports(refold: Refold, store: Path, untold: str) -> None:
    """A table has null for them, spans the 0 that means it there."""
    table, spans = store.with_name("t.parquet"), store.with_name("s.json")
    assert 0 == refold("export", untold, "--to", "parquet", "--out", table, "--store", store).code
    assert 0 == refold("export", untold, "--to", "otel", "--out", spans, "--store", store).code
    with duckdb.connect() as connection:
        sql = f"SELECT count(recorded_at), count(elapsed), count(duration), count(*) > 0 FROM '{table}'"
        assert [(0, 0, 0, True)] == connection.execute(sql).fetchall()
    (found,) = json.loads(spans.read_text())["resourceSpans"]
    starts = {span["startTimeUnixNano"] for span in found["scopeSpans"][0]["spans"]}
    assert {"0"} == starts


def test_why_of_a_run_that_ends_in_notes(refold: Refold, store: Path, untold: str) -> None:
    """Without a place it is the last fact or decision that is explained; a note by its number has no
    reasons.
    """
    ran = refold("why", untold, "--store", store, "-o", "json")
    assert 0 == ran.code
    found, last = json.loads(ran.out), listed(refold, store)[0]["events"]
    assert found["seq"] < last
    assert "source_recorded" != found["kind"]
    assert 2 == refold("why", f"{untold}@e{last}", "--store", store).code


def test_a_view_says_what_its_source_did_not(refold: Refold, store: Path, untold: str) -> None:
    """No digest, no tools and no settings were recorded: that is said, and not that there were none."""
    said = " ".join(refold("view", untold, "--store", store).out.split())
    assert UNSENT in said
    assert 2 == said.count("not recorded by the source")
    found = json.loads(refold("view", untold, "--store", store, "-o", "json").out)
    assert ("unknown", False, False) == (found["sent"], found["tools_known"], found["settings_known"])


def test_a_ticket_says_what_it_stands_on(refold: Refold, store: Path, limited: str) -> None:
    """Its top has the policy, the chain's head, the audit, and that the decisions were derived at import."""
    ticket = refold("export", limited, "--to", "markdown", "--store", store).out
    head = json.loads(refold("verify", limited, "--store", store, "-o", "json").out.splitlines()[0])
    top = ticket.partition("\n## ")[0]
    assert "- Policy: no limits; SHA-256 `" in top
    assert "decisions were derived at import" in top
    assert "- Audit: agrees: " in top
    assert head["hash"] in top


def test_one_oddity_does_not_drown_the_rest(refold: Refold, store: Path, tmp_path: Path) -> None:
    """What is odd in one way many times stands once in a ticket's summary, with how often."""
    calls = [
        {"id": f"c{place}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for place in range(9)
    ]
    file = tmp_path / "messages.json"
    talk = [SAID[0], {"role": "assistant", "content": "", "tool_calls": calls}, SAID[0], SAID[-1]]
    file.write_text(json.dumps(talk))
    refold("import", file, "--store", store)
    ticket = refold("export", str(listed(refold, store)[0]["run"]), "--to", "markdown", "--store", store).out
    decided = ticket.partition("## Decisive events")[2].partition("\n## ")[0]
    assert 1 == decided.count("`result_missing: ")
    assert "- 8 more of `result_missing`, the last at event " in decided


def test_no_id_begins_so(refold: Refold, store: Path, untold: str) -> None:
    """Where runs are, and none begins as was asked, that is what is said."""
    ran = refold("ls", "nosuch", "--store", store)
    assert (0, "") == (ran.code, ran.out)
    assert "has an id that begins with 'nosuch'" in ran.err
    assert untold


def test_a_message_without_words_is_said_to_be_one(refold: Refold, store: Path, tmp_path: Path) -> None:
    """What the model saw of a call that said nothing is not left to be guessed from an empty line."""
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "assistant", "content": "Gone."},
    ]
    (tmp_path / "chat.json").write_text(json.dumps(said), encoding="utf-8")
    assert 0 == refold("import", tmp_path / "chat.json", "--store", store).code
    shown = refold("view", "@last@t2", "--store", store).out
    assert "--- 3. tool (result of c1)\n  (empty)\n" in shown
