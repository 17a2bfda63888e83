"""Recordings that no test used: they are reported, fail the session or are deleted, and nothing else is."""

import pytest

from testing.conftest import TEST, Session

UNUSED = """
from shop import make

def test_buy(refold_run):
    refold_run(make, "Buy an apple.")

def test_sell(refold_run):
    refold_run(make, "Sell an apple.")
"""
LEFT = "recordings/test_shop/test_sell.jsonl"


@pytest.mark.parametrize(
    ("option", "code", "line", "stays"),
    [
        pytest.param("report", 0, f"refold: unused recording {LEFT}", True, id="report"),
        pytest.param("fail", 1, f"refold: unused recording {LEFT}", True, id="fail"),
        pytest.param("delete", 0, f"refold: deleted recording {LEFT}", False, id="delete"),
    ],
)
def test_unused_recordings(
    session: Session, pytester: pytest.Pytester, option: str, code: int, line: str, stays: bool
) -> None:
    """A recording whose test is gone is reported, fails the session, or is deleted."""
    session("--refold-record=missing", test_shop=UNUSED).assert_outcomes(passed=2)
    ran = session(f"--refold-unused={option}", test_shop=TEST)
    assert code == ran.ret
    ran.stdout.fnmatch_lines([line])
    assert stays == (pytester.path / LEFT).exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param(["-k", "buy"], UNUSED, id="deselected"),
        pytest.param(["test_shop.py::test_buy"], UNUSED, id="one test was named"),
        pytest.param(
            [], UNUSED.replace('refold_run(make, "Sell', 'assert 0, (make, "Sell'), id="failed before it"
        ),
        pytest.param(
            [],
            UNUSED.replace("def test_sell", "import pytest\n@pytest.mark.skip\ndef test_sell"),
            id="skipped",
        ),
    ],
)
def test_recordings_of_tests_that_did_not_run(
    session: Session, pytester: pytest.Pytester, options: list[str], text: str
) -> None:
    """Whether they are used nobody knows, so they are neither reported nor deleted."""
    session("--refold-record=missing", test_shop=UNUSED).assert_outcomes(passed=2)
    ran = session("--refold-unused=delete", *options, test_shop=text)
    ran.stdout.no_fnmatch_line("refold: deleted*")
    assert (pytester.path / LEFT).exists()


def test_what_is_never_deleted(session: Session, pytester: pytest.Pytester) -> None:
    """Files that are no recordings, what another test reads, and anything if not every test passed."""
    session("--refold-record=missing", test_shop=UNUSED).assert_outcomes(passed=2)
    folder = pytester.path / "recordings" / "test_shop"
    (folder / "data.jsonl").write_text('{"my": "data"}\n', encoding="utf-8")
    reader = """
from refold.testing import assert_same_decisions

def test_policy():
    assert assert_same_decisions("recordings", policy={}) == 2
"""
    session("--refold-unused=delete", test_shop=TEST, test_reader=reader).assert_outcomes(passed=2)
    assert ["data.jsonl", "test_buy.jsonl", "test_sell.jsonl"] == sorted(
        each.name for each in folder.iterdir()
    )
    ran = session("--refold-unused=delete", test_shop=TEST, test_reader="def test_no(): assert 0")
    ran.assert_outcomes(passed=1, failed=1)
    assert (folder / "test_sell.jsonl").exists()


def test_recordings_of_a_test_file_that_is_gone(session: Session, pytester: pytest.Pytester) -> None:
    """They are unused, whichever files are beside them."""
    session("--refold-record=missing", test_shop=TEST, test_old=TEST).assert_outcomes(passed=2)
    (pytester.path / "test_old.py").unlink()
    ran = session("--refold-unused=fail", test_shop=TEST)
    assert 1 == ran.ret
    ran.stdout.fnmatch_lines(["refold: unused recording recordings/test_old/test_buy.jsonl"])
