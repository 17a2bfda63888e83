"""Limits: one below, at, one above, for each type, operator, check and scope; and the clock that they read."""

import decimal
from collections.abc import Callable
from typing import Any, get_args

import pytest

from refold.reducers.effects import CallModel, RunTool, WaitUntil, next_effects
from refold.reducers.events import LimitNeared, LimitReached, ToolsDispatched
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
from refold.reducers.meters import elapsed, used
from refold.reducers.numbers import nano
from refold.reducers.vocabulary import FailureClass
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
    """With `check: response` the estimate is judged when the answer is in the window, before its calls run."""
    limit = {"type": "token", "measure": "estimate", "value": 5, "check": "response"}
    scenario = Scenario({"limits": [limit]})
    scenario.answer("abcd")
    assert BUDGET + "token_estimate" == scenario.last[-1]


@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        pytest.param("turn", 1, id="a turn begins with a person's message"),
        pytest.param("run", 2, id="a run does not"),
        pytest.param("lineage", 2, id="nor does the lineage"),
    ],
)
def test_scopes_within_a_run(scope: str, steps: int) -> None:
    """Steps count since the scope began: a turn anew with each message of a person."""
    scenario = Scenario({"limits": [{"type": "step", "value": 2, "scope": scope}], "end_of_turn": "wait"})
    scenario.answer("one")
    scenario.say("again")
    scenario.answer("two")
    scenario.say("and again")
    ended = scenario.state.agent_state == "MAX_STEPS"
    assert (scope != "turn") == ended
    assert steps == (2 if ended else scenario.state.spent.steps - scenario.state.turn.spent.steps)


@pytest.mark.parametrize(
    ("scope", "goes_on"),
    [
        pytest.param("turn", True, id="turn"),
        pytest.param("run", True, id="run"),
        pytest.param("lineage", False, id="lineage inherits what the prefix spent"),
    ],
)
def test_scopes_across_a_fork(scope: str, goes_on: bool) -> None:
    """In a fork a turn and the run count from the fork on, the lineage from the very start."""
    scenario = Scenario({"limits": [{"type": "token", "value": 40, "scope": scope}]})
    scenario.answer("", ("look", "{}"), usage=(20, 10))
    scenario.fork()
    scenario.result("c1")
    scenario.answer("done", usage=(5, 5))
    assert ("COMPLETED" if goes_on else "BUDGET_EXCEEDED") == scenario.state.agent_state


@pytest.mark.parametrize(
    ("op", "value", "when"),
    [
        pytest.param(">=", 10, 10 * SECOND, id="at least: the very instant"),
        pytest.param(">", 10, 10 * SECOND + 1, id="more than: a nanosecond later"),
        pytest.param(">=", 0.5, SECOND // 2, id="a half second"),
        pytest.param(">", 0, 1, id="more than 0: a nanosecond"),
    ],
)
def test_the_deadline_is_the_first_instant_at_which_a_time_limit_trips(
    op: str, value: float, when: int
) -> None:
    """The clock is to be read at the first instant at which `used op value` holds, and not before."""
    scenario = Scenario({"limits": [{"type": "time", "value": value, "op": op}], "call_timeout": {"min": 0}})
    call, wait = next_effects(scenario.state)
    assert isinstance(call, CallModel)
    assert WaitUntil(at=START + when) == wait
    assert START + when == call.until


@pytest.mark.parametrize(
    ("op", "state"),
    [
        pytest.param(">=", "TIMED_OUT", id="time 0 stops before the first request"),
        pytest.param(">", "RUNNING", id="but not strictly: no time has passed yet"),
    ],
)
def test_time_zero(op: str, state: str) -> None:
    """0 seconds are 0 seconds: no request with `>=`, one with `>`."""
    assert state == Scenario({"limits": [{"type": "time", "value": 0, "op": op}]}).state.agent_state


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(9.999999, [], id="just before"),
        pytest.param(10, ["limit_reached"], id="at"),
        pytest.param(11, ["limit_reached"], id="after"),
    ],
)
def test_a_clock_past_the_deadline_stops_a_request_in_flight(after: float, expected: list[str]) -> None:
    """A time limit is a deadline for what is in flight: it trips as soon as the clock is read past it."""
    scenario = Scenario({"limits": [{"type": "time", "value": 10}]})
    assert expected == [line.split()[0] for line in scenario.clock(after)]


@pytest.mark.parametrize(
    ("minimum", "left", "deadline"),
    [
        pytest.param(1, 10, 10, id="more time is left than the minimum"),
        pytest.param(1, 1, 10, id="exactly the minimum is left"),
        pytest.param(1, 0.5, 10.5, id="less is left: the call gets the minimum"),
        pytest.param(0, 0.5, 10, id="no minimum"),
        pytest.param(60, 10, 60, id="a minimum longer than the limit"),
    ],
)
def test_call_timeout(minimum: float, left: float, deadline: float) -> None:
    """Each model call and each batch gets the time that is left, at least `call_timeout.min` seconds."""
    policy = {"limits": [{"type": "time", "value": 10}], "call_timeout": {"min": minimum}}
    scenario = Scenario(policy)
    scenario.answer("", ("look", "{}"), after=10 - left)
    if left == 10:
        assert scenario.log[1].deadline == START + int(deadline * SECOND)  # type: ignore[attr-defined]
    effect = next_effects(scenario.state)[0]
    assert isinstance(effect, RunTool)
    assert START + int(deadline * SECOND) == effect.until


def test_the_tightest_time_limit_is_the_deadline() -> None:
    """Of several time limits the first to trip counts; one of null never does."""
    limits = [
        {"type": "time", "name": "long", "value": 60},
        {"type": "time", "name": "none", "value": None},
        {"type": "time", "name": "short", "value": 5},
    ]
    scenario = Scenario({"limits": limits})
    assert WaitUntil(at=START + 5 * SECOND) == next_effects(scenario.state)[1]


def test_without_a_time_limit_nothing_has_a_deadline() -> None:
    """No time limit, no deadline: neither for the call nor for the clock."""
    (call,) = next_effects(Scenario().state)
    assert isinstance(call, CallModel)
    assert call.until is None


@pytest.mark.parametrize(
    ("credit", "state"),
    [
        pytest.param({"person": True}, "RUNNING", id="a person's time is not the agent's"),
        pytest.param({"person": False}, "TIMED_OUT", id="unless the policy says so"),
    ],
)
def test_credit_of_a_persons_time(credit: dict[str, bool], state: str) -> None:
    """The time in which the run waits for a person is subtracted, if credited."""
    policy = {"limits": [{"type": "time", "value": 10, "credit": credit}], "end_of_turn": "wait"}
    scenario = Scenario(policy)
    scenario.answer("well?", after=4)
    scenario.say("go on", after=100)
    assert state == scenario.state.agent_state
    if state == "RUNNING":
        assert WaitUntil(at=START + 110 * SECOND) in next_effects(scenario.state)


@pytest.mark.parametrize(
    ("person", "expected"),
    [
        pytest.param(True, (), id="credited: nothing to do until a person acts"),
        pytest.param(False, (WaitUntil(at=START + 10 * SECOND),), id="not credited: the clock goes on"),
    ],
)
def test_the_clock_stands_while_a_person_thinks(person: bool, expected: tuple[WaitUntil, ...]) -> None:
    """While a person thinks, a limit that credits their time has no deadline."""
    limit = {"type": "time", "value": 10, "credit": {"person": person}}
    scenario = Scenario({"limits": [limit], "end_of_turn": "wait"})
    scenario.answer("well?")
    assert expected == next_effects(scenario.state)


def test_a_clock_that_is_read_while_a_person_thinks_does_not_trip_a_limit_that_credits_them() -> None:
    """The wait that still lasts is credited as one that is over."""
    scenario = Scenario({"limits": [{"type": "time", "value": 10}], "end_of_turn": "wait"})
    scenario.answer("well?", after=1)
    assert [] == scenario.clock(60)
    assert "WAITING_FOR_INPUT" == scenario.state.agent_state


@pytest.mark.parametrize(
    ("downtime", "at"),
    [
        pytest.param(True, 110, id="time without an engine is not the agent's"),
        pytest.param(False, 10, id="unless the policy says so"),
    ],
)
def test_credit_of_downtime(downtime: bool, at: int) -> None:
    """Time in which no engine had the run is subtracted, if credited."""
    scenario = Scenario({"limits": [{"type": "time", "value": 10, "credit": {"downtime": downtime}}]})
    scenario.resume(downtime=100)
    assert WaitUntil(at=START + at * SECOND) == next_effects(scenario.state)[1]


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


def test_the_callers_decimal_context_does_not_matter() -> None:
    """Whatever precision and traps a program has set for its own sums, seconds become the same nanoseconds."""
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.Inexact] = True
        assert 12_345_678_000_000 == nano(12345.678)


# One step of the script below: an answer of 15 tokens, 2 nano-dollars and one estimated token (its call's name and
# arguments, "look" and "{}", are 2 more) a second after the request, and a result of one estimated token.
_NANO = 1e-9
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
    """Tripped at the first moment of its check at which `used op value`: with so many batches run before the end."""
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
    ("kind", "before_say", "turn", "run", "lineage"),
    [
        pytest.param("step", 1, 0, 0, 1, id="step"),
        pytest.param("token", 15, 0, 0, 15, id="token"),
        pytest.param("cost", 2, 0, 0, 2, id="cost"),
    ],
)
def test_what_is_used_by_scope(kind: str, before_say: int, turn: int, run: int, lineage: int) -> None:
    """A person's message begins a turn; a fork a turn and a run; the lineage never begins anew."""
    limits = [
        {"type": kind, "name": scope, "value": None, "scope": scope} for scope in ("turn", "run", "lineage")
    ]
    scenario = Scenario({"limits": limits, "end_of_turn": "wait"})

    def amounts() -> list[int]:
        return [used(limit, scenario.state) for limit in scenario.state.policy.limits]

    scenario.answer("one", cost=2)
    assert [before_say] * 3 == amounts()
    scenario.say("more")
    step = kind == "step"  # the request that follows is a step of the new turn
    assert [step, before_say + step, before_say + step] == amounts()
    scenario.answer("two", cost=2)
    scenario.fork()
    assert [turn, run, 2 * lineage] == amounts()


@pytest.mark.parametrize(
    ("scope", "expected"), [("turn", 1), ("run", 4), ("lineage", 4)], ids=["turn", "run", "lineage"]
)
def test_time_by_scope(scope: str, expected: int) -> None:
    """Time counts since the scope began."""
    limit = {"type": "time", "value": None, "scope": scope, "credit": {"person": False}}
    scenario = Scenario({"limits": [limit], "end_of_turn": "wait"})
    scenario.answer("one", after=1)
    scenario.say("more", after=2)
    scenario.answer("two", after=1)
    assert expected * SECOND == used(scenario.state.policy.limits[0], scenario.state)


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


@pytest.mark.parametrize(("after", "state"), [(1.999999999, "RUNNING"), (2, "TIMED_OUT")])
def test_the_clock_of_the_first_response(after: float, state: str) -> None:
    """Nothing has elapsed before the first response, however long it took; then the time counts from it."""
    limit = {"type": "time", "value": 2, "clock": "first_response"}
    scenario = Scenario({"limits": [limit]})
    (effect,) = next_effects(scenario.state)
    assert isinstance(effect, CallModel)
    assert effect.until is None
    scenario.answer("", ("look", "{}"), after=1000)
    assert WaitUntil(at=START + 1002 * SECOND) in next_effects(scenario.state)
    scenario.result("c1", after=after)
    assert state == scenario.state.agent_state


def test_the_first_response_is_the_scopes_own() -> None:
    """In a new turn nothing has elapsed before that turn's first response."""
    limit = {"type": "time", "value": 5, "clock": "first_response", "scope": "turn"}
    scenario = Scenario({"limits": [limit], "end_of_turn": "wait"})
    scenario.answer("one", after=1)
    scenario.say("more", after=3)
    scenario.answer("", ("look", "{}"), after=100)
    assert 0 == used(scenario.state.policy.limits[0], scenario.state)
    scenario.result("c1", after=2)
    assert 2 * SECOND == used(scenario.state.policy.limits[0], scenario.state)


@pytest.mark.parametrize(
    ("credit", "while_waiting", "failed_for_good", "next_success"),
    [
        pytest.param("none", 1, 3, 5, id="none"),
        pytest.param("on_success", 1, 3, 5, id="on_success: the request never succeeded"),
        pytest.param("on_next_success", 1, 3, 3, id="on_next_success: at the next that did"),
        pytest.param("planned", 0, 1, 3, id="planned: as soon as it is planned"),
    ],
)
def test_credit_of_waits_of_a_request_that_failed(
    credit: str, while_waiting: int, failed_for_good: int, next_success: int
) -> None:
    """A second, a wait of two of a broken stream, a second, and its text is gone on from in another request."""
    limit = {"type": "time", "value": 1000, "credit": {"retry": credit}}
    retry = {"initial": 2, "jitter": {"add": 0}}
    scenario = Scenario({"limits": [limit], "retry": retry})

    def seconds() -> float:
        return used(scenario.state.policy.limits[0], scenario.state) / SECOND

    scenario.fail(FailureClass.STREAM_BROKEN, after=1)
    assert while_waiting == seconds()
    scenario.clock(2)
    assert failed_for_good == seconds()
    scenario.answer("", ("look", "{}"), after=2)
    assert next_success == seconds()


@pytest.mark.parametrize(
    ("credit", "waiting", "answered"),
    [
        pytest.param("none", 3, 4, id="none"),
        pytest.param("on_success", 3, 2, id="on_success"),
        pytest.param("on_next_success", 3, 2, id="on_next_success"),
        pytest.param("planned", 1, 2, id="planned"),
    ],
)
def test_credit_of_waits_of_a_request_that_succeeded(credit: str, waiting: int, answered: int) -> None:
    """A second, a wait of two, and an answer a second later."""
    limit = {"type": "time", "value": 1000, "credit": {"retry": credit}}
    scenario = Scenario({"limits": [limit], "retry": {"initial": 2, "jitter": {"add": 0}}})
    scenario.fail(after=1)
    scenario.clock(2)
    assert waiting * SECOND == used(scenario.state.policy.limits[0], scenario.state)
    scenario.answer("", ("look", "{}"), after=1)
    assert answered * SECOND == used(scenario.state.policy.limits[0], scenario.state)


def test_no_credit_makes_time_negative() -> None:
    """What is planned is more than what has passed: nothing has elapsed."""
    limit = {"type": "time", "value": 1000, "credit": {"retry": "planned"}}
    scenario = Scenario({"limits": [limit], "retry": {"initial": 50, "jitter": {"add": 0}}})
    scenario.fail()
    (only,) = scenario.state.policy.limits
    assert 0 == elapsed(only, scenario.state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "left", "whole", "timeout"),
    [
        pytest.param(">=", 5.999999999, True, 5, id="toward zero"),
        pytest.param(">=", 5, True, 5, id="whole already"),
        pytest.param(">=", 0.999999999, True, 1, id="to nothing: the minimum"),
        pytest.param(">=", 1.5, False, 1.5, id="not rounded"),
        pytest.param(">", 5, True, 5, id="strictly: what remains is the same"),
        pytest.param(">", 4.999999999, True, 4, id="strictly: toward zero"),
    ],
)
def test_whole_seconds(op: str, left: float, whole: bool, timeout: float) -> None:
    """`whole_seconds` first rounds what remains toward zero; at least the minimum is given."""
    policy = {"limits": [{"type": "time", "value": 10, "op": op}], "call_timeout": {"whole_seconds": whole}}
    scenario = Scenario(policy)
    scenario.now = 10 - left
    scenario.step()
    call = next_effects(scenario.state)[0]
    assert isinstance(call, CallModel)
    assert int(timeout * SECOND) == (call.until or 0) - scenario.state.at


def near(scenario: Scenario) -> list[tuple[str, Any, Any]]:
    """Of each warning what is near, the limit and the threshold."""
    return [(event.of, event.limit.name, event.threshold) for event in scenario.events(LimitNeared)]


@pytest.mark.parametrize(("after", "warns"), [(7.999999999, False), (8, True), (9, True)])
def test_near_fraction(after: float, warns: bool) -> None:
    """Before a request, when elapsed >= f x the smallest limit above 0; the model is not told."""
    limits = [{"type": "time", "name": "long", "value": 100}, {"type": "time", "name": "short", "value": 10}]
    scenario = Scenario({"limits": limits, "near": {"fraction": 0.8}})
    scenario.now = after
    scenario.step()
    assert ([("time", "short", 8 * SECOND)] if warns else []) == near(scenario)
    assert "RUNNING" == scenario.state.agent_state
    assert ["system", "user", "assistant", "tool"] == [role for role, _ in scenario.seen()]


def test_near_fraction_once_a_run() -> None:
    """One warning, however many requests follow; a fork is another run."""
    scenario = Scenario({"limits": [{"type": "time", "value": 100}], "near": {"fraction": 0.01}})
    scenario.now = 5
    scenario.step()
    scenario.step()
    assert 1 == len(near(scenario))


@pytest.mark.parametrize(
    ("reserve", "warns"),
    [
        pytest.param(84, False, id="one below"),
        pytest.param(85, True, id="at"),
        pytest.param(86, True, id="above"),
    ],
)
def test_near_reserve_of_tokens(reserve: int, warns: bool) -> None:
    """100 - 15 are left: a warning if that is no more than the reserve; then the calls run as ever."""
    scenario = Scenario({"limits": [{"type": "token", "value": 100}], "near": {"reserve_tokens": reserve}})
    scenario.answer("", ("look", "{}"))
    assert ([("budget", "token", 100 - reserve)] if warns else []) == near(scenario)
    assert scenario.state.batch is not None


@pytest.mark.parametrize(("cost", "warns"), [(89, False), (90, True), (91, True)])
def test_near_reserve_of_money(cost: int, warns: bool) -> None:
    """A tenth of the limit, in nano-dollars."""
    limits = [{"type": "cost", "value": 100 * _NANO}]
    scenario = Scenario({"limits": limits, "near": {"reserve_cost_fraction": 0.1}})
    scenario.answer("", ("look", "{}"), cost=cost)
    assert warns == bool(near(scenario))


def test_near_reserve_of_money_is_rounded_half_up() -> None:
    """0.1 x 5 nano-dollars is half a one: 1. So 4 used of 5 are near."""
    limits = [{"type": "cost", "value": 5 * _NANO}]
    scenario = Scenario({"limits": limits, "near": {"reserve_cost_fraction": 0.1}})
    scenario.answer("", ("look", "{}"), cost=4)
    assert [("budget", "cost", 4)] == near(scenario)


@pytest.mark.parametrize("value", [None, 0])
def test_near_skips_limits_that_are_null_or_0(value: int | None) -> None:
    """There is nothing to be near to."""
    limits = [{"type": "token", "value": value, "op": ">", "check": "preflight"}]
    scenario = Scenario({"limits": limits, "near": {"reserve_tokens": 1000}})
    scenario.answer("", ("look", "{}"))
    assert [] == near(scenario)


@pytest.mark.parametrize(("scope", "warnings"), [("turn", 2), ("run", 1), ("lineage", 1)])
def test_near_reserves_once_a_scope(scope: str, warnings: int) -> None:
    """One warning a scope."""
    scenario = Scenario(
        {
            "limits": [{"type": "token", "value": 1000}],
            "near": {"reserve_tokens": 1000, "scope": scope},
            "end_of_turn": "wait",
        }
    )
    scenario.step()
    scenario.answer("one")
    scenario.say("more")
    scenario.step()
    assert warnings == len(near(scenario))


def test_near_is_looked_at_after_the_budgets() -> None:
    """A budget that is used up is not near: it is reached."""
    scenario = Scenario({"limits": [{"type": "token", "value": 15}], "near": {"reserve_tokens": 5}})
    scenario.answer("", ("look", "{}"))
    assert [] == near(scenario)


@pytest.mark.parametrize(
    ("at", "trips"),
    [
        pytest.param(10, False, id="the limit's instant: it has its minimum"),
        pytest.param(10.5, False, id="the last instant of its minimum"),
        pytest.param(10.500000001, True, id="a nanosecond later"),
    ],
)
def test_a_batch_that_began_just_before_the_limit_has_its_minimum(at: float, trips: bool) -> None:
    """Each batch gets max(min, remaining): a clock that is read meanwhile does not cut it off."""
    scenario = Scenario({"limits": [{"type": "time", "value": 10}]})
    scenario.answer("", ("look", "{}"), after=9.5)
    assert [WaitUntil(at=START + 10_500_000_001)] == [
        effect for effect in next_effects(scenario.state) if isinstance(effect, WaitUntil)
    ]
    scenario.now = at
    assert trips == bool(scenario.clock(0))


def test_a_batch_that_has_had_its_minimum_ends_with_the_run() -> None:
    """Its result counts; then the time is up."""
    scenario = Scenario({"limits": [{"type": "time", "value": 10}]})
    scenario.answer("", ("look", "{}"), after=9.5)
    scenario.result("c1", after=1)
    assert "TIMED_OUT" == scenario.state.agent_state


def test_every_type_is_looked_at_wherever_a_policy_may_ask() -> None:
    """One that stands in no table would be taken from a policy, and then never trip."""
    limits: list[Limit] = [kind(value=1) for kind in get_args(Limit)]
    limits.append(TokenLimit(value=1, measure="estimate"))
    whole = {(type(limit), measure_of(limit)) for limit in limits}
    assert {(type_of(limit), measure_of(limit)) for limit in limits} == set(ENDS)
    assert {*BUDGETS, *OTHERS} == whole
    assert {*BEFORE, *COUNTED, (TimeLimit, "usage")} == whole  # those of time are `TimeLimits`'
    assert set(COUNTED) <= set(BUDGETS)
