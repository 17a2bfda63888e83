"""Limits: one below, at, one above, for each type, operator and check; and which of several ends the run."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from refold.reducers.events import LimitReached, ToolsDispatched
from refold.reducers.limits import (
    BEFORE,
    BUDGETS,
    COUNTED,
    ENDS,
    OTHERS,
    Limit,
    TimeLimit,
    TokenLimit,
    code_of,
    measure_of,
    type_of,
)
from support.scenario import SECOND, START, Scenario

STEP_END = "state_changed from=RUNNING to=MAX_STEPS trigger=exhaust_steps code=step_limit"
BUDGET = "state_changed from=RUNNING to=BUDGET_EXCEEDED trigger=exceed_budget code="


def trip(scenario: Scenario) -> LimitReached | None:
    trips = scenario.events(LimitReached)
    return trips[-1] if trips else None


def numbers(scenario: Scenario) -> tuple[int, int, int] | None:
    """(value, used, exceeded by) of the limit that tripped, None if none did."""
    found = trip(scenario)
    return (found.limit.value, found.limit.used, found.limit.exceeded_by) if found else None


def spend(limit: dict[str, Any], *answers: tuple[int, int, int | None]) -> Scenario:
    """Answers with a call each, of (input, output, cost); the call returns at once."""
    scenario = Scenario({"limits": [limit]})
    for number, (given, got, cost) in enumerate(answers, 1):
        if scenario.state.request is None:
            break
        scenario.answer("", ("look", "{}"), usage=(given, got), cost=cost)
        if scenario.state.batch:
            scenario.result(f"c{number}")
    return scenario


@pytest.mark.parametrize(
    ("op", "value", "requests"),
    [
        pytest.param(">=", 0, 0, id="step 0 makes no request"),
        pytest.param(">", 0, 1, id="more than 0 allows one request"),
        pytest.param(">=", 1, 1, id="step 1 makes one"),
        pytest.param(">=", 3, 3, id="N requests with at least"),
        pytest.param(">", 3, 4, id="N + 1 requests with more than"),
        pytest.param(">=", None, 5, id="null never ends it"),
        pytest.param(">=", 6, 5, id="one above what was used"),
    ],
)
def test_step_limit(op: str, value: int | None, requests: int) -> None:
    """At preflight `>=` N allows N requests, `>` N allows N + 1."""
    scenario = spend({"type": "step", "op": op, "value": value}, *[(1, 1, 0)] * 5)
    made = scenario.state.spent.requests - (scenario.state.request is not None)
    assert requests == made
    assert (None if value is None or requests == 5 else STEP_END) == (
        scenario.last[-1] if scenario.state.ended else None
    )


def test_a_failed_attempt_is_no_step() -> None:
    """A step is a request with all its attempts: retries do not use up the step limit."""
    scenario = Scenario({"limits": [{"type": "step", "value": 1}], "retry": {"jitter": {"add": 0}}})
    scenario.fail()
    assert ["model_requested step=1 attempt=2 messages=[[1 2]]"] == scenario.clock(1)
    assert (1, 2) == (scenario.state.spent.steps, scenario.state.spent.requests)


@pytest.mark.parametrize(
    ("limit", "answers", "expected"),
    [
        pytest.param({"type": "token", "value": 16}, [(10, 5, 0)], None, id="tokens one below"),
        pytest.param({"type": "token", "value": 15}, [(10, 5, 0)], (15, 15, 0), id="tokens at"),
        pytest.param({"type": "token", "value": 14}, [(10, 5, 0)], (14, 15, 1), id="tokens one above"),
        pytest.param({"type": "token", "value": 15, "op": ">"}, [(10, 5, 0)], None, id="tokens strictly: at"),
        pytest.param(
            {"type": "token", "value": 14, "op": ">"}, [(10, 5, 0)], (14, 15, 1), id="tokens strictly: above"
        ),
        pytest.param({"type": "token", "value": None}, [(10**15, 5, 0)], None, id="tokens null"),
        pytest.param({"type": "token", "value": 0}, [(0, 0, 0)], (0, 0, 0), id="tokens 0 is 0"),
        pytest.param({"type": "token", "value": 30}, [(10, 5, 0)] * 2, (30, 30, 0), id="tokens add up"),
        pytest.param({"type": "cost", "value": 0.000000003}, [(1, 1, 2)], None, id="cost one below"),
        pytest.param({"type": "cost", "value": 0.000000002}, [(1, 1, 2)], (2, 2, 0), id="cost at"),
        pytest.param({"type": "cost", "value": 0.000000001}, [(1, 1, 2)], (1, 2, 1), id="cost one above"),
        pytest.param({"type": "cost", "value": 1, "op": ">"}, [(1, 1, 10**9)], None, id="cost strictly: at"),
        pytest.param(
            {"type": "cost", "value": 0.1}, [(1, 1, 10**8)], (10**8, 10**8, 0), id="0.1 USD is exact"
        ),
        pytest.param({"type": "cost", "value": 1}, [(1, 1, None)], None, id="an unknown price costs nothing"),
        pytest.param({"type": "cost", "value": None}, [(1, 1, 10**12)], None, id="cost null"),
    ],
)
def test_response_limits(
    limit: dict[str, Any], answers: list[tuple[int, int, int | None]], expected: tuple[int, int, int] | None
) -> None:
    """Tokens and cost are judged right after accounting, before the calls of the answer run."""
    scenario = spend(limit, *answers)
    assert expected == numbers(scenario)
    if expected is not None:
        code = "token_budget" if limit["type"] == "token" else "cost_limit"
        name = limit["type"]
        assert [
            f"call_refused call=c{len(answers)} why=skipped cause=limit name={name} text=refused:limit",
            BUDGET + code,
        ] == scenario.last[1:]


@pytest.mark.parametrize(
    ("limit", "trips"),
    [
        pytest.param({"type": "token", "value": 15, "check": "preflight"}, True, id="tokens at"),
        pytest.param({"type": "token", "value": 16, "check": "preflight"}, False, id="tokens one below"),
        pytest.param({"type": "cost", "value": 0.000000007, "check": "preflight"}, True, id="cost at"),
        pytest.param(
            {"type": "cost", "value": 0.000000008, "check": "preflight"}, False, id="cost one below"
        ),
    ],
)
def test_checked_before_a_request_the_calls_still_run(limit: dict[str, Any], trips: bool) -> None:
    """With `check: preflight` the answer's calls run, and the limit ends the run before the next request."""
    scenario = Scenario({"limits": [limit]})
    assert "tools_dispatched calls=[c1]" in scenario.answer("", ("look", "{}"), usage=(10, 5), cost=7)
    scenario.result("c1")
    assert trips == (scenario.state.agent_state == "BUDGET_EXCEEDED")


# The opening weighs 2 + 2 estimated tokens ("be good", "do it"), an answer "ab" 1, its result "ok" 1.
@pytest.mark.parametrize(
    ("limit", "state"),
    [
        pytest.param({"type": "message", "value": 2}, "BUDGET_EXCEEDED", id="messages at"),
        pytest.param({"type": "message", "value": 3}, "RUNNING", id="messages one below"),
        pytest.param({"type": "message", "value": 2, "op": ">"}, "RUNNING", id="messages strictly: at"),
        pytest.param({"type": "message", "value": 1, "op": ">"}, "BUDGET_EXCEEDED", id="messages above"),
        pytest.param({"type": "message", "value": None}, "RUNNING", id="messages null"),
        pytest.param({"type": "message", "value": 0}, "BUDGET_EXCEEDED", id="messages 0"),
        pytest.param(
            {"type": "token", "measure": "estimate", "value": 4}, "BUDGET_EXCEEDED", id="estimate at"
        ),
        pytest.param({"type": "token", "measure": "estimate", "value": 5}, "RUNNING", id="estimate below"),
        pytest.param(
            {"type": "token", "measure": "estimate", "value": 4, "op": ">"}, "RUNNING", id="estimate strictly"
        ),
    ],
)
def test_soft_limits_before_the_first_request(limit: dict[str, Any], state: str) -> None:
    """Messages and estimated tokens count what the next request would show, system message included."""
    assert state == Scenario({"limits": [limit]}).state.agent_state


def test_an_estimate_may_be_judged_on_the_answer() -> None:
    """With `check: response` the estimate is judged when the answer is in the window, before its calls
    run.
    """
    limit = {"type": "token", "measure": "estimate", "value": 5, "check": "response"}
    scenario = Scenario({"limits": [limit]})
    scenario.answer("abcd")
    assert BUDGET + "token_estimate" == scenario.last[-1]


def test_the_recorded_hit_has_the_definition_and_the_numbers() -> None:
    """What tripped is recorded with its definition, its unit and its numbers."""
    scenario = spend({"type": "token", "name": "purse", "value": 14, "scope": "lineage"}, (10, 5, 0))
    found = trip(scenario)
    assert found is not None
    hit = found.limit
    assert (False, "token_budget") == (found.deferred, code_of(hit))
    assert ("purse", "token", "usage", "lineage", "response", ">=", "tokens") == (
        hit.name,
        hit.type,
        hit.measure,
        hit.scope,
        hit.check,
        hit.op,
        hit.unit,
    )
    assert (14, 15, 1, START, 1) == (hit.value, hit.used, hit.exceeded_by, hit.at, hit.step)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        pytest.param(
            [{"type": "message", "value": 0}, {"type": "step", "value": 0}, {"type": "time", "value": 0}],
            "time",
            id="time before steps before messages, whatever the list says",
        ),
        pytest.param(
            [{"type": "message", "value": 0}, {"type": "step", "value": 0}],
            "step",
            id="steps before messages",
        ),
        pytest.param(
            [{"type": "step", "name": "b", "value": 0}, {"type": "step", "name": "a", "value": 0}],
            "b",
            id="within a type the policy's order",
        ),
        pytest.param(
            [{"type": "token", "measure": "estimate", "value": 0}, {"type": "message", "value": 0}],
            "message",
            id="messages before the estimate",
        ),
    ],
)
def test_the_first_limit_in_order_wins(limits: list[dict[str, Any]], name: str) -> None:
    """The order of checks is fixed: exactly one limit ends the run, and it is the first in order."""
    scenario = Scenario({"limits": limits})
    assert [name] == [event.limit.name for event in scenario.events(LimitReached)]
    assert scenario.state.limit is not None
    assert name == scenario.state.limit.name


def test_tokens_are_judged_before_cost() -> None:
    """When an answer exceeds both budgets, the tokens are the reason."""
    limits = [{"type": "cost", "value": 0}, {"type": "token", "value": 0}]
    scenario = Scenario({"limits": limits})
    scenario.answer("hi")
    assert BUDGET + "token_budget" == scenario.last[-1]


# One step of the script below: an answer of 15 tokens, 2 nano-dollars and one estimated token (its call's
# name and arguments, "look" and "{}", are 2 more) a second after the request, and a result of one estimated
# token.
_BEFORE: dict[str, Callable[[int], int]] = {  # what is used before step s
    "step": lambda s: s - 1,
    "time": lambda s: (s - 1) * SECOND,
    "message": lambda s: 2 + 2 * (s - 1),
    "token": lambda s: 15 * (s - 1),
    "estimate": lambda s: 4 + 3 * (s - 1),
    "cost": lambda s: 2 * (s - 1),
}
_AFTER: dict[str, Callable[[int], int]] = {  # and what right after its answer
    "step": lambda s: s,
    "time": lambda s: s * SECOND,
    "message": lambda s: 3 + 2 * (s - 1),
    "token": lambda s: 15 * s,
    "estimate": lambda s: 6 + 3 * (s - 1),
    "cost": lambda s: 2 * s,
}
_CODES = {
    "step": "step_limit",
    "time": "time_limit",
    "message": "message_limit",
    "token": "token_budget",
    "estimate": "token_estimate",
    "cost": "cost_limit",
}


def _limit(kind: str, amount: int, op: str, check: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": "token", "measure": "estimate"} if kind == "estimate" else {"type": kind}
    value = amount / SECOND if kind in ("time", "cost") else amount
    return {**plain, "value": value, "op": op, "check": check}


@pytest.mark.parametrize("delta", [-1, 0, 1], ids=["one below", "at", "one above"])
@pytest.mark.parametrize("check", ["preflight", "response", "response_deferred"])
@pytest.mark.parametrize("op", [">=", ">"])
@pytest.mark.parametrize("kind", list(_CODES))
def test_every_type_operator_and_check(kind: str, op: str, check: str, delta: int) -> None:
    """Tripped at the first moment of its check at which `used op value`: with so many batches run before the
    end.
    """
    moment = _BEFORE[kind] if check == "preflight" else _AFTER[kind]
    value = moment(3) + delta
    tripped = next(s for s in range(1, 9) if (moment(s) >= value if op == ">=" else moment(s) > value))
    scenario = Scenario({"limits": [_limit(kind, value, op, check)], "call_timeout": {"min": 0}})
    for step in range(1, 9):
        if scenario.state.request is None:
            break
        scenario.answer("", ("look", "{}"), cost=2, after=1)
        if scenario.state.batch:
            scenario.result(f"c{step}")
    assert scenario.state.outcome is not None
    assert _CODES[kind] == scenario.state.outcome.code
    found = trip(scenario)
    assert found is not None
    # The clock trips wherever it is next looked at: a time limit for before a request, when a batch is done.
    assert (value, moment(tripped)) == (found.limit.value, found.limit.used)
    requests = tripped - 1 if check == "preflight" else tripped
    batches = tripped if check == "response_deferred" else tripped - 1
    assert (requests, batches) == (scenario.state.spent.requests, len(scenario.events(ToolsDispatched)))


def test_a_deferred_limit_is_judged_on_the_answer_and_carried_out_behind_its_batch() -> None:
    """Two records: deferred with the answer, and a stop with the same numbers when the batch is done."""
    limit = {"type": "token", "value": 15, "check": "response_deferred"}
    scenario = Scenario({"limits": [limit]})
    scenario.answer("", ("look", "{}"), ("act", "{}"))
    first = trip(scenario)
    assert first is not None
    assert (True, "WAITING_FOR_TOOL") == (first.deferred, scenario.state.agent_state)
    scenario.result("c2")
    assert not scenario.state.ended
    scenario.result("c1")
    last = trip(scenario)
    assert last is not None
    assert (False, first.limit) == (last.deferred, last.limit)
    assert BUDGET + "token_budget" == scenario.last[-1]


def test_a_deferred_limit_of_an_answer_without_calls_ends_at_once() -> None:
    """There is no batch to wait for, and limits win over the end of the turn."""
    scenario = Scenario({"limits": [{"type": "token", "value": 15, "check": "response_deferred"}]})
    assert BUDGET + "token_budget" == scenario.answer("done")[-1]


def test_limits_of_the_response_win_over_a_finished_turn_and_a_preflight_limit_does_not() -> None:
    """R3 comes before R17; a finished turn is seen before the next step is refused."""
    limits = [{"type": "step", "value": 1}, {"type": "token", "value": 100}]
    scenario = Scenario({"limits": limits})
    scenario.answer("done")
    assert "COMPLETED" == scenario.state.agent_state


@pytest.mark.parametrize(
    ("tools", "requests"),
    [
        pytest.param(["look"], 5, id="all to a free tool: not counted"),
        pytest.param(["look", "act"], 2, id="another beside it: counted"),
        pytest.param(["act"], 2, id="none of them free: counted"),
    ],
)
def test_free_tools(tools: list[str], requests: int) -> None:
    """A step with calls, all to the limit's `free_tools`, is not counted; one without calls is."""
    scenario = Scenario({"limits": [{"type": "step", "value": 2, "free_tools": ["look"]}]})
    for _ in range(5):
        if scenario.state.request:
            scenario.step(*tools)
    assert requests == scenario.state.spent.requests - (scenario.state.request is not None)


def test_free_tools_free_no_step_without_calls() -> None:
    """An answer of words is no call to a free tool."""
    policy = {"limits": [{"type": "step", "value": 1, "free_tools": ["look"]}], "end_of_turn": "continue"}
    scenario = Scenario(policy)
    scenario.answer("well")
    assert "MAX_STEPS" == scenario.state.agent_state


def test_every_type_is_looked_at_wherever_a_policy_may_ask() -> None:
    """One that stands in no table would be taken from a policy, and then never trip."""
    limits: list[Limit] = [kind(value=1) for kind in get_args(Limit)]
    limits.append(TokenLimit(value=1, measure="estimate"))
    whole = {(type(limit), measure_of(limit)) for limit in limits}
    assert {(type_of(limit), measure_of(limit)) for limit in limits} == set(ENDS)
    assert {*BUDGETS, *OTHERS} == whole
    assert {*BEFORE, *COUNTED, (TimeLimit, "usage")} == whole  # those of time are `TimeLimits`'
    assert set(COUNTED) <= set(BUDGETS)
