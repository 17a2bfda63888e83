"""Other texts for messages that were shown before, by command: a fork is refused, a log that has them is not judged."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import Refold, look
from refold.engine import Agent, ScriptedModel, calls, say
from refold.engine.models.script import Line
from refold.reducers.events import PolicyAmended
from refold.reducers.parsing import parse

TRIMS: dict[str, Any] = {
    "history": [{"do": "trim_messages", "cap": 30, "roles": ["user"], "last": 20}],
    "end_of_turn": "wait",
}
OTHER = {**TRIMS, "texts": {"trimmed": "[...]"}}


@pytest.fixture
def trimmed(store: Path) -> str:
    """A run whose task was shown shorter, and that waits for a person."""
    script = [calls(("look", {"path": "a"})), say("And?")]
    agent = Agent(model=ScriptedModel(script), tools=[look], policy=TRIMS, store=store)
    return agent.run_sync("Look at all of it. " * 40, run_id="aa11").run


@pytest.mark.parametrize(("texts", "code"), [({"trimmed": "[...]"}, 2), ({"nudge": "On!"}, 1)])
def test_a_fork_with_other_texts(
    refold: Refold, store: Path, trimmed: str, tmp_path: Path, texts: dict[str, str], code: int,
    scripted: Callable[[Sequence[Line]], None],
) -> None:  # fmt: skip
    """It is refused, naming the text, where messages are shown in it; other texts may be chosen, and the fork waits."""
    scripted([say("Bye.")])
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"schema": "refold/v1", **TRIMS, "texts": texts}))
    words = ["--policy", file, "--tools", "console.conftest:look", "--say", "Go on.", "--model", "scripted"]
    ran = refold("fork", trimmed, *words, "--store", store)
    assert code == ran.code, ran.err
    assert (code == 2) == ("other texts for trimmed" in ran.err)


def test_an_amendment_with_other_texts(refold: Refold, store: Path, trimmed: str) -> None:
    """An audit of a log that has one ends with 125, and says which messages, and why."""

    async def amended() -> None:
        agent = Agent(model=ScriptedModel([say("Bye.")]), tools=[look], store=store)
        run = agent.resume(trimmed)
        run.put(PolicyAmended(at=2 * 10**18, policy=parse(OTHER)))
        run.send("Go on.")
        await run.result()

    anyio.run(amended)
    ran = refold("audit", trimmed, "--store", store)
    assert 125 == ran.code
    assert "cannot be judged" in ran.out
    assert "message 1 is shown in other words (trimmed)" in ran.out
    assert 125 == refold("audit", "--all", "--store", store).code
