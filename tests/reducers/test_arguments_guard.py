"""The rule over arguments, as a guard and as an approver: what it finds, and what becomes of the call."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers import advance, fold, parse
from refold.reducers.approvals import Match
from refold.reducers.effects import RunTool, next_effects
from refold.reducers.errors import PolicyError
from refold.reducers.events import (
    ApprovalAnswer,
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    Edits,
    ModelResponded,
    ToolsDispatched,
)
from refold.reducers.guards import Place
from refold.reducers.guards.approvals import word_of
from refold.reducers.guards.arguments import Arguments
from refold.reducers.guards.protocol import Stop
from refold.reducers.patterns import list_search_texts, occurs
from support.scenario import Scenario
from support.watching import Watching

FORBIDDEN = r"git push|rm -rf"


@pytest.mark.parametrize(
    ("arguments", "field", "texts"),
    [
        pytest.param('{"command": "ls"}', None, ["ls"], id="a text"),
        pytest.param('{"a": {"b": ["x", {"c": "y"}]}}', None, ["b", "x", "c", "y"], id="however deep"),
        pytest.param('{"files": {"/srv/.env": "KEY"}}', None, ["/srv/.env", "KEY"], id="keys, but no parameter's name"),
        pytest.param('{"files": {"/srv/.env": 1}}', "files", ["/srv/.env", "1"], id="keys in a field"),
        pytest.param(r'{"a": "{\"c\": \"\\u0072m\"}"}', None, [r'{"c": "\u0072m"}', "c", "rm"], id="JSON in a text"),
        pytest.param(r'{"a": " [\"git\", \"push\"]"}', None, [' ["git", "push"]', "git", "push", "git push"],
                     id="a list in a text"),
        pytest.param('{"a": "{ls; rm -rf"}', None, ["{ls; rm -rf"], id="a text that only begins as JSON"),
        pytest.param('{"argv": ["git", "push"]}', None, ["git", "push", "git push"], id="the words of a command"),
        pytest.param('{"n": 1.50, "f": true, "z": null}', None, ["1.50", "true"], id="numbers as written, words"),
        pytest.param('{"command": "ls", "why": "rm -rf"}', "command", ["ls"], id="one field"),
        pytest.param('{"params": {"command": "ls"}}', "params.command", ["ls"], id="a field within"),
        pytest.param('{"command": "ls"}', "cmd", [], id="no such field"),
        pytest.param('{"command": "ls"}', "command.name", [], id="no such field within"),
        pytest.param('{"command": "rm", "command": "ls"}', None, ["rm", "ls"], id="a key that stands twice"),
        pytest.param('{"command": "rm", "command": "ls"}', "command", ["rm", "ls"], id="a field that stands twice"),
        pytest.param('{"p": {"c": "rm"}, "p": {"c": "ls", "c": "w"}}', "p.c", ["rm", "ls", "w"], id="twice, within twice"),
        pytest.param('{"p": {"c": "rm"}, "p": 1}', "p.c", ["rm"], id="twice, once without the field"),
        pytest.param(r'{"a": "{\"c\": \"rm\", \"c\": \"ls\"}"}', None, [r'{"c": "rm", "c": "ls"}', "c", "rm", "ls"],
                     id="twice in a text"),
        pytest.param("rm -rf", "command", ["rm -rf"], id="no object: all of it, whatever the field"),
        pytest.param("", None, [], id="nothing"),
    ],
)  # fmt: skip
def test_what_is_searched(arguments: str, field: str | None, texts: list[str]) -> None:
    """The texts of the parsed arguments: never their JSON, in which a quote would hide what it escapes."""
    assert texts == list_search_texts(arguments, field)


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        pytest.param(FORBIDDEN, "cd x && git push", True, id="found"),
        pytest.param(FORBIDDEN, "git pull", False, id="not found"),
        pytest.param(r"\brm\b.*-r", "rm" + " " * 200_000, False, id="not found in a text of any length"),
        pytest.param(r"\brm\b.*-r", "rm" + " " * 200_000 + "-r", True, id="found in one"),
        pytest.param("(", "(", None, id="no pattern, in a forged policy"),
    ],
)
def test_what_is_found(pattern: str, text: str, said: bool | None) -> None:
    """Unknown is a value of its own: what could not be searched is not said to hold nothing."""
    assert said is occurs(pattern, [text])


@pytest.mark.parametrize(
    ("name", "command", "then", "told"),
    [
        pytest.param("act", "git push -f", "refuse", ["refuse:c1:arguments"], id="refused"),
        pytest.param("act", "git push -f", "stop", ["refuse:c1:arguments", "stop:arguments"], id="stopped"),
        pytest.param("act", "git push -f", "ask", ["ask:c1"], id="asked about"),
        pytest.param("act", "git pull", "refuse", [], id="allowed"),
        pytest.param("look", "git push -f", "stop", [], id="of another tool"),
    ],
)
def test_what_it_says(name: str, command: str, then: Any, told: list[str]) -> None:
    """Each verdict, and none about a call that does not hold the pattern, or is of another tool."""
    watching = Watching(Arguments(tool="a*", matches=FORBIDDEN, then=then))
    watching.answer("", (name, json.dumps({"command": command})))
    said = []
    for one in watching.says(Place.ON_APPROVAL):
        calls = getattr(one, "calls", None) or [getattr(one, "call", "")]
        kind = type(one).__name__.lower()
        said.append(
            f"ask:{' '.join(calls)}" if kind == "ask" else ":".join(filter(None, [kind, *calls, one.code]))
        )
    assert told == said


def rule(**keys: Any) -> dict[str, Any]:
    return {"guards": [{"guard": "arguments", "tool": "act", "matches": FORBIDDEN, **keys}]}


def called(policy: dict[str, Any], *commands: str) -> Scenario:
    """A run whose model calls `act` with these commands in one answer."""
    scenario = Scenario(policy)
    scenario.answer("", *[("act", json.dumps({"command": command})) for command in commands])
    return scenario


def running(scenario: Scenario) -> list[str]:
    return [effect.call for effect in next_effects(scenario.state) if isinstance(effect, RunTool)]


def test_a_call_that_is_refused_does_not_run() -> None:
    """The others do, and the model is told."""
    scenario = called(rule(), "ls", "rm -rf /")
    assert ["c1"] == running(scenario)
    (refused,) = scenario.events(CallRefused)
    assert ("c2", "refused:arguments", "arguments") == (refused.call, refused.text, refused.name)


def test_a_call_that_ends_the_run() -> None:
    """Nothing of the batch runs, and the reason names the call and the rule, and holds no text of the
    model's.
    """
    scenario = called(rule(then="stop", unless="--dry-run"), "ls", "rm -rf /")
    outcome = scenario.state.outcome
    assert outcome is not None
    reason = f"blocked: the arguments of call c2 match the rule `{FORBIDDEN}`, unless `--dry-run`"
    assert ("arguments", reason) == (outcome.code, outcome.reason)
    assert not running(scenario)


def test_the_model_is_told_which_rule_it_was() -> None:
    """The result of a refused call names the rule that matched."""
    (refused,) = called(rule(), "rm -rf /").events(CallRefused)
    said = f"skipped: the arguments match the rule `{FORBIDDEN}`, so this call was not run."
    assert (said,) == (refused.content and refused.content.texts)


def test_what_excuses_a_call() -> None:
    """A text that holds the pattern and what the rule excepts runs; another text of the call excuses
    nothing.
    """
    scenario = called(rule(unless="--dry-run"), "git push --dry-run", "git push")
    assert ["c1"] == running(scenario)


def test_a_rule_that_nobody_could_have_written() -> None:
    """Under an unfit pattern, as in an edited log, no call of its tool runs, and the sentence does not speak
    of a match.
    """
    found = list(edited(Arguments(tool="act", matches="(", then="stop")).says(Place.ON_APPROVAL))
    assert ["unsearchable", "unsearchable"] == [each.code for each in found]
    assert ["refused:unsearchable"] * 2 == [getattr(each, "text", "") for each in found]
    reason = "blocked: the arguments of call c1 cannot be searched for the rule `(`"
    assert [reason] == [each.reason for each in found if isinstance(each, Stop)]


def edited(guard: Arguments) -> Watching:
    watching = Watching(guard)
    watching.answer("", ("act", '{"command": "ls"}'))
    return watching


@pytest.mark.parametrize(
    ("then", "otherwise", "said"),
    [
        ("approve", "reject", "reject"),
        ("reject", "approve", "reject"),
        ("approve", "escalate", "escalate"),
        ("escalate", "terminate", "terminate"),
    ],
)
def test_an_approver_that_cannot_search(then: Any, otherwise: Any, said: str) -> None:
    """Where nobody knows whether a call matches, the stricter of the two words counts: a list of what may run
    stays one.
    """
    link = Match(matches="(", then=then, otherwise=otherwise)
    assert said == word_of(link, "bash", '{"command": "ls"}')


@pytest.mark.parametrize(("answer", "runs"), [("approve", ["c1", "c2"]), ("reject", ["c1"])])
def test_a_person_decides(answer: str, runs: list[str]) -> None:
    """Only about the call that holds the pattern; nothing begins before."""
    scenario = called(rule(then="ask"), "ls", "git push")
    (asked,) = scenario.events(ApprovalRequested)
    assert (("c2",), "arguments") == (asked.calls, asked.approver)
    assert not running(scenario)
    scenario.approve(c2=answer)
    assert runs == running(scenario)


def test_who_says_nothing_in_time_rejects() -> None:
    """As with every person who is asked."""
    scenario = called(rule(then="ask", timeout=60), "git push")
    scenario.clock(61)
    assert not running(scenario)
    assert ["c1"] == [event.call for event in scenario.events(CallRefused)]


def test_an_answer_to_one_guard_is_none_to_another() -> None:
    """Who approves what the arguments rule asked has not answered for the approvals."""
    policy = {**rule(then="ask"), "approvals": {"chain": [{"approver": "rules", "rules": [{"tool": "act", "decision": "reject"}]}]}}  # fmt: skip
    scenario = called(policy, "git push")
    scenario.approve(c1="approve")
    assert not running(scenario)
    assert ["approvals"] == [event.name for event in scenario.events(CallRefused)]


def test_what_a_person_puts_in_its_place_is_held_to_the_rule() -> None:
    """An edit cannot bring in what the policy refuses."""
    policy = {**rule(), "approvals": {"chain": [{"approver": "human"}]}}
    scenario = called(policy, "ls", "pwd")
    answers = (ApprovalAnswer(call="c1", decision="edit"), ApprovalAnswer(call="c2", decision="approve"))
    edits = Edits(arguments={"c1": '{"command": "rm -rf /"}'})
    scenario.feed(ApprovalAnswered(at=scenario.at, by="ann", answers=answers, content=edits))
    assert ["c2"] == running(scenario)


def test_as_an_approver() -> None:
    """It says `then` of what it finds, `else` of the rest, and passes on by default."""
    link = Match(matches=FORBIDDEN, unless="--dry-run", field="command", then="reject")
    assert "reject" == word_of(link, "bash", '{"command": "git push"}')
    assert "escalate" == word_of(link, "bash", '{"command": "git push --dry-run"}')
    assert "escalate" == word_of(link, "bash", '{"command": "ls", "why": "git push"}')


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        pytest.param(rule(matches="a(?!b)"), "guards[0].matches", id="a guard"),
        pytest.param(rule(unless="("), "guards[0].unless", id="what excuses a call"),
        pytest.param(rule(unless=""), "guards[0].unless", id="what excuses any call"),
        pytest.param(rule(unless="a*|b"), "guards[0].unless", id="what excuses any call, by an alternative"),
        pytest.param(
            {"approvals": {"chain": [{"approver": "arguments", "matches": "(", "then": "reject"}]}},
            "approvals.chain[0].matches",
            id="an approver",
        ),
    ],
)
def test_a_pattern_that_cannot_be_searched_for_is_refused(policy: dict[str, Any], path: str) -> None:
    """By the policy, before any run."""
    with pytest.raises(PolicyError) as raised:
        parse(policy)
    assert path == raised.value.path


def test_without_what_was_said_nothing_runs() -> None:
    """A rule that cannot read the arguments does not let a call by: what it would have said is not known."""
    scenario = called(rule(), "ls")
    answered = next(event for event in scenario.log if isinstance(event, ModelResponded))
    before = fold(scenario.log[: scenario.log.index(answered)])
    state, events = advance(before, replace(answered, content=None))
    assert ("ERROR", "guard_failed") == (str(state.agent_state), state.outcome and state.outcome.code)
    assert not next_effects(state)
    assert not [event for event in events if isinstance(event, ToolsDispatched)]
