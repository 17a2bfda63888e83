"""Retries: how long, how often, of what."""

from typing import Any

import pytest

from refold.reducers.effects import WaitUntil, next_effects
from refold.reducers.events import RetryScheduled
from refold.reducers.retry import Jitter, Retry, chance, delay
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, START, Scenario

HALF, NONE, ALL = 1 << 63, 0, (1 << 64) - 1


@pytest.mark.parametrize(
    ("retry", "attempt", "hash64", "retry_after", "seconds"),
    [
        pytest.param({}, 1, NONE, None, 1, id="initial"),
        pytest.param({}, 2, NONE, None, 2, id="doubled"),
        pytest.param({}, 3, NONE, None, 4, id="and again"),
        pytest.param({}, 6, NONE, None, 32, id="the last below the cap"),
        pytest.param({}, 7, NONE, None, 60, id="the cap of 60 s"),
        pytest.param({}, 1000, NONE, None, 60, id="far beyond the cap"),
        pytest.param({}, 1, HALF, None, 1.5, id="half of the jitter"),
        pytest.param({}, 7, HALF, None, 60, id="the cap holds with jitter"),
        pytest.param({"max": None}, 21, NONE, None, 1 << 20, id="no cap, 20 doublings"),
        pytest.param({"max": None}, 22, NONE, None, 1 << 20, id="no more than 20 doublings"),
        pytest.param({"initial": 0.25}, 3, NONE, None, 1, id="initial of a quarter"),
        pytest.param({"initial": 90, "max": 60}, 1, NONE, None, 90, id="an initial above max is the cap"),
        pytest.param({"initial": 0}, 5, HALF, None, 0.5, id="initial 0: jitter only"),
        pytest.param({}, 1, NONE, 7 * SECOND, 7, id="retry_after is a lower bound"),
        pytest.param({}, 7, NONE, 300 * SECOND, 300, id="above the cap too"),
        pytest.param({}, 4, NONE, 3 * SECOND, 8, id="a shorter retry_after changes nothing"),
        pytest.param({}, 1, NONE, 0, 1, id="retry_after 0"),
        pytest.param({}, 1, NONE, -5, 1, id="a negative retry_after"),
    ],
)
def test_delay(
    retry: dict[str, Any], attempt: int, hash64: int, retry_after: int | None, seconds: float
) -> None:
    """Attempt n waits min(max, initial * 2**(n - 1) + jitter), and at least as long as the provider says."""
    assert int(seconds * SECOND) == delay(Retry(**retry), attempt, hash64, retry_after)


def test_jitter_stays_below_its_bound() -> None:
    """The most that jitter adds is a nanosecond less than what the policy says."""
    assert 2 * SECOND - 1 == delay(Retry(jitter=Jitter(add=1)), 1, ALL, None)


def test_chance_is_a_keyed_hash() -> None:
    """Chance depends on the seed and the event's number, on nothing else, and on both."""
    assert chance(7, 3) == chance(7, 3)
    assert 4 == len({chance(7, 3), chance(8, 3), chance(7, 4), chance(3, 7)})
    assert all(0 <= chance(seed, seq) < 1 << 64 for seed in range(20) for seq in range(20))


@pytest.mark.parametrize("seed", [-1, 1 << 64, -(1 << 70)])
def test_any_seed_has_its_chance(seed: int) -> None:
    """A seed of any size, from a log that somebody else wrote, gives a wait and not a crash."""
    assert 0 <= chance(seed, 1) < 1 << 64


def waits(seed: int) -> list[int]:
    scenario = Scenario(seed=seed)
    for _ in range(3):
        scenario.fail()
        assert scenario.state.backoff is not None
        scenario.clock(100)
    return [event.delay for event in scenario.log if isinstance(event, RetryScheduled)]


def test_the_same_seed_waits_the_same_time() -> None:
    """A replay waits equally long; another seed waits otherwise."""
    assert waits(1) == waits(1)
    assert waits(1) != waits(2)


RETRIED = {"rate_limit", "overloaded", "timeout", "network", "stream_broken"}


@pytest.mark.parametrize("failure", FailureClass)
def test_classes(failure: FailureClass) -> None:
    """By default five classes are tried again; every other ends the run with its class as code."""
    scenario = Scenario({"retry": {"initial": 2, "jitter": {"add": 0}}})
    scenario.fail(failure)
    if failure in RETRIED:
        assert [f"retry_scheduled attempt=2 delay=2000000000 until=+2s failure={failure}"] == scenario.last
    else:
        code = "context_overflow" if failure == "context_overflow" else f"provider:{failure}"
        assert [f"state_changed from=RUNNING to=ERROR trigger=fail code={code}"] == scenario.last


@pytest.mark.parametrize("classes", [[], ["auth"]])
def test_the_policy_names_the_classes(classes: list[str]) -> None:
    """A class that the policy does not name is not tried again; one that it names is."""
    scenario = Scenario({"retry": {"classes": classes}})
    scenario.fail(FailureClass.AUTH)
    assert ("RUNNING" if classes else "ERROR") == scenario.state.agent_state
    other = Scenario({"retry": {"classes": classes}})
    other.fail(FailureClass.RATE_LIMIT)
    assert "ERROR" == other.state.agent_state


def test_attempts_run_out() -> None:
    """`attempts` counts the first one: after 3 of 3 the run gives up, naming class, attempt and step."""
    scenario = Scenario({"retry": {"attempts": 3, "jitter": {"add": 0}}})
    assert ["retry_scheduled attempt=2 delay=1000000000 until=+1s failure=timeout"] == scenario.fail(
        FailureClass.TIMEOUT
    )
    assert ["model_requested step=1 attempt=2 messages=[[1 2]]"] == scenario.clock(1)
    assert ["retry_scheduled attempt=3 delay=2000000000 until=+3s failure=network"] == scenario.fail(
        FailureClass.NETWORK
    )
    assert ["model_requested step=1 attempt=3 messages=[[1 2]]"] == scenario.clock(2)
    assert ["state_changed from=RUNNING to=ERROR trigger=fail code=provider:timeout"] == scenario.fail(
        FailureClass.TIMEOUT
    )
    outcome = scenario.state.outcome
    assert outcome is not None
    assert "the model request failed (timeout) at attempt 3 of step 1" == outcome.reason


def test_one_attempt_is_no_retry() -> None:
    """With `attempts: 1` the first failure ends the run."""
    assert ["state_changed from=RUNNING to=ERROR trigger=fail code=provider:network"] == Scenario(
        {"retry": {"attempts": 1}}
    ).fail(FailureClass.NETWORK)


def test_each_step_has_its_attempts_anew() -> None:
    """A success resets the count: the next step's first failure is attempt 1 again."""
    scenario = Scenario({"retry": {"attempts": 2, "jitter": {"add": 0}}})
    scenario.fail()
    scenario.clock(1)
    scenario.answer("", ("look", "{}"))
    scenario.result("c1")
    assert ["retry_scheduled attempt=2 delay=1000000000 until=+2s failure=overloaded"] == scenario.fail()


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        pytest.param(0.999999999, [], id="a nanosecond too early"),
        pytest.param(1, ["model_requested step=1 attempt=2 messages=[[1 2]]"], id="at the instant"),
        pytest.param(5, ["model_requested step=1 attempt=2 messages=[[1 2]]"], id="late"),
    ],
)
def test_the_wait_is_over_when_the_clock_says_so(after: float, lines: list[str]) -> None:
    """Nothing but a clock read at or past `until` ends a back-off."""
    scenario = Scenario({"retry": {"jitter": {"add": 0}}})
    scenario.fail()
    assert (WaitUntil(at=START + SECOND),) == next_effects(scenario.state)
    assert lines == scenario.clock(after)


def test_waits_are_counted() -> None:
    """What was waited, and not what was planned, is the retry wait that was spent."""
    scenario = Scenario({"retry": {"jitter": {"add": 0}}})
    scenario.fail()
    scenario.clock(3)
    assert 3 * SECOND == scenario.state.spent.retry_wait
