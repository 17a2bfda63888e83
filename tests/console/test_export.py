"""`refold export`: the shapes that other programs read, of runs whose every word is hostile."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import duckdb
import pytest
from markdown_it import MarkdownIt

from console.conftest import EVIL, Refold, record
from console.test_forged import forged, numbers_grown
from refold.engine import calls, say
from refold.importers.formats.openai_messages import OPENAI_MESSAGES
from refold.importers.formats.otel.importer import OTEL
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.replay.exports.table import record as read_line
from refold.store import GENESIS
from refold.store.chain import extend
from refold.store.protocol import Head, Record
from support.wording import NAME_RUNS

MARKUP = (
    "# head\n\n<script>alert(1)</script> <b>x</b> [l](javascript:1) ![i](http://x/i.png) ``` ```` ~~~ `a` **b** | c |\n"
    "- item @team #12 http://auto.link &amp; \\`\n\n    indented\n\n```\nfenced\n```"
)
SHAPES = ("jsonl", "markdown", "openai", "otel", "parquet")


@pytest.fixture
def marked(store: Path) -> str:
    """A run that says Markdown and HTML in every place that has words."""
    lines = [calls(("look", {"path": MARKUP}), text=MARKUP), say(MARKUP)]
    return record(store, lines, MARKUP, run_id="aa33")


def ask(sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers."""
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


def exported(refold: Refold, store: Path, run: str, shape: str, *more: str) -> str:
    """What the command writes into a file."""
    file = store.with_name(f"out.{shape}")
    ran = refold("export", run, "--to", shape, "--out", file, "--store", store, "--force", *more)
    assert (0, "") == (ran.code, ran.err)
    return file.read_text(encoding="utf-8")


def test_json_lines_are_the_records(refold: Refold, store: Path, finished: str) -> None:
    """Each line is an event, whole: read back, the records make the same chain of hashes."""
    text = exported(refold, store, finished, "jsonl")
    stored = [read_line(line) for line in text.splitlines()]
    records = [
        Record(at=each.at, kind=each.kind, body=each.body, content=each.content, salt=each.salt)
        for each in stored
    ]
    assert stored == extend(finished, Head(seq=0, hash=GENESIS), records)
    assert list(range(1, len(stored) + 1)) == [each.seq for each in stored]


def test_json_lines_on_stdout_have_the_same_values(refold: Refold, store: Path, finished: str) -> None:
    """On stdout no control character passes, and every value is the file's."""
    ran = refold("export", finished, "--store", store)
    assert 0 == ran.code
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066]", ran.out)
    file = exported(refold, store, finished, "jsonl")
    assert [json.loads(line) for line in file.splitlines()] == [
        json.loads(line) for line in ran.out.splitlines()
    ]


@pytest.mark.parametrize("said", ["markup", "control characters"])
def test_markdown_is_never_the_logs(
    refold: Refold, store: Path, marked: str, finished: str, said: str
) -> None:
    """Whatever a log says stands in code: no tag, link, picture, heading or list is its, and nothing moves a
    cursor.
    """
    text = exported(refold, store, marked if said == "markup" else finished, "markdown")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066]", text)
    tokens = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    plain = [*(token for token in tokens if token.type != "inline"), *inline]
    kinds = {token.type for token in plain}
    assert not kinds & {
        "html_block",
        "html_inline",
        "link_open",
        "image",
        "code_block",
        "strong_open",
        "table_open",
    }
    outside = "\n".join(token.content for token in plain if token.type == "text")
    for word in (
        "script",
        "alert",
        "javascript",
        "fenced",
        "indented",
        "team",
        "item",
        "auto.link",
        "evil",
        "owned",
    ):
        assert word not in outside
    heads = [
        token.content
        for token in tokens
        if token.type == "inline" and token.map and text.splitlines()[token.map[0]].startswith("#")
    ]
    assert all(re.match(r"Run `|Opening|Decisive events|Turn \d+|COMPLETED", head) for head in heads)
    assert "Turn 1" in heads


def test_markdown_says_what_decided(refold: Refold, store: Path, limited: str) -> None:
    """The ticket's first section names what ended the run, before what happened turn by turn."""
    text = exported(refold, store, limited, "markdown")
    decided, turns = text.index("ended MAX_STEPS"), text.index("## Turn 1")
    assert decided < turns
    assert "It called `look x` as `c1`" in text
    assert text.rstrip().rsplit("## ", 1)[1].startswith("MAX_STEPS")


def test_long_texts_are_cut_in_a_ticket(refold: Refold, store: Path) -> None:
    """A text longer than a ticket should hold is cut, and the event that has all of it is named."""
    run = record(store, [say("x" * 5000)], run_id="aa44")
    text = exported(refold, store, run, "markdown")
    assert "x" * 2001 not in text
    assert "3000 more characters in event 3." in text


def test_openai_messages(refold: Refold, store: Path, finished: str) -> None:
    """One object a run: the whole conversation, each call's results right behind it, arguments byte for
    byte.
    """
    found = json.loads(exported(refold, store, finished, "openai"))
    roles = [message["role"] for message in found["messages"]]
    assert ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"] == roles
    asked = found["messages"][1]["tool_calls"]
    assert [call["id"] for call in asked] == [message["tool_call_id"] for message in found["messages"][2:4]]
    assert {"path": "a.md"} == json.loads(asked[0]["function"]["arguments"])
    assert ["look", "act"] == [tool["function"]["name"] for tool in found["tools"]]
    assert "COMPLETED" == found["metadata"]["state"]


def test_openai_messages_import(refold: Refold, store: Path, finished: str) -> None:
    """Our importer of message lists reads the export, with nothing odd."""
    file = exported(refold, store, finished, "openai").encode()
    reading = Transcript(Source.of("x", file), OPENAI_MESSAGES)
    for run in reading.runs():
        assert list(run.derive(lambda _: b""))
    counts = reading.counts()
    assert (1, 7, 3, 3) == (counts.runs, counts.messages, counts.tool_calls, counts.tool_results)
    assert 0 == reading.odd


def test_spans_have_the_same_counts(refold: Refold, store: Path, finished: str, limited: str) -> None:
    """Spans of two runs, read by our importer, are two runs with as many answers, calls, errors and
    tokens.
    """
    file = store.with_name("both.otel")
    refold("export", finished, limited, "--to", "otel", "--out", file, "--store", store)
    reading = Transcript(Source.of("x", file.read_bytes()), OTEL)
    for _ in reading.runs():
        pass
    counts = reading.counts()
    stats = json.loads(refold("stats", "--all", "--store", store, "-o", "json").out)["counts"]
    assert (2, 5, 5, 1) == (counts.runs, counts.assistant_messages, counts.tool_calls, counts.tool_errors)
    assert (stats["input"] or "-", stats["output"]) == (
        counts.input_tokens,
        counts.output_tokens,
    )


def test_spans_are_deterministic(refold: Refold, store: Path, finished: str) -> None:
    """Two exports of a log are the same bytes; ids are lower-case hex of the protocol's lengths; all under
    one root.
    """
    text = exported(refold, store, finished, "otel")
    assert text == exported(refold, store, finished, "otel")
    spans: list[dict[str, Any]] = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert all(re.fullmatch("[0-9a-f]{32}", span["traceId"]) for span in spans)
    ids = [span["spanId"] for span in spans]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)
    roots = [span for span in spans if "parentSpanId" not in span]
    assert ["invoke_agent"] == [span["name"] for span in roots]
    assert {roots[0]["spanId"]} == {span["parentSpanId"] for span in spans if span is not roots[0]}
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)


@pytest.mark.parametrize("prompts", [True, False], ids=["all of each", "what is new"])
def test_prompts_in_spans_are_the_views(refold: Refold, store: Path, finished: str, *, prompts: bool) -> None:
    """A chat span's input, behind the messages that it says stand in front of it, is what `refold view` shows
    of its turn.
    """
    text = exported(refold, store, finished, "otel", *(["--prompts"] if prompts else []))
    spans = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    shown: list[Any] = []
    for turn, chat in enumerate((span for span in spans if span["name"].startswith("chat")), 1):
        own = {pair["key"]: pair["value"] for pair in chat["attributes"]}
        before = int(own["refold.input.before"]["intValue"]) if "refold.input.before" in own else 0
        assert before == (0 if prompts else len(shown))
        shown = [*shown[:before], *json.loads(own["gen_ai.input.messages"]["stringValue"])]
        view = json.loads(refold("view", f"{finished}@t{turn}", "--store", store, "-o", "json").out)
        messages = view["request"]["messages"]
        assert [message["role"] for message in messages] == [message["role"] for message in shown]
        said = [message["parts"][0].get("content", message["parts"][0].get("response")) for message in shown]
        assert [message.get("text", "") for message in messages if message["role"] != "assistant"] == [
            text for text, message in zip(said, shown, strict=True) if message["role"] != "assistant"
        ]


def test_our_spans_tell_each_prompt(refold: Refold, store: Path, finished: str) -> None:
    """Our importer finds each prompt of our export, and the derived view shows just that."""
    file = exported(refold, store, finished, "otel").encode()
    reading = Transcript(Source.of("x", file), OTEL)
    fits = []
    for run in reading.runs():
        assert list(run.derive(lambda _: b""))
        fits.append(run.ended.fit)
    assert [(1, 2, 0, 0)] == [(fit.first, fit.equal, fit.changed, fit.unequal) for fit in fits]


@pytest.mark.parametrize("shape", ["jsonl", "otel", "parquet"])
def test_without_content_nothing_said_is_there(refold: Refold, store: Path, shape: str) -> None:
    """`--no-content` leaves no word of the task, the answers, the arguments and the results."""
    run = record(
        store,
        [calls(("look", {"path": "SECRETWORD"}), text="SECRETWORD"), say("SECRETWORD")],
        "SECRETWORD",
        run_id="aa55",
    )
    file = store.with_name(f"out.{shape}")
    ran = refold("export", run, "--to", shape, "--out", file, "--store", store, "--no-content")
    assert 0 == ran.code
    assert b"SECRETWORD" not in file.read_bytes()
    if shape == "parquet":
        words = f"SELECT count(text), count(content), sum(body LIKE '%SECRETWORD%') FROM '{file}'"
        assert [(0, 0, 0)] == ask(words)


def test_parquet_is_a_typed_table(refold: Refold, store: Path, finished: str, limited: str) -> None:
    """A row an event with its types; sums over it are the store's own."""
    file = store.with_name("runs.parquet")
    assert 0 == refold("export", "--all", "--to", "parquet", "--out", file, "--store", store).code
    types = {row[0]: row[1] for row in ask(f"DESCRIBE FROM '{file}'")}
    assert ("VARCHAR", "BIGINT", "TIMESTAMP_NS", "DOUBLE", "BOOLEAN") == tuple(
        types[name] for name in ("run", "seq", "recorded_at", "cost", "failed")
    )
    stats = json.loads(refold("stats", "--all", "--store", store, "-o", "json").out)["counts"]
    asked = f"SELECT count(DISTINCT run), count(*), sum(input_tokens) FROM '{file}'"
    assert [(2, stats["events"], stats["input"])] == ask(asked)
    tools = f"SELECT tool, count(*), count(*) FILTER (failed), any_value(error) FROM '{file}' WHERE kind = 'tool_returned' GROUP BY 1 ORDER BY 1"
    assert [("act", 1, 1, "raised"), ("look", 4, 0, None)] == ask(tools)


def test_up_to_an_event(refold: Refold, store: Path, finished: str) -> None:
    """RUN@e3 exports the beginning of a run."""
    assert 3 == len(exported(refold, store, f"{finished}@e3", "jsonl").splitlines())


def test_erased_words_stay_erased(refold: Refold, store: Path, finished: str) -> None:
    """Of an erased event the shapes have its place, and say that the words are gone."""
    refold("erase", f"{finished}@e3", "--why", "asked", "--yes", "--store", store)
    for shape in SHAPES:
        file = store.with_name(f"out.{shape}")
        assert 0 == refold("export", finished, "--to", shape, "--out", file, "--store", store, "--force").code
        assert b"First" not in file.read_bytes()
    assert "*Erased.*" in store.with_name("out.markdown").read_text()
    assert "[erased]" in store.with_name("out.openai").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["aa11", "--to", "parquet"], "name its file", id="Parquet is no text"),
        pytest.param(
            ["aa11", "--to", "openai", "--no-content"],
            "not possible with --to openai",
            id="messages without words",
        ),
        pytest.param([], NAME_RUNS, id="no run"),
        pytest.param(["aa11", "--all"], NAME_RUNS, id="a run and all"),
        pytest.param(["zz"], "matches no run", id="an unknown run"),
        pytest.param(["aa11", "--to", "xml"], "jsonl", id="an unknown shape"),
    ],
)
def test_wrong_use(refold: Refold, store: Path, finished: str, words: list[str], told: str) -> None:
    """What cannot work is refused with what to do."""
    ran = refold("export", *words, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert told in ran.err


@pytest.mark.parametrize("shape", SHAPES)
def test_no_file_is_written_over_or_left_half(refold: Refold, store: Path, finished: str, shape: str) -> None:
    """A file that is there stays, unless --force; a log that breaks off in the middle leaves the old file,
    and no other.
    """
    file = store.with_name("kept")
    file.write_text("mine")
    assert 2 == refold("export", finished, "--to", shape, "--out", file, "--store", store).code
    damaged = store.with_name("damaged.db")
    forged(store, finished, damaged, lambda log: [*log[:5], *log[6:]])
    before = {path.name for path in store.parent.iterdir()}
    ran = refold("export", finished, "--to", shape, "--out", file, "--store", damaged, "--force")
    written = shape in (
        "jsonl",
        "markdown",
    )  # the lines are what stands there; a ticket says where it breaks off
    assert (0 if shape == "jsonl" else 3) == ran.code
    assert written == (file.read_bytes() != b"mine")
    assert (b"## Damage" in file.read_bytes()) == (shape == "markdown")
    assert {path.name for path in store.parent.iterdir()} - {"damaged.db-wal", "damaged.db-shm"} <= before | {
        "kept"
    }
    assert stat.S_ISREG(file.stat().st_mode)


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_without_end(refold: Refold, store: Path, finished: str, shape: str) -> None:
    """Numbers as long as a log may hold are written, or null where a column cannot hold them."""
    grown = store.with_name("grown.db")
    forged(store, finished, grown, numbers_grown)
    file = store.with_name("out")
    assert 0 == refold("export", finished, "--to", shape, "--out", file, "--store", grown).code
    assert file.stat().st_size


def test_no_such_folder(refold: Refold, store: Path, finished: str) -> None:
    """A file that cannot be written is the world's failure, with its name."""
    ran = refold("export", finished, "--out", store.parent / "no" / "x", "--store", store)
    assert 4 == ran.code
    assert "no/x" in ran.err
    assert EVIL not in ran.err
