"""What a newcomer gets wrong in their first lines is told at once: the argument, the value, and the way
out.
"""

import functools
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, ConfigDict

from refold.engine import Agent, Model, ScriptedModel, calls, say, tool
from refold.reducers.errors import PolicyError, WrongUse


def look(path: str) -> str:
    """Look at a file."""
    return path


async def steps(path: str) -> AsyncGenerator[str]:
    """Do it step by step."""
    yield path


class Desk:
    """No tool, but one may use it."""

    def look(self, path: str) -> str:
        """Look at a file."""
        return path


class Loose(BaseModel):
    """A model of what nobody can write."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    desk: Desk


def returning(kind: object) -> Callable[[], object]:
    """A function annotated so."""

    def made() -> object:
        return None

    made.__annotations__["return"] = kind
    return made


def taking(kind: object) -> Callable[[object], str]:
    """A function with an argument annotated so."""

    def made(it: object) -> str:
        return str(it)

    made.__annotations__["it"] = kind
    return made


def agent(**given: Any) -> Agent:
    return Agent(ScriptedModel([say("done")]), **given)


def of(model: object) -> Agent:
    return Agent(cast("Model", model))


def scripted(script: Any) -> ScriptedModel:
    return ScriptedModel(script)


any_tool: Callable[..., Any] = tool
any_calls: Callable[..., Any] = calls
any_say: Callable[..., Any] = say


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        pytest.param(lambda: of(None), "model: expected a model, or a name such as 'openai:gpt-5-mini', got None", id="no model"),
        pytest.param(lambda: of(3), "model: .* got 3", id="a number as a model"),
        pytest.param(lambda: of(look), "model: .* got the function look", id="a function as a model"),
        pytest.param(lambda: of([say("hi")]), r"model: .*; write a script as ScriptedModel\(\[\.\.\.\]\)", id="a script as a model"),
        pytest.param(lambda: of(ScriptedModel), r"got the class ScriptedModel; create an instance", id="a class as a model"),
        pytest.param(lambda: of("Say hello."), "model 'Say hello.': expected provider:model", id="the task as a model"),
        pytest.param(lambda: scripted(["hello"]), r"script\[0\]: expected a response, .* got 'hello'; write say\('hello'\)", id="a text in a script"),
        pytest.param(lambda: scripted("hello"), "script: expected a list", id="a text as a script"),
        pytest.param(lambda: scripted(say("hello")), "script: .* got a Reply", id="one answer as a script"),
        pytest.param(lambda: scripted(None), "script: .* got None", id="no script"),
        pytest.param(lambda: any_say(3), "say: expected text, got 3", id="an answer of a number"),
        pytest.param(lambda: any_calls("look"), r"calls\[0\]: expected a tool's name and its arguments", id="a call without arguments"),
        pytest.param(lambda: any_calls(("look", {"path": {1}})), r"calls\[0\]: expected arguments of look that can be serialized", id="arguments that are no JSON"),
        pytest.param(lambda: agent().run_sync(cast("str", 3)), "task: expected text, got 3", id="a number as a task"),
        pytest.param(lambda: agent().start(cast("str", None)), "task: expected text, got None", id="no task"),
        pytest.param(lambda: agent().start("x", messages=cast("Any", "y")), "messages: expected a list", id="a text as messages"),
        pytest.param(lambda: agent().start("x", messages=cast("Any", [{"role": "user"}])), r"messages\[0\]: expected a message", id="a dict as a message"),
        pytest.param(lambda: agent().start("x", labels=cast("Any", ["a"])), "labels: expected a mapping", id="a list of labels"),
        pytest.param(lambda: agent().start("x", seed=cast("int", "1")), "seed: expected a whole number, .* got '1'", id="a text as a seed"),
        pytest.param(lambda: agent().start("x", run_id=cast("str", 3)), "run_id: expected text, got 3", id="a number as an id"),
        pytest.param(lambda: agent(tools=look), r"tools: expected a list, as in tools=\[search, book\], got the function look", id="a function as tools"),
        pytest.param(lambda: agent(tools=tool(look)), "tools: expected a list", id="a tool as tools"),
        pytest.param(lambda: agent(tools=None), "tools: expected a list", id="None as tools"),
        pytest.param(lambda: agent(tools={"look": look}), "tools: expected a list", id="a dict of tools"),
        pytest.param(lambda: agent(tools=[3]), r"tools\[0\]: expected a tool or a function, got 3", id="a number as a tool"),
        pytest.param(lambda: agent(tools=[look("a")]), r"tools\[0\]: .*; pass the function itself", id="what a function returned"),
        pytest.param(lambda: agent(tools=[agent(name="a")]), r"tools\[0\]: .* got an Agent; .* handoffs=", id="an agent as a tool"),
        pytest.param(lambda: agent(tools=[lambda: 1]), "a lambda has no name: write a function with def", id="a lambda"),
        pytest.param(lambda: agent(tools=[functools.partial(look, "a")]), "got a partial; write a function", id="a partial"),
        pytest.param(lambda: tool(Desk), r"got the class Desk; .* tool\(Desk\(\.\.\.\)\.method\)", id="a class"),
        pytest.param(lambda: tool(Desk.look), r"for a method, decorate the bound one", id="a method of no object"),
        pytest.param(lambda: tool(steps), "is a generator, .*: collect the values", id="an async generator"),
        pytest.param(lambda: any_tool("look"), r"got 'look'; for a name, use @tool\(name='look'\)", id="a name as a function"),
        pytest.param(lambda: any_tool(tool(look)), "it is a tool already", id="a tool of a tool"),
        pytest.param(lambda: any_tool(name=3)(look), "tool 3: a name has 1 to 64 letters", id="a number as a name"),
        pytest.param(lambda: any_tool(timeout="5")(look), "timeout: expected seconds above 0, or None for the run's own, got '5'", id="a text as a time"),
        pytest.param(lambda: any_tool(retries=3), "unknown option 'retries'; known are name", id="an option that there is not"),
        pytest.param(lambda: any_tool(redact=3)(look), "redact: expected a function, got 3", id="no function to redact"),
        pytest.param(lambda: any_tool(reconcile=3)(look), "reconcile: expected a function, got 3", id="no function to reconcile"),
        pytest.param(lambda: tool(returning(dict[tuple[int, int], int])), r"returns dict\[tuple\[int, int\], int\], .*; return a list of pairs", id="keys that are tuples"),
        pytest.param(lambda: tool(returning(list[dict[None, int]])), "return a list of pairs", id="keys that are nothing"),
        pytest.param(lambda: tool(returning(set[int | str])), r"returns set\[int \| str\], .*; return a list", id="a set without an order"),
        pytest.param(lambda: tool(returning(Loose)), "returns Loose, .*the model Loose has no JSON Schema", id="a model that cannot be written"),
        pytest.param(lambda: tool(taking(Loose)), "parameter it: .*the model Loose has no JSON Schema", id="a model that cannot be read"),
        pytest.param(lambda: tool(taking(dict[tuple[int, int], int])), "parameter it: .*; use a list of pairs", id="an argument with keys that are tuples"),
        pytest.param(lambda: tool(taking(Desk)), "parameter it: .* Desk is not a JSON type; use text", id="an argument of a class"),
        pytest.param(
            lambda: agent(policy="gaurdrails"), "gaurdrails: no file or preset .*'guardrails'", id="a preset misspelt"
        ),
        pytest.param(
            lambda: agent(policy="mine"), "mine: expected a file ending in .*, or a preset: ", id="no preset and no file"
        ),
        pytest.param(lambda: agent(policy=[]), r"a policy is a mapping, got \[\]", id="a list as a policy"),
        pytest.param(lambda: agent(policy=Path("a.yaml")), "a.yaml: cannot be read", id="a file that is not there"),
        pytest.param(lambda: agent(policy={"limits": [{"type": "cost", "value": "5"}]}), r"limits\[0\].value: expected a number or null, got \"5\"", id="a text as a budget"),
        pytest.param(lambda: agent(system=3), "system: expected text, got 3", id="a number as a system prompt"),
        pytest.param(lambda: agent(store=3), "store: expected the path of a file, or a store, got 3", id="a number as a store"),
        pytest.param(lambda: agent(settings=["a"]), "settings: expected a mapping", id="a list of settings"),
        pytest.param(lambda: agent(guards=["a"]), "guards: expected a mapping", id="a list of guards"),
        pytest.param(lambda: agent(handoffs=agent(name="a")), "handoffs: expected a list", id="one agent as handoffs"),
        pytest.param(lambda: agent(handoffs=["a"]), r"handoffs\[0\]: expected an agent, got 'a'", id="the name of an agent"),
        pytest.param(lambda: agent(models=["a:b"]), "models: expected a mapping", id="a list of models"),
        pytest.param(lambda: agent(models={"a:b": 3}), r"models\['a:b'\]: expected a model", id="a number among models"),
        pytest.param(lambda: agent(lease="5"), "lease: expected seconds above 0, got '5'", id="a text as a lease"),
        pytest.param(lambda: agent(clock=1), "clock: expected a function, got 1", id="no clock"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:tools without @tool")
def test_a_mistake_is_told_where_it_is_made(mistake: Callable[[], object], said: str) -> None:
    """By an error of ours, before anything is started."""
    with pytest.raises((WrongUse, PolicyError), match=said):
        mistake()


@pytest.mark.parametrize(
    "kind", [dict[int, str], dict[int | str, int], set[int | float], set[str], frozenset[tuple[int, str]]]
)
def test_what_can_be_put_in_order_may_be_returned(kind: object) -> None:
    """Keys that are numbers, and sets of one kind."""
    assert "made" == tool(returning(kind)).name


def test_a_long_value_is_cut() -> None:
    """A mistake of a megabyte does not fill the screen."""
    with pytest.raises(WrongUse, match="…"):
        agent(settings="x" * 10_000)
    with pytest.raises(WrongUse) as error:
        agent(settings="x" * 10_000)
    assert 200 > len(str(error.value))


def test_a_function_in_a_script_that_says_text() -> None:
    """What is known only when it is asked is told by the name of the function."""

    def answer(_: object) -> Any:
        return "hello"

    with pytest.raises(
        WrongUse, match=r"the function answer of the script: expected a response, .* write say\('hello'\)"
    ):
        Agent(ScriptedModel([answer])).run_sync("x")
