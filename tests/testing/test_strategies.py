"""The strategies give what they promise: valid policies, events and logs, and scripts that can be played."""

from collections import Counter
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

from refold.engine import Agent, ModelError, Reply, ScriptedModel, tool
from refold.reducers.codec import decode, encode
from refold.reducers.errors import WrongUse
from refold.reducers.events import KINDS, Event, ModelResponded, RunStarted, kind_of
from refold.reducers.folds import fold
from refold.reducers.messages import ReplyCall
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.testing import events, logs, policies, scripts
from support import audits


@tool
def pay(cents: int, note: str = "") -> str:
    """Pay the shop."""
    return f"paid {cents}"


@given(policy=policies())
def test_policies_are_valid(policy: dict[str, Any]) -> None:
    """Every policy can be parsed."""
    assert isinstance(parse(policy), Policy)


@given(event=events())
def test_events_of_any_kind_survive_encoding(event: Event) -> None:
    """Every event comes back from its bytes."""
    stored = encode(event)
    assert event == decode(stored.kind, stored.body, stored.content)


def test_events_have_every_kind() -> None:
    """Without a kind, events of every kind are drawn: which ones first depends on Hypothesis."""
    drawn = Counter[str]()

    @settings(max_examples=1000, database=None, derandomize=False, phases=[Phase.generate])
    @given(event=events())
    def draw(event: Event) -> None:
        drawn[kind_of(event)] += 1

    for number in range(20):
        if set(KINDS) != set(drawn):
            seed(number)(draw)()
    assert set(KINDS) == set(drawn)


def test_an_unknown_kind() -> None:
    """A kind that does not exist is refused at once."""
    with pytest.raises(WrongUse, match="events: unknown kind 'tool_call'; expected one of"):
        events("tool_call")


@given(log=logs())
def test_logs_audit_clean(log: list[Event]) -> None:
    """Every log begins with its start, and every decision follows from its facts."""
    assert isinstance(log[0], RunStarted)
    assert fold(log).seq == len(log)
    assert audits.audited(log).clean


@given(log=logs({"limits": [{"type": "step", "value": 1}]}, tools=[pay]))
def test_logs_of_one_policy_and_own_tools(log: list[Event]) -> None:
    """All logs have the given policy, and call the given tools and one that is unknown."""
    assert 1 == fold(log).policy.limits[0].value
    names = {call.name for event in log if isinstance(event, ModelResponded) for call in event.calls}
    assert names <= {"pay", "missing"}


def test_own_tools_get_valid_arguments() -> None:
    """Most calls of a tool with a schema have arguments that fit it."""
    find(
        logs({}, tools=[pay]),
        lambda log: any(_pays(event) for event in log),
        settings=settings(database=None),
    )


def _pays(event: Event) -> bool:
    return (
        isinstance(event, ModelResponded)
        and event.content is not None
        and any('"cents":' in each for each in event.content.arguments)
    )


@pytest.mark.parametrize("strategy", [logs, scripts])
def test_what_is_no_tool(strategy: Any) -> None:
    """Anything but tools is refused by its place."""
    with pytest.raises(WrongUse, match=r"tools\[1\]: expected a tool, as made by @tool, got 3"):
        strategy(tools=[pay, 3])


@given(script=scripts([pay], failures=False))
def test_scripts_can_be_played(script: list[Any]) -> None:
    """A run with the script as its model ends, and uses the lines in order."""
    model = ScriptedModel(script)
    result = anyio.run(lambda: Agent(model, tools=[pay]).run("Go."))
    assert result.state in {"COMPLETED", "FAILED"}
    assert len(model.requests) <= len(script)


@settings(suppress_health_check=[HealthCheck.large_base_example])
@given(script=scripts([pay], max_size=3))
def test_scripts_end_with_a_text(script: list[Any]) -> None:
    """The last line is a text without calls, and no script is too long."""
    assert 1 <= len(script) <= 3
    assert script[-1].text
    assert not script[-1].calls


_PLENTY = settings(database=None, max_examples=1000, derandomize=True)


def _made(line: Reply | ModelError) -> tuple[ReplyCall, ...]:
    return () if isinstance(line, ModelError) else line.calls


def _fails(line: Reply | ModelError) -> bool:
    return isinstance(line, ModelError)


def _calls_well(line: Reply | ModelError) -> bool:
    return any('"cents"' in call.arguments for call in _made(line))


def _calls_an_unknown_tool(line: Reply | ModelError) -> bool:
    return any(call.name == "unheard_of" for call in _made(line))


def _has_broken_arguments(line: Reply | ModelError) -> bool:
    return any(call.arguments == "{" for call in _made(line))


@pytest.mark.parametrize("wanted", [_fails, _calls_well, _calls_an_unknown_tool, _has_broken_arguments])
def test_scripts_have_every_behaviour(wanted: Any) -> None:
    """Failures, valid calls, unknown tools and broken arguments are all drawn."""
    find(scripts([pay]), lambda script: any(map(wanted, script)), settings=_PLENTY)


def test_scripts_without_tools_or_failures() -> None:
    """A script of nothing but its end is possible; less than a line is not."""
    assert 1 == len(find(scripts([], failures=False), lambda _: True))
    with pytest.raises(WrongUse, match="max_size: expected 1 or more lines, got 0"):
        scripts([pay], max_size=0)


def test_strategies_are_made_by_hypothesis() -> None:
    """All four are ordinary strategies, which can be combined."""
    assert all(isinstance(each, st.SearchStrategy) for each in (policies(), events(), logs(), scripts([pay])))
