"""A refund desk: an agent that finds orders and refunds them, and an approver for every refund."""

import json
from datetime import date
from typing import Literal

from refold.engine import Agent, Run, tool

ORDERS = {"A17": 3000, "B42": 1250}
Order = Literal["A17", "B42"]


@tool(replay="read_only")
def find_order(order: Order) -> str:
    """Find what an order cost, in cents."""
    return f"order {order} cost {ORDERS[order]} cents"


@tool(replay="at_most_once")
def refund(order: Order, cents: int) -> str:
    """Refund an order, in cents."""
    return f"refunded {cents} cents for order {order}"


POLICY = {
    "limits": [{"type": "step", "value": 4}],
    "approvals": {
        "chain": [{"approver": "human", "tools": ["refund"]}, {"approver": "approve", "tools": ["*"]}]
    },
}


def make_agent() -> Agent:
    """Return the desk's agent, on the embedded model."""
    return Agent(
        "local:smollm2-135m",
        tools=[find_order, refund],
        system=f"You are a refund desk. Today is {date.today():%Y-%m-%d}. Find the order, refund it, then say so.",
        settings={"temperature": 0.0},
        policy=POLICY,
    )


class Approver:
    """Approves one refund of each order, and corrects its amount."""

    def __init__(self) -> None:
        self.refunded: set[str] = set()

    def __call__(self, run: Run) -> None:
        """Answer a run that waits."""
        run.answer({call.id: self.decide(json.loads(call.arguments or "{}")) for call in run.pending})

    def decide(self, arguments: dict[str, str]) -> str | tuple[str, dict[str, object]]:
        """Return the answer for one refund."""
        order = arguments["order"]
        if order in self.refunded:
            return "reject"
        self.refunded.add(order)
        return ("edit", {"order": order, "cents": ORDERS[order]})
