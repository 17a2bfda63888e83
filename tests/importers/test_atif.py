"""ATIF: steps with calls and observations, copied context, references."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.formats.atif import ATIF
from refold.importers.items import Answered, Remarked, Returned, RunBegan, RunEnded, Said
from refold.importers.source import Source
from refold.reducers.vocabulary import Role
from support.transcribed import encoded, every, items_of, tallies, tally_of, whole_up_to


def doc(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    agent = {"name": "harbor", "version": "1", "model_name": "m"}
    return {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": agent, "steps": list(steps)} | more


def agent(
    message: str, calls: tuple[str, ...] = (), results: list[Any] | None = None, **more: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"step_id": 3, "source": "agent", "message": message}
    if calls:
        made["tool_calls"] = [
            {"tool_call_id": c, "function_name": "bash", "arguments": {"z": 1, "a": 2}} for c in calls
        ]
    return made | ({"observation": {"results": results}} if results is not None else {}) | more


USER = {"step_id": 1, "source": "user", "message": "Do it", "timestamp": "2025-10-11T10:00:00+02:00"}
SYSTEM = {"step_id": 0, "source": "system", "message": "You are."}
DOCUMENT = doc(
    SYSTEM,
    USER,
    agent(
        "go",
        ("c1", "c2"),
        [{"source_call_id": "c2", "content": "two"}, {"source_call_id": "c1", "content": "one"}],
    ),
    agent("done", metrics={"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4, "cost_usd": 0.5}),
    final_metrics={"total_prompt_tokens": 20, "total_completion_tokens": 4},
)


def test_steps_are_messages_calls_and_results() -> None:
    """System and user begin the run; results go to their calls; arguments keep their order."""
    items = items_of(ATIF, DOCUMENT)
    assert [Role.SYSTEM, Role.USER] == [message.role for message in every(items, RunBegan)[0].messages]
    assert [("c2", "two"), ("c1", "one")] == [(each.id, each.output) for each in every(items, Returned)]
    assert '{"z":1,"a":2}' == every(items, Answered)[0].calls[0].arguments
    answer = every(items, Answered)[1]
    assert (9, 4, 500_000_000, "m") == (
        answer.usage.input,
        answer.usage.cache_read,
        answer.cost_nanousd,
        answer.model,
    )


def test_the_counts_follow_the_rules() -> None:
    """Tokens are the final metrics, not the sum of the steps; there is no error mark and no end."""
    items = items_of(ATIF, DOCUMENT)
    ended, tally = every(items, RunEnded)[0], tally_of(items)
    assert (5, 1, 2, 2) == (
        tally.messages,
        tally.user_messages,
        tally.assistant_messages,
        tally.tool_messages,
    )
    assert (2, 2, None) == (tally.tool_calls, tally.tool_results, tally.tool_errors)
    assert (20, None, 4) == (tally.input_tokens, tally.cache_read_tokens, tally.output_tokens)
    assert ("unknown", "the format records no end") == (ended.end, ended.end_source)
    assert "2025-10-11T08:00:00Z" == tally.first_timestamp


def test_copied_steps_are_what_the_run_began_with() -> None:
    """A continuation's copied answers are no new work, but they are counted, and the model was given them."""
    copied = agent("before", ("c0",), [{"source_call_id": "c0", "content": "old"}], is_copied_context=True)
    items = items_of(ATIF, doc(USER, copied, agent("now")))
    assert ["Do it", "before", "old"] == [message.text for message in every(items, RunBegan)[0].messages]
    assert ["now"] == [answer.text for answer in every(items, Answered)]
    assert (2, 1) == ((tally := tally_of(items)).assistant_messages, tally.tool_messages)


def test_what_copied_steps_say_besides_is_kept() -> None:
    """A step that a run begins with has its `extra`, and what stands beside its results, in a remark."""
    results = [{"source_call_id": "c0", "content": "old", "extra": {"exit": 1}}]
    copied = agent("before", ("c0",), results, is_copied_context=True, extra={"why": "kept"})
    remarks = every(items_of(ATIF, doc(USER, copied, agent("now"))), Remarked)
    assert ["$.steps[1]"] == [remark.position for remark in remarks]
    assert {
        "extra": {"why": "kept"},
        "is_copied_context": True,
        "observation": {"results": [{"extra": {"exit": 1}}]},
        "step_id": 3,
    } == json.loads(remarks[0].rest)


def test_an_observation_without_a_call_was_said() -> None:
    """Agents that write their calls as text get observations that no call asked for."""
    items = items_of(ATIF, doc(USER, agent("ls", (), [{"content": "a.txt"}]), agent("end")))
    assert [("a.txt", "harness")] == [(each.text, each.by) for each in every(items, Said)]
    assert [] == every(items, Returned)


def test_a_result_without_an_id_goes_to_the_call_that_waits() -> None:
    """Adjacency, where the source names no call."""
    items = items_of(ATIF, doc(USER, agent("go", ("c1",), [{"content": [{"type": "text", "text": "x"}]}])))
    assert [("c1", "x")] == [(each.id, each.output) for each in every(items, Returned)]


def test_context_management_and_sub_agents_are_remarks() -> None:
    """A compaction is kept with its step, a sub-agent's trajectory is named and not opened."""
    compacted = {
        "step_id": 5,
        "source": "system",
        "message": "Performed context summarization.",
        "observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_path": "/etc/passwd"}]}]},
        "extra": {"context_management": {"type": "compaction", "boundary": "replace"}},
    }
    items = items_of(ATIF, doc(USER, agent("go"), compacted, continued_trajectory_ref="next.json"))
    assert ["compaction", "subagent"] == [remark.what for remark in every(items, Remarked)]
    assert "the format records no end; continued in another file" == every(items, RunEnded)[0].end_source
    assert "/etc/passwd" in every(items, Remarked)[1].rest


def test_what_has_no_place_is_kept() -> None:
    """Unknown keys of a step and of the document stand in the rest."""
    items = items_of(ATIF, doc(USER, agent("go", novel="kept1", extra={"k": "kept2"}), notes="kept3"))
    rests = " ".join(item.rest for item in items)
    assert [] == [word for word in ("kept1", "kept2", "kept3") if word not in rests]


@pytest.mark.parametrize(
    ("document", "score"),
    [
        pytest.param(DOCUMENT, 98, id="named"),
        pytest.param({"steps": [USER]}, 80, id="steps with ids and sources"),
        pytest.param({"steps": [{"name": "x"}]}, None, id="other steps"),
    ],
)
def test_knows_its_own(document: Any, score: int | None) -> None:
    """A trajectory is told by its content."""
    match = ATIF.match(Source.of("t", encoded(document)))
    assert score == (match.score if match else None)


@given(cut=st.integers(0, 2000))
def test_cut_anywhere_it_imports_up_to_the_cut(cut: int) -> None:
    """Half a trajectory has no answer that the whole one has not."""
    data = encoded(DOCUMENT)
    part = whole_up_to(ATIF, data[: min(cut, len(data))])
    assert {"go", "done"} >= {answer.text for answer in every(part, Answered)}


@pytest.mark.parametrize("lines", [True, False], ids=["a trajectory a line", "a list of trajectories"])
def test_a_file_of_several_trajectories(lines: bool) -> None:
    """Each trajectory of a collection is a run, and the collection is known for what it is."""
    docs = [DOCUMENT | {"session_id": f"s{n}"} for n in range(3)]
    data = b"\n".join(encoded(each) for each in docs) if lines else encoded(docs)
    source = Source.of("x", data)
    match = ATIF.match(source)
    assert match is not None
    assert match.score > 90
    items = list(ATIF.items(source))
    assert ["s0", "s1", "s2"] == [each.key for each in every(items, RunBegan)]
    assert [5, 5, 5] == [each.messages for each in tallies(items)]


@pytest.mark.parametrize(
    ("written", "told_as"),
    [
        pytest.param("2025-10-11T10:00:00.120Z", "2025-10-11T10:00:00.120Z", id="as it stands"),
        pytest.param(
            "2025-10-11T10:00:00.120+00:00", "2025-10-11T10:00:00.120Z", id="an offset of zero is Z"
        ),
        pytest.param("2025-10-11T10:00:00+02:00", "2025-10-11T08:00:00Z", id="any other offset is converted"),
        pytest.param("2025-10-11T10:00:00.5", "2025-10-11T10:00:00.5", id="no zone is none"),
    ],
)
def test_times_are_the_source_s_own_words(written: str, told_as: str) -> None:
    """A time keeps the digits that it was written with."""
    step = USER | {"timestamp": written}
    assert told_as == tally_of(items_of(ATIF, doc(step))).first_timestamp
