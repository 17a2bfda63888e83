"""What is logged of the history: the fields, their order, and when nothing is said at all."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.journal import LOGGER, lines
from refold.reducers.events import Event, HistoryPruned, MessageTrimmed, ModelRequested, StateDigested
from refold.reducers.messages import Size
from refold.reducers.parser import parse
from refold.reducers.state import NEW, Pending, RunState, Spent
from refold.reducers.vocabulary import Cause
from support.setups import setup_of


def state(*passes: dict[str, Any], **more: Any) -> RunState:
    overflow = {"overflow": {"do": more.pop("inline")}} if "inline" in more else {}
    policy = parse({"history": list(passes), **overflow})
    return RunState(setup=setup_of(policy=policy), spent=Spent(steps=6), **more)


def pruned(name: str = "tail", reason: str = "window", *, over: bool = False) -> HistoryPruned:
    return HistoryPruned(
        name=name, reason=reason, before=9, after=4, tokens_before=90, tokens_after=40, kept=((1, 1),),
        over_budget=over,
    )  # fmt: skip


def trimmed(name: str = "trim_messages") -> MessageTrimmed:
    return MessageTrimmed(
        message=3,
        cause=Cause.HISTORY,
        name=name,
        reason="threshold",
        before=90,
        size=Size(tokens=40, chars=160, digest="d"),
    )


ASKED = ModelRequested(step=6, attempt=2, view="", messages=(), input_tokens=0)
REQUEST = Pending(seq=43, at=0, until=None, event=ASKED)
TAIL = {"do": "tail", "last": 3}
TRIM = {"do": "trim_messages", "cap": 40}
AGE = {"do": "age_results", "keep_last": 6, "hard": {"over": 9}}
BUDGET = {"do": "token_tail", "budget": 9, "when": {"tokens": 12}}
ROWS = [
    pytest.param(pruned(), state(TAIL), "refold.prune: reason=window pre=9 post=4 keep_last=3 step=7 seq=41 run=r1 pass=tail over_budget=0", id="a tail"),
    pytest.param(pruned(), state({**TAIL, "when": {"messages": 8}}), "refold.prune: reason=window pre=9 post=4 keep_last=3 threshold=8 step=7 seq=41 run=r1 pass=tail over_budget=0", id="a threshold of messages"),
    pytest.param(pruned("token_tail", "budget", over=True), state(BUDGET), "refold.prune: reason=budget pre=9 post=4 threshold=12 step=7 seq=41 run=r1 pass=token_tail over_budget=1", id="tokens, over the budget"),
    pytest.param(pruned("age_results"), state(AGE), "refold.prune: reason=window pre=9 post=4 keep_last=6 step=7 seq=41 run=r1 pass=age_results over_budget=0", id="keep_last of another pass"),
    pytest.param(pruned("gone"), state(), "refold.prune: reason=window pre=9 post=4 step=7 seq=41 run=r1 pass=gone over_budget=0", id="a pass that the policy does not have any more"),
    pytest.param(pruned("in", "overflow"), state(inline=[{**TAIL, "name": "in"}]), "refold.prune: reason=overflow pre=9 post=4 keep_last=3 step=7 seq=41 run=r1 pass=in over_budget=0", id="one of an overflow"),
    pytest.param(pruned(), state(TAIL, request=REQUEST), "refold.prune: reason=window pre=9 post=4 keep_last=3 step=6 seq=41 run=r1 pass=tail over_budget=0", id="the step whose request follows"),
    pytest.param(pruned("my own"), state({**TAIL, "name": "my own"}), 'refold.prune: reason=window pre=9 post=4 keep_last=3 step=7 seq=41 run=r1 pass="my\\u0020own" over_budget=0', id="a name of two words is one value"),
    pytest.param(trimmed(), state(TRIM), "refold.trim: reason=threshold pre=90 post=40 cap=40 message=3 step=7 seq=41 run=r1 pass=trim_messages", id="a message cut"),
    pytest.param(trimmed("age_results"), state(AGE), "refold.trim: reason=threshold pre=90 post=40 message=3 step=7 seq=41 run=r1 pass=age_results", id="by a pass without a cap"),
    pytest.param(StateDigested(state="d"), state(), None, id="any other event"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "at", "line"), ROWS)
def test_fields_and_their_order(event: Event, at: RunState, line: str | None) -> None:
    """One row a rule; scripts split these lines, so every field stays where it is."""
    assert line == lines(event, at, "r1", 41)


@pytest.fixture
def level() -> Iterator[None]:
    before = LOGGER.level
    yield
    LOGGER.setLevel(before)


@tool(replay="read_only")
def look() -> str:
    """Look."""
    return "nothing"


def run() -> None:
    model = ScriptedModel([call("look"), call("look"), say("done")])
    policy = {"history": [{"do": "tail", "last": 2}]}
    Agent(model=model, tools=[look], policy=policy).run_sync("go", run_id="r1")


def test_one_line_an_event_where_it_is_wanted(caplog: pytest.LogCaptureFixture, level: None) -> None:
    """With its level at INFO each prune of a run is one line, with the number of its event."""
    LOGGER.setLevel(logging.INFO)
    run()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "refold.prune"]
    assert line.startswith("refold.prune: reason=window pre=5 post=3 keep_last=2 step=3 seq=")
    assert line.endswith(" run=r1 pass=tail over_budget=0")


def test_nothing_unless_somebody_asks(caplog: pytest.LogCaptureFixture) -> None:
    """However loud the rest of a program is, this has a switch of its own."""
    with caplog.at_level(logging.DEBUG):
        run()
    assert [] == [record for record in caplog.records if record.name == "refold.prune"]


def test_a_state_before_anything() -> None:
    """The function is total: also where nothing was requested yet."""
    assert "refold.prune: reason=window pre=9 post=4 step=1" in (lines(pruned(), NEW, "r1", 2) or "")
