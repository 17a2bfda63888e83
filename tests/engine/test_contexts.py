"""How much a model holds: who says it, where it is recorded, and what cannot be decided without."""

import pytest

from refold.engine import Agent, ScriptedModel, say
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.reducers.errors import PolicyError
from refold.reducers.events import RunStarted
from refold.store import MemoryStore
from support.driving import events_of

SHARE = {"history": [{"do": "summarise", "keep_last": 2, "when": {"tokens": {"share": 0.5}}}]}


@pytest.mark.anyio
@pytest.mark.parametrize("context", [None, 4096])
async def test_the_context_is_recorded(context: int | None) -> None:
    """A run's first event does not say how much its model holds, or says it of a model that does not tell."""
    store = MemoryStore()
    run = Agent(model=ScriptedModel([say("Hello.")], context=context), store=store).start("Hello?")
    await run.result()
    started = (await events_of(store, run.id))[0]
    assert isinstance(started, RunStarted)
    assert context == started.context


def test_a_share_of_what_nobody_knows_is_refused() -> None:
    """A policy that counts in shares of a context that nobody knows is taken, and its pass never runs."""
    with pytest.raises(PolicyError) as caught:
        Agent(model=ScriptedModel([]), policy=SHARE)
    assert "history[0].when.tokens" == caught.value.path
    assert "the context of scripted is unknown; write a number of tokens instead" in str(caught.value)
    with pytest.raises(PolicyError, match="history"):
        Agent(model=ScriptedModel([]), policy={"preset": "hermes"})
    Agent(model=ScriptedModel([], context=4096), policy=SHARE)
    Agent(model=ScriptedModel([]), policy={"history": [{"do": "tail", "last": 10}]})


@pytest.mark.parametrize(
    ("model", "base_url", "given", "context"),
    [
        pytest.param("openai:gpt-4o", None, None, 128_000, id="the price lists say it"),
        pytest.param("openai:gpt-4o", None, 1000, 1000, id="the caller knows better"),
        pytest.param("openai:gpt-4o", "http://127.0.0.1:1/v1", None, None, id="an address of one's own"),
        pytest.param("openai:gpt-4o", "http://127.0.0.1:1/v1", 1000, 1000, id="of which the caller knows"),
        pytest.param("openai:no-such-model", None, None, None, id="a model that is in no list"),
    ],
)
def test_the_context_of_a_vendors_model(
    model: str, base_url: str | None, given: int | None, context: int | None
) -> None:
    """The context of a vendor's model is another than the price lists or the caller say, or made up."""
    made = PydanticAIModel(model, base_url=base_url, api_key="sk-none", context=given)
    assert context == made.context
