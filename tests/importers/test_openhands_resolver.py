"""OpenHands' first resolver: events in pairs, and events whose arguments stand beside their name."""

from typing import Any

import pytest

from refold.importers.formats.openhands.importer import OPENHANDS
from refold.importers.items import Answered, Returned, RunBegan, Said
from support.transcribed import encoded, every, items_of

PAIRS: list[Any] = [
    [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "Fix it."}},
        {"message": "No observation", "observation": "null", "content": "", "extras": {}},
    ],
    [
        {"id": 3, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "Look."}},
        {"id": 4, "source": "agent", "cause": 3, "observation": "run", "content": "a", "extras": {"exit_code": 2}},
    ],
]  # fmt: skip
BESIDE: list[Any] = [
    {"action": "message", "content": "Fix it.", "wait_for_response": False},
    {"action": "run", "command": "ls", "thought": "Look.", "keep_prompt": True},
    {"observation": "run", "content": "a", "command": "ls", "exit_code": 2},
]


@pytest.mark.parametrize("history", [PAIRS, BESIDE], ids=["pairs", "beside the name"])
def test_a_history_is_read_as_events(history: list[Any]) -> None:
    """The person's words, the call with the thought before it, and its result, which failed by its exit
    code.
    """
    issue = {"owner": "ann", "repo": "app", "number": 7}
    items = items_of(OPENHANDS, encoded({"issue": issue, "git_patch": "", "history": history}))
    [began], [said] = every(items, RunBegan), every(items, Said)
    [answer], [result] = every(items, Answered), every(items, Returned)
    assert ("ann/app#7", "Fix it.") == (began.key, said.text)
    assert ("Look.", "run") == (answer.text, answer.calls[0].name)
    assert '"command":"ls"' in answer.calls[0].arguments.replace(" ", "")
    assert (answer.calls[0].id, "a", "raised") == (result.id, result.output, result.error)


def test_each_of_a_pair_has_its_place() -> None:
    """An investigator finds an observation behind its action, in the pair."""
    items = items_of(OPENHANDS, encoded({"issue": {}, "git_patch": "", "history": PAIRS}))
    [result] = every(items, Returned)
    assert result.position.endswith(".history[1][1]")
