"""Retries: how long is waited, whether once more, and of which model next."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.events import RetryScheduled
from refold.reducers.failures import (
    ClassRetry,
    Fallback,
    FallbackWhen,
    Jitter,
    Retry,
    allows,
    chance,
    delay,
    in_window,
    next_model,
)
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, Scenario

HALF, NONE, ALL = 1 << 63, 0, (1 << 64) - 1
MS = 1_000_000
RATE, NETWORK = FailureClass.RATE_LIMIT, FailureClass.NETWORK


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


@pytest.mark.parametrize(
    ("retry", "attempt", "hash64", "nanoseconds"),
    [
        pytest.param({"jitter": {"scale": [0.5, 1.5]}}, 1, NONE, SECOND // 2, id="scale: at least a of base"),
        pytest.param({"jitter": {"scale": [0.5, 1.5]}}, 2, HALF, 2 * SECOND, id="scale: in the middle"),
        pytest.param(
            {"jitter": {"scale": [0.5, 1.5]}}, 1, ALL, SECOND * 3 // 2 - 1, id="scale: below b of base"
        ),
        pytest.param({"jitter": {"scale": [1, 1]}}, 3, ALL, 4 * SECOND, id="scale: no chance"),
        pytest.param(
            {"jitter": {"scale": [0, 1]}, "max": 2}, 9, HALF, SECOND, id="scale: of the capped base"
        ),
        pytest.param(
            {"jitter": {"scale": [2, 2]}, "max": 2}, 9, HALF, 4 * SECOND, id="scale: may exceed the cap"
        ),
        pytest.param({"jitter": {"full": 1}}, 3, NONE, SECOND, id="full: at least a"),
        pytest.param({"jitter": {"full": 0}}, 3, NONE, 0, id="full: from nothing"),
        pytest.param({"jitter": {"full": 1}}, 3, HALF, SECOND * 5 // 2, id="full: in the middle"),
        pytest.param({"jitter": {"full": 1}}, 3, ALL, 4 * SECOND - 1, id="full: below base"),
        pytest.param({"jitter": {"full": 1}}, 1, ALL, SECOND, id="full: base is a"),
        pytest.param(
            {"jitter": {"full": 1}, "max": 2}, 9, ALL, 2 * SECOND - 1, id="full: of the capped base"
        ),
        pytest.param({"jitter": {"full": 4}}, 1, NONE, 4 * SECOND, id="full: base below a, from a"),
        pytest.param({"jitter": {"full": 4}}, 1, ALL, SECOND, id="full: base below a, down to base"),
        pytest.param({"jitter": {"spread": 20}}, 1, 0, 800 * MS, id="spread: the lower end"),
        pytest.param({"jitter": {"spread": 20}}, 1, 400, 1200 * MS, id="spread: the upper end is taken"),
        pytest.param({"jitter": {"spread": 20}}, 1, 401, 800 * MS, id="spread: and around"),
        pytest.param({"jitter": {"spread": 20}, "max": 1}, 1, 200, SECOND, id="spread: up to the cap"),
        pytest.param({"jitter": {"spread": 20}, "max": 1}, 1, 201, 800 * MS, id="spread: not above the cap"),
        pytest.param({"jitter": {"spread": 20}, "max": None}, 1, 400, 1200 * MS, id="spread: without a cap"),
        pytest.param({"jitter": {"spread": 100}}, 1, 0, 0, id="spread: all of it"),
        pytest.param({"jitter": {"spread": 101}}, 1, 10, 10 * MS, id="spread: more than all counts as all"),
        pytest.param({"jitter": {"spread": 99}}, 1, 0, 10 * MS, id="spread: almost all"),
        pytest.param({"jitter": {"spread": 33}, "initial": 0.005}, 1, 0, 4 * MS, id="spread: rounded down"),
        pytest.param(
            {"jitter": {"spread": 0}, "initial": 0.0019}, 1, ALL, MS, id="spread: whole milliseconds"
        ),
        pytest.param({"jitter": {"spread": 20}, "initial": 0}, 1, ALL, 0, id="spread: of nothing"),
    ],
)
def test_jitter(retry: dict[str, Any], attempt: int, hash64: int, nanoseconds: int) -> None:
    """Each way of jitter spreads the wait as its formula says, in integers."""
    assert nanoseconds == delay(msgspec.convert(retry, Retry), attempt, hash64, None)


WAYS: list[dict[str, Any]] = [{"add": 0.3}, {"scale": [0.5, 1.5]}, {"full": 0.7}, {"spread": 20}]


@given(
    way=st.sampled_from(WAYS),
    initial=st.sampled_from([0, 0.25, 1, 90]),
    longest=st.sampled_from([None, 0.1, 60]),
    attempt=st.integers(1, 40),
    hash64=st.integers(NONE, ALL),
)
def test_a_wait_has_its_bounds(
    way: dict[str, Any], initial: float, longest: float | None, attempt: int, hash64: int
) -> None:
    """No wait is below zero, and only `scale` reaches beyond the cap."""
    retry = msgspec.convert({"jitter": way, "initial": initial, "max": longest}, Retry)
    waited = delay(retry, attempt, hash64, None)
    assert 0 <= waited
    most = max(initial, longest or 0, 0.7)
    assert longest is None or waited <= (1.5 if "scale" in way else 1) * most * SECOND


@pytest.mark.parametrize(
    ("own", "attempt", "seconds"),
    [
        pytest.param({}, 2, 2, id="nothing of its own"),
        pytest.param({"initial": 30}, 1, 30, id="its own initial"),
        pytest.param({"initial": 30}, 2, 60, id="which doubles"),
        pytest.param({"initial": 0}, 3, 0, id="which may be 0"),
        pytest.param({"initial": 30, "step": 10}, 1, 30, id="linear: the first"),
        pytest.param({"initial": 30, "step": 10}, 2, 40, id="linear: one step more"),
        pytest.param({"initial": 30, "step": 10}, 4, 60, id="linear: at the cap"),
        pytest.param({"initial": 30, "step": 10}, 5, 60, id="linear: capped"),
        pytest.param({"step": 0}, 9, 1, id="linear: always the same"),
        pytest.param({"max": 3}, 3, 3, id="its own cap"),
        pytest.param({"max": 3}, 2, 2, id="below its own cap"),
        pytest.param({"initial": 9, "max": 3}, 1, 9, id="an initial above its cap"),
    ],
)
def test_numbers_of_a_class(own: dict[str, Any], attempt: int, seconds: float) -> None:
    """A class may have its own wait; what it does not say is as for the others, who keep theirs."""
    retry = msgspec.convert({"jitter": {"add": 0}, "by_class": {"rate_limit": own}}, Retry)
    assert seconds * SECOND == delay(retry, attempt, NONE, None, RATE)
    assert delay(Retry(jitter=Jitter(add=0)), attempt, NONE, None) == delay(
        retry, attempt, NONE, None, NETWORK
    )


@pytest.mark.parametrize(
    ("retry", "attempt", "failure", "again"),
    [
        pytest.param({"attempts": 3}, 2, NETWORK, True, id="one below"),
        pytest.param({"attempts": 3}, 3, NETWORK, False, id="the last"),
        pytest.param({"attempts": 3}, 4, NETWORK, False, id="beyond"),
        pytest.param({"attempts": None}, 10**9, NETWORK, True, id="null: always"),
        pytest.param({"attempts": 3}, 1, FailureClass.AUTH, False, id="another class"),
        pytest.param({"attempts": None}, 1, FailureClass.AUTH, False, id="another class, null"),
        pytest.param(
            {"attempts": 3, "classes": ["auth"]}, 1, FailureClass.AUTH, True, id="a class that it names"
        ),
        pytest.param({"by_class": {"rate_limit": {"attempts": 2}}}, 1, RATE, True, id="its own count, below"),
        pytest.param(
            {"by_class": {"rate_limit": {"attempts": 2}}}, 2, RATE, False, id="its own count, the last"
        ),
        pytest.param({"by_class": {"rate_limit": {"attempts": 2}}}, 2, NETWORK, True, id="not of the others"),
        pytest.param({"by_class": {"rate_limit": {"initial": 2}}}, 5, RATE, True, id="inherited, below"),
        pytest.param({"by_class": {"rate_limit": {"initial": 2}}}, 6, RATE, False, id="inherited, the last"),
    ],
)
def test_allows(retry: dict[str, Any], attempt: int, failure: FailureClass, again: bool) -> None:
    """A failure is tried again while its class is named and its attempts last."""
    assert again is allows(msgspec.convert(retry, Retry), attempt, 0, 0, failure)


@pytest.mark.parametrize(
    ("elapsed", "wait", "within"),
    [
        pytest.param(0, 10 * SECOND - 1, True, id="a nanosecond below"),
        pytest.param(4 * SECOND, 6 * SECOND, True, id="exactly at the end"),
        pytest.param(4 * SECOND, 6 * SECOND + 1, False, id="a nanosecond beyond"),
        pytest.param(11 * SECOND, 0, False, id="already over"),
    ],
)
def test_window(elapsed: int, wait: int, within: bool) -> None:
    """No wait may end after the window; without one any may."""
    retry = Retry(window=10)
    assert within is in_window(retry, elapsed, wait)
    assert within is allows(retry, 1, elapsed, wait, NETWORK)
    assert in_window(Retry(), elapsed, wait)


def fallback(*when: Any, models: tuple[str, ...] = ("b", "c")) -> Fallback:
    return msgspec.convert({"models": models, "when": when}, Fallback)


@pytest.mark.parametrize(
    ("when", "current", "asked", "following"),
    [
        pytest.param(["exhausted"], 0, {"exhausted": True}, "b", id="exhausted"),
        pytest.param(["exhausted"], 1, {"exhausted": True}, "c", id="exhausted, the one after"),
        pytest.param(["exhausted"], 2, {"exhausted": True}, None, id="exhausted, no more"),
        pytest.param(["exhausted"], 0, {}, None, id="not exhausted"),
        pytest.param(["exhausted"], 0, {"retryable": False}, None, id="unretryable is not exhausted"),
        pytest.param(["unretryable"], 0, {"retryable": False}, "b", id="unretryable"),
        pytest.param(["unretryable"], 0, {"exhausted": True}, None, id="exhausted is not unretryable"),
        pytest.param(["unretryable", "exhausted"], 0, {"exhausted": True}, "b", id="either"),
        pytest.param([], 0, {"exhausted": True, "retryable": False}, None, id="never"),
        pytest.param([{"attempt": 3}], 0, {"failed_attempt": 1}, None, id="attempt: one early"),
        pytest.param([{"attempt": 3}], 0, {"failed_attempt": 2}, "b", id="attempt: the third"),
        pytest.param([{"attempt": 3}], 0, {"failed_attempt": 5}, "b", id="attempt: from the third on"),
        pytest.param([{"attempt": 3}], 1, {"failed_attempt": 3}, None, id="attempt: stays there"),
        pytest.param([{"attempt": 3}, {"attempt": 5}], 1, {"failed_attempt": 3}, None, id="attempt: not yet"),
        pytest.param([{"attempt": 3}, {"attempt": 5}], 1, {"failed_attempt": 4}, "c", id="attempt: the next"),
        pytest.param([{"attempt": 3}, {"attempt": 5}], 2, {"failed_attempt": 9}, None, id="attempt: no more"),
        pytest.param([{"attempt": 1}], 0, {}, "b", id="attempt: any failure"),
        pytest.param([{"stream_failures": 2}], 0, {"stream_failures": 1}, None, id="streams: one below"),
        pytest.param([{"stream_failures": 2}], 0, {"stream_failures": 2}, "b", id="streams: so many"),
        pytest.param([{"stream_failures": 2}], 1, {"stream_failures": 3}, "c", id="streams: of any model"),
        pytest.param([{"stream_failures": 2}], 0, {"failed_attempt": 9}, None, id="streams: not attempts"),
    ],
)
def test_next_model(when: list[Any], current: int, asked: dict[str, Any], following: str | None) -> None:
    """The next model of the list is asked when one of the policy's conditions holds; after the last there is
    none.
    """
    failed = {"failed_attempt": 1, "retryable": True, "exhausted": False, "stream_failures": 0, **asked}
    assert following == next_model(fallback(*when), current, **failed)
    assert next_model(None, current, **failed) is None


def test_without_other_models_there_is_none() -> None:
    """An empty list of models leads nowhere."""
    empty = fallback("exhausted", models=())
    assert not empty.sticky
    assert next_model(empty, 0, 1, retryable=True, exhausted=True, stream_failures=0) is None


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        pytest.param({"add": 1, "full": 1}, Jitter, id="two ways of jitter"),
        pytest.param({"scale": [1, 2], "spread": 3}, Jitter, id="two others"),
        pytest.param({"add": -1}, Jitter, id="less than nothing"),
        pytest.param({"scale": [2, 1]}, Jitter, id="a scale upside down"),
        pytest.param({"scale": [1]}, Jitter, id="a scale of one factor"),
        pytest.param({"spread": 0.5}, Jitter, id="half a per cent"),
        pytest.param({"more": 1}, Jitter, id="another way"),
        pytest.param({"attempt": 1, "stream_failures": 1}, FallbackWhen, id="two conditions in one"),
        pytest.param({}, FallbackWhen, id="no condition"),
        pytest.param({"attempt": 0}, FallbackWhen, id="attempts begin with 1"),
        pytest.param({"stream_failures": 0}, FallbackWhen, id="no failure is none"),
        pytest.param({"models": [""], "when": ["exhausted"]}, Fallback, id="a model without a name"),
        pytest.param({"models": ["b", "c", "b"], "when": ["exhausted"]}, Fallback, id="a model twice"),
        pytest.param({"models": ["b"], "when": ["later"]}, Fallback, id="another word"),
        pytest.param({"models": ["b"]}, Fallback, id="no word about when"),
        pytest.param({"attempts": 0}, ClassRetry, id="no attempt of a class"),
        pytest.param({"window": -1}, Retry, id="a window below zero"),
        pytest.param({"by_class": {"nope": {}}}, Retry, id="an unknown class"),
    ],
)
def test_what_cannot_be(data: dict[str, Any], shape: type[msgspec.Struct]) -> None:
    """What cannot work is refused where the policy is read."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, shape)


def test_jitter_that_says_nothing_is_up_to_a_second() -> None:
    """Without a word about jitter it is `{add: 1}`, said or built."""
    assert Jitter(add=1) == Jitter() == msgspec.convert({}, Jitter) == Retry().jitter
    assert Jitter(add=0) == msgspec.convert({"add": 0}, Jitter)


RECORDED = (
    b'{"attempts":6,"initial":1,"max":60,"jitter":{"add":1},'
    b'"classes":["rate_limit","overloaded","timeout","network","stream_broken"]}'
)


def test_what_older_logs_hold_means_the_same() -> None:
    """A policy recorded before the later keys existed is the default of today."""
    assert Retry() == msgspec.json.decode(RECORDED, type=Retry)


@pytest.mark.parametrize("way", [{}, *WAYS])
def test_a_recorded_policy_reads_back_equal(way: dict[str, Any]) -> None:
    """What is written with every key is read back as it was."""
    retry = msgspec.convert(
        {
            "jitter": way,
            "window": 10,
            "by_class": {"rate_limit": {"initial": 30, "step": 30}},
            "fallback": {"models": ["b"], "when": ["exhausted", {"attempt": 3}, {"stream_failures": 2}]},
        },
        Retry,
    )
    assert retry == msgspec.json.decode(msgspec.json.encode(retry), type=Retry)
    assert retry == msgspec.convert(msgspec.to_builtins(retry), Retry)


def test_chance_is_a_keyed_hash() -> None:
    """Chance depends on the seed and the event's number, on nothing else, and on both."""
    assert 6525065493826075821 == chance(7, 3)  # as in every log of it: waits must not change
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
