"""Rules over arguments, asked of transcripts: each verdict held against a naive search of the recorded
calls.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from refold.importers.source import Source
from refold.reducers.events import Event, ModelResponded, RunStarted
from refold.reducers.parser import parse
from refold.reducers.vocabulary import ToolError
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Subject, Verdict, WhatIf
from support.following import shown
from support.pattern_figures import judged
from support.scenario import Scenario
from support.told import END, answered, began, derived, events, returned, said
from support.transcripts import FILES, WRITTEN, path_of

LONG = json.dumps(
    {"command": "cat > notes <<'EOF'\n" + "rm - the old files; push git later\n" * 3000 + "EOF"}
)


@pytest.mark.parametrize("file", [*FILES, *WRITTEN])
def test_no_match_is_invented_and_none_is_missed(file: str) -> None:
    """STOPS stands at the first call in which Python's `re` finds the pattern, AGREES means none, else a
    reason is named.
    """
    with path_of(file).open("rb") as opened:
        rows = list(judged(Source.opened(file, opened)))
    wrong = [row for row in rows if row.outcome not in ("STOPS right", "AGREES right", "inconclusive")]
    assert [] == wrong
    assert all(row.found.unknown for row in rows if row.found.verdict is Verdict.INCONCLUSIVE)


def asked(log: Sequence[Event], guard: dict[str, Any], **more: Any) -> WhatIf:
    return shown(Comparison("r1", parse({"guards": [{"guard": "arguments", **guard}], **more})), list(log))


def run_of(*calls: tuple[str, str]) -> Scenario:
    """A run in which the model makes these calls of `act`, one in each response, and finishes."""
    scenario = Scenario({})
    for number, each in enumerate(calls, 1):
        scenario.answer("", each)
        scenario.result(f"c{number}")
    scenario.answer("Done.")
    return scenario


def shell(command: str) -> tuple[str, str]:
    return "act", json.dumps({"command": command})


@pytest.mark.parametrize(
    ("guard", "stops"),
    [
        pytest.param(
            {"matches": r"\brm\s+-(\w*r\w*f|\w*f\w*r)"}, 2, id="behind a text of 100,000 characters"
        ),
        pytest.param({"matches": r"(?s)notes.*EOF\z"}, 1, id="at the end of such a text"),
        pytest.param({"matches": "rm", "unless": "(?s)notes"}, 2, id="a text that is excused"),
        pytest.param({"matches": "mkfs"}, 0, id="nowhere"),
        pytest.param({"matches": "rm", "field": "cmd"}, 0, id="in no other field"),
        pytest.param({"matches": "rm", "tool": "look"}, 0, id="of no other tool"),
    ],
)
def test_where_a_rule_stops_a_run(guard: dict[str, Any], stops: int) -> None:
    """The run stops at the response with the first call that matches, and at none before, however long its
    texts are.
    """
    log = run_of(("act", LONG), shell("rm -rf build")).log
    found = asked(log, {**guard, "then": "stop"})
    assert (Verdict.STOPS if stops else Verdict.AGREE, stops or 3) == (found.verdict, found.until.steps)


PUSH = {"matches": r"git\s+push", "field": "command"}


@pytest.mark.parametrize(
    ("policy", "subject", "why"),
    [
        pytest.param(
            {"guards": [{"guard": "errors", "rounds": 9}, {"guard": "arguments", **PUSH, "then": "stop"}]},
            Subject("c1", "act", "git push -f", "guards[1]", r"git\s+push"),
            r"blocked: act `git push -f` matches rule guards[1] `git\s+push`",
            id="a guard that stops",
        ),
        pytest.param(
            {"guards": [{"guard": "arguments", **PUSH, "unless": "dry"}]},
            Subject("c1", "act", "git push -f", "guards[0]", r"git\s+push", "dry"),
            "by rule guards[0] `git\\s+push`, unless `dry`",
            id="a guard that refuses",
        ),
        pytest.param(
            {"guards": [{"guard": "arguments", **PUSH, "then": "ask"}]},
            Subject("c1", "act", "git push -f", "guards[0]", r"git\s+push"),
            r"the run would have waited for approval of c1: act `git push -f`, by rule guards[0] `git\s+push`",
            id="a guard that asks",
        ),
        pytest.param(
            {"approvals": {"chain": [{"approver": "arguments", **PUSH, "then": "terminate"}, {"approver": "approve"}]}},
            Subject("c1", "act", "git push -f", "approvals.chain[0]", r"git\s+push"),
            r"blocked: act `git push -f` is terminated by rule approvals.chain[0] `git\s+push`",
            id="an approver that ends the run",
        ),
        pytest.param(
            {"approvals": {"chain": [{"approver": "reject"}]}},
            Subject("c1", "act", "git push -f", "approvals.chain[0]"),
            ": act `git push -f`, by rule approvals.chain[0]",
            id="an approver without a pattern",
        ),
        pytest.param({"limits": [{"type": "step", "value": 1}]}, None, "limit 'step' was reached", id="no call"),
    ],
)  # fmt: skip
def test_a_verdict_names_the_call_and_the_rule(
    policy: dict[str, Any], subject: Subject | None, why: str
) -> None:
    """The tool, its main argument, and the place of the rule in the policy, as values and in the sentence."""
    found = shown(Comparison("r1", parse(policy)), list(run_of(shell("git push -f")).log))
    assert subject == found.subject
    assert why in found.why


def test_a_policy_that_nobody_could_have_written_is_inconclusive() -> None:
    """Where a pattern cannot be searched for, no call is said to match it, and none to be let by."""
    log = list(run_of(shell("ls")).log)
    fit = parse({"guards": [{"guard": "arguments", "matches": "x", "then": "stop"}]})
    forged = [{**each, "matches": "("} for each in fit.guards]
    policy = type(fit)(
        **{**{key: getattr(fit, key) for key in fit.__struct_fields__}, "guards": tuple(forged)}
    )
    found = shown(Comparison("r1", policy), log)
    assert (Verdict.INCONCLUSIVE, True) == (found.verdict, "cannot be searched" in found.why), found.why


def test_a_run_is_told_by_when_it_began_and_its_task() -> None:
    """A verdict has what a person knows a run by."""
    scenario = run_of(shell("ls"))
    started = scenario.log[0]
    assert isinstance(started, RunStarted)
    found = asked(scenario.log, {"matches": "x"})
    assert started.content is not None
    assert (started.at, started.content.messages[-1].text) == (found.began, found.task)


@pytest.mark.parametrize(
    ("failed", "verdict"),
    [
        pytest.param(None, Verdict.INCONCLUSIVE, id="it ran"),
        pytest.param(ToolError.RAISED, Verdict.INCONCLUSIVE, id="it ran, and failed"),
        pytest.param(ToolError.BAD_ARGUMENTS, Verdict.AGREE, id="its harness refused it"),
    ],
)
@pytest.mark.parametrize("about", [True, False])
def test_a_call_with_arguments_that_were_cut_off(
    failed: ToolError | None, verdict: Verdict, *, about: bool
) -> None:
    """A call that another agent ran with incomplete arguments is inconclusive for a rule of its tool, and for
    no other.
    """
    items = [began(), said("t"), answered("a", "1:x"), returned("1", "r", error=failed), answered("b"), END]
    tool = "x" if about else "other"
    log = [cut_off(event) for event in events(derived(items)[1])]
    found = asked(log, {"tool": tool, "matches": "rm -rf", "then": "stop"}, preset="observed")
    assert (verdict if about else Verdict.AGREE) is found.verdict, found.why


def cut_off(event: Event) -> Event:
    """The event, its calls with arguments that end in the middle."""
    if not isinstance(event, ModelResponded) or event.content is None:
        return event
    calls = tuple(replace(call, complete=False) for call in event.calls)
    return replace(
        event, calls=calls, content=replace(event.content, arguments=('{"command": "rm -r',) * len(calls))
    )
