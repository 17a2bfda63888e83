"""Other texts for messages that were shown before, by command: the run goes on, and what was shown stays as
it was.
"""

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
from refold.reducers.parser import parse

TRIMS: dict[str, Any] = {
    "history": [{"do": "trim_messages", "cap": 30, "roles": ["user"], "last": 20}],
    "end_of_turn": "wait",
}
OTHER = {**TRIMS, "texts": {"trimmed": "[...]"}}
OLD_WORDS = "tokens were left out here"


@pytest.fixture
def trimmed(store: Path) -> str:
    """A run whose task was shown shorter, and that waits for a person."""
    script = [calls(("look", {"path": "a"})), say("And?")]
    agent = Agent(model=ScriptedModel(script), tools=[look], policy=TRIMS, store=store)
    return agent.run_sync("Look at all of it. " * 40, run_id="aa11").run


def seen(refold: Refold, store: Path, run: str) -> str:
    """The task as the last request of the run shows it."""
    ran = refold("view", run, "--store", store, "-o", "json")
    assert 0 == ran.code, ran.err
    messages = json.loads(ran.out)["request"]["messages"]
    return str(next(each["text"] for each in messages if each["role"] == "user"))


@pytest.mark.parametrize("texts", [{"trimmed": "[...]"}, {"nudge": "On!"}])
def test_a_fork_with_other_texts(
    refold: Refold, store: Path, trimmed: str, tmp_path: Path, texts: dict[str, str],
    scripted: Callable[[Sequence[Line]], None],
) -> None:  # fmt: skip
    """It goes on until it waits, and shows the task in the words in which it was shown before."""
    scripted([say("Bye.")])
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"schema": "refold/v1", **TRIMS, "texts": texts}))
    words = ["--policy", file, "--tools", "console.conftest:look", "--say", "Go on.", "--model", "scripted"]
    ran = refold("fork", trimmed, *words, "--store", store)
    assert 1 == ran.code, ran.err
    fork = json.loads(refold("ls", "--store", store, "-o", "json").out)[0]["run"]
    assert OLD_WORDS in seen(refold, store, fork)
    assert seen(refold, store, trimmed) == seen(refold, store, fork)
    assert 0 == refold("audit", fork, "--store", store).code


def test_an_amendment_with_other_texts(refold: Refold, store: Path, trimmed: str) -> None:
    """An audit of a log that has one agrees, and the task is shown as before."""
    before = seen(refold, store, trimmed)

    async def amended() -> None:
        agent = Agent(model=ScriptedModel([say("Bye.")]), tools=[look], store=store)
        run = agent.resume(trimmed)
        run.put(PolicyAmended(at=2 * 10**18, policy=parse(OTHER)))
        run.send("Go on.")
        await run.result()

    anyio.run(amended)
    assert OLD_WORDS in before
    assert before == seen(refold, store, trimmed)
    assert 0 == refold("audit", trimmed, "--store", store).code
    assert 0 == refold("audit", "--all", "--store", store).code
