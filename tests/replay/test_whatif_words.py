"""What another policy would have had recorded in other words: it parts two runs where somebody is told, and
not before.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.events import ToolReturned
from refold.reducers.parser import parse
from refold.reducers.vocabulary import ToolError
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict, WhatIf
from support.following import shown
from support.scenario import Scenario

Plain = dict[str, Any]
Story = Callable[[Scenario], object]
ONE: Plain = {"limits": [{"type": "step", "value": 1}]}
HIDES: Plain = {"redact": [r"zqx-\d+"]}
RAISED = "raised: no such file"


def told(policy: Plain, story: Story, other: Plain) -> WhatIf:
    """A story under one policy, asked about under another."""
    scenario = Scenario(policy)
    story(scenario)
    comparison = Comparison("r1", parse(other))
    return shown(comparison, scenario.log)


def result(output: str, error: ToolError | None = None, said: str = "", then: str = "") -> Story:
    """A call and its result; then an answer, if there is one."""

    def story(run: Scenario) -> None:
        run.answer(said, ("look", "{}"))
        run.result("c1", output, error=error)
        if then:
            run.answer(then)

    return story


UNSEEN = [
    pytest.param(
        ONE, result("12345"), {**ONE, "tool_output": {"max": 4}}, "have been cut to 4", id="an output cut"
    ),
    pytest.param(ONE, result("zqx-12"), {**ONE, **HIDES}, "have been redacted", id="a secret in an output"),
    pytest.param(
        ONE,
        result(RAISED, ToolError.RAISED),
        {**ONE, "texts": {"raised": "It said {problem}."}},
        "had another text",
        id="an error in other words",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "why"), UNSEEN)
def test_what_nobody_was_shown_parts_nothing(policy: Plain, story: Story, other: Plain, why: str) -> None:
    """Where the run ends before anybody is told, the runs agree, and what would stand there otherwise is
    named.
    """
    found = told(policy, story, other)
    assert (Verdict.AGREE, "step_limit") == (found.verdict, found.code)
    ((seq, said),) = found.unseen
    assert why in said
    scenario = Scenario(policy)
    story(scenario)
    assert scenario.log[seq - 1].__class__.__name__ in ("ToolReturned", "ModelResponded")


TOLD = [
    pytest.param(
        ONE,
        result("ok", said="zqx-12"),
        {**ONE, **HIDES},
        ("redaction", 1),
        id="who asked, by what was said last before the limit",
    ),
    pytest.param(
        {},
        result("12345", then="done"),
        {"tool_output": {"max": 4}},
        ("output", 2),
        id="the model, at its next request",
    ),
    pytest.param(
        {}, result("ok", said="zqx-12", then="done"), HIDES, ("redaction", 2), id="of its own answer"
    ),
    pytest.param(
        {}, result("ok", then="zqx-12"), HIDES, ("redaction", 2), id="who asked, by the last answer"
    ),
    pytest.param(
        {"end_of_turn": "wait"},
        result("ok", then="zqx-12"),
        {"end_of_turn": "wait", **HIDES},
        ("redaction", 2),
        id="who is asked what is next",
    ),
    pytest.param(
        {},
        result(RAISED, ToolError.RAISED, then="done"),
        {"texts": {"raised": "It said {problem}."}},
        ("wording", 2),
        id="the model, of an error in other words",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "where"), TOLD)
def test_where_somebody_is_told(policy: Plain, story: Story, other: Plain, where: tuple[str, int]) -> None:
    """The runs part where the model or a person is told, by what makes the difference."""
    found = told(policy, story, other)
    assert (Verdict.DIVERGES, *where) == (found.verdict, found.kind, found.turn)
    assert () == found.unseen


def test_a_limit_counts_the_words_that_would_have_been_recorded() -> None:
    """Under a cap the window is smaller, and its estimate is known to the token."""
    estimate = [{"type": "token", "measure": "estimate", "value": 60}]
    story = result("word " * 100)
    stops = told({}, story, {"limits": estimate})
    assert (Verdict.STOPS, "token_estimate") == (stops.verdict, stops.code)
    found = told({}, story, {"limits": estimate, "tool_output": {"max": 40}})
    assert (Verdict.DIVERGES, "output") == (found.verdict, found.kind)


UNKNOWN = [
    pytest.param(
        {**ONE, "tool_output": {"max": 4}},
        result("12345"),
        ONE,
        "output",
        id="the whole of an output that was cut",
    ),
    pytest.param({**ONE, **HIDES}, result("[REDACTED]"), ONE, "redaction", id="what was hidden"),
    pytest.param(
        {**ONE, **HIDES},
        result("[REDACTED]"),
        {**ONE, "redact": [r"zqx-\d+", "x"]},
        "redaction",
        id="what more patterns would have found in what was hidden",
    ),
    pytest.param(
        ONE,
        result("somebody else's words", ToolError.RAISED),
        {**ONE, "texts": {"raised": "It said {problem}."}},
        "wording",
        id="an error that was not said in the policy's words",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "kind"), UNKNOWN)
def test_words_that_the_record_does_not_have(policy: Plain, story: Story, other: Plain, kind: str) -> None:
    """Where it is not known what would have been recorded, the evidence ends there."""
    found = told(policy, story, other)
    assert (Verdict.DIVERGES, kind, 1) == (found.verdict, found.kind, found.turn)


@pytest.mark.parametrize(
    "arguments", ['{"q":"zqx-12"}', r'{"q":"zqx\u002d12"}'], ids=["in plain", "behind an escape"]
)
def test_another_call_is_no_matter_of_words(arguments: str) -> None:
    """A secret in a call's arguments makes another call: the runs part before it is made."""

    def story(run: Scenario) -> None:
        run.answer("", ("look", arguments))

    found = told(ONE, story, {**ONE, **HIDES})
    assert (Verdict.DIVERGES, "redaction", 1) == (found.verdict, found.kind, found.turn)


def one_call(run: Scenario) -> None:
    run.answer("", ("look", "{}"))
    run.result("c1", after=1)
    run.answer("done", after=1)


def one_left(run: Scenario) -> None:
    """Of two calls one is refused."""
    run.answer("", ("act", "{}"), ("look", "{}"))
    run.result("c2", after=1)
    run.answer("done", after=1)


def one_by_one(run: Scenario) -> None:
    run.answer("", ("look", "{}"), ("look", "{}"))
    for call in ("c1", "c2"):
        run.result(call, after=1)


ORDER = [
    pytest.param({}, one_call, Verdict.AGREE, id="one call"),
    pytest.param(
        {"approvals": {"chain": [{"approver": "rules", "rules": [{"tool": "act", "decision": "reject"},
                                                               {"tool": "*", "decision": "approve"}]}]}},
        one_left,
        Verdict.AGREE,
        id="one that is left",
    ),
    # Side by side the second was begun before the first was over: whether it would have found the same nobody
    # knows.
    pytest.param({}, one_by_one, Verdict.DIVERGES, id="two"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "story", "verdict"), ORDER)
@pytest.mark.parametrize(
    ("was", "would"), [("parallel", "in_order"), ("in_order", "parallel")], ids=["in order", "at once"]
)
def test_the_order_of_calls(was: str, would: str, policy: Plain, story: Story, verdict: Verdict) -> None:
    """How a batch is run parts two runs where it has more than one call that runs."""
    assert verdict is told({**policy, "batch": was}, story, {**policy, "batch": would}).verdict


def test_a_result_that_was_erased() -> None:
    """Of words that were erased nobody knows what a cap had left."""
    scenario = Scenario(ONE)
    result("12345")(scenario)
    comparison = Comparison("r1", parse({**ONE, "tool_output": {"max": 4}}))
    found = shown(
        comparison,
        (
            replace(event, content=None) if isinstance(event, ToolReturned) else event
            for event in scenario.log
        ),
    )
    assert (Verdict.DIVERGES, "output", 1) == (found.verdict, found.kind, found.turn)
