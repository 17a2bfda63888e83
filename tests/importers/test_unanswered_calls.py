"""Calls of a source that nobody answered, and results where a person came in: what is told, when, and what
rules make of it.
"""

from typing import Any

import pytest

from refold.importers.items import Cancelled, Item
from refold.reducers.events import Diagnosed, Fact, ToolReturned
from refold.reducers.guards import BUILTIN
from refold.reducers.guards.duty import shown as shown_to
from refold.reducers.guards.duty import watches
from refold.reducers.guards.protocol import Own
from refold.reducers.machine import AgentState
from refold.reducers.parser import parse
from refold.reducers.vocabulary import ToolError, Unknown
from refold.replay import known
from refold.replay.kinds.table import sentence
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict
from support.following import shown
from support.told import END, answered, began, derived, events, returned, said

STOPPED = Cancelled(position="stopped", reason="by hand")


@pytest.mark.parametrize(
    ("between", "error", "unknown", "found"),
    [
        pytest.param([said("go on")], None, True, ["result_missing"], id="a person said something"),
        pytest.param([], None, True, ["result_missing"], id="the model answered"),
        pytest.param([STOPPED, said("go on")], ToolError.CANCELLED, False, [], id="stopped by the user"),
        pytest.param([said("no"), STOPPED], ToolError.CANCELLED, False, [], id="and said so first"),
    ],
)
def test_a_call_that_nobody_answered(
    between: list[Item],
    error: ToolError | None,
    unknown: bool,
    found: list[str],
) -> None:
    """It was cancelled where the source tells of a stop; else how it ended is unknown, and said to be
    missing.
    """
    _, written = derived([began(), said("t"), answered("a", "1:x"), *between, answered("b"), END])
    fact = next(each for each in events(written) if isinstance(each, ToolReturned))
    assert (error, 0, unknown) == (fact.error, fact.size.chars, Unknown.RESULT in fact.unknown)
    assert found == [each.code for each in events(written) if isinstance(each, Diagnosed)]


def test_results_and_what_comes_next_have_their_own_times() -> None:
    """An hour between a result and what a person says then is no part of the call, whether its batch is whole
    or not.
    """
    for calls in (["1:x"], ["1:x", "2:y"]):
        items = [answered("a", *calls, at=10), returned("1", "o", at=20), said("go on", at=3620)]
        deriving, written = derived([began(at=1), said("t", at=1), *items, answered("b", at=3630), END])
        times = [(type(each.event).__name__, each.at) for each in written if isinstance(each.event, Fact)]
        expected = [("ToolReturned", 20), ("InputReceived", 3620), ("ModelResponded", 3630)]
        if len(calls) > 1:
            expected.insert(1, ("ToolReturned", 3620))
        assert expected == times[2:]
        assert AgentState.WAITING_FOR_INPUT is deriving.state.agent_state


LOST = [began(), said("t"), answered("a", "1:x"), said("go on"), answered("b"), END]


def test_a_result_that_is_not_recorded_is_shown_as_such() -> None:
    """It is neither `ok` nor an error in what is read of it."""
    _, written = derived(LOST)
    fact = next(each for each in events(written) if isinstance(each, ToolReturned))
    assert ("not_recorded", "c1 not_recorded") == (known.outcome(fact), sentence(fact))


@pytest.mark.parametrize(
    ("policy", "judged"),
    [
        pytest.param({"limits": [{"type": "step", "value": 9}]}, True, id="steps"),
        pytest.param({"guards": [{"guard": "repetition", "repeats": 9}]}, True, id="what is called"),
        pytest.param({"guards": [{"guard": "errors", "rounds": 1}]}, False, id="what failed"),
        pytest.param({"premature_end": {}}, False, id="whether a result shows a failure"),
        pytest.param({"tool_output": {"max": 9}}, False, id="how long an output is"),
        pytest.param(
            {"limits": [{"type": "token", "measure": "estimate", "value": 9000}]}, False, id="weight"
        ),
        pytest.param({"texts": {"raised": "no"}}, False, id="how an error is worded"),
    ],
)
def test_what_if_of_a_result_that_is_not_recorded(policy: dict[str, Any], judged: bool) -> None:
    """Another policy agrees with the record if it reads no results, and else nobody can say, from that call
    on.
    """
    _, written = derived(LOST)
    found = shown(Comparison("r1", parse({"preset": "observed", **policy})), events(written))
    assert (Verdict.AGREE if judged else Verdict.INCONCLUSIVE) is found.verdict
    assert judged is not any("no result of call c1" in why for why in found.unknown)


@pytest.mark.parametrize("guard", ["errors", "pivot", "stall"])
def test_no_guard_counts_it(guard: str) -> None:
    """Two failures with a lost result between them are two failures, and a lost one alone is nothing."""
    failed = [returned(call, "no such file", error=ToolError.RAISED) for call in ("1", "3")]
    configs: dict[str, dict[str, object]] = {"errors": {"rounds": 9}, "pivot": {"tool": "x"}, "stall": {}}
    config = configs[guard]
    policy = parse({"preset": "observed", "guards": [{"guard": guard, **config}]})
    seen: list[Own] = []
    for lost in ([], [answered("b", "2:x")]):
        items = [answered("a", "1:x"), failed[0], *lost, answered("c", "3:x"), failed[1], answered("d")]
        _, written = derived([began(), said("t"), *items, END])
        duty = watches(policy, BUILTIN)
        for event in events(written):
            duty = shown_to(duty, event)
        seen.append(duty[0].own)
    assert seen[0] == seen[1]
