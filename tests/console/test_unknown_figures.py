"""The gate: what a source did not tell is never shown as 0, whoever is asked. What counts is MANIFEST's
`-`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from console.conftest import Refold, record
from refold.engine import say
from support.transcripts import manifest, path_of
from support.wording import UNCOUNTED_ANSWERS

UNCOUNTED = [
    row["file"]
    for row in manifest()
    # SWE-agent's own totals are of the whole run: of no answer they say anything.
    if (row["input_tokens"], row["output_tokens"]) == ("-", "-") or row["file"].startswith("swe_agent/")
]
HALVES = ["copilot_cli/written-session.jsonl"]
"""Of these each answer tells its output tokens only."""
UNTIMED = [row["file"] for row in manifest() if row["first_timestamp"] == "-"]
COUNTS = re.compile(r"(?<![\d.,])(?<!about )0 (\+ 0 )?tokens|(?<![\d.,])0 (in|out)\b")
HALF_COUNTS = re.compile(r"(?<![\d.,])0 \+ |(?<![\d.,])0 (in|out)\b")
PRICES = re.compile(r"\$0(?![\d.])")
TIMES = re.compile(r"(?<![\d.,])0 s\b|1970-01-01 \d\d:")
KEYS = re.compile(
    r"(input|output|cache_read|cache_write)(_tokens)?|cost(_nanousd)?|gen_ai\..*_tokens|refold.cost_nanousd"
)
TIME_KEYS = re.compile(r"duration|elapsed|longest|p\d\d|recorded_at")
ASKED = (
    ["ls"],
    ["show", "RUN"],
    ["show", "RUN", "--all"],
    ["stats", "RUN"],
    ["state", "RUN"],
    ["diff", "RUN", "RUN"],
)


def asked(refold: Refold, store: Path) -> Iterator[tuple[str, str]]:
    """What each command says of each run as text, by the command."""
    for run in runs(refold, store):
        for words in ASKED:
            told = [run if word == "RUN" else word for word in words]
            yield " ".join(words), refold(*told, "--store", store).out
        yield (
            "markdown",
            refold("export", run, "--to", "markdown", "--store", store).out.partition("\n## ")[0],
        )


def documents(refold: Refold, store: Path) -> Iterator[tuple[str, Any]]:
    """What each command says of each run as JSON, by the command."""
    for run in runs(refold, store):
        for words in (["ls"], ["show", run], ["stats", run], ["diff", run, run], ["grep", "", run]):
            out = refold(*words, "-o", "json", "--store", store).out
            yield (
                words[0],
                [json.loads(line) for line in out.splitlines()] if words[0] == "grep" else json.loads(out),
            )
        yield "otel", json.loads(refold("export", run, "--to", "otel", "--store", store).out)


def runs(refold: Refold, store: Path) -> list[str]:
    """The first runs of a store: each file has one, or many that are alike."""
    return [str(each["run"]) for each in json.loads(refold("ls", "--store", store, "-o", "json").out)][:2]


def zeros(document: Any, keys: re.Pattern[str], path: str = "") -> Iterator[str]:
    """The places in a document at which such a key has the value 0."""
    match document:
        case {"key": str(key), "value": {"intValue": str(value)}} if keys.fullmatch(key):
            yield from [f"{path}.{key}"] if value == "0" else []
        case dict():
            for key, value in document.items():
                if keys.fullmatch(key) and value == 0 and value is not False:
                    yield f"{path}.{key}"
                yield from zeros(value, keys, f"{path}.{key}")
        case list():
            for value in document:
                yield from zeros(value, keys, path)
        case _:
            pass


@pytest.mark.parametrize("file", UNCOUNTED)
def test_tokens_and_prices_that_nobody_counted(file: str, refold: Refold, store: Path) -> None:
    """Of a run whose source counted no tokens no command says that there were 0, or that they cost $0."""
    refold("import", path_of(file), "--store", store)
    for command, said in asked(refold, store):
        assert [] == [line for line in said.splitlines() if COUNTS.search(line) or PRICES.search(line)], (
            command
        )
    for command, document in documents(refold, store):
        assert [] == [*zeros(document, KEYS)], command


@pytest.mark.parametrize("file", HALVES)
def test_tokens_of_which_a_source_counted_one_kind(file: str, refold: Refold, store: Path) -> None:
    """Of a run whose source counted output tokens alone no command says that 0 tokens were sent; what was
    counted is told.
    """
    refold("import", path_of(file), "--store", store)
    (run,) = runs(refold, store)
    commands = [*asked(refold, store), ("show", refold("show", f"{run}@t2", "--store", store).out)]
    commands += [("whatif", refold("whatif", run, "--set", "limits.step=2", "--store", store).out)]
    for command, said in commands:
        assert [] == [line for line in said.splitlines() if HALF_COUNTS.search(line)], command
    judged = refold("whatif", run, "--set", "limits.step=2", "--store", store, "-o", "json").out
    told = [*documents(refold, store), ("whatif", json.loads(judged.splitlines()[0])["whatif"]["until"])]
    for command, document in told:
        assert [] == [*zeros(document, KEYS)], command
    assert "- in, 12 out" in dict(commands)["show"]
    assert "- + 42 tokens" in dict(commands)["whatif"]


@pytest.mark.parametrize("file", UNTIMED)
def test_times_that_nobody_took(file: str, refold: Refold, store: Path) -> None:
    """Of a run whose source told no time no command says that anything took 0 seconds, or when."""
    refold("import", path_of(file), "--store", store)
    for command, said in asked(refold, store):
        assert [] == [line for line in said.splitlines() if TIMES.search(line)], command
    for command, document in documents(refold, store):
        assert [] == [*zeros(document, TIME_KEYS)], command


def test_how_many_answers_have_a_duration(refold: Refold, store: Path) -> None:
    """Quantiles of a few answers are not those of all: `stats` reports of how many answers the duration is
    known.
    """
    record(store, [say("Done.")], run_id="timed")
    assert "with a duration" not in refold("stats", "timed", "--store", store).out
    refold("import", *map(path_of, UNTIMED[:6]), "--store", store)
    out = refold("stats", "--store", store).out
    assert "of 1 response with a duration" in out


def test_a_sum_that_lacks_something_is_a_lower_bound(refold: Refold, store: Path) -> None:
    """Where a source told only a part of the tokens of its answers, their sum is said to be at least that."""
    refold("import", path_of("claude_code/tiny-1.0.jsonl"), "--store", store)
    (run,) = runs(refold, store)
    assert "at least 76,906 tokens" in refold("show", run, "--store", store).out
    assert " 76,906+? " in refold("ls", "--store", store).out
    assert (
        "- Tokens: 76903 in, 3 out at least"
        in refold("export", run, "--to", "markdown", "--store", store).out
    )
    assert f"3 {UNCOUNTED_ANSWERS}" in refold("stats", run, "--store", store).out
    assert 3 == json.loads(refold("show", run, "--store", store, "-o", "json").out)["uncounted"]


@pytest.mark.parametrize(
    ("file", "tokens"),
    [
        pytest.param("claude_code/api-retry.jsonl", "944683+? in, 50+? out", id="not of all answers"),
        pytest.param("codex/rate-limit-0.53.jsonl", "12091 in, 182 out", id="of all"),
    ],
)
def test_an_import_tells_tokens_as_the_list_does(file: str, tokens: str, refold: Refold, store: Path) -> None:
    """What an import counts is a lower bound where a list of runs says so, and there only."""
    ran = refold("import", path_of(file), "--store", store)
    (line,) = [line for line in ran.out.splitlines() if line.startswith("  tokens")]
    assert tokens == line.partition("tokens")[2].strip()
    listed = refold("ls", "--store", store).out.splitlines()[1]
    assert ("+?" in tokens) is ("+?" in listed)


def test_what_a_source_counted_itself_is_shown(refold: Refold, store: Path) -> None:
    """SWE-agent's totals of a whole run are told beside what its answers say, which is nothing."""
    refold("import", path_of("swe_agent/gpt4-pydicom-1458.traj"), "--store", store)
    (run,) = runs(refold, store)
    shown = refold("show", run, "--store", store)
    assert "source   its own totals: 122,612 in, 1,369 out, 12 answers, $1.2672\n" in shown.out
    told = json.loads(refold("show", run, "--store", store, "-o", "json").out)["source_totals"]
    assert {"tokens_sent": 122612, "tokens_received": 1369, "api_calls": 12, "instance_cost": 1.26719} == told


def test_a_view_says_that_most_is_missing(refold: Refold, store: Path) -> None:
    """Where the source counted far more than is known of a request, the view says how much, and else nothing
    of it.
    """
    refold("import", path_of("claude_code/tiny-1.0.jsonl"), "--store", store)
    refold("import", path_of("swe_agent/gpt4-pydicom-1458.traj"), "--store", store)
    said = {run: refold("view", f"{run}@t1", "--store", store).out for run in runs(refold, store)}
    missing = {
        run.partition("-")[0]: line
        for run, out in said.items()
        for line in out.splitlines()
        if "counted" in line
    }
    assert {"claude_code": "missing   the source counted 25,386 tokens, about 55 are known"} == missing
    for out in said.values():
        assert "not recorded by the source" in out


def test_a_run_of_our_own_counts_from_nothing(refold: Refold, store: Path) -> None:
    """A scripted answer that was counted, and cost nothing, is told as it is."""
    run = record(store, [say("Done.")], run_id="aa11")
    assert "tokens, $0, " in refold("show", run, "--store", store).out
    assert re.search(r" 1 +\d+ +\$0 ", refold("ls", "--store", store).out)


def test_a_table_has_null_for_what_nobody_counted(refold: Refold, store: Path) -> None:
    """In Parquet no token, price or time that nobody counted is a number."""
    refold("import", path_of("tau_bench/airline-one-run.json"), "--store", store)
    (run,), table = runs(refold, store), store.with_name("t.parquet")
    assert 0 == refold("export", run, "--to", "parquet", "--out", table, "--store", store).code
    columns = (
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "cost",
        "duration",
        "elapsed",
    )
    with duckdb.connect() as connection:
        counted = ", ".join(f"count({column})" for column in columns)
        assert [(0,) * len(columns)] == connection.execute(f"SELECT {counted} FROM '{table}'").fetchall()
