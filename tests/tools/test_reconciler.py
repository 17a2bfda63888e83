"""What a tool's `reconcile` gets, and what it may say."""

from datetime import date

import pytest

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import CallContext, CannotTell, DidNot, Happened

pytestmark = pytest.mark.anyio

CALL = CallContext(run="r", call="c1", key="k1")


def print_nothing() -> None:
    """Does nothing."""


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "in a thread"])
async def test_a_reconcile_gets_what_the_tool_got(asynchronous: bool) -> None:
    """It takes those of the tool's arguments that it names, validated and with defaults, and the call's
    context.
    """
    seen: list[object] = []

    def look(day: date, context: CallContext, times: int = 7) -> Happened:
        seen.extend((day, context, times))
        return Happened({"at": day})

    async def look_there(day: date, context: CallContext, times: int = 7) -> Happened:
        return look(day, context, times)

    @tool(replay="reconcilable", reconcile=look_there if asynchronous else look)
    def book(day: date, seat: str, times: int = 2) -> str:
        """Book."""
        return ""

    assert book.reconcile is not None
    found = await book.reconcile('{"day": "2026-11-21", "seat": "12A"}', CALL)
    assert [date(2026, 11, 21), CALL, 2] == seen
    assert Happened('{"at":"2026-11-21"}') == found


async def test_a_reconcile_that_says_nothing_known() -> None:
    """What is none of the three answers is an error of the tool's; arguments that the tool refuses never got
    to it.
    """

    @tool(replay="reconcilable", reconcile=lambda: "yes")
    def book(seat: int) -> str:
        """Book."""
        return ""

    assert book.reconcile is not None
    with pytest.raises(TypeError, match="expected Happened, DidNot or CannotTell, got str"):
        await book.reconcile('{"seat": 1}', CALL)
    refused = await book.reconcile('{"seat": "x"}', CALL)
    assert isinstance(refused, DidNot)
    assert "seat" in refused.note


def test_the_digest_covers_the_reconcile() -> None:
    """A tool whose reconcile was edited is another version of it."""

    def shrug() -> CannotTell:
        return CannotTell()

    def shrug_and_say() -> CannotTell:
        return CannotTell(note="no idea")

    one, other = (
        tool(name="f", replay="reconcilable", reconcile=each)(print_nothing)
        for each in (shrug, shrug_and_say)
    )
    assert one.manifest.digest != other.manifest.digest
