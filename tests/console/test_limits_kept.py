"""Limits of cost and tokens hold in every command that goes on with a run, by a price that was typed once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Ran, Refold
from support.wire import COUNTS, ON_THE_WIRE, Server, calling, chat, piece

pytestmark = ON_THE_WIRE[1:]

NANO = 13_000_000
"""What an answer of the server costs at `PRICE`."""
PRICE = ("--price", "10/30")
LIMIT = {"type": "cost", "value": 0.02}
SAYS = chat(piece({"content": "And now?"}, "stop"), COUNTS)
CALLS = chat(piece(calling(0, id="a", name="write_todos", arguments='{"items": []}'), "tool_calls"), COUNTS)

Begun = Callable[..., Ran]


@pytest.fixture
def begun(refold: Refold, server: Server, store: Path, tmp_path: Path) -> Begun:
    """Starts a run at the server, under a policy."""

    def begin(*words: str, **policy: Any) -> Ran:
        file = tmp_path / "p.json"
        file.write_text(json.dumps({"schema": "refold/v1", **policy}))
        return refold(
            "run", "Go", "--policy", file, "--model", "openai:x", *at(server), *words, "--store", store
        )

    return begin


def at(server: Server) -> tuple[str, str]:
    """The words that say where the model is."""
    return "--base-url", f"{server.address}/v1"


def recorded(refold: Refold, store: Path, run: str = "@last") -> list[dict[str, Any]]:
    """The events of a run."""
    return [json.loads(line) for line in refold("show", run, "--raw", "--store", store).out.splitlines()]


def first(refold: Refold, store: Path, kind: str) -> dict[str, Any]:
    """The first event of a kind in the newest run."""
    return next(each for each in recorded(refold, store) if each["kind"] == kind)


def costs(refold: Refold, store: Path) -> list[int | None]:
    """What the answers of the newest run cost, as they were recorded."""
    events = recorded(refold, store)
    return [each["body"].get("cost_nanousd") for each in events if each["kind"] == "model_responded"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["resume", "@last", "--message", "More."], id="resume"),
        pytest.param(["resume", "@last", "--message", "More.", *PRICE], id="resume with the price"),
        pytest.param(
            ["resume", "@last", "--message", "More.", "--price", "10.0/030"], id="otherwise written"
        ),
        pytest.param(["resume", "@last", "--message", "More.", "--detach"], id="a worker, answered"),
        pytest.param(["fork", "@last", "--say", "More."], id="fork"),
        pytest.param(["fork", "@last", "--say", "More.", "--detach"], id="a worker, forked"),
    ],
)
def test_every_answer_is_counted(
    refold: Refold, begun: Begun, server: Server, store: Path, words: list[str]
) -> None:
    """Whoever goes on with a run counts its cost by the price that it was started with, typed again or
    not.
    """
    server.script = SAYS
    assert 1 == begun(*PRICE, limits=[LIMIT], end_of_turn="wait").code
    ran = refold(*words, *at(server), "--store", store)
    if "--detach" in words:
        refold("worker", "--until-idle", *at(server), "--store", store)
    assert [NANO, NANO] == costs(refold, store), ran.err
    assert "10/30" == recorded(refold, store)[0]["body"]["price"]


def test_a_limit_ends_a_run_that_was_approved(
    refold: Refold, begun: Begun, server: Server, store: Path
) -> None:
    """A run that waited for a person ends at its limit, and what is told to be typed next says all that it
    takes.
    """
    server.script = CALLS
    chain = [{"approver": "human", "tools": ["write_todos"]}]
    ran = begun(*PRICE, limits=[LIMIT], approvals={"chain": chain})
    assert all(" ".join([*at(server), *PRICE]) in line for line in ran.err.splitlines() if "approve " in line)
    ran = refold("approve", "@last", "c1", *at(server), "--store", store)
    assert (1, [NANO, NANO]) == (ran.code, costs(refold, store))
    assert "BUDGET_EXCEEDED" in ran.out
    assert "$0.0260 of $0.0200" in ran.out


@pytest.mark.parametrize(
    ("began", "price", "way_out"),
    [
        pytest.param(PRICE, "0/0", "pass that price (--price 10/30), or fork the run", id="for nothing"),
        pytest.param((), "0/0", "omit the price, or fork the run", id="of one without a price"),
    ],
)
def test_another_price(
    refold: Refold,
    begun: Begun,
    server: Server,
    store: Path,
    began: tuple[str, ...],
    price: str,
    way_out: str,
) -> None:
    """It is refused, and nothing changes: the limits of a run would count something else from there on."""
    server.script = SAYS
    begun(*began, end_of_turn="wait")
    before = recorded(refold, store)
    words = ["resume", "@last", "--message", "More.", "--price", price]
    ran = refold(*words, *at(server), "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert way_out in ran.err
    assert before == recorded(refold, store)


def test_a_fork_at_another_price(refold: Refold, begun: Begun, server: Server, store: Path) -> None:
    """A fork is where another price is said, and it counts by that."""
    server.script = SAYS
    begun(*PRICE, limits=[LIMIT], end_of_turn="wait")
    refold("fork", "@last", "--say", "More.", "--price", "1/3", *at(server), "--store", store)
    assert [NANO, NANO // 10] == costs(refold, store)


def test_a_fork_to_another_place(refold: Refold, begun: Begun, server: Server, store: Path) -> None:
    """What a model costs at one place says nothing of another: a limit of cost is refused there without a
    price.
    """
    server.script = SAYS
    begun(*PRICE, limits=[LIMIT], end_of_turn="wait")
    ran = refold("fork", "@last", "--say", "More.", "--base-url", "http://127.0.0.1:9/v1", "--store", store)
    assert 2 == ran.code
    assert "the price of openai:x is unknown" in ran.err


UNCOUNTED = chat(piece({"content": "And now?"}, "stop"))
ZEROS = chat(
    piece({"content": "And now?"}, "stop"),
    {**COUNTS, "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
)
COUNTLESS_CALLS = chat(piece(calling(0, id="a", name="write_todos", arguments='{"items": []}'), "tool_calls"))
TOKENS = {"type": "token", "value": 20_000}


@pytest.mark.parametrize(
    ("script", "limit", "code", "told"),
    [
        pytest.param(UNCOUNTED, LIMIT, "cost_unknown", "cost: $0+? of $0.0200", id="cost"),
        pytest.param(UNCOUNTED, TOKENS, "token_unknown", "token: 0+? of 20,000 tokens", id="tokens"),
        pytest.param(ZEROS, LIMIT, "cost_unknown", "cost: $0+? of $0.0200", id="a server that says 0 of what it does not count"),
        pytest.param(COUNTLESS_CALLS, LIMIT, "cost_unknown", "cost: $0+? of $0.0200", id="a model that calls for ever"),
        pytest.param(COUNTLESS_CALLS, {**LIMIT, "check": "preflight"}, "cost_unknown", "cost: $0+? of $0.0200", id="before a request"),
        pytest.param(COUNTLESS_CALLS, {**TOKENS, "check": "response_deferred"}, "token_unknown", "token: 0+? of 20,000", id="behind its batch"),
    ],
)  # fmt: skip
def test_a_server_that_counts_nothing(
    refold: Refold,
    begun: Begun,
    server: Server,
    store: Path,
    script: Any,
    limit: dict[str, Any],
    code: str,
    told: str,
) -> None:
    """What nobody counted is not nothing: a limit that cannot be kept ends the run, and says so wherever it
    is told.
    """
    server.script = script
    ran = begun(*PRICE, limits=[limit])
    assert 1 == ran.code
    assert f"ERROR: limit '{limit['type']}' cannot be kept: nobody" in ran.out
    assert f"({code})" in ran.out
    assert told in ran.out
    assert ["uncounted", "unpriced"] == first(refold, store, "model_responded")["body"]["unknown"]
    place = f"@last@e{first(refold, store, 'limit_reached')['seq']}"
    assert "cannot know" in refold("why", place, "--store", store).out
    assert 0 == refold("audit", "@last", "--store", store).code


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        pytest.param({**LIMIT, "unpriced": "ignore"}, "$0+?/$0.0200", id="cost"),
        pytest.param({**TOKENS, "uncounted": "ignore"}, "0+?/20,000 tokens", id="tokens"),
    ],
)
def test_a_policy_that_lets_it_pass(
    refold: Refold, begun: Begun, server: Server, store: Path, limit: dict[str, Any], told: str
) -> None:
    """It goes on where its policy says so, and what was used is told as the least that it can have been."""
    server.script = UNCOUNTED
    ran = begun(*PRICE, limits=[limit])
    assert 0 == ran.code, ran.out
    assert told in ran.out
    place = f"@last@e{first(refold, store, 'model_responded')['seq']}"
    assert "cannot know, ignored" in refold("why", place, "--store", store).out


def test_what_costs_nothing(begun: Begun, server: Server) -> None:
    """Of a model for nothing it is known what it costs, whoever counts."""
    server.script = UNCOUNTED
    ran = begun("--price", "0/0", limits=[LIMIT])
    assert 0 == ran.code
    assert "$0/$0.0200" in ran.out


def test_what_bounds_a_run_and_what_does_not(
    begun: Begun, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lines of a run say that nothing bounds its steps and time, and which variables come to
    nothing.
    """
    monkeypatch.setenv("REFOLD_COST_LIMIT", "-1")
    monkeypatch.setenv("REFOLD_MAX_STEP", "5")
    server.script = SAYS
    ran = begun(*PRICE, limits=[{**LIMIT, "unpriced": "ignore"}])
    assert "limits: $0.0200 (unknown counts as 0); no limit of steps or time" in ran.out
    assert "note: REFOLD_COST_LIMIT=-1 sets no limit" in ran.err
    assert "note: REFOLD_MAX_STEP: unknown variable, ignored; did you mean REFOLD_MAX_STEPS?" in ran.err


@pytest.mark.parametrize(
    ("limits", "notes"),
    [
        pytest.param("[{type: cost, value: 1}]", ["limits: no limit of steps or time"], id="money alone"),
        pytest.param("[{type: cost, value: 1}, {type: time, value: 9}]", [], id="money and time"),
        pytest.param("[{type: step, value: null}]", ["limits: no limit of steps or time"], id="unlimited"),
        pytest.param(
            "[{type: step, value: 1}, {type: token, value: 9, uncounted: ignore}]",
            ["limits[1]: a response without known tokens counts as zero, so the limit may be exceeded"],
            id="a limit that lets the unknown pass",
        ),
    ],
)
def test_check_says_what_bounds_no_run(refold: Refold, tmp_path: Path, limits: str, notes: list[str]) -> None:
    """A policy that limits neither steps nor time, or keeps a limit by what is known alone, may be meant so;
    it is told.
    """
    path = tmp_path / "p.yaml"
    path.write_text(f"schema: refold/v1\nlimits: {limits}\n")
    told = [*(f"note: {each}" for each in notes), f"{path} is valid"]
    assert told == refold("policy", "check", path).out.splitlines()
