"""What people are warned of, and what cannot start; what is refused at once is in `test_refused_policies`."""

from typing import Any

import msgspec
import pytest

from refold.reducers.complaints import opening, warnings
from refold.reducers.composition import started
from refold.reducers.errors import PolicyError
from refold.reducers.events import RunStarted
from refold.reducers.messages import Message
from refold.reducers.parser import parse
from refold.reducers.rules import RULES
from refold.reducers.vocabulary import Role

ALWAYS = {"always": True}
WINDOW = {"name": "window", "do": "tail", "last": 100}


def steps(*limits: dict[str, Any]) -> dict[str, Any]:
    return {"limits": [{"type": "step", "name": f"l{place}", **limit} for place, limit in enumerate(limits)]}


def passes(*listed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"history": [{"name": f"p{place}", **each} for place, each in enumerate(listed)], **more}


SUMMARISE = {"do": "summarise", "keep_last": 20}
DIGEST = {"do": "digest", "keep_last": 20, "per_message": 9, "total": 99}

WARNED = [
    pytest.param({}, [], id="the default"),
    pytest.param(steps({"value": 5}, {"value": 9}), ["limits[1]: never reached: limits[0]"], id="a higher limit"),
    pytest.param(steps({"value": 9}, {"value": 5}), ["limits[0]: never reached: limits[1]"], id="whatever the order"),
    pytest.param(steps({"value": 5}, {"value": 5}), ["limits[1]: never reached: limits[0]"], id="the second of two equal"),
    pytest.param(steps({"value": 5, "op": ">"}, {"value": 5}), ["limits[0]: never reached: limits[1]"], id=">= before >"),
    pytest.param(steps({"value": 5, "op": ">"}, {"value": 5, "op": ">"}), ["limits[1]: never reached: limits[0]"],
                 id="> twice"),
    pytest.param(steps({"value": 5, "op": ">"}, {"value": 6}), ["limits[1]: never reached: limits[0]"],
                 id="> one below: the sixth step is what both see first"),
    pytest.param(steps({"value": None}, {"value": 9}), [], id="no limit ends nothing"),
    pytest.param(steps({"value": 5}, {"value": None}), [], id="no limit is not reached on purpose"),
    pytest.param(steps({"value": 5, "scope": "turn"}, {"value": 9}), [], id="turns are shorter than the run"),
    pytest.param(steps({"value": 5}, {"value": 9, "scope": "turn"}), ["limits[1]: never reached: limits[0]"],
                 id="a turn is not longer than the run"),
    pytest.param(steps({"value": 5, "scope": "lineage"}, {"value": 5}), ["limits[1]: never reached: limits[0]"],
                 id="nor the run than its lineage"),
    pytest.param(steps({"value": 5, "check": "response"}, {"value": 9}), [], id="looked at elsewhere"),
    pytest.param(steps({"value": 5, "free_tools": ["look"]}, {"value": 9}), [], id="counted otherwise"),
    pytest.param({"limits": [{"type": "time", "value": 5}, {"type": "token", "value": 9}]}, [], id="of another type"),
    pytest.param({"limits": [{"type": "token", "value": 5}, {"type": "token", "measure": "estimate", "value": 9}]}, [],
                 id="of another measure"),
    pytest.param(passes(WINDOW, {"do": "tail", "last": 9, "when": {"messages": 102}}), ["history[1]: never reached"],
                 id="a threshold that the window before it keeps"),
    pytest.param(passes(WINDOW, {"do": "tail", "last": 9, "when": {"messages": 101}}), [],
                 id="one below, with system prompt and task, it is reached"),
    pytest.param(passes(WINDOW, {"do": "tail", "last": 100}), ["history[1]: never reached"], id="a window as wide"),
    pytest.param(passes(WINDOW, {"do": "tail", "last": 99}), [], id="a narrower one"),
    pytest.param(passes({**WINDOW, "systems": "all"}, {"do": "tail", "last": 9, "when": {"messages": 102}}), [],
                 id="a window with every system message is of any size"),
    pytest.param(passes({**WINDOW, "pair_cut": "extend"}, {"do": "tail", "last": 9, "when": {"messages": 102}}), [],
                 id="so is one that takes in whole units"),
    pytest.param(passes({**WINDOW, "salvage": True}, {"do": "tail", "last": 9, "when": {"messages": 102}}), [],
                 id="or salvages one"),
    pytest.param(passes({**WINDOW, "when": {"tokens": 9}}, {"do": "tail", "last": 9, "when": {"messages": 102}}), [],
                 id="a window that is not always kept"),
    pytest.param(passes({"do": "trim_messages", "cap": 9, "when": {"messages": 300}}, WINDOW), [], id="behind it"),
    pytest.param(passes(WINDOW, {"do": "trim_messages", "cap": 9, "when": {"messages": 300}}),
                 ["history[1]: never reached"], id="any other pass with a threshold"),
    pytest.param(passes(WINDOW, {"do": "trim_messages", "cap": None, "when": {"messages": 300}}), [],
                 id="unless it is off anyway"),
    pytest.param(passes(WINDOW, {"do": "summarise", "keep_last": 102}), ["history[1]: never reached"],
                 id="nothing is left to sum up"),
    pytest.param(passes(WINDOW, {"do": "summarise", "keep_last": 101}), [], id="one message is"),
    pytest.param(passes(WINDOW, {"do": "tail", "last": 100}, overflow={"do": ["p1"]}),
                 ["history[1]: never reached: history[0] leaves it nothing to do; only an overflow runs it"],
                 id="but for an overflow"),
    pytest.param(passes(SUMMARISE, {"do": "tail", "last": 20}), ["history[1]: history[0] and this undo each other"],
                 id="a summary that is dropped at once"),
    pytest.param(passes(DIGEST, {"do": "tail", "last": 19}), ["history[1]: history[0] and this undo each other"],
                 id="a digest too"),
    pytest.param(passes(SUMMARISE, {"do": "tail", "last": 21}), [], id="a summary that stays"),
    pytest.param(passes(SUMMARISE, {"do": "tail", "last": 20, "when": {"messages": 50}}), [], id="for a while"),
    pytest.param(passes({**SUMMARISE, "role": "system"}, {"do": "tail", "last": 20, "systems": "all"}), [],
                 id="or as a system message"),
    pytest.param(passes({"do": "tail", "last": 5}), ["history[0].last: 5 messages are very few"], id="a short tail"),
    pytest.param(passes({"do": "tail", "last": 6}), [], id="just long enough"),
    pytest.param({"overflow": {"do": [{"do": "tail", "last": 2}]}}, ["overflow.do[0].last: 2 messages are very few"],
                 id="a short tail after an overflow"),
    pytest.param(
        passes({"do": "tail", "last": 0}, {**DIGEST, "when": {"messages": 3}}),
        ["history[1]: never reached", "history[0].last: 0 messages"],
        id="0 counts as 1: with what is pinned it leaves 3",
    ),
    pytest.param(
        passes({"do": "tail", "last": 0}, {"do": "tail", "last": 0}),
        ["history[1]: never reached", "history[0].last: 0 messages", "history[1].last: 0 messages"],
        id="in both of two windows",
    ),
    pytest.param(
        passes({"do": "tail", "last": 0}, {**DIGEST, "keep_last": 0, "when": {"messages": 2}}),
        ["history[0].last: 0 messages"],
        id="which are more than 2",
    ),
    pytest.param(
        passes({"do": "summarise"}, {"do": "tail", "last": 0}),
        ["history[1].last: 0 messages"],
        id="the one message that stays is the summary",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "said"), WARNED)
def test_warnings(data: dict[str, Any], said: list[str]) -> None:
    """One row a rule: what is certain is said, and nothing else."""
    complaints = list(map(str, warnings(parse(data))))
    assert len(said) == len(complaints), complaints
    assert all(complaint.startswith(begin) for complaint, begin in zip(complaints, said, strict=True)), (
        complaints
    )


def begun(
    data: dict[str, Any], *, context: int | None = None, system: int = 40, task: int = 40
) -> RunStarted:
    """A run's first fact, with a system prompt and a task of so many characters."""
    said = [Message(role=Role.SYSTEM, text="s" * system), Message(role=Role.USER, text="t" * task)]
    fact = RunStarted(
        format=1,
        at=0,
        run="r1",
        rules=RULES,
        policy=parse(data),
        model="m",
        tools=(),
        seed=1,
        context=context,
    )
    return started(fact, said, b"")


@pytest.mark.parametrize(
    ("step", "least", "what"),
    [
        pytest.param({"do": "token_tail"}, 10, "the task", id="the task"),
        pytest.param(
            {"do": "token_tail", "count_system": True}, 20, "the task and the system prompt", id="and system"
        ),
        pytest.param({"do": "compact"}, 20, "the task and the system prompt", id="compact weighs all"),
    ],
)
def test_a_window_smaller_than_what_must_stay_does_not_start(
    step: dict[str, Any], least: int, what: str
) -> None:
    """What is pinned just fits, or the run is refused before its first event."""
    assert () == opening(begun(passes({**step, "budget": least})))
    with pytest.raises(
        PolicyError, match=rf"^history\[0\]\.budget: {least - 1} tokens cannot hold {what} \({least} tokens\)"
    ):
        opening(begun(passes({**step, "budget": least - 1})))


def test_the_task_that_is_named_is_the_one_that_stays() -> None:
    """Earlier messages may go: they need not fit."""
    step = {"do": "token_tail", "budget": 10}
    said = [Message(role=Role.USER, text="u" * 400), Message(role=Role.USER, text="t" * 40)]
    fact = RunStarted(
        format=1, at=0, run="r1", rules=RULES, policy=parse(passes(step)), model="m", tools=(), seed=1, task=1
    )
    assert () == opening(started(fact, said, b""))
    with pytest.raises(PolicyError, match=r"cannot hold the task \(100 tokens\)"):
        opening(started(msgspec.structs.replace(fact, task=None), said, b""))


def test_the_room_that_a_context_leaves_is_a_budget_too() -> None:
    """Of a context less the answer the task must fit in."""
    step = {"do": "token_tail", "budget": {"context": 100, "minus_output": 90}}
    assert () == opening(begun(passes(step)))
    with pytest.raises(PolicyError, match=r"history\[0\]\.budget: 10 tokens cannot hold"):
        opening(begun(passes(step), task=41))


def test_an_overflow_must_keep_what_is_pinned_too() -> None:
    """The place is that of the pass, wherever it stands."""
    data = {"overflow": {"do": [{"do": "compact", "budget": 19}]}}
    with pytest.raises(PolicyError, match=r"^overflow\.do\[0\]\.budget: "):
        opening(begun(data))


def test_the_warnings_of_a_policy_are_among_those_of_a_start() -> None:
    """Whoever starts a run hears all that is to be said."""
    data = passes({"do": "tail", "last": 2})
    assert warnings(parse(data)) == opening(begun(data))


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        pytest.param(
            {"approvals": {"chain": [{"approver": "approve"}, {"approver": "human"}]}},
            "approvals.chain[1]",
            id="a person behind one who approves all",
        ),
        pytest.param({"limits": [], "end_of_turn": "continue"}, "end_of_turn", id="a turn without end"),
        pytest.param({"limits": [], "empty": {"again": None}}, "empty.again", id="asked without end"),
        pytest.param({"near": {"fraction": 0.8}}, "near.fraction", id="near a limit that is not there"),
        pytest.param(
            {"retry": {"by_class": {"auth": {"attempts": 3}}}},
            "retry.by_class.auth",
            id="a class that is not retried",
        ),
    ],
)
def test_what_does_nothing_is_warned_of(policy: dict[str, Any], path: str) -> None:
    """What surely does nothing, or goes on without end, is said with its path."""
    assert path in [complaint.path for complaint in warnings(parse(policy))]
