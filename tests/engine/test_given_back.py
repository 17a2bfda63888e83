"""What is brought while an engine gives its run back is seen to then, or is there for whoever goes on."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from refold.engine import Agent, CallContext, Run, ScriptedModel, Tool, call, say, tool
from refold.engine.models.script import Line
from refold.reducers.errors import MissingFact
from refold.reducers.events import Manifest
from refold.store import MemoryStore
from refold.store.protocol import Lease
from support.driving import assert_sound, kinds

pytestmark = pytest.mark.anyio

TALK = {"end_of_turn": "wait"}
ASK = {"approvals": {"chain": [{"approver": "human"}]}}


@tool
async def act() -> str:
    """Change something."""
    return "done"


class Watched(MemoryStore):
    """Somebody does something whenever a run is given back, so many times: before that is done, or after."""

    def __init__(self, *acts: Callable[[], object], after: bool = False) -> None:
        super().__init__()
        self._acts, self._after = list(acts), after

    async def release(self, lease: Lease, after: float | None = None) -> None:
        if self._after:
            await super().release(lease, after)
        if self._acts:
            self._acts.pop(0)()
        await anyio.lowlevel.checkpoint()
        if not self._after:
            await super().release(lease, after)


def send(run: Run) -> None:
    run.send("me")


def approve(run: Run) -> None:
    run.answer({"c1": "approve"})


def cancel(run: Run) -> None:
    run.cancel()


@pytest.mark.parametrize("after", [False, True], ids=["before it is free", "once it is free"])
@pytest.mark.parametrize(
    ("policy", "script", "say_it", "state", "text"),
    [
        pytest.param(
            TALK,
            [say("Who?"), say("Ah.")],
            send,
            "WAITING_FOR_INPUT",
            "Ah.",
            id="a message",
        ),
        pytest.param(
            ASK,
            [call("act"), say("Ah.")],
            approve,
            "COMPLETED",
            "Ah.",
            id="an answer",
        ),
        pytest.param(TALK, [say("Who?")], cancel, "CANCELLED", "Who?", id="a cancellation"),
        pytest.param({}, [say("Ah.")], cancel, "COMPLETED", "Ah.", id="one after the end"),
    ],
)
async def test_what_is_said_while_a_run_is_given_back(
    policy: dict[str, Any],
    script: list[Line],
    say_it: Callable[[Run], None],
    state: str,
    text: str,
    after: bool,
) -> None:
    """Whoever waits for the run has the result of what was said to it, and the run is given back all the
    same.
    """
    store = Watched(lambda: say_it(run), after=after)
    run = Agent(model=ScriptedModel(script), tools=[act], policy=policy, store=store).start(
        "Do it.", run_id="r"
    )
    with anyio.fail_after(5):
        result = await run.result()
    assert (state, text) == (result.state, result.outcome.text)
    assert await store.claim("r") is None
    await assert_sound(store, "r")


async def test_what_is_said_each_time() -> None:
    """A conversation may go on for as long as somebody answers while the run is given back."""

    def answer() -> None:
        run.send("me")

    store = Watched(answer, answer, answer)
    model = ScriptedModel([say("Who?"), say("And?"), say("So?"), say("Ah.")])
    run = Agent(model=model, policy=TALK, store=store).start("Do it.", run_id="r")
    assert "Ah." == (await run.result()).outcome.text
    assert 3 == (await kinds(store, "r")).count("input_received")


async def test_what_is_said_to_an_engine_that_failed() -> None:
    """It raises what it failed of; what was said while it gave the run back is there for who goes on."""

    async def missing(arguments: str, context: CallContext) -> str:
        raise MissingFact("r", "there is none")

    def stop() -> None:
        run.cancel()

    store, lost = Watched(stop), Tool(manifest=Manifest(name="lost"), run=missing)
    run = Agent(model=ScriptedModel([call("lost")]), tools=[lost], store=store).start("Do it.", run_id="r")
    with pytest.raises(MissingFact):
        await run.result()
    assert "CANCELLED" == (await run.result()).state
    await assert_sound(store, "r")


async def test_what_is_said_to_a_run_that_is_left() -> None:
    """Who leaves a run to a worker leaves what was said meanwhile in its log, too."""

    def stop() -> None:
        run.cancel()

    store = Watched(stop)
    run = Agent(model=ScriptedModel([]), store=store).start("Do it.", run_id="r")
    await run.detach()
    assert "CANCELLED" == (await Agent(model=ScriptedModel([]), store=store).resume("r").result()).state
    assert "cancel_requested" in await kinds(store, "r")
    await assert_sound(store, "r")
