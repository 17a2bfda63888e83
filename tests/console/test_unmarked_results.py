"""The gate: of a result of which its source does not say whether it failed, no reader says that it went
well.
"""

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pytest

from console.conftest import Refold
from console.report.conftest import reported
from refold.console.report.page import page
from support.pages import Read
from support.transcripts import path_of

UNMARKED = "tau_bench/airline-one-run.json"
FINE = "claude_code/exit-command.jsonl"
PARTLY = "mini_swe_agent/generated-submitted.traj.json"
"""One of its results has no return code, one 0, one another."""
RESULT = "tool_returned"

Say = Callable[..., str]
"""What a command prints of the store, given its words."""


def shown(say: Say, run: str) -> set[str]:
    """The words of the calls' results in the table of turns."""
    turns = json.loads(say("show", run, "-o", "json"))["turns"]
    return {call["result"] for turn in turns for call in turn["calls"]}


def in_text(say: Say, run: str) -> set[str]:
    """The same words where a person reads them."""
    text = say("show", run)
    return {word for word in ("ok", "unmarked") if f"  {word} " in text}


def listed(say: Say, run: str) -> set[str]:
    """The words in the line of each result."""
    lines = [line for line in say("show", run, "--all").splitlines() if RESULT in line]
    return {line.partition(" c")[2].split()[1].rstrip(",") for line in lines}


def counted(say: Say, run: str) -> set[str]:
    """What the column of errors says of each tool."""
    table = say("stats", run).partition("\ntool ")[2].partition("\n\n")[0].splitlines()[1:]
    return {line.split()[2] for line in table}


def found(say: Say, run: str, where: str) -> bool:
    """Whether a question finds results."""
    out = say("grep", f"kind:{RESULT} {where}", run, "-o", "json")
    return bool(out.strip())


def flat(say: Say, run: str) -> set[object]:
    """The flag of each result in JSON."""
    lines = say("grep", f"kind:{RESULT}", run, "-o", "json").splitlines()
    return {json.loads(line).get("error") for line in lines}


def in_sql(say: Say, run: str) -> set[object]:
    """The flag of each result in a table for SQL."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.parquet")
        say("export", run, "--to", "parquet", "--out", str(file))
        rows = duckdb.sql(f"SELECT DISTINCT failed FROM '{file}' WHERE kind = '{RESULT}'")
        return {row[0] for row in rows.fetchall()} if rows is not None else set()


def spans(say: Say, run: str) -> set[object]:
    """Status and outcome of each span of a tool."""
    document = json.loads(say("export", run, "--to", "otel"))
    (scope,) = document["resourceSpans"][0]["scopeSpans"]
    tools = [span for span in scope["spans"] if span["name"].startswith("execute_tool")]
    own = [{each["key"]: each["value"] for each in span["attributes"]} for span in tools]
    assert all({} == span["status"] for span in tools)
    return {each["refold.outcome"]["stringValue"] for each in own}


def ticket(say: Say, run: str) -> bool:
    """Whether the ticket says at its top and at a result that nobody knows how it went."""
    head, _, turns = say("export", run, "--to", "markdown").partition("\n## ")
    at_top, beside = "without a status" in head, "returned (status not recorded)" in turns
    assert at_top == beside
    return at_top


ROWS = [
    pytest.param(shown, {"unmarked"}, {"ok"}, id="show as JSON"),
    pytest.param(in_text, {"unmarked"}, {"ok"}, id="show"),
    pytest.param(listed, {"unmarked"}, {"ok"}, id="show --all"),
    pytest.param(counted, {"unknown"}, {"0"}, id="stats"),
    pytest.param(partial(found, where="error == false"), False, True, id="the question whether it went well"),
    pytest.param(partial(found, where="error:true"), False, False, id="the question whether it failed"),
    pytest.param(
        partial(found, where="reason:unmarked -error:false"),
        True,
        False,
        id="the question for what is unknown",
    ),
    pytest.param(flat, {None}, {False}, id="grep as JSON"),
    pytest.param(in_sql, {None}, {False}, id="Parquet"),
    pytest.param(spans, {"unmarked"}, {"ok"}, id="OTLP"),
    pytest.param(ticket, True, False, id="Markdown"),
]


@pytest.fixture
def say(refold: Refold, store: Path) -> Say:
    """Asks the commands about the store."""
    return lambda *words: refold(*words, "--store", store).out


def imported(say: Say, file: str) -> str:
    """The one run of a transcript."""
    say("import", str(path_of(file)))
    (run,) = [row["run"] for row in json.loads(say("ls", "-o", "json"))]
    return str(run)


@pytest.mark.parametrize("file", [UNMARKED, FINE])
@pytest.mark.parametrize(("told", "unmarked", "fine"), ROWS)
def test_what_nobody_marked_did_not_go_well(
    say: Say, file: str, told: Callable[[Say, str], object], unmarked: object, fine: object
) -> None:
    """Each reader leaves the results of a format that marks no errors unknown, and only these."""
    assert (unmarked if file == UNMARKED else fine) == told(say, imported(say, file))


@pytest.mark.parametrize(("file", "unmarked"), [(UNMARKED, True), (FINE, False)])
def test_a_page_says_it(say: Say, store: Path, file: str, unmarked: bool) -> None:
    """A page has a remark about it, and of each call that nobody knows whether it failed."""
    report = reported(store, imported(say, file))
    turns = Read(page(report)).data["turns"]
    calls = [call for turn in turns for call in turn["calls"] if call["result"] != "open"]
    assert {unmarked} == {call["failed"] is None for call in calls}
    assert unmarked == bool(report.figures.unmarked)


def test_of_a_run_whose_source_marks_some(say: Say, store: Path) -> None:
    """Of a run with marked and unmarked results each is told for what it is, and sums as the least that they
    are.
    """
    run = imported(say, PARTLY)
    assert {"ok", "raised", "unmarked"} == shown(say, run)
    assert "1 raised+?" in say("stats", run)
    assert "1 result without a status" in say("show", run)
    assert ticket(say, run)
    assert "1 result without a status" in reported(store, run).figures.unmarked


def test_an_import_says_it(say: Say) -> None:
    """What an import counts as failed is the least that failed, where results are unmarked."""
    assert "failed 0+?" in say("import", str(path_of("codex/every-row-type-redacted-0.146.jsonl")))
