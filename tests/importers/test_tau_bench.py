"""tau-bench runs, few-shot texts, and plain lists of chat messages."""

from typing import Any

import msgspec
import pytest

from refold.importers.formats.openai_messages import OPENAI_MESSAGES
from refold.importers.formats.tau_bench import TAU_BENCH
from refold.importers.items import Answered, Item, Remarked, Returned, RunBegan, RunEnded, Said, Unread
from refold.importers.source import BadTranscript, Source
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict
from support.following import shown
from support.told import derived, events
from support.transcribed import every, tally_of
from support.unknown_keys import lost


def call(number: str = "0", name: str = "look") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": number, "function": {"name": name, "arguments": "{}"}}],
    }


def result(number: str = "0", name: str = "look") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": number, "name": name, "content": "r"}


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


TRAJ = [said("policy", "system"), said("hi"), call(), result(), call(), result(), said("ok?", "assistant"), said("bye ###STOP###")]  # fmt: skip


def run(traj: list[Any], **more: Any) -> dict[str, Any]:
    return {"task_id": 3, "trial": 0, "reward": 1.0, "info": {"task": {}}, "traj": traj} | more


def of(value: object) -> list[Item]:
    return list(TAU_BENCH.items(Source.of("runs", msgspec.json.encode(value))))


def test_a_run() -> None:
    """What stands before the first answer opens the run; the rest is told in order; ids repeat and still
    pair.
    """
    items = of([run(TRAJ)])
    began = every(items, RunBegan)[0]
    assert ("task-3-trial-0", "$[0].traj[0:2]") == (began.key, began.position)
    assert ["policy", "hi"] == [message.text for message in began.messages]
    tally = tally_of(items)
    assert (7, 2, 3, 2, 2, 2) == (
        tally.messages, tally.user_messages, tally.assistant_messages, tally.tool_messages, tally.tool_calls, tally.tool_results,
    )  # fmt: skip
    assert ["score:reward", "unmapped"] == [item.what for item in every(items, Remarked)]
    assert 2 == len(every(items, Returned))


@pytest.mark.parametrize(
    ("traj", "info", "end"),
    [
        pytest.param(TRAJ, {}, "finished", id="the simulated person stops"),
        pytest.param([said("hi"), call(name="transfer_to_human_agents"), result(name="transfer_to_human_agents")], {}, "finished", id="a transfer to a human"),
        pytest.param([said("hi"), *[call(), result()] * 30], {}, "limit:steps", id="thirty answers"),
        pytest.param([said("hi"), *[call(), result()] * 29], {}, "open", id="twenty-nine answers and a result"),
        pytest.param([said("###STOP###"), said("yes", "assistant")], {}, "open", id="an answer after the stop"),
        pytest.param([], {"error": "boom"}, "error", id="the run crashed"),
    ],
)  # fmt: skip
def test_ends(traj: list[Any], info: dict[str, Any], end: str) -> None:
    """A run ends by its last message, its count of answers, or its error."""
    assert [end] == [item.end for item in every(of(run(traj, info=info)), RunEnded)]


def test_a_result_without_a_call_is_not_counted_as_one() -> None:
    """Only a result that finds a call answers one; both are told."""
    items = of(run([said("hi"), result(), call(), result()]))
    tally = tally_of(items)
    assert (2, 1, 1) == (tally.tool_messages, tally.tool_calls, tally.tool_results)
    assert 2 == len(every(items, Returned))


def test_display_text() -> None:
    """Few-shot text is messages by lines that begin with a role; calls are known by their results, and said
    to be.
    """
    text = "user: hi\nthere\nassistant: None\ntool: r1\nassistant: done"
    items = of({"messages_display": text})
    assert ["hi\nthere"] == [message.text for message in every(items, RunBegan)[0].messages]
    assert [("", ["unknown"]), ("done", [])] == [
        (item.text, [c.name for c in item.calls]) for item in every(items, Answered)
    ]
    assert ["calls_inferred"] == [item.code for item in every(items, Unread)]
    tally = tally_of(items)
    assert "unknown" == every(items, RunEnded)[0].end
    assert (None, 1, 2) == (tally.tool_calls, tally.tool_results, tally.assistant_messages)


def test_no_two_inferred_calls_are_the_same() -> None:
    """What nobody recorded is no repetition: each call that is known by its result only has its own number as
    argument.
    """
    items = of({"messages_display": "user: hi\n" + "assistant: None\ntool: r\n" * 2 + "tool: r"})
    arguments = [call.arguments for item in every(items, Answered) for call in item.calls]
    assert ['{"not_recorded":1}', '{"not_recorded":2}', '{"not_recorded":3}'] == arguments


@pytest.mark.parametrize(
    ("policy", "judged"),
    [
        pytest.param({"guards": [{"guard": "arguments", "matches": "cancel"}]}, False, id="arguments"),
        pytest.param({"guards": [{"guard": "repetition", "repeats": 2}]}, False, id="what is the same call"),
        pytest.param({"guards": [{"guard": "tool_cap", "tools": ["pay"], "max": 1}]}, False, id="names"),
        pytest.param(
            {"approvals": {"chain": [{"approver": "gate", "sensitive": ["pay"], "then": "terminate"}]}},
            False,
            id="who is asked",
        ),
        pytest.param(
            {
                "approvals": {
                    "chain": [
                        {"approver": "arguments", "matches": "ls", "then": "approve", "else": "terminate"}
                    ]
                }
            },
            False,
            id="what an approver would have let run",
        ),
        pytest.param(
            {
                "approvals": {
                    "chain": [{"approver": "arguments", "matches": ".", "unless": "ls", "then": "terminate"}]
                }
            },
            False,
            id="what an approver would have excused",
        ),
        pytest.param({"guards": [{"guard": "keywords", "words": ["done!"]}]}, True, id="words of the model"),
        pytest.param({"limits": [{"type": "step", "value": 9}]}, True, id="steps"),
    ],
)
def test_what_if_of_an_inferred_call(policy: dict[str, Any], judged: bool) -> None:
    """A rule that asks what was called has nothing to look at: nobody can say that it would have let the call
    run.
    """
    items = of({"messages_display": "user: hi\nassistant: None\ntool: r\nassistant: done"})
    found = shown(Comparison("r1", parse({"preset": "observed", **policy})), events(derived(items)[1]))
    assert (Verdict.AGREE if judged else Verdict.INCONCLUSIVE) is found.verdict
    assert judged is not any("which tool was called" in why for why in found.unknown)


@pytest.mark.parametrize(
    ("chain", "verdict"),
    [
        pytest.param([{"approver": "human"}], Verdict.DIVERGES, id="a person is asked about every call"),
        pytest.param([{"approver": "reject"}], Verdict.DIVERGES, id="every call is rejected"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "*", "decision": "reject"}]}], Verdict.DIVERGES, id="by a rule of all names"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "pay", "decision": "approve"}]}], Verdict.INCONCLUSIVE, id="by a rule of one name"),
        pytest.param([{"approver": "gate", "sensitive": ["*"], "then": "reject"}], Verdict.DIVERGES, id="every tool is sensitive"),
        pytest.param([{"approver": "human", "tools": ["pay"]}, {"approver": "approve"}], Verdict.INCONCLUSIVE, id="about one"),
        pytest.param([{"approver": "arguments", "matches": "x", "then": "reject"}, {"approver": "human"}], Verdict.INCONCLUSIVE, id="after one that searches"),
    ],
)  # fmt: skip
def test_approvals_of_an_inferred_call(chain: list[dict[str, Any]], verdict: Verdict) -> None:
    """Approvals are judged at a call of which nobody knows what it was only if they treat every call
    alike.
    """
    items = of({"messages_display": "user: hi\nassistant: None\ntool: r\nassistant: done"})
    policy = parse({"preset": "observed", "approvals": {"chain": chain}})
    assert verdict is shown(Comparison("r1", policy), events(derived(items)[1])).verdict


def test_keys_are_unique() -> None:
    """The same task twice is two runs with two keys."""
    items = of([run(TRAJ), run(TRAJ)])
    assert 2 == len({item.key for item in every(items, RunBegan)})


def test_plain_lists() -> None:
    """A bare list, an object around it and one a line are runs; an answer without calls is the end."""
    listed = [said("hi"), said("hello", "assistant"), said("more")]
    for data, runs, end in (
        (msgspec.json.encode(listed), 1, "open"),
        (msgspec.json.encode({"messages": listed[:2]}), 1, "finished"),
        (b"\n".join(msgspec.json.encode({"messages": listed}) for _ in range(2)), 2, "open"),
    ):
        source = Source.of("x", data)
        assert OPENAI_MESSAGES.match(source) is not None
        ends = every(list(OPENAI_MESSAGES.items(source)), RunEnded)
        assert [end] * runs == [item.end for item in ends]


def test_nothing_of_a_list_is_lost() -> None:
    """A key that nobody has heard of is in the log: in a message, in its parts and calls, in a tool, around
    them all.
    """
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    shown = {
        "role": "user",
        "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {}}],
    }
    listed = [shown, call(), result(), said("ok", "assistant")]
    for value in (listed, {"model": "m", "tools": [tool], "messages": listed}):
        assert [] == lost(Source.of("x", msgspec.json.encode(value)), "openai_messages")


def test_nobody_marks_what_failed() -> None:
    """Neither lists of messages nor tau-bench mark a result as failed, and nobody counts what failed."""
    lists = list(OPENAI_MESSAGES.items(Source.of("x", msgspec.json.encode([said("hi"), call(), result()]))))
    for items in (of(run(TRAJ)), lists):
        assert [] == [item for item in every(items, Returned) if item.marked]
        assert None is tally_of(items).tool_errors


def test_lists_among_other_things() -> None:
    """Messages are found in an object whatever stands before them, one a line too; other objects are not
    taken.
    """
    listed = [said("hi"), said("hello", "assistant")]
    row = msgspec.json.encode({"params": {"t": 0.5}, "tags": ["a"], "messages": listed})
    for data in (row, b"\n".join([row, row]), msgspec.json.encode([msgspec.Raw(row)])):
        assert OPENAI_MESSAGES.match(Source.of("x", data)) is not None
    other = msgspec.json.encode({"params": {"role": "x"}, "messages": [1]})
    assert OPENAI_MESSAGES.match(Source.of("x", other)) is None


def test_unread_rows_are_kept() -> None:
    """A row that is no message, and keys that mean nothing here, stand beside the conversation."""
    items = of(run([said("hi"), said("a", "assistant"), 17, said("b") | {"flag": "kept"}]))
    assert ["17"] == [item.rest.strip('{}"unread:[]') for item in every(items, Unread)]
    assert "kept" in every(items, Said)[-1].rest


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a":1}', b"\x00\xff"])
def test_nothing_to_read(data: bytes) -> None:
    """A file without a run is refused by name."""
    with pytest.raises(BadTranscript, match="mine"):
        list(TAU_BENCH.items(Source.of("mine", data)))
