"""Rules of the other policy that can say nothing of a record: what it asks after is in no tool, and in no
call.
"""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.events import Event, Manifest, ModelResponded, RunStarted
from refold.reducers.parser import parse
from refold.reducers.vocabulary import Unknown
from refold.replay.whatif.comparison import Comparison
from support.following import shown
from support.scenario import Scenario

SCHEMA = '{"type": "object", "properties": {"command": {}, "timeout": {}}}'


def imported(*calls: tuple[str, str], tools: tuple[Manifest, ...] = ()) -> list[Event]:
    """A run of a source that lists these tools, one call an answer."""
    run = Scenario({}, tools=tools)
    for number, call in enumerate(calls, 1):
        run.answer("", call)
        run.result(f"c{number}", "seen")
    run.answer("done")
    log = run.log
    return [
        replace(event, unknown=(Unknown.TOOLS,)) if isinstance(event, RunStarted) else event for event in log
    ]


def unfit(log: list[Event], other: dict[str, Any]) -> list[str]:
    """What is said of the other policy's rules."""
    comparison = Comparison("r1", parse(other))
    return [str(complaint) for complaint in shown(comparison, log).unfit]


@pytest.mark.parametrize(
    ("calls", "field", "said"),
    [
        pytest.param(['{"command": "ls"}'], "comand", "did you mean 'command'?", id="a slip"),
        pytest.param(["{}"], "command", '"command" is not a field of any call', id="a call of nothing"),
        pytest.param(['{"command": "ls"}'], "command", "", id="a field"),
        pytest.param(['{"command": null}'], "command", "", id="a field of nothing"),
        pytest.param(["{}", '{"command": "ls"}'], "command", "", id="of one call"),
        pytest.param(['{"p": {"path": "a"}}'], "p.path", "", id="a field deeper down"),
        pytest.param(['{"p": {"path": "a"}}'], "p.cmd", "is not a field of any call", id="a slip deeper down"),
        pytest.param(['{"p": "a"}', '{"p": {"path": "a"}}'], "p.path", "", id="in one call a text, in one an object"),
        pytest.param(['{"p": ["path"]}'], "p.path", "is not a field of any call", id="in a list, where it is not looked for"),
        pytest.param(["{}", "broken"], "command", "", id="of no object all is looked into"),
        pytest.param([], "command", "", id="it was never called"),
    ],
)  # fmt: skip
def test_a_field_that_no_call_has(calls: list[str], field: str, said: str) -> None:
    """Of a tool without a schema the calls say which fields there are: a rule that looks into none of them is
    told.
    """
    log = imported(
        *(("sh", arguments) for arguments in calls), ("other", '{"command": 1}'), tools=(Manifest(name="sh"),)
    )
    rule = {"matches": "rm", "field": field}
    guard = {"guards": [{"guard": "arguments", "tool": "s*", **rule}]}
    link = {"approver": "arguments", "tools": ["sh"], "then": "reject", "else": "approve", **rule}
    for other in (guard, {"approvals": {"chain": [link, {"approver": "approve"}]}}):
        found = unfit(log, other)
        assert [True] * bool(said) == [said in each for each in found]


@pytest.mark.parametrize(
    ("schema", "field", "said"),
    [
        pytest.param(SCHEMA, "timeout", "", id="a field that no call needed"),
        pytest.param(SCHEMA, "path", "is not a field of any tool that this rule applies to; known are command, timeout", id="of no tool"),
        pytest.param('{"type": "object"}', "path", "is not a field of any call that this rule applies to; known are command", id="a schema without fields"),
    ],
)  # fmt: skip
def test_a_schema_goes_before_calls(schema: str, field: str, said: str) -> None:
    """What a schema lists is so, whether or not it was used; what it leaves open the calls say."""
    log = imported(("sh", '{"command": "ls"}'), tools=(Manifest(name="sh", schema=schema),))
    found = unfit(log, {"guards": [{"guard": "arguments", "matches": "rm", "field": field}]})
    assert [True] * bool(said) == [said in each for each in found]


def test_erased_calls_may_have_had_any_field() -> None:
    """What was in them nobody knows."""
    log = [
        replace(event, content=None) if isinstance(event, ModelResponded) else event
        for event in imported(("sh", '{"command": "ls"}'))
    ]
    assert [] == unfit(log, {"guards": [{"guard": "arguments", "matches": "rm", "field": "path"}]})


def test_more_fields_than_are_remembered() -> None:
    """A map of names has a field by chance: nothing is said of it."""
    names = ", ".join(f'"k{number}": 1' for number in range(10_001))
    rule = {"guard": "arguments", "matches": "rm", "field": "path"}
    assert [] == unfit(imported(("sh", f"{{{names}}}"), ("sh", "{}")), {"guards": [rule]})


def test_a_tool_that_is_called_after_the_two_parted() -> None:
    """It is a tool of the run all the same."""
    log = imported(("look", "{}"), ("act", "{}"))
    rule = {"guard": "tool_cap", "tools": ["act"], "max": 9}
    limit = {"type": "step", "value": 1}
    assert [] == unfit(log, {"limits": [limit], "guards": [rule]})


@pytest.mark.parametrize(
    ("count", "said"),
    [
        pytest.param(10_000, ['"comand" is not a field of any call'], id="as many as are remembered"),
        pytest.param(10_001, [], id="one more: a tool may have any field"),
    ],
)
def test_a_tool_with_very_many_fields(count: int, said: list[str]) -> None:
    """A rule over a field that no call has is reported up to 10,000 fields of a run, and not of a run with
    more.
    """
    fields = json.dumps({f"n{number:05}": 1 for number in range(count)})
    rule = {
        "guards": [{"guard": "arguments", "tool": "t", "matches": "x", "field": "comand", "then": "stop"}]
    }
    found = unfit(imported(("t", fields)), rule)
    assert len(said) == len(found)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))
