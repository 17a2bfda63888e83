"""Facts of which nobody knows when they were come as early as may be, and as late: a limit of time is judged
by both.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.events import Event, Fact, RunStarted
from refold.reducers.parser import parse
from refold.reducers.vocabulary import Unknown
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.upper_bounds import UNTIMED
from refold.replay.whatif.verdict import Verdict, WhatIf
from support.following import shown
from support.scenario import SECOND, Scenario

Plain = dict[str, Any]
WAIT: Plain = {"end_of_turn": "wait"}
NEVER = None  # said of when a fact was


def record(*facts: tuple[str, float | None]) -> list[Event]:
    """A log of such facts, each so many seconds after the one before, or at no known instant."""
    run = Scenario(WAIT)
    lost: list[bool] = []
    for kind, after in facts:
        lost.append(after is NEVER)
        match kind:
            case "calls":
                run.answer("", ("look", "{}"), after=after or 0)
            case "returns":
                run.result(f"c{run.state.spent.calls}", after=after or 0)
            case "says":
                run.say("go on", after=after or 0)
            case _:
                run.answer("done", after=after or 0)
    told = iter(lost)

    def untimed(event: Event) -> Event:
        if isinstance(event, RunStarted):
            return replace(event, unknown=(Unknown.TOOLS,))
        if isinstance(event, Fact) and next(told):
            return replace(event, unknown=(Unknown.TIME,))
        return event

    return [untimed(event) for event in run.log]


def judged(log: list[Event], *, least: float = 0, **limit: Any) -> WhatIf:
    """What is said of a log under a limit of ten seconds, of which a call is given `least` whatever is
    left.
    """
    limits = [{"type": "time", "value": 10, **limit}]
    comparison = Comparison("r1", parse({**WAIT, "limits": limits, "call_timeout": {"min": least}}))
    return shown(comparison, log)


WAITED = [("answers", 1), ("says", NEVER), ("answers", 99)]
ALL_AT_ONCE: Plain = {"credit": {"person": False}}


@pytest.mark.parametrize(
    ("facts", "limit", "verdict", "exact"),
    [
        pytest.param(
            [("calls", NEVER), ("returns", 5), ("answers", 1)],
            {},
            Verdict.AGREE,
            True,
            id="the next known instant is early enough",
        ),
        pytest.param(
            [("calls", 1), ("returns", NEVER), ("answers", NEVER)],
            {},
            Verdict.INCONCLUSIVE,
            True,
            id="no instant is known any more",
        ),
        pytest.param(
            [("calls", 1), ("returns", NEVER), ("calls", 20)],
            {},
            Verdict.STOPS,
            False,
            id="out of time at the next known instant, or before",
        ),
        pytest.param(
            [("calls", 1), ("returns", NEVER), ("calls", 20)],
            {"least": 1},
            Verdict.INCONCLUSIVE,
            True,
            id="what was begun just before the end of the time may be tried again",
        ),
        pytest.param(WAITED, {}, Verdict.INCONCLUSIVE, True, id="a person or the model took the time"),
        pytest.param(WAITED, ALL_AT_ONCE, Verdict.STOPS, False, id="whoever took it, it counts"),
        pytest.param(
            [("answers", 1), ("says", 99), ("answers", NEVER), ("says", 5), ("answers", 1)],
            {},
            Verdict.AGREE,
            True,
            id="what a person took is known to be theirs",
        ),
        pytest.param(
            [("calls", NEVER), ("returns", 15), ("answers", 1)],
            {"clock": "first_response"},
            Verdict.INCONCLUSIVE,
            True,
            id="nobody knows when the first answer came",
        ),
        pytest.param(
            [("calls", 1), ("returns", NEVER), ("answers", 5)],
            {"clock": "first_response"},
            Verdict.AGREE,
            True,
            id="it is known when the first answer came",
        ),
        pytest.param(
            [("answers", 0)], {}, Verdict.INCONCLUSIVE, True, id="it answered at once, or began long before"
        ),
    ],
)
def test_what_has_no_time_may_have_come_late(
    facts: list[tuple[str, float | None]], limit: Plain, verdict: Verdict, exact: bool
) -> None:
    """A limit of time is judged where it comes to the same however the time between known instants was
    spent.
    """
    found = judged(record(*facts), **limit)
    assert (verdict, exact) == (found.verdict, found.exact)
    assert found.unknown in ((), (UNTIMED,))
    assert bool(found.unknown) is (verdict is Verdict.INCONCLUSIVE or not exact)


def test_the_time_until_then_is_the_least() -> None:
    """What the other run had spent where it is not judged is told by the known instants."""
    found = judged(record(("calls", 2), ("returns", NEVER), ("answers", NEVER)))
    assert (Verdict.INCONCLUSIVE, 2 * SECOND) == (found.verdict, found.until.duration)
