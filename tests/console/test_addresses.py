"""How a person names a run, and a place in it."""

import json
from pathlib import Path

import pytest

from console.conftest import Refold
from refold.console.addresses import Address, BadAddress, parse


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        pytest.param("aa11", Address("aa11"), id="a run"),
        pytest.param("aa11@e41", Address("aa11", event=41), id="an event"),
        pytest.param("aa11@t7", Address("aa11", turn=7), id="a turn"),
        pytest.param("@last", Address("@last"), id="the newest"),
        pytest.param("@last@t2", Address("@last", turn=2), id="a turn of the newest"),
    ],
)
def test_what_an_address_means(typed: str, meant: Address) -> None:
    """One row a form."""
    assert meant == parse(typed)


@pytest.mark.parametrize("typed", ["", "@", "@first", "a@e0", "a@t-1", "a@x1", "a@e1@t1", "a b", "a@e1e"])
def test_what_means_nothing(typed: str) -> None:
    """Anything else is refused, and the error shows it."""
    with pytest.raises(BadAddress) as caught:
        parse(typed)
    assert repr(typed) in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "run", "seq"),
    [
        pytest.param("aa11", "aa11", 17, id="a whole id"),
        pytest.param("b", "bb33", 4, id="a prefix of one"),
        pytest.param("@last", "bb33", 4, id="the newest"),
        pytest.param("aa1@e3", "aa11", 3, id="an event"),
        pytest.param("aa11@t2", "aa11", 9, id="a turn is where its request was made"),
    ],
)
def test_what_is_found(typed: str, run: str, seq: int, refold: Refold, store: Path, waiting: str) -> None:
    """The state of what was named is that run's, at that event."""
    ran = refold("-o", "json", "state", typed, "--store", store)
    found = json.loads(ran.out)
    assert (run, seq) == (found["setup"]["run"], found["seq"])


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        pytest.param("aa", ["ambiguous", "aa11", "aa22"], id="several: they are listed"),
        pytest.param("zz", ["no run", "bb33", "aa22", "aa11"], id="none: the newest are listed"),
        pytest.param("aa11@e99", ["events 1 to 17"], id="an event that is not there"),
        pytest.param("aa11@t9", ["turns 1 to 3"], id="a turn that is not there"),
    ],
)
def test_what_is_not_found(typed: str, says: list[str], refold: Refold, store: Path, waiting: str) -> None:
    """The error says what there is instead; exit code 2."""
    ran = refold("state", typed, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert [] == [word for word in says if word not in ran.err]


def test_a_place_where_a_run_is_meant(refold: Refold, store: Path, waiting: str) -> None:
    """`audit RUN@e3` is refused: an audit takes a whole run."""
    ran = refold("audit", "aa11@e3", "--store", store)
    assert 2 == ran.code
    assert "a run without a place" in ran.err
