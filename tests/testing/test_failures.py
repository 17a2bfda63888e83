"""What a failed comparison prints, to the letter: what differs first, why, and what to do."""

from pathlib import Path

import pytest

from testing.conftest import SHOP, TEST, Session

OPERATED = """
from shop import make, POLICY

POLICY["approvals"] = {"chain": [{"approver": "human", "tools": ["pay"]}, {"approver": "approve", "tools": ["*"]}]}


def answer(run):
    run.answer({"c2": "approve"})


def test_buy(refold_run):
    run = refold_run(make, "Buy an apple.", operator=answer)
    assert run.state == "COMPLETED"
"""
LIVE_TOOLS = TEST.replace('apple.")', 'apple.", live="tools")')
LIVE_MODEL = TEST.replace('apple.")', 'apple.", live="model")')
DATED = TEST.replace('apple.")', 'apple.", ignore=["date"])')
TODAY = SHOP.replace('"Be brief."', '"Today is 2026-01-02."')


def failure(session: Session, recorded: str, test: str, shop: str, changed: str) -> str:
    """The report of a test that fails after a change, without the line of pytest around it."""
    session("--refold-record=missing", test_shop=recorded, shop=shop).assert_outcomes(passed=1)
    ran = session(test_shop=test, shop=changed)
    ran.assert_outcomes(failed=1)
    lines = ran.stdout.lines
    begin = next(number for number, line in enumerate(lines) if "test_buy ___" in line)
    end = next(number for number, line in enumerate(lines) if "short test summary" in line)
    return "\n".join(line.rstrip() for line in lines[begin + 1 : end])


CASES = {
    "prompt": (TEST, TEST, SHOP, SHOP.replace("Be brief", "Be verbose")),
    "tool description": (TEST, TEST, SHOP, SHOP.replace("in cents.", "in euros.")),
    "tool argument": (TEST, TEST, SHOP, SHOP.replace("item: str", "item: str, shop: str = 'main'")),
    "tool gone": (TEST, TEST, SHOP, SHOP.replace("tools=[price, pay]", "tools=[pay]")),
    "tool order": (TEST, TEST, SHOP, SHOP.replace("tools=[price, pay]", "tools=[pay, price]")),
    "model setting": (TEST, TEST, SHOP, SHOP.replace('"temperature": 0.2', '"temperature": 0.5')),
    "policy refuses": (
        TEST,
        TEST,
        SHOP,
        SHOP.replace(
            "POLICY = {}",
            "POLICY = {'guards': [{'guard': 'arguments', 'tool': 'pay', 'matches': '30', 'then': 'refuse', 'name': 'no-30'}]}",
        ),
    ),
    "policy limit": (
        TEST,
        TEST,
        SHOP,
        SHOP.replace("POLICY = {}", "POLICY = {'limits': [{'type': 'step', 'value': 2}]}"),
    ),
    "operator": (
        OPERATED,
        OPERATED.replace('{"c2": "approve"}', '{"c2": ("edit", {"cents": 29})}'),
        SHOP,
        SHOP,
    ),
    "operator rejects": (OPERATED, OPERATED.replace('"approve"})', '"reject"})'), SHOP, SHOP),
    "task": (TEST, TEST.replace("Buy an apple", "Buy a pear"), SHOP, SHOP),
    "date": (TEST, TEST, TODAY, TODAY.replace("01-02", "01-03")),
    "live result": (
        LIVE_TOOLS,
        LIVE_TOOLS,
        SHOP,
        SHOP.replace("return PRICES[item]", 'return {"cents": PRICES[item]}'),
    ),
    "live error": (LIVE_TOOLS, LIVE_TOOLS, SHOP, SHOP.replace('"apple": 30, ', "")),
    "live argument": (LIVE_MODEL, LIVE_MODEL, SHOP, SHOP.replace("cents=30", "cents=40")),
    "live order": (
        LIVE_MODEL,
        LIVE_MODEL,
        SHOP,
        SHOP.replace(
            'call("price", item="apple"), call("pay", cents=30)',
            'call("pay", cents=30), call("price", item="apple")',
        ),
    ),
    "live extra": (
        LIVE_MODEL,
        LIVE_MODEL,
        SHOP,
        SHOP.replace('call("pay"', 'call("price", item="apple"), call("pay"'),
    ),
    "live missing": (LIVE_MODEL, LIVE_MODEL, SHOP, SHOP.replace('call("price", item="apple"), ', "")),
    "live end": (LIVE_MODEL, LIVE_MODEL, SHOP, SHOP.replace('say("Paid.")', 'say("Paid.", stop="refusal")')),
}

EXPECTED = Path(__file__).with_name("failures.txt").read_text(encoding="utf-8")


def expected(name: str) -> str:
    """The report in failures.txt below this name."""
    return EXPECTED.partition(f"##### {name}\n")[2].partition("\n#####")[0].rstrip("\n")


@pytest.mark.parametrize("name", CASES)
def test_the_report_of_a_change(session: Session, name: str) -> None:
    """Each kind of change has its cause named, with both sides and the commands to see more and to accept."""
    assert expected(name) == failure(session, *CASES[name])


def test_a_date_with_a_matcher(session: Session) -> None:
    """A date that is ignored may change, in the prompt and in everything that follows from its length."""
    session("--refold-record=missing", test_shop=DATED, shop=TODAY).assert_outcomes(passed=1)
    longer = TODAY.replace("2026-01-02", "28 November 2031")
    session(test_shop=DATED, shop=longer).assert_outcomes(passed=1)
    marked = TEST.replace("def test", "import pytest\n\n@pytest.mark.refold_ignore('date')\ndef test")
    session(test_shop=marked, shop=longer).assert_outcomes(passed=1)


def test_edited_code_of_a_tool_is_reported_and_no_failure(session: Session) -> None:
    """Its results come from the recording, so the test says nothing about it; the session's end names it."""
    session("--refold-record=missing", test_shop=TEST).assert_outcomes(passed=1)
    ran = session(test_shop=TEST, shop=SHOP.replace("return PRICES[item]", "return 2 * PRICES[item]"))
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(
        ["refold: edited since recordings/test_shop/test_buy.jsonl was recorded, and not run: price"]
    )
