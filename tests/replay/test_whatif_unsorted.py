"""A policy that does not know the tools of a run does not agree with it: nobody said whether they are
harmless.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.events import Event, Manifest, ModelResponded
from refold.reducers.parser import parse
from refold.reducers.vocabulary import Replay
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict, WhatIf
from support.following import shown
from support.scenario import Scenario

PROD: dict[str, Any] = {"approvals": {"preset": "prod_any"}}
DEV: dict[str, Any] = {"approvals": {"preset": "dev_any"}}


def run_of(
    *names: str, replay: Replay = Replay.AT_MOST_ONCE, policy: dict[str, Any] | None = None
) -> list[Event]:
    """A run that calls these tools, one an answer."""
    run = Scenario(policy or {}, tools=tuple(Manifest(name=name, replay=replay) for name in names))
    for number, name in enumerate(names, 1):
        run.answer("", (name, "{}"))
        run.result(f"c{number}", "done")
    run.answer("done")
    return list(run.log)


def asked(log: list[Event], other: dict[str, Any]) -> WhatIf:
    return shown(Comparison("r1", parse(other)), log)


@pytest.mark.parametrize(
    ("names", "other", "verdict", "exact"),
    [
        pytest.param(["Bash"], PROD, Verdict.STOPS, True, id="a shell, in another case"),
        pytest.param(["Read", "Grep"], PROD, Verdict.AGREE, True, id="harmless tools"),
        pytest.param(["Read", "Skill"], PROD, Verdict.INCONCLUSIVE, True, id="a tool that it does not know"),
        pytest.param(["Skill", "Bash"], PROD, Verdict.STOPS, False, id="it stops there at the latest"),
        pytest.param(["Skill", "Bash"], DEV, Verdict.INCONCLUSIVE, True, id="the model may have read something else before"),
        pytest.param(["Bash", "Skill"], DEV, Verdict.DIVERGES, False, id="it parted before"),
        pytest.param(["Skill"], {}, Verdict.AGREE, True, id="no approvals"),
    ],
)  # fmt: skip
def test_a_policy_that_knows_tools_by_name(
    names: list[str], other: dict[str, Any], verdict: Verdict, *, exact: bool
) -> None:
    """It agrees where it knows every tool that was called."""
    found = asked(run_of(*names), other)
    assert (verdict, exact) == (found.verdict, found.exact)
    assert [True] * len(found.unknown) == ["Skill may run" in why for why in found.unknown]


def test_what_the_run_itself_was_under() -> None:
    """Of the approvals that were in force nobody asks: the record tells what they let run."""
    log = run_of("Skill", policy=PROD)
    assert Verdict.AGREE is asked(log, {**PROD, "limits": [{"type": "step", "value": 99}]}).verdict


def test_a_tool_that_only_reads() -> None:
    """It says of itself that it changes nothing."""
    assert Verdict.AGREE is asked(run_of("balance", replay=Replay.READ_ONLY), PROD).verdict


def test_erased_calls_are_not_asked_about_twice() -> None:
    """What an approver would have said of them is unknown by itself."""
    log = [
        replace(event, content=None) if isinstance(event, ModelResponded) else event
        for event in run_of("Skill")
    ]
    assert Verdict.AGREE is not asked(log, PROD).verdict
