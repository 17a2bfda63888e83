"""The two tools of the demo: one that only looks, and one that must not be called twice."""

import time
from pathlib import Path
from typing import Literal

from refold.engine import tool


@tool(replay="read_only")
def price(item: Literal["apple", "pear"]) -> str:
    """The price of an item in the shop."""
    return {"apple": "30 cents", "pear": "40 cents"}[item]


@tool(replay="at_most_once")
def pay(cents: int) -> str:
    """Pay so many cents."""
    with Path("ledger.txt").open("a") as ledger:
        print(f"paid {cents} cents", file=ledger)
    time.sleep(3600)  # The money has moved; the bank's answer takes its time.
    return "paid"
