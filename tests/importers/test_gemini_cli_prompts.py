"""What a Gemini CLI chat says that the model is shown from there on: compressed, opened again, or the
same.
"""

import pytest

from refold.importers.items import Prompted, Remarked, Returned
from refold.reducers.vocabulary import Role
from support.gemini_cli import ASKED, GO, HEADER, HI, called, log, message, response, sent, told
from support.sessions import Json, only


def test_messages_that_are_replaced_are_the_next_prompt() -> None:
    """A patch with messages says what the model is shown from there on; at the beginning they are the
    chat.
    """
    left = [
        message("x", "user", "<state_snapshot>"),
        message("y", "gemini", "ok", toolCalls=[called("1", "one")]),
    ]
    found = only(Prompted, log(HEADER, GO, HI, {"$set": {"messages": left}}))

    assert [(Role.USER, "<state_snapshot>"), (Role.ASSISTANT, "ok"), (Role.TOOL, "one")] == [
        (each.role, each.text) for each in found.messages
    ]
    assert [("Said", "line 2", "go"), ("Answered", "line 2", "hi")] == told(
        log(HEADER, {"$set": {"messages": [GO, HI]}})
    )


def test_a_chat_that_was_opened_again_was_not_compacted() -> None:
    """What a resumed chat is shown is its own history; a result that was sent twice is there twice."""
    wire = message(
        "a", "gemini", [{"text": "ok"}, {"functionCall": {"id": "1", "name": "ls", "args": {"z": 1, "a": 2}}}]
    )
    result = sent("r", response("1", "one"))
    again = [
        {"$set": {"messages": [GO]}},
        {"$set": {"messages": [GO, wire, sent("x", response("1", "one")), result, HI]}},
    ]
    items = log(HEADER, GO, ASKED, result, HI, HEADER, *again, message("v", "user", "and?"))
    prompts = [item for item in items if isinstance(item, Prompted)]
    assert ["resume", "resume"] == [item.why for item in prompts]
    shown = [(each.role, each.text, len(each.calls)) for each in prompts[-1].messages]
    assert [
        (Role.USER, "go", 0), (Role.ASSISTANT, "ok", 1), (Role.TOOL, "one", 0), (Role.TOOL, "one", 0), (Role.ASSISTANT, "hi", 0)
    ] == shown  # fmt: skip
    assert "resumed" in [item.what for item in items if isinstance(item, Remarked)]


@pytest.mark.parametrize(
    ("behind", "results"),
    [
        pytest.param([sent("r", response("1", "one"))], ["one"], id="sent next"),
        pytest.param([{"$set": {"lastUpdated": "x"}}, sent("r", response("1", "one"))], ["one"], id="later"),
        pytest.param([sent("r", response("2", "two"))], [], id="of another call"),
        pytest.param([message("v", "user", "and?")], [], id="never sent"),
        pytest.param([], [], id="at the end"),
    ],
)
def test_a_compaction_between_a_result_and_its_request(behind: list[Json], results: list[str]) -> None:
    """A result that its call has already, and that is sent behind the compacted history, is in the next
    prompt.
    """
    wire = message(
        "b", "gemini", [{"text": "ok"}, {"functionCall": {"id": "1", "name": "ls", "args": {"z": 1, "a": 2}}}]
    )
    compacted = {"$set": {"messages": [message("x", "user", "<state_snapshot>"), wire]}}
    items = log(HEADER, GO, ASKED, compacted, *behind, HI)
    found = only(Prompted, items)
    assert ["<state_snapshot>", "ok", *results] == [each.text for each in found.messages]
    assert "compaction" == found.why
    assert ["one"] == [item.output for item in items if isinstance(item, Returned) and item.id == "1"]


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        pytest.param([GO, HI], "history", id="the same"),
        pytest.param(
            [message("z", "user", "go"), message("y", "gemini", "hi")], "history", id="of other ids"
        ),
        pytest.param([message("x", "user", "<state_snapshot>"), HI], "compaction", id="a message less"),
    ],
)
def test_only_what_drops_something_is_a_compaction(messages: list[Json], why: str) -> None:
    """A patch that says again what the model is shown already compacts nothing."""
    assert why == only(Prompted, log(HEADER, GO, HI, {"$set": {"messages": messages}})).why
