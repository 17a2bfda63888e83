"""The classes of failed requests: a row a rule, then laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.failures import BY_TEXT, OVERFLOW_PATTERNS, classify, overflows
from refold.reducers.vocabulary import FailureClass

RATE, TIMEOUT, NETWORK = FailureClass.RATE_LIMIT, FailureClass.TIMEOUT, FailureClass.NETWORK
OVERLOADED, AUTH, BAD = FailureClass.OVERLOADED, FailureClass.AUTH, FailureClass.BAD_REQUEST
OVERFLOW, OTHER, QUOTA = FailureClass.CONTEXT_OVERFLOW, FailureClass.OTHER, FailureClass.QUOTA


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (400, BAD),
        (401, AUTH),
        (402, QUOTA),
        (403, AUTH),
        (404, BAD),
        (408, TIMEOUT),
        (409, BAD),
        (413, OVERFLOW),
        (422, BAD),
        (429, RATE),
        (499, BAD),
        (500, OVERLOADED),
        (502, OVERLOADED),
        (503, OVERLOADED),
        (504, OVERLOADED),
        (529, OVERLOADED),
        (599, OVERLOADED),
        (600, OTHER),
        (399, OTHER),
        (200, OTHER),
        (0, OTHER),
        (-1, OTHER),
        (None, OTHER),
    ],
)
def test_class_of_a_status(status: int | None, failure: FailureClass) -> None:
    """A status alone gives the class of its row."""
    assert failure is classify(status, "")


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        pytest.param("call 7 failed (429)", RATE, id="429"),
        pytest.param("code=Too Many Requests", RATE, id="too many requests"),
        pytest.param("Rate Limit; then temporarily", RATE, id="rate limit comes before unavailable"),
        pytest.param("429: TIMEOUT: 429", RATE, id="rate limit comes before timeout"),
        pytest.param("rate-limit", OTHER, id="a hyphen is not a blank"),
        pytest.param("[timeout] retry later", TIMEOUT, id="timeout"),
        pytest.param("QUARTZ NORTH; THEN TIMED OUT", TIMEOUT, id="timed out, any case"),
        pytest.param("time out", OTHER, id="two words are not timeout"),
        pytest.param("503: TIMEOUT: 503", TIMEOUT, id="timeout comes before 503"),
        pytest.param("interconnection", NETWORK, id="words count inside words"),
        pytest.param("the provider said: Network", NETWORK, id="network"),
        pytest.param("CODE=RESET BY PEER", NETWORK, id="reset by peer"),
        pytest.param("broken pipe: unauthorized", NETWORK, id="broken pipe comes before auth"),
        pytest.param("thereof", NETWORK, id="eof inside a word"),
        pytest.param("error sending request for url", NETWORK, id="error sending request"),
        pytest.param("503 while waiting", OVERLOADED, id="503"),
        pytest.param("Unavailable", OVERLOADED, id="unavailable"),
        pytest.param("temporarily", OVERLOADED, id="temporar"),
        pytest.param("maple: 500: maple", OVERLOADED, id="500"),
        pytest.param("code=502", OVERLOADED, id="502"),
        pytest.param("then 504", OVERLOADED, id="504"),
        pytest.param("Internal Server Error", OVERLOADED, id="server error"),
        pytest.param("server  error", OTHER, id="two blanks are not one"),
        pytest.param("bad gateway", OVERLOADED, id="bad gateway"),
        pytest.param("400: 500: 400", OVERLOADED, id="500 comes before 400"),
        pytest.param("401 WHILE WAITING", AUTH, id="401"),
        pytest.param("403; then 422", AUTH, id="403 comes before 422"),
        pytest.param("UNAUTHORIZED", AUTH, id="unauthorized"),
        pytest.param("[FORBIDDEN] RETRY LATER", AUTH, id="forbidden"),
        pytest.param("CODE=INVALID API KEY", AUTH, id="invalid api key"),
        pytest.param("un-authorized", OTHER, id="a hyphen inside a word"),
        pytest.param("400 WHILE WAITING FOR RATE-LIMIT", BAD, id="400"),
        pytest.param("got 404", BAD, id="404"),
        pytest.param("ember: 422: ember", BAD, id="422"),
        pytest.param("invalid_request", BAD, id="invalid_request"),
        pytest.param("Bad Request", BAD, id="bad request"),
        pytest.param("badrequest", OTHER, id="one word is not bad request"),
        pytest.param("port 5000 is taken", OTHER, id="500 inside 5000"),
        pytest.param("request 14290 failed", OTHER, id="429 inside 14290"),
        pytest.param("request 14290 failed: 503", OVERLOADED, id="a whole number beside a longer one"),
        pytest.param("item 4001 of 9000", OTHER, id="400 inside 4001"),
        pytest.param("in 4040 steps", OTHER, id="404 inside 4040"),
        pytest.param("418", OTHER, id="a number that says nothing"),
        pytest.param("", OTHER, id="nothing"),
    ],
)
def test_class_of_a_text(text: str, failure: FailureClass) -> None:
    """Without a status the first row of the table with a fragment in the text holds."""
    assert failure is classify(None, text)
    assert failure is classify(200, text)


@pytest.mark.parametrize(
    "text",
    [
        "context overflow",
        "ContextOverflow",
        "prompt too large",
        "Too Many Tokens",
        "This model's maximum context length is 8192 tokens",
        "token limit exceeded",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "exceeds the context window",
        "context_length_exceeded",
        "the request exceeds the available context size",
        "input length and `max_tokens` exceed context limit",
        "too many tokens; then error sending request for url",
        "rate limit: too many tokens",
    ],
)
@pytest.mark.parametrize("status", [None, 200, 400, 413, 422, 500])
def test_overflow_by_text(status: int | None, text: str) -> None:
    """A text that speaks of a full context is an overflow, before any other row, also under a 400 or 500."""
    assert OVERFLOW is classify(status, text)


@pytest.mark.parametrize(("status", "failure"), [(401, AUTH), (403, AUTH), (408, TIMEOUT), (429, RATE)])
def test_a_status_with_another_cause_is_believed(status: int, failure: FailureClass) -> None:
    """A throttled request that speaks of tokens is no overflow: pruning would not help it."""
    assert failure is classify(status, "Too many tokens, please wait before trying again")


def test_own_patterns_replace_the_built_in_ones() -> None:
    """A policy's patterns are used, any case, and no others."""
    assert OVERFLOW is classify(400, "Es ist zu LANG", [r"zu\s+lang"])
    assert BAD is classify(400, "prompt is too long", [r"zu\s+lang"])
    assert not overflows("prompt is too long", [])


@given(status=st.integers(), text=st.text())
def test_total(status: int, text: str) -> None:
    """Every status and text has one class, the same each time; a 4xx or 5xx is never `other`."""
    failure = classify(status, text)
    assert failure is classify(status, text)
    assert failure is not OTHER or not 400 <= status < 600


@given(before=st.text("0123456789", max_size=3), after=st.text("0123456789", max_size=3))
def test_numbers_are_whole_words(before: str, after: str) -> None:
    """A number of the table inside a longer number says nothing."""
    numbers = [part for _, parts in BY_TEXT for part in parts if part.isdigit()]
    longer = [f"{before}{number}{after}" for number in numbers if before or after]
    assert all(classify(None, f"n {number} m") is OTHER for number in longer)


def test_patterns_of_the_policy_language() -> None:
    """The patterns that the policy language promises are there."""
    promised = {"context.?overflow", "prompt.?too.?large", "too many tokens", "maximum context"}
    promised |= {"token limit", "prompt is too long", "context window"}
    assert promised <= set(OVERFLOW_PATTERNS)
    assert overflows("the CONTEXT LENGTH is 8192")
