"""Several policies side by side, and what the model would have seen under another one."""

import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.reducers.events import ModelRequested
from refold.reducers.parser import parse
from refold.replay import events, whatif
from refold.replay.whatif.comparison import side_by_side
from refold.replay.whatif.verdict import Verdict
from refold.replay.whatif.view import Hypothesis, NoEvidence, hypothesis
from refold.store import MemoryStore
from support.queried import holding
from support.scenario import Scenario
from support.stories import ASK, IN_TIME, STEPS, Plain, Story, erased, steps, turned_down


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return f"{path} is long " * 40


async def recorded() -> MemoryStore:
    """A run of four requests in a store."""
    store = MemoryStore()
    script = [*(call("look", path=path) for path in "abc"), say("Done.")]
    await Agent(model=ScriptedModel(script), tools=[look], store=store).start("Look.", run_id="r1").result()
    return store


@pytest.mark.anyio
async def test_several_policies_side_by_side() -> None:
    """The log is read once, and each policy has its verdict as if it were asked alone."""
    store = await recorded()
    policies = [parse({}), parse({"limits": [{"type": "step", "value": 2}]}), parse({"nudge": True})]
    found = await side_by_side(store, "r1", policies)
    assert [Verdict.AGREE, Verdict.STOPS, Verdict.DIVERGES] == [each.verdict for each in found]
    assert found == tuple([await whatif(store, "r1", policy) for policy in policies])


@pytest.mark.anyio
async def test_what_the_model_would_have_seen() -> None:
    """The first other view is told message by message: kept, left out and by whom, shown shorter, added."""
    store = await recorded()
    requests = [stored.seq async for stored, _ in events(store, "r1") if stored.kind == "model_requested"]
    policy = parse({"history": [{"do": "tail", "last": 2}], "nudge": True})
    with pytest.raises(NoEvidence, match=f"ends at event {requests[0]}"):
        await hypothesis(store, "r1", requests[1], policy)
    found = await hypothesis(store, "r1", requests[2], parse({"history": [{"do": "tail", "last": 2}]}))
    said = [(row.number, row.where, row.why) for row in found.rows]
    assert [
        (1, "both", ""),
        (2, "recorded", "dropped by tail (window)"),
        (3, "recorded", "dropped by tail (window)"),
        (4, "both", ""),
        (5, "both", ""),
    ] == said
    assert found.asked
    assert found.tokens[1] < found.tokens[0]
    trims = parse({"history": [{"do": "trim_messages", "cap": 20, "roles": ["tool"]}]})
    trimmed = await hypothesis(store, "r1", requests[1], trims)
    assert ["both", "both", "changed"] == [row.where for row in trimmed.rows]
    assert "shortened by trim_messages" == trimmed.rows[2].why
    assert trimmed.rows[2].message is not None
    assert len(trimmed.rows[2].message.text) < 200
    nudged = await hypothesis(store, "r1", requests[0], parse({"nudge": True}))
    assert [("both", ""), ("derived", "in this request only")] == [
        (row.where, row.why) for row in nudged.rows
    ]
    stopped = await hypothesis(store, "r1", requests[2], parse({"limits": [{"type": "step", "value": 2}]}))
    assert not stopped.asked


async def viewed(scenario: Scenario, step: int, other: Plain) -> Hypothesis:
    """The request of a step of a story, as another policy would have made it."""
    made = [seq for seq, event in enumerate(scenario.log, 1) if isinstance(event, ModelRequested)]
    return await hypothesis(await holding(r1=scenario.log), "r1", made[step - 1], parse(other))


@pytest.mark.anyio
async def test_equal_words_of_the_harness_are_told_apart() -> None:
    """A nudge that is said again is another message: each stands in its place, and what is left out is the
    first.
    """
    going: Plain = {"end_of_turn": "continue"}
    scenario = Scenario(going)
    for word in ("a", "b", "c"):
        scenario.answer(word)
    alike = await viewed(scenario, 4, {**going, **STEPS})
    assert [(number, "both") for number in range(1, 9)] == [(row.number, row.where) for row in alike.rows]
    tail = {**going, "history": [{"do": "tail", "when": {"messages": 7}, "last": 3}]}
    rows = [(row.number, row.where) for row in (await viewed(scenario, 4, tail)).rows]
    kept = [(number, "recorded" if number in (3, 4, 5) else "both") for number in range(1, 9)]
    assert kept == rows


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("policy", "story", "other", "step", "advice"),
    [
        pytest.param(
            STEPS, steps("x" * 500), {"tool_output": {"max": 100}}, 2, "Use r1@t1", id="an output cut"
        ),
        pytest.param(ASK, turned_down, IN_TIME, 2, "Use r1@t1", id="a deadline for a person"),
        pytest.param({}, erased, {"estimator": "bytes4"}, 1, "are unknown$", id="words that were erased"),
    ],
)
async def test_no_view_after_a_fact_that_would_have_been_another(
    policy: Plain, story: Story, other: Plain, step: int, advice: str
) -> None:
    """Where the fact itself would have been another, nothing is shown of the request that followed from
    it.
    """
    scenario = Scenario(policy)
    story(scenario)
    with pytest.raises(NoEvidence, match=advice):
        await viewed(scenario, step, other)
