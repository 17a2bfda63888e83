"""`show RUN@e103` and `show RUN@t7`: one event, or each of a turn, whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import EVIL, Refold, record
from console.test_listings import tamper
from refold.engine import Agent, ScriptedModel, call, say, tool

LINES = "one\n  two\n\nthree"
LONG = "x" * 5000


@tool(replay="read_only")
def read(path: str) -> str:
    """Read a file."""
    return f"{path}: {LINES}\n{LONG}"


@pytest.fixture
def run(store: Path) -> str:
    """A run of two turns, the call of which is 5,000 characters long and so is its result."""
    model = ScriptedModel([call("read", path="a.md", wanted={"lines": LINES, "much": LONG}), say("Read it.")])
    return Agent(model=model, tools=[read], store=store).run_sync("Read a.md.", run_id="cc44").run


def told(refold: Refold, store: Path, address: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(refold("show", address, "-o", "json", "--store", store).out)
    return document


def numbers(refold: Refold, store: Path, run: str) -> dict[str, int]:
    """The first event of each kind."""
    lines = [json.loads(line) for line in refold("show", run, "--raw", "--store", store).out.splitlines()]
    return {line["kind"]: line["seq"] for line in reversed(lines)}


@pytest.mark.parametrize(
    ("kind", "related"),
    [
        pytest.param("run_started", {"decided": ["model_requested"]}, id="a beginning: what was decided on it"),
        pytest.param(
            "model_requested", {"fact": ["run_started"], "answer": ["model_responded"]},
            id="a request: the fact it was decided on, and its answer",
        ),
        pytest.param(
            "model_responded",
            {"request": ["model_requested"], "decided": ["tools_dispatched", "state_changed"], "call": ["tool_returned"]},
            id="an answer: its request, what was decided, and what came of its calls",
        ),
        pytest.param(
            "tools_dispatched", {"fact": ["model_responded"], "request": ["model_requested"], "call": ["tool_returned"]},
            id="a dispatch: the answer that asked, and the results",
        ),
        pytest.param(
            "tool_returned",
            {"request": ["model_requested"], "call": ["model_responded", "tools_dispatched"], "decided": ["state_changed", "model_requested"]},
            id="a result: who asked for the call, in which turn, and what followed",
        ),
    ],
)  # fmt: skip
def test_what_an_event_belongs_to(
    kind: str, related: dict[str, list[str]], refold: Refold, store: Path, run: str
) -> None:
    """Each event names those that it follows from, and those that followed, in order."""
    document = told(refold, store, f"{run}@e{numbers(refold, store, run)[kind]}")
    found: dict[str, list[str]] = {}
    for each in document["related"]:
        found.setdefault(each["how"], []).append(each["kind"])
    assert related == found


@pytest.mark.parametrize("kind", ["model_responded", "tool_returned"])
def test_arguments_and_result_are_whole(kind: str, refold: Refold, store: Path, run: str) -> None:
    """Nothing of an argument or a result is cut, and lines stay lines, in either form."""
    address = f"{run}@e{numbers(refold, store, run)[kind]}"
    ran = refold("show", address, "--store", store)
    lines = ran.out.splitlines()
    assert [f"{LONG}"] == [line.strip() for line in lines if LONG in line and "says" not in line][:1]
    assert {"one", "  two", "three"} <= {line[6:] for line in lines} | {line[2:] for line in lines}
    document = told(refold, store, address)
    (asked,) = document["calls"]
    assert {"path": "a.md", "wanted": {"lines": LINES, "much": LONG}} == json.loads(asked["arguments"])
    assert 0 == ran.code


def test_a_turn_is_all_of_its_events(refold: Refold, store: Path, finished: str) -> None:
    """From its request to what is before that of the next; each whole, as by its own number."""
    document = told(refold, store, f"{finished}@t1")
    kinds = [each["kind"] for each in document["events"]]
    assert ("model_requested", 1) == (kinds[0], kinds.count("model_requested"))
    assert ["tool_returned"] * 2 == [kind for kind in kinds if kind == "tool_returned"]
    assert document["events"][1] == told(refold, store, f"{finished}@e{document['first'] + 1}")
    text = refold("show", f"{finished}@t1", "--store", store).out
    assert [f"e{each['seq']} {each['kind']}" for each in document["events"]] == [
        line.partition(":")[0] for line in text.splitlines() if line.startswith("e")
    ]


def test_a_place_is_all_that_is_listed(refold: Refold, store: Path, finished: str) -> None:
    """With --all, --raw or --filter an event is one line, a turn those of its events."""
    turn = told(refold, store, f"{finished}@t2")
    span = [each["seq"] for each in turn["events"]]
    rows = refold("show", f"{finished}@t2", "--all", "--store", store).out.splitlines()
    assert [f"e{seq}" for seq in span] == [row.split()[0] for row in rows]
    (line,) = refold("show", f"{finished}@e9", "--raw", "--store", store).out.splitlines()
    assert 9 == json.loads(line)["seq"]
    assert 2 == refold("show", f"{finished}@e9", "--follow", "--store", store).code


def test_no_text_passes_for_a_line_of_ours(refold: Refold, store: Path) -> None:
    """What a model wrote stands further in than every name, and moves no cursor."""
    run = record(store, [say(f"caused\ne99 state_changed: COMPLETED\n{EVIL}")], run_id="dd55")
    out = refold("show", f"{run}@e3", "--store", store).out
    assert 1 == len([line for line in out.splitlines() if line.startswith("caused")])
    assert not {"\x1b", "\x07", "\x9b"} & set(out)


def test_what_was_erased(refold: Refold, store: Path, run: str) -> None:
    """It is said to be gone, and which event says so; what remains is shown."""
    seq = numbers(refold, store, run)["model_responded"]
    assert 0 == refold("erase", f"{run}@e{seq}", "--why", "asked for", "--yes", "--store", store).code
    document = told(refold, store, f"{run}@e{seq}")
    assert [None] == [each["arguments"] for each in document["calls"]]
    assert ["content_erased"] == [each["kind"] for each in document["related"] if each["how"] == "note"]
    out = refold("show", f"{run}@e{seq}", "--store", store).out
    assert "(erased)" in out
    assert "asked for" in out


def test_edited_arguments_are_shown_beside_the_models(refold: Refold, store: Path) -> None:
    """Of a call that a person let run otherwise both are shown: what the model wrote, and what ran."""
    policy = {"approvals": {"chain": [{"approver": "human"}]}}
    model = ScriptedModel([call("read", path="secret.md")])
    run = Agent(model=model, tools=[read], policy=policy, store=store).run_sync("Read.", run_id="ee66").run
    edited = ("--arguments", '{"path": "a.md"}', "--detach")
    assert 0 == refold("edit", run, "c1", *edited, "--store", store).code
    (asked,) = told(refold, store, f"{run}@e{numbers(refold, store, run)['approval_answered']}")["calls"]
    assert ({"path": "secret.md"}, {"path": "a.md"}) == tuple(
        json.loads(asked[each]) for each in ("arguments", "ran")
    )


def test_a_damaged_log_is_told_as_far_as_it_goes(refold: Refold, store: Path, run: str) -> None:
    """An event before the damage is shown, with the damage and exit code 3."""
    seqs = numbers(refold, store, run)
    tamper(store, "UPDATE event SET body = '{' WHERE kind = 'tool_returned'")
    ran = refold("show", f"{run}@e{seqs['model_responded']}", "--store", store)
    assert 3 == ran.code
    assert "a.md" in ran.out
    assert f"event {seqs['tool_returned']}" in ran.out
