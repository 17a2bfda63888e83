"""Tests of the desk. They run from recordings: without a model, a network or a key.

Record again: pytest --refold-record=all (runs the embedded model).
"""

import pytest
from desk import Approver, make_agent

from refold.testing import RunFixture

pytestmark = pytest.mark.refold_ignore("date")  # the system prompt has the day


@pytest.mark.parametrize(("order", "cents"), [("A17", 3000), ("B42", 1250)])
def test_an_order_is_refunded_once(refold_run: RunFixture, order: str, cents: int) -> None:
    """The small model asks for wrong amounts, again and again: the approver corrects one and rejects the
    rest.
    """
    run = refold_run(make_agent, f"Refund order {order}.", operator=Approver())
    run.expect_call("refund", order=order, cents=cents).once()
    assert set(run.refused.names) == {"refund"}
    assert run.turns <= 4


def test_the_tools_still_return_what_they_did(refold_run: RunFixture) -> None:
    """The model's calls, made again with today's tools."""
    refold_run(make_agent, "Refund order A17.", operator=Approver(), live="tools")
