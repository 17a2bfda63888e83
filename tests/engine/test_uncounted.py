"""Answers of which nobody counted the tokens, or knows the price: they are not taken for nothing by any
limit, here or in what-if.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.engine import Agent, LimitError, ScriptedModel, call, say
from refold.engine.models.protocol import Reply
from refold.reducers.parser import parse
from refold.reducers.vocabulary import Cause, Unknown
from refold.replay import audit, whatif
from refold.replay.whatif.verdict import Verdict
from refold.store import MemoryStore

pytestmark = pytest.mark.anyio

TOKENS: dict[str, Any] = {"limits": [{"type": "token", "value": 1000}]}
COST: dict[str, Any] = {"limits": [{"type": "cost", "value": 1}]}


def blank(reply: Reply) -> Reply:
    """The answer of a server that counts nothing."""
    return replace(reply, usage=None, cost_nanousd=None)


@pytest.mark.parametrize(
    ("reply", "policy", "code"),
    [
        pytest.param(blank(say("Done.")), TOKENS, "token_unknown", id="no tokens, a token limit"),
        pytest.param(blank(say("Done.")), COST, "cost_unknown", id="no tokens, a cost limit"),
        pytest.param(replace(say("Done."), cost_nanousd=None), COST, "cost_unknown", id="no price, a cost limit"),
        pytest.param(replace(say("Done."), cost_nanousd=None), TOKENS, "end_turn", id="no price, a token limit"),
        pytest.param(replace(say("Done."), usage=None), COST, "end_turn", id="no tokens, and a price, a cost limit"),
        pytest.param(blank(say("Done.")), {"limits": []}, "end_turn", id="no limit"),
    ],
)  # fmt: skip
async def test_what_nobody_knows_ends_the_run(reply: Reply, policy: dict[str, Any], code: str) -> None:
    """Where a limit asks after it, and only there; the log says why, and its audit agrees."""
    store = MemoryStore()
    result = await Agent(ScriptedModel([reply]), policy=policy, store=store).run("Go", run_id="r")
    assert code == result.outcome.code
    assert (await audit(store, "r")).clean
    if code != "end_turn":
        with pytest.raises(LimitError, match=r"cannot be checked, usage unknown: at least .* of "):
            result.raise_for_limit()


@pytest.mark.parametrize("limits", [TOKENS, COST], ids=["tokens", "cost"])
async def test_a_child_that_counts_nothing(limits: dict[str, Any]) -> None:
    """What a child spent is as unknown in its parent, whose limits bind both."""
    child = Agent(ScriptedModel([blank(say("Done."))]), name="helper")
    tool = child.as_tool("help")
    parent = Agent(ScriptedModel([call("help", task="x"), say("Done.")]), tools=[tool], policy=limits)
    result = await parent.run("Go")
    assert "ERROR" == result.state
    assert result.outcome.code.endswith("_unknown")
    assert 1 == result.spent.count(Cause.UNKNOWN, Unknown.UNCOUNTED)


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        pytest.param(TOKENS, (Verdict.STOPS, "token_unknown"), id="tokens"),
        pytest.param(COST, (Verdict.STOPS, "cost_unknown"), id="cost"),
        pytest.param({"limits": [{**COST["limits"][0], "unpriced": "ignore"}]}, (Verdict.AGREE, "end_turn"), id="ignored"),
    ],
)  # fmt: skip
async def test_another_policy_would_not_have_known_either(
    policy: dict[str, Any], verdict: tuple[Verdict, str]
) -> None:
    """A what-if of a run of ours decides as its engine would have: what nobody knew then is no gap of the
    record.
    """
    store = MemoryStore()
    await Agent(ScriptedModel([blank(say("Done."))]), policy={"limits": []}, store=store).run(
        "Go", run_id="r"
    )
    found = await whatif(store, "r", parse(policy))
    assert verdict == (found.verdict, found.code)
    assert () == found.unknown


async def test_a_price_that_nobody_was_asked_for() -> None:
    """A limit of cost would not have begun without a price: of a run that had none it is not judged what it
    would have cost.
    """
    store = MemoryStore()
    agent = Agent(
        ScriptedModel([replace(say("Done."), cost_nanousd=None)]), policy={"limits": []}, store=store
    )
    await agent.run("Go", run_id="r")
    found = await whatif(store, "r", parse(COST))
    assert (Verdict.INCONCLUSIVE, 0) == (found.verdict, found.priced)


async def test_what_ended_a_run_ends_it_under_another_policy() -> None:
    """Where the run itself ended for want of a price, so does one under a policy with the same limit, and
    more.
    """
    store = MemoryStore()
    await Agent(ScriptedModel([replace(say("Done."), cost_nanousd=None)]), policy=COST, store=store).run(
        "Go", run_id="r"
    )
    more = parse({"limits": [*COST["limits"], {"type": "step", "value": 9}]})
    assert (Verdict.AGREE, "cost_unknown") == ((found := await whatif(store, "r", more)).verdict, found.code)
