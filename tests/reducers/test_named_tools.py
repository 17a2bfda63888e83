"""Rules that can never fit: names that no tool has, and names of tools that a run does not have."""

from typing import Any, ClassVar

import pytest

from refold.reducers import parse
from refold.reducers.complaints import opening, warnings
from refold.reducers.events import Manifest, RunStarted
from refold.reducers.guards import BUILTIN, Place, Reading, Registry
from refold.reducers.guards.protocol import Config
from refold.reducers.named_tools import find_unmatched_names


def chain(approver: str, **keys: Any) -> dict[str, Any]:
    return {"approvals": {"chain": [{"approver": approver, **keys}]}}


def gate(*marks: str) -> dict[str, Any]:
    return chain("gate", sensitive=list(marks), then="reject")


def guard(kind: str, **keys: Any) -> dict[str, Any]:
    return {"guards": [{"guard": kind, **keys}]}


@pytest.mark.parametrize(
    ("policy", "path", "said"),
    [
        pytest.param(gate("Bash:git reset --hard"), "sensitive[0]", "entire command", id="part of a command"),
        pytest.param(gate("Bash(git push:*)"), "sensitive[0]", "never matches", id="as another system writes it"),
        pytest.param(chain("reject", tools=["Bash(rm:*)"]), "tools[0]", "never matches", id="a glob with arguments"),
        pytest.param(guard("arguments", tool="Write|Edit", matches="x"), "tool", "| is not an alternative here", id="alternatives"),
        pytest.param(
            chain("rules", rules=[{"tool": "git push", "decision": "reject"}]), "rules[0].tool", "never matches", id="a command"
        ),
        pytest.param(guard("stop_on_tool", tools=["sub*"]), "tools[0]", "not a pattern", id="a glob where a name stands"),
        pytest.param(guard("arguments", tool="rm -rf", matches="x"), "tool", "never matches", id="a command as a tool"),
    ],
)  # fmt: skip
def test_what_can_never_fit_is_warned_of(policy: dict[str, Any], path: str, said: str) -> None:
    """By the place, and with what would do."""
    (found,) = warnings(parse(policy))
    assert found.path.endswith(path)
    assert said in found.problem


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(gate("web_*", "files:write"), id="globs, and one word for a command"),
        pytest.param(chain("reject", tools=["mcp__*__write", "b?sh"]), id="globs"),
        pytest.param({"approvals": {"preset": "dev_any"}}, id="what is sensitive by default"),
        pytest.param(guard("tool_cap", tools=["mcp.server/tool-1"], max=1), id="a name"),
    ],
)
def test_what_may_fit_is_not(policy: dict[str, Any]) -> None:
    """Names with dots, dashes and slashes are names."""
    assert () == warnings(parse(policy))


@pytest.mark.parametrize(
    ("rest", "decides"),
    [
        pytest.param([{"approver": "approve"}], "approvals.chain[1] (approve)", id="a link for all"),
        pytest.param([{"approver": "approve", "tools": ["b*"]}, {"approver": "human"}], "approvals.chain[2] (human)", id="a later one"),
        pytest.param([{"approver": "rules", "rules": []}, {"approver": "reject"}], "approvals.chain[2] (reject)", id="one that leaves it"),
        pytest.param([], "rejected: no link of the chain applies to them", id="none"),
    ],
)  # fmt: skip
def test_who_decides_about_the_tool_that_was_meant(rest: list[dict[str, Any]], decides: str) -> None:
    """A slip in a name takes a rule away: who is told of it is told what then counts."""
    links = [{"approver": "human", "tools": ["sumbit"]}, *rest]
    tools = (Manifest(name="bash"), Manifest(name="submit"))
    policy = parse({"approvals": {"chain": links}})
    fact = RunStarted(format=1, at=0, run="r", rules=1, policy=policy, model="m", tools=tools)
    said = opening(fact)[0].problem
    assert "did you mean 'submit'? Calls of 'submit' are " in said
    assert said.endswith(decides)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        pytest.param(guard("stop_on_tool", tools=["sumbit"]), "did you mean 'submit'?", id="a slip"),
        pytest.param(chain("reject", tools=["Bash"]), '"Bash" matches no tool', id="another case"),
        pytest.param(gate("zsh:rm"), '"zsh:rm" matches no tool', id="a command of no tool"),
        pytest.param(chain("reject", tools=["b*"]), "", id="a glob that fits"),
        pytest.param(gate("bash:rm"), "", id="a command of a tool"),
        pytest.param(gate("ba"), "matches no tool", id="a beginning"),
        pytest.param(gate("BA*"), "", id="a glob in another case"),
        pytest.param({"approvals": {"preset": "prod_any"}}, "", id="a list for any harness"),
    ],
)
def test_a_run_without_such_a_tool(policy: dict[str, Any], problem: str) -> None:
    """Known when a run starts, by its tools; of one without tools there is nothing to say."""
    tools = (Manifest(name="bash"), Manifest(name="submit"))
    fact = RunStarted(format=1, at=0, run="r", rules=1, policy=parse(policy), model="m", tools=tools)
    said = [found.problem for found in opening(fact)]
    assert [True] * bool(problem) == [problem in each for each in said]
    bare = RunStarted(format=1, at=0, run="r", rules=1, policy=parse(policy), model="m")
    assert () == opening(bare)


SHELL = Manifest(
    name="bash",
    schema='{"type": "object", "properties": {"command": {"type": "string"}, "params": {"type": "object", "properties": '
    '{"path": {"type": "array"}}}}}',
)
OPEN = Manifest(
    name="open", schema='{"type": "object", "properties": {"a": {}}, "additionalProperties": true}'
)


@pytest.mark.parametrize(
    ("rule", "field", "problem"),
    [
        pytest.param({"tool": "b*"}, "comand", "did you mean 'command'?", id="a slip"),
        pytest.param({"tool": "b*"}, "params.cmd", "is not a field of any tool", id="a slip deeper down"),
        pytest.param({"tool": "b*"}, "command.word", "is not a field of any tool", id="in what is no object"),
        pytest.param({"tool": "b*"}, "params.path.at", "is not a field of any tool", id="in a list, where it is not looked for"),
        pytest.param({"tool": "b*"}, "command", "", id="a field"),
        pytest.param({"tool": "b*"}, "params.path", "", id="a field deeper down"),
        pytest.param({"tool": "*"}, "comand", "", id="a tool may have any"),
        pytest.param({"tool": "plain"}, "comand", "", id="nobody said which it has"),
    ],
)  # fmt: skip
def test_a_field_that_no_tool_has(rule: dict[str, Any], field: str, problem: str) -> None:
    """It would agree with every call: known by the schemas of the tools, where they say which fields there
    are.
    """
    tools = (SHELL, OPEN, Manifest(name="plain"))
    as_guard = guard("arguments", **rule, field=field, matches="rm")
    as_approver = chain("arguments", tools=[rule["tool"]], field=field, matches="rm", then="reject")
    for policy, path in ((as_guard, "guards[0].field"), (as_approver, "approvals.chain[0].field")):
        fact = RunStarted(format=1, at=0, run="r", rules=1, policy=parse(policy), model="m", tools=tools)
        found = opening(fact)
        assert [path] * bool(problem) == [each.path for each in found]
        assert [True] * bool(problem) == [problem in each.problem for each in found]


@pytest.mark.parametrize(
    "schema", ["", "no JSON", '{"type":"object","properties":{"a":{}},"additionalProperties":{}}']
)
def test_a_schema_that_lists_no_fields_for_good(schema: str) -> None:
    """Whatever an imported run says of its tools can be judged: what is not known is no fault."""
    assert _said_of(schema) == []


@pytest.mark.parametrize("schema", ['{"type":"array"}', '{"type":"null","properties":5}'])
def test_a_schema_of_no_object(schema: str) -> None:
    """It has no field at all."""
    assert _said_of(schema) == ["guards[0].field"]


def _said_of(schema: str) -> list[str]:
    policy = parse(guard("arguments", field="cmd", matches="rm"))
    return [each.path for each in find_unmatched_names(policy, [Manifest(name="t", schema=schema)])]


class Quota(Config, frozen=True, kw_only=True, tag="quota"):
    """A guard of somebody else that names its tools."""

    tool: str
    kind: ClassVar[str] = "quota"
    places: ClassVar[frozenset[Place]] = frozenset()
    reading: ClassVar[Reading] = Reading(tools={"tool": "name"})


@pytest.mark.parametrize(
    ("registry", "paths"),
    [
        pytest.param({**BUILTIN, "quota": Quota}, ["guards[0].tool"], id="its class declares the key"),
        pytest.param(BUILTIN, [], id="it is not installed"),
    ],
)
def test_names_of_tools_in_other_guards(registry: Registry, paths: list[str]) -> None:
    """The name of a tool in a guard of another package is looked up if the guard declares that it names
    one.
    """
    policy = parse(guard("quota", tool="sh"), {**BUILTIN, "quota": Quota})
    found = find_unmatched_names(policy, [Manifest(name="bash")], registry=registry)
    assert paths == [each.path for each in found]
