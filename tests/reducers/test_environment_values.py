"""What the text of an environment variable may be, by what it is to say."""

from typing import Any

import pytest

from refold.reducers import PolicyError
from refold.reducers.overlay import flag
from support.variables import ALL, GARBAGE, POSITIVE, SIZES, WAITS, changes


def the_only(name: str, text: str) -> Any:
    (value,) = changes({name: text}).values()
    return value


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_blank_is_unset(name: str, text: str) -> None:
    """A variable of white space says nothing."""
    assert {} == changes({name: text})


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("text", ["0", "-0", "-1", "000"])
def test_zero_or_less_is_unset(name: str, text: str) -> None:
    """For most numbers zero and everything below it says nothing; one does."""
    assert {} == changes({name: text})
    assert {} != changes({name: "1"})


@pytest.mark.parametrize("name", WAITS)
def test_no_wait_is_a_wait(name: str) -> None:
    """A first wait or a jitter of 0 is 0; below that it says nothing."""
    assert (
        the_only(name, "0") == 0
        if name.endswith("SECONDS")
        else changes({name: "0"})["retry.jitter.add"] == 0
    )
    assert {} == changes({name: "-1"})
    assert {} == changes({name: "-0.5"})


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("REFOLD_PRUNE_AFTER_MESSAGES", ("0", "-1", "-40"), None),
        ("REFOLD_PRUNE_KEEP_LAST", ("0", "-1", "-40"), 0),
        ("REFOLD_MAX_TOOL_OUTPUT", ("0", "-0"), None),
    ],
)
def test_a_size_can_be_off(name: str, texts: tuple[str, ...], value: int | None) -> None:
    """Zero or less messages switch the pruning off, and keep none; zero bytes are no cap."""
    assert [value] * len(texts) == [the_only(name, text) for text in texts]


@pytest.mark.parametrize("text", [" 7 ", "+7", "7\n", "007", "\u30007"])
def test_blanks_a_sign_and_zeros(text: str) -> None:
    """A number may have blanks around it, a sign, and zeros in front."""
    assert 7 == the_only("REFOLD_MAX_STEPS", text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), (" +2.50 ", 2.5), (".5", 0.5), ("5.", 5.0), ("000.125", 0.125), ("0.000000001", 1e-9)],
)
def test_decimals(text: str, value: float) -> None:
    """Seconds and dollars are decimal numbers."""
    assert value == the_only("REFOLD_TIME_LIMIT", text)


@pytest.mark.parametrize("name", [*POSITIVE, *WAITS, *SIZES, "REFOLD_NEAR_LIMIT"])
@pytest.mark.parametrize("text", [*GARBAGE, "1" + "0" * 15])
def test_what_is_no_number_is_refused(name: str, text: str) -> None:
    """What cannot be read as a number is refused, by the variable's name and with the text."""
    with pytest.raises(PolicyError) as refused:
        changes({name: text})
    assert name == refused.value.path
    assert "expected a" in str(refused.value)
    assert str(refused.value).endswith(f"got {text!r}")


@pytest.mark.parametrize("name", ["REFOLD_MAX_STEPS", "REFOLD_TRIM_LAST", *SIZES])
def test_a_count_is_whole(name: str) -> None:
    """There is no half a step, message, token or byte."""
    with pytest.raises(PolicyError, match="whole number"):
        changes({name: "3.5"})


@pytest.mark.parametrize(
    ("text", "fits"),
    [("9" * 15, True), ("0" * 40 + "9" * 15, True), ("1" + "0" * 15, False), ("9" * 5000, False)],
)
def test_the_largest_count(text: str, fits: bool) -> None:
    """Fifteen digits fit a limit, zeros in front aside; more are refused, however many, and shown cut."""
    if fits:
        assert int(text) == the_only("REFOLD_MAX_STEPS", text)
        return
    with pytest.raises(PolicyError) as refused:
        changes({"REFOLD_MAX_STEPS": text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "seconds"), [("999999999", 999999999), ("1000000000", None), ("0.0000000001", None)]
)
def test_the_largest_amount(text: str, seconds: int | None) -> None:
    """Nine digits before the point fit, and nine after it: more than a lifetime, less than a nanosecond."""
    if seconds is None:
        with pytest.raises(PolicyError, match="9 digits before the point and 9 after"):
            changes({"REFOLD_TIME_LIMIT": text})
    else:
        assert seconds == the_only("REFOLD_TIME_LIMIT", text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("REFOLD_MAX_TOOL_OUTPUT", "-1", "0 for no maximum, or a positive number"),
        ("REFOLD_NEAR_LIMIT", "0", "between 0 and 1, exclusive"),
        ("REFOLD_NEAR_LIMIT", "-0.5", "between 0 and 1, exclusive"),
        ("REFOLD_NEAR_LIMIT", "1", "between 0 and 1, exclusive"),
        ("REFOLD_NEAR_LIMIT", "1.5", "between 0 and 1, exclusive"),
        ("REFOLD_APPROVALS", "Prod", "one of ci, dev, prod"),
        ("REFOLD_APPROVALS", "none", "one of ci, dev, prod"),
        ("REFOLD_ONE_CALL", "2", "one of 1, true, yes, on, 0, false, no, off"),
        ("REFOLD_RETRY_CREDIT", "t", "one of 1, true, yes, on, 0, false, no, off"),
    ],
)
def test_what_is_no_such_value_is_refused(name: str, text: str, expected: str) -> None:
    """A value outside its range, and a word that is none of those known, is refused by the variable's
    name.
    """
    with pytest.raises(PolicyError) as refused:
        changes({name: text})
    assert name == refused.value.path
    assert expected in str(refused.value)
    assert text in str(refused.value)


def test_the_fraction_may_come_near_its_ends() -> None:
    """A fraction just above 0 and just below 1 is one."""
    assert [0.001, 0.999] == [
        changes({"REFOLD_NEAR_LIMIT": text})["near.fraction"] for text in ("0.001", "0.999")
    ]


@pytest.mark.parametrize(
    ("text", "on"),
    [(word, True) for word in ("1", "true", "YES", " On ")]
    + [(word, False) for word in ("0", "False", "NO", "\toff")]
    + [(word, None) for word in ("", "  ", None)],
)
def test_flags(text: str | None, on: bool | None) -> None:
    """A flag is one of eight words, any case, blanks around; else it is unset."""
    assert on is flag({} if text is None else {"REFOLD_PRUNE_LOG": text}, "REFOLD_PRUNE_LOG")


def test_another_word_is_no_flag() -> None:
    """Any other word is refused by the variable's name."""
    with pytest.raises(PolicyError, match=r"^REFOLD_PRUNE_LOG: expected one of 1, true.*got 'enabled'$"):
        flag({"REFOLD_PRUNE_LOG": "enabled"}, "REFOLD_PRUNE_LOG")
