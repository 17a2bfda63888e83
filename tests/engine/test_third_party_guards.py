"""A guard from a package of its own: installed by an entry point, at work in a run, and missing at an
audit.
"""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.engine import Agent, RunResult, ScriptedModel, call, calls, say, tool
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.guards import BUILTIN
from refold.replay import audit
from refold.store import MemoryStore
from support.driving import assert_sound, events_of
from support.installed import install

PACKAGE = Path(__file__).resolve().parents[1] / "example_guard_package"
POLICY = {"guards": [{"guard": "look_first", "looking": ["look"], "acting": ["act"]}, {"guard": "one_call"}]}


@tool(replay="read_only")
def look() -> str:
    """Look."""
    return "a door"


@tool
def act() -> str:
    """Act."""
    return "it opens"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages with the example in it, as an installer would leave it."""
    install(tmp_path, tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    shutil.copy(PACKAGE / "refold_look_first.py", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("refold_look_first", None)


def agent(store: MemoryStore, **more: Any) -> Agent:
    script = [
        call("act"),  # refused: nothing was looked at
        calls(("look", {}), ("act", {})),  # refused twice: too early, and more than one call
        call("act"),
        say("It is open."),
    ]
    return Agent(model=ScriptedModel(script), tools=[look, act], policy=POLICY, store=store, **more)


async def run(store: MemoryStore) -> RunResult:
    return await agent(store).start("Open the door.", run_id="door").result()


@pytest.mark.usefixtures("site")
def test_it_is_found_by_its_entry_point() -> None:
    """The registry has refold's own guards, and the installed one by the name of its entry point."""
    found = installed_guards()
    assert {"look_first"} == set(found) - set(BUILTIN)
    assert "refold_look_first" == found["look_first"].__module__


def test_without_the_package_its_policy_is_refused() -> None:
    """A policy that names a guard which is not installed is refused before there is a run."""
    with pytest.raises(PolicyError, match=r"guards\[0\]\.guard.*look_first"):
        agent(MemoryStore())


def test_a_name_that_is_taken_is_refused(site: Path) -> None:
    """A package that offers a guard under a name of refold's own is told so, by its entry point."""
    entries = {"refold.guards": {"repetition": "refold_look_first:LookFirst"}}
    install(site, {"name": "refold-second", "version": "1.0", "entry-points": entries})
    with pytest.raises(WrongUse, match="'repetition' of refold_look_first:LookFirst"):
        installed_guards()


@pytest.mark.anyio
@pytest.mark.usefixtures("site")
async def test_a_run_with_it_audits_clean() -> None:
    """The guard works in a run by the policy's name, with its own words, and an audit asks it again."""
    store = MemoryStore()
    result = await run(store)
    assert "COMPLETED" == result.state
    said = [message.text for message in result.messages if message.role == "tool"]
    refused = "skipped: look at what is there before you change it."
    assert [refused, "a door", refused, "it opens"] == said
    judged = await audit(store, "door", installed_guards())
    assert judged.clean
    assert () == judged.blind
    assert "look_first" in [getattr(event, "name", "") for event in await events_of(store, "door")]


@pytest.mark.anyio
@pytest.mark.usefixtures("site")
async def test_an_audit_without_it_names_it_and_audits_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the guard is missing its decisions are unreplayable and it is named; all others are judged."""
    store = MemoryStore()
    await run(store)
    monkeypatch.undo()
    assert "look_first" not in installed_guards()
    judged = await audit(store, "door", installed_guards())
    assert ("look_first: not installed",) == judged.blind
    assert (0, False, "") == (judged.differences, judged.clean, judged.damaged)
    assert "COMPLETED" == judged.agent_state
    assert {"guard look_first: not installed"} == {each.why for each in judged.unreplayable}
    assert 2 == len(judged.unreplayable)


@pytest.mark.anyio
async def test_a_run_without_it_is_sound() -> None:
    """The same run under refold's own guards alone has nothing of it, and audits clean."""
    store = MemoryStore()
    script = [calls(("look", {}), ("act", {})), say("It is open.")]
    policy = {"guards": POLICY["guards"][1:]}
    plain = Agent(model=ScriptedModel(script), tools=[look, act], policy=policy, store=store)
    await plain.start("Open the door.", run_id="door").result()
    await assert_sound(store, "door")
