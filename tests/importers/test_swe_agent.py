"""SWE-agent: steps and history side by side, prompts, ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.formats.swe_agent.importer import SWE_AGENT, end_of
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
)
from refold.importers.source import Source
from refold.reducers.vocabulary import Role
from support.transcribed import encoded, every, items_of, tally_of, whole_up_to

SYSTEM = {"role": "system", "content": "You fix bugs.", "agent": "main"}
TASK = {"role": "user", "content": "Fix it.", "agent": "main"}


def step(action: str, observation: str | None = "out", **more: Any) -> dict[str, Any]:
    made = {"action": action, "response": f"I do {action}", "thought": f"I do {action}", "state": "{}"}
    return made | ({} if observation is None else {"observation": observation}) | more


def said(action: str, **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": f"I do {action}",
        "thought": f"I do {action}",
        "action": action,
        "agent": "main",
    } | more


def seen(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, "agent": "main"} | more


def run(history: list[Any], steps: list[Any] | None = None, **info: Any) -> dict[str, Any]:
    doc: dict[str, Any] = {"history": history, "info": info}
    return doc if steps is None else doc | {"trajectory": steps, "environment": "swe_main"}


DOCUMENT = run(
    [SYSTEM, TASK, said("ls"), seen("a.py\nbash-$"), said("cat a.py"), seen("1\nbash-$")],
    [step("ls", "a.py"), step("cat a.py", "1"), step("submit", "diff")],
    exit_status="submitted",
    model_stats={"tokens_sent": 90, "tokens_received": 12},
)


def test_steps_and_history_are_one_conversation() -> None:
    """Each answer is told once; its result is what the model was shown; the step that the history lacks
    speaks itself.
    """
    items = items_of(SWE_AGENT, DOCUMENT)
    assert [(Role.SYSTEM, "You fix bugs."), (Role.USER, "Fix it.")] == [
        (message.role, message.text) for message in every(items, RunBegan)[0].messages
    ]
    assert ["ls", "cat a.py", "submit"] == [
        command.removeprefix('{"command":"').removesuffix('"}')
        for answer in every(items, Answered)
        for command in [answer.calls[0].arguments]
    ]
    assert ["a.py\nbash-$", "1\nbash-$", "diff"] == [result.output for result in every(items, Returned)]
    assert {"bash"} == {answer.calls[0].name for answer in every(items, Answered)}


def test_the_counts_follow_the_rules() -> None:
    """Steps and assistant messages may differ by one; tokens are the model's statistics."""
    tally = tally_of(items_of(SWE_AGENT, DOCUMENT))
    assert (5, 3, 2, 0) == (
        tally.messages,
        tally.user_messages,
        tally.assistant_messages,
        tally.tool_messages,
    )
    assert (3, 3, None) == (tally.tool_calls, tally.tool_results, tally.tool_errors)
    assert (90, 12, None) == (tally.input_tokens, tally.output_tokens, tally.first_timestamp)


def test_demonstrations_are_given_and_not_counted() -> None:
    """A demonstration is part of what the model was shown to begin with, and no message of the run."""
    demo = {"role": "user", "content": "A demonstration", "is_demo": True, "agent": "main"}
    items = items_of(SWE_AGENT, run([SYSTEM, demo, TASK, said("ls"), seen("a")], [step("ls", "a")]))
    assert "A demonstration" in [message.text for message in every(items, RunBegan)[0].messages]
    assert 2 == tally_of(items).user_messages


def test_function_calls_keep_their_ids_and_arguments() -> None:
    """A call that the model made as a function stays what it was, byte for byte."""
    call = {"id": "call_1", "type": "function", "function": {"name": "edit", "arguments": '{"b": 1, "a": 2}'}}
    result = {
        "role": "tool",
        "content": [{"type": "text", "text": "done"}],
        "tool_call_ids": ["call_1"],
        "agent": "main",
    }
    items = items_of(
        SWE_AGENT, run([SYSTEM, TASK, said("edit 1", tool_calls=[call]), result], [step("edit 1")])
    )
    asked = every(items, Answered)[0].calls[0]
    assert ("call_1", "edit", '{"b": 1, "a": 2}') == (asked.id, asked.name, asked.arguments)
    assert [("call_1", "done")] == [(each.id, each.output) for each in every(items, Returned)]


def test_what_follows_a_result_was_said() -> None:
    """Only the first message behind an action is its result."""
    items = items_of(SWE_AGENT, run([SYSTEM, TASK, said("ls"), seen("a"), seen("Go on.")], [step("ls", "a")]))
    assert [("a", "Go on.")] == [(every(items, Returned)[0].output, every(items, Said)[0].text)]


HISTORY = [SYSTEM, TASK, said("ls"), seen("a"), said("cat"), seen("b")]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [step("ls", "a", messages=HISTORY[:4]), step("cat", "b", messages=HISTORY)],
            id="1.0 writes the messages when the step is over",
        ),
        pytest.param(
            [step("ls", "a", query=HISTORY[:2]), step("cat", "b", query=HISTORY[:4])],
            id="1.1 writes the query",
        ),
    ],
)
def test_the_prompt_of_a_step_is_what_the_model_was_given(steps: list[Any]) -> None:
    """A prompt never holds the answer that it got, and its texts are those of the items before it."""
    items = items_of(SWE_AGENT, run(HISTORY, steps))
    prompts = every(items, Prompted)
    assert [2, 4] == [len(prompt.messages) for prompt in prompts]
    assert [type(items[items.index(prompt) + 1]) for prompt in prompts] == [Answered, Answered]
    result = prompts[1].messages[3]
    assert (Role.TOOL, every(items, Returned)[0].output) == (result.role, result.text)
    assert result.call == prompts[1].messages[2].calls[0].id
    assert every(items, Answered)[0].calls[0].arguments == prompts[1].messages[2].calls[0].arguments


def test_a_prompts_second_message_behind_an_action_was_said_there_too() -> None:
    """Prompts and history are read by the same rule: one result an action, what follows is the user's."""
    prompt = [*HISTORY[:4], seen("Go on.")]
    items = items_of(
        SWE_AGENT, run(HISTORY, [step("ls", "a", query=HISTORY[:2]), step("cat", "b", query=prompt)])
    )
    expected = [(Role.TOOL, "a"), (Role.USER, "Go on.")]
    assert expected == [(message.role, message.text) for message in every(items, Prompted)[1].messages[3:]]


def test_an_elided_observation_shows_in_the_prompt() -> None:
    """What a history processor did to a prompt stands in the prompt, not in the result."""
    elided = [*HISTORY[:3], seen("Old output omitted"), *HISTORY[4:]]
    items = items_of(
        SWE_AGENT, run(HISTORY, [step("ls", "a", query=HISTORY[:2]), step("cat", "b", query=elided[:4])])
    )
    assert "Old output omitted" == every(items, Prompted)[1].messages[3].text
    assert "a" == every(items, Returned)[0].output


def test_a_step_that_the_agent_added_at_a_limit_is_no_answer() -> None:
    """No model said `Exit due to cost limit`."""
    gone = step("", "", response="Exit due to cost limit", thought="Exit due to cost limit")
    items = items_of(
        SWE_AGENT,
        run([SYSTEM, TASK, said("ls"), seen("a")], [step("ls", "a"), gone], exit_status="exit_cost"),
    )
    assert ["gave_up"] == [remark.what for remark in every(items, Remarked)]
    assert (1, "limit:cost") == (len(every(items, Answered)), every(items, RunEnded)[0].end)


def test_a_repeated_request_is_an_answer_that_the_history_lacks() -> None:
    """A step before the one that a message of the history matches is told by itself, in its place."""
    items = items_of(
        SWE_AGENT, run([SYSTEM, TASK, said("ls"), seen("a")], [step("", "malformed"), step("ls", "a")])
    )
    assert ["I do ", "I do ls"] == [answer.text for answer in every(items, Answered)]
    assert "malformed" in every(items, Answered)[0].rest


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("submitted", "finished"),
        ("submitted (exit_cost)", "limit:cost"),
        ("exit_context", "limit:context"),
        ("submitted (exit_context)", "limit:context"),
        ("exit_format", "error"),
        ("submitted (exit_error)", "error"),
        ("early_exit", "error"),
        ("skipped (no patch)", "error"),
        (None, "unknown"),
        (7, "unknown"),
    ],
)
def test_the_exit_status_says_the_end(status: Any, end: str) -> None:
    """A limit with a patch is a limit; what nobody recorded is unknown."""
    assert end == end_of(status)[0]


def test_nothing_of_a_step_is_lost() -> None:
    """What has no place in an item stands in its rest."""
    odd = step("ls", "a", extra_info={"k": "kept1"}, state={"dir": "kept2"}, novel="kept3")
    items = items_of(
        SWE_AGENT, run([SYSTEM, TASK, said("ls", novel="kept4"), seen("a", novel="kept5")], [odd])
    )
    rests = " ".join(item.rest for item in items)
    assert [] == [word for word in ("kept1", "kept2", "kept3", "kept4", "kept5") if word not in rests]


@pytest.mark.parametrize(
    ("document", "score"),
    [
        pytest.param(DOCUMENT, 95, id="steps"),
        pytest.param({"history": HISTORY}, 90, id="a history alone"),
        pytest.param({"trajectory": [], "history": []}, 70, id="empty"),
        pytest.param({"messages": HISTORY}, None, id="somebody's messages"),
        pytest.param([{"action": "run", "args": None}], None, id="OpenHands' events"),
    ],
)
def test_knows_its_own(document: Any, score: int | None) -> None:
    """A trajectory is told by its content."""
    match = SWE_AGENT.match(Source.of("t", encoded(document)))
    assert score == (match.score if match else None)


@given(cut=st.integers(0, 3000))
def test_cut_anywhere_it_imports_up_to_the_cut(cut: int) -> None:
    """Half a trajectory has no answer and no result that the whole one has not."""
    data = encoded(DOCUMENT)
    whole, part = items_of(SWE_AGENT, data), whole_up_to(SWE_AGENT, data[: min(cut, len(data))])
    assert _said(part) <= _said(whole)


def _said(items: list[Item]) -> set[str]:
    return {answer.text for answer in every(items, Answered)}
