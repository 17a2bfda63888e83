"""Who&When's documents, rule by rule, on histories of a few words."""

import json
from typing import Any

import pytest

from refold.importers.formats.who_when import WHO_WHEN
from refold.importers.items import Answered, Item, Remarked, RunBegan, RunEnded, Said, Unread
from refold.importers.source import BadTranscript, Source
from refold.reducers.source_marks import UNCALLED
from refold.reducers.vocabulary import Role
from support.sessions import Json, only, text_of

FOUND = {
    "mistake_agent": "Counter",
    "mistake_step": "1",
    "mistake_reason": "It counted twice.",
    "ground_truth": "2",
}


def said(content: Any, role: str, name: str | None = None) -> Json:
    """A message."""
    return {"content": content, "role": role} | ({"name": name} if name else {})


def doc(*history: Any, **more: Any) -> Json:
    """A document."""
    return {"question": "How many?", "question_ID": "q", "history": list(history), **FOUND, **more}


def read(value: Any) -> list[Item]:
    """The items of a document."""
    return list(WHO_WHEN.items(Source.of("x", json.dumps(value).encode())))


TASK = said("Count them.", "assistant", "Counter")


def test_what_opens_the_chat_is_the_task() -> None:
    """Nobody of the team answered yet, whatever role it has; the team's own prompts are kept beside."""
    items = read(doc(TASK, said("Two.", "user", "Counter"), system_prompt={"Counter": "You count."}))
    began = items[0]
    assert isinstance(began, RunBegan)
    assert ("q", [(Role.USER, "Count them.")]) == (
        began.key,
        [(each.role, each.text) for each in began.messages],
    )
    assert '"Counter":"You count."' in began.rest
    assert "tool_errors" in began.unsaid


@pytest.mark.parametrize(
    ("message", "kind", "by"),
    [
        pytest.param(said("Two.", "user", "Counter"), Answered, None, id="an agent of AG2's"),
        pytest.param(said("exitcode: 0", "user", "Computer_terminal"), Said, "harness", id="its terminal"),
        pytest.param(
            said("Next speaker WebSurfer", "Orchestrator (thought)"), Answered, None, id="an orchestrator"
        ),
        pytest.param(said("I clicked.", "WebSurfer"), Answered, None, id="an agent of Magentic-One's"),
        pytest.param(said("7", "ComputerTerminal"), Said, "harness", id="its terminal, too"),
        pytest.param(
            said("No agent selected.", "Orchestrator (termination condition)"), Said, "harness", id="its end"
        ),
        pytest.param(said("And lib?", "human"), Said, "user", id="a person"),
    ],
)
def test_who_spoke(message: Json, kind: type[Item], by: str | None) -> None:
    """Agents answer; what a terminal printed or a harness decided no model said. The speaker is kept."""
    found = only(kind, read(doc(TASK, message)))
    assert (message["content"], by) == (text_of(found), getattr(found, "by", None))
    assert (message.get("name") or message["role"]) in found.rest


@pytest.mark.parametrize("speaker", ["Computer_terminal", "ComputerTerminal", "WebSurfer", "FileSurfer"])
def test_who_tells_of_calls_that_are_nowhere(speaker: str) -> None:
    """Something ran, and nobody knows what: no rule over calls can be judged by such a chat."""
    found = [item.what for item in read(doc(TASK, said("7", "user", speaker))) if isinstance(item, Remarked)]
    assert UNCALLED in found


def test_the_mistake_stands_at_its_step() -> None:
    """People said who failed, where and why."""
    items = read(doc(TASK, said("Three.", "user", "Counter"), said("Done. TERMINATE", "user", "Checker")))
    (found,) = [item for item in items if isinstance(item, Remarked) and item.what == "score:mistake"]
    assert FOUND == json.loads(found.rest)
    assert ("$.history[1]", ["Answered", "Remarked", "Answered"]) == (
        found.position,
        [type(item).__name__ for item in items[2:-1]],
    )


@pytest.mark.parametrize("step", ["99", -1, "x", None, [1]])
def test_a_step_that_is_not_there(step: Any) -> None:
    """What was found is told all the same, of the whole."""
    found = [
        item
        for item in read(doc(TASK, mistake_step=step))
        if isinstance(item, Remarked) and item.what == "score:mistake"
    ]
    assert ["$"] == [item.position for item in found]


@pytest.mark.parametrize(
    ("last", "end"),
    [
        pytest.param("TERMINATE", "finished", id="said to be done"),
        pytest.param("No agent selected.\nFINAL ANSWER: 2", "finished", id="nobody left to speak"),
        pytest.param("Max rounds (30) reached.", "limit:turns", id="too many rounds"),
        pytest.param("Max time (1500s) reached.", "limit:time", id="too long"),
        pytest.param("Next.\nError processing publish message for X", "error", id="crashed"),
        pytest.param("Two.", "unknown", id="nothing says so"),
    ],
)
def test_how_a_chat_ends(last: str, end: str) -> None:
    """Its last message says how."""
    assert end == only(RunEnded, read(doc(TASK, said(last, "user", "Checker")))).end


def test_a_list_of_documents_is_as_many_runs() -> None:
    """Whatever else stands in the list is told as not read."""
    items = read([doc(TASK), 7, doc(TASK, question_ID="r")])
    assert ["q", "r"] == [item.key for item in items if isinstance(item, RunBegan)]
    assert ["no_history"] == [item.code for item in items if isinstance(item, Unread)]


@pytest.mark.parametrize("message", [7, None, {}, {"role": "x"}, {"content": [1, None], "role": ["x"]}])
def test_no_message_is_too_strange(message: Any) -> None:
    """Whatever stands in a history, a run begins and ends."""
    items = read(doc(message, message))
    assert [RunBegan, RunEnded] == [type(items[0]), type(items[-1])]


@pytest.mark.parametrize(
    ("value", "score"),
    [
        pytest.param(doc(TASK), 95, id="a document"),
        pytest.param([doc(TASK)], 95, id="a list"),
        pytest.param({"history": [], "question": "x", "ground_truth": "y"}, 95, id="nobody was blamed"),
        pytest.param(
            {"history": [said("x", "human"), said("y", "Orchestrator (thought)")]},
            85,
            id="the question comes later",
        ),
        pytest.param({"history": []}, None, id="a history of something else"),
    ],
)
def test_detection(value: Any, score: int | None) -> None:
    """The format is told by what the history is about."""
    match = WHO_WHEN.match(Source.of("x", json.dumps(value).encode()))
    assert score == (match.score if match else None)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a":1}', b"\x00\xff"])
def test_nothing_to_read(data: bytes) -> None:
    """A file without a history is refused by name."""
    with pytest.raises(BadTranscript, match="mine"):
        list(WHO_WHEN.items(Source.of("mine", data)))
