"""Limits of time: deadlines, the clock that they read, what is credited, and what is left to each call."""

import decimal

import pytest

from refold.reducers.effects import CallModel, RunTool, WaitUntil, next_effects
from refold.reducers.meters import elapsed, used
from refold.reducers.vocabulary import FailureClass, nano
from support.scenario import SECOND, START, Scenario


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


def test_the_callers_decimal_context_does_not_matter() -> None:
    """Whatever precision and traps a program has set for its own sums, seconds become the same
    nanoseconds.
    """
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.Inexact] = True
        assert 12_345_678_000_000 == nano(12345.678)


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
    """A second, a wait of two of a broken stream, a second, and its text is gone on from in another
    request.
    """
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
