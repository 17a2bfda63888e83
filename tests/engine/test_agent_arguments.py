"""What an agent is given by name: a policy by its file, a model by its address, and arguments that it does
not take.
"""

from pathlib import Path
from typing import Any, cast

import pytest

from refold.engine import Agent, ScriptedModel, say
from refold.engine.compatibility import INSTEAD
from refold.engine.models.vendors import SETTINGS
from refold.engine.policy_files import PolicyFileError, load_policy
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import RunStarted
from refold.reducers.guards import BUILTIN
from refold.reducers.limits import StepLimit, TimeLimit
from refold.reducers.parser import parse
from refold.store import MemoryStore
from support.driving import events_of

pytestmark = pytest.mark.anyio

FILES = {
    "policy.yaml": "schema: refold/v1\nlimits:\n- {type: step, value: 3}\n- {type: time, value: null}\n",
    "policy.toml": (
        'schema = "refold/v1"\nnull = ["limits[1].value"]\n'
        'limits = [{type = "step", value = 3}, {type = "time"}]\n'
    ),
    "policy.json": '{"schema": "refold/v1", "limits": [{"type": "step", "value": 3}, {"type": "time", "value": null}]}',
}


def agent(**given: Any) -> Agent:
    """An agent, as a newcomer makes one: without a look at the types."""
    made: Agent = cast("Any", Agent)(**{"model": ScriptedModel([say("Done.")]), **given})
    return made


@pytest.fixture
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "REFOLD_MAX_STEPS",
        "REFOLD_TOKEN_BUDGET",
        "REFOLD_BASE_URL",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_policy_by_its_file_is_that_of_the_command_line(name: str, kind: type[Any], tmp_path: Path) -> None:
    """YAML, TOML with its nulls, and JSON are read by the loader of `--policy`, whether named by text or by
    path.
    """
    file = tmp_path / name
    file.write_text(FILES[name])
    policy = agent(policy=kind(file)).policy
    assert load_policy(file, BUILTIN, {})[0] == policy
    assert [(StepLimit, 3), (TimeLimit, None)] == [(type(each), each.value) for each in policy.limits]


@pytest.mark.usefixtures("_plain")
async def test_the_environment_fills_up_a_policy_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable counts for what the file does not say, not for what it says, and the run records which one
    did.
    """
    (tmp_path / "p.yaml").write_text(FILES["policy.yaml"])
    monkeypatch.setenv("REFOLD_MAX_STEPS", "99")
    monkeypatch.setenv("REFOLD_TOKEN_BUDGET", "5000")
    store = MemoryStore()
    made = agent(policy=tmp_path / "p.yaml", store=store)
    await made.run("Go.", run_id="r")
    assert [("step", 3), ("time", None), ("token", 5000)] == [
        (each.name, each.value) for each in made.policy.limits
    ]
    (started, *_) = await events_of(store, "r")
    assert isinstance(started, RunStarted)
    assert ("limits.token: REFOLD_TOKEN_BUDGET",) == started.environment


@pytest.mark.usefixtures("_plain")
def test_plain_data_is_not_filled_up_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that was written in Python is what it says, whatever the environment says."""
    monkeypatch.setenv("REFOLD_MAX_STEPS", "99")
    assert parse({}) == agent(policy={}).policy


@pytest.mark.usefixtures("_plain")
def test_a_preset_by_its_name() -> None:
    """The name of a preset means the preset, as on the command line."""
    assert agent(policy={"preset": "guardrails"}).policy == agent(policy="guardrails").policy


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        pytest.param("none.yaml", None, "none.yaml: cannot be read: ", id="not there"),
        pytest.param(
            "p.yaml", "limits: []\n", "schema: missing; add the line schema: refold/v1", id="no schema"
        ),
        pytest.param("p.txt", "", "expected a file ending in .toml", id="another suffix"),
        pytest.param("p.toml", "schema = ", "is not valid TOML: ", id="no TOML"),
    ],
)
def test_a_policy_file_that_cannot_work(name: str, text: str | None, says: str, tmp_path: Path) -> None:
    """The error names the file, what is wrong, and what to do."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(PolicyFileError, match=name) as caught:
        agent(policy=tmp_path / name)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["a\0.yaml", "\ud800.yaml"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_policy_file_that_no_system_can_name(name: str, kind: type[Any]) -> None:
    """A path with a NUL or a lone surrogate is refused as a file, and is displayed escaped."""
    with pytest.raises(PolicyFileError, match="the file name is not valid; use another") as caught:
        agent(policy=kind(name))
    assert ascii(name) in str(caught.value)


def test_a_policy_that_is_none() -> None:
    """What is neither a policy, data, nor a name is refused with the argument's name."""
    with pytest.raises(PolicyError, match="a policy is a mapping, got 3"):
        agent(policy=3)


@pytest.mark.parametrize("name", sorted(INSTEAD.keys() | SETTINGS))
def test_an_argument_of_other_libraries_is_refused_with_what_to_write(name: str) -> None:
    """Each argument of another library's agent is named, and so is what stands in its place here."""
    with pytest.raises(WrongUse, match=f"^Agent: unknown argument '{name}'") as caught:
        agent(**{name: 0})
    assert INSTEAD.get(name, f"settings={{'{name}': 0}}") in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"temperature": 0.2}, "(did you mean settings={'temperature': 0.2}?)", id="a setting"),
        pytest.param({"polcy": {}}, "(did you mean 'policy'?)", id="a slip"),
        pytest.param({"xyzzy": 1}, "; known are model, tools, policy, system, store, ", id="nothing like it"),
    ],
)
def test_an_unknown_argument(given: dict[str, Any], says: str) -> None:
    """It is refused with what was meant, where that can be known."""
    with pytest.raises(WrongUse) as caught:
        agent(**given)
    assert says in str(caught.value)


@pytest.mark.usefixtures("_plain")
def test_an_address_beside_a_name() -> None:
    """A model by its name is asked at the address that was given, for as many seconds of silence."""
    made = agent(model="openai:x", base_url="http://127.0.0.1:9/v1", timeout=7)
    assert "http://127.0.0.1:9" == made._opening("r", 1).address
    assert 7 == made.model._idle  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize(
    ("address", "says"),
    [
        pytest.param("http://h/v1\n", r"got 'http://h/v1\n', which contains '\n': remove it", id="a line end"),
        pytest.param("http://h\nx/v1", r"which contains '\n': remove it", id="a line end in the host"),
        pytest.param("http://h\0/v1", r"which contains '\x00': remove it", id="a NUL"),
        pytest.param(" http://h/v1", "got ' http://h/v1', which contains ' ': remove it", id="a blank before it"),
        pytest.param("http://h /v1", "which contains ' ': remove it", id="a blank in the host"),
        pytest.param("http://h/v\ud800", r"which contains '\ud800': remove it", id="a lone surrogate"),
        pytest.param("http://h/v1?a=b", "remove that and the rest, and set", id="a query"),
        pytest.param("http://h/v1#a", "remove that and the rest, and set", id="a fragment"),
        pytest.param("http://h/v1?", "remove that and the rest", id="an empty query"),
        pytest.param("", "must be an http(s) address, such as http://127.0.0.1:8080/v1; got ''", id="nothing"),
        pytest.param("h:1/v1", "such as http://127.0.0.1:8080/v1; got 'h:1/v1'", id="no scheme"),
        pytest.param("http://[::1", "got 'http://[::1'", id="half a host"),
        pytest.param(5, "must be a string, such as http://127.0.0.1:8080/v1; got 5", id="a number"),
        pytest.param(b"http://h", "must be a string, such as http://127.0.0.1:8080/v1; got b'http://h'", id="bytes"),
    ],
)  # fmt: skip
def test_an_address_that_cannot_work(address: Any, says: str) -> None:
    """The error names the argument, its value, and what to write."""
    with pytest.raises(WrongUse, match=r"^model 'openai:x': base_url must ") as caught:
        agent(model="openai:x", base_url=address)
    assert says in str(caught.value)


@pytest.mark.usefixtures("_plain")
def test_a_password_in_an_address_is_not_displayed() -> None:
    """A user, a password or a query is refused without its text, also in an address that is broken
    elsewhere.
    """
    for address in ("http://me:pa55w0rd@h/v1\n", "http://me:pa55w0rd@[h/v1", "http://h/v1?key=pa55w0rd"):
        with pytest.raises(WrongUse, match="base_url must ") as caught:
            agent(model="openai:x", base_url=address)
        assert "pa55w0rd" not in str(caught.value)


@pytest.mark.usefixtures("_plain")
def test_the_variable_of_the_command_line_counts_from_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """REFOLD_BASE_URL is the address of a model by its name, below what was given, and is recorded as its
    source.
    """
    monkeypatch.setenv("REFOLD_BASE_URL", "http://127.0.0.1:9/v1")
    made = agent(model="openai:x")
    assert "http://127.0.0.1:9" == made._opening("r", 1).address
    assert ("base_url: REFOLD_BASE_URL",) == made._environment
    given = agent(model="openai:x", base_url="http://127.0.0.1:8/v1")
    assert ("http://127.0.0.1:8", ()) == (given._opening("r", 1).address, given._environment)


@pytest.mark.parametrize("what", ["base_url", "timeout", "price"])
def test_terms_beside_a_model_that_is_made(what: str) -> None:
    """What belongs to a server is refused beside a model object, and the way out is named."""
    with pytest.raises(
        WrongUse,
        match=rf"{what}: expected None beside a model object.*; ScriptedModel has no {what}; leave it out",
    ):
        agent(**{what: 5})
