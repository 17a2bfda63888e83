"""`refold_recording`: runs of production, ours and imported, against today's agent."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, Tool, call, say, tool
from refold.reducers.errors import Inconclusive, WrongUse
from refold.reducers.events import Manifest, ModelRequested
from refold.reducers.vocabulary import Replay
from refold.store import packer
from refold.testing import BehaviourChanged, ObservedRun, RecordingFixture
from refold.testing.failures import Evidence
from refold.testing.imported import compare_imported
from refold.testing.loaded_logs import LoadedLog, families_of, load_log, load_runs
from refold.testing.matchers import Matchers
from refold.testing.replays import ReplayOptions
from support.transcripts import FILES, path_of

LINES = [call("price", item="apple"), say("30 cents.")]


@tool(replay="read_only")
def price(item: str) -> int:
    """The price of an item."""
    return 30


def dearer() -> Tool:
    """The same tool with another result."""

    @tool(replay="read_only")
    def price(item: str) -> int:
        """The price of an item."""
        return 31

    return price


def agent(**more: Any) -> Agent:
    return Agent(ScriptedModel(LINES), **{"tools": [price], "system": "Be brief.", **more})


@pytest.fixture(params=["store", "bundle"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of production, as a store and as a bundle: with random ids, salts and instants."""

    async def main() -> None:
        from refold.store import open_store

        async with await open_store(tmp_path / "runs.db") as store:
            await agent(store=store).run("What does an apple cost?", run_id="r1")
            await agent(store=store).run("And a pear?", run_id="r2")
            await packer.pack(store, ["r1", "r2"], tmp_path / "runs.zip")

    anyio.run(main)
    return tmp_path / ("runs.db" if request.param == "store" else "runs.zip")


def test_our_own_runs(recorded: Path, refold_recording: RecordingFixture) -> None:
    """From a store or a bundle: read, replayed, audited, and compared with the agent of today."""
    case = refold_recording(recorded, run="r1")
    assert ["price"] == case.run.calls.names
    assert case.replays().text == "30 cents."
    assert ["price"] == case.against(agent).calls.names
    with pytest.raises(BehaviourChanged) as changed:
        case.against(agent(system="Be kind."))
    assert "+ Be kind." in str(changed.value)
    with pytest.raises(BehaviourChanged, match=r"the result of a call differs: c1 price"):
        case.against(agent(tools=[dearer()]), live="tools")


def test_which_run(recorded: Path, refold_recording: RecordingFixture) -> None:
    """Of several runs one is chosen, by its first characters; else the error lists them."""
    assert "r2" == refold_recording(recorded, run="r2").run.id
    with pytest.raises(WrongUse, match=r"several runs: choose one by run=, such as r1, r2"):
        refold_recording(recorded)
    with pytest.raises(WrongUse, match=r"no run 'x': choose one by run=, such as r1, r2"):
        refold_recording(recorded, run="x")
    with pytest.raises(WrongUse, match=r"recording 'no.db': no such file; looked for .*no.db"):
        refold_recording("no.db")


async def _nothing(arguments: str, context: object) -> str:
    return ""


def as_recorded(log: LoadedLog, **more: Any) -> Agent:
    """An agent that offers what an imported run's harness offered, under the policy of the import."""
    opening = log.recordings[0].opening
    names = dict.fromkeys(ObservedRun(log.recordings[0].events, log.registry).calls.names)
    manifests = opening.tools or [Manifest(name=name, schema='{"type":"object"}') for name in names]
    tools = [
        Tool(manifest=each, run=_nothing) for each in manifests if each.replay is not Replay.RECONCILABLE
    ]
    messages = opening.content.messages if opening.content else ()
    system = next((each.text for each in messages if each.role == "system"), None)
    options: dict[str, Any] = {"tools": tools, "system": system, "policy": opening.policy, **more}
    return Agent(ScriptedModel([]), **options)


def compared(log: LoadedLog, today: Agent) -> list[str]:
    how = ReplayOptions(matchers=Matchers(), evidence=Evidence(what="", recording="x"))
    return anyio.run(compare_imported, log, today, how)


def logs(name: str) -> Iterator[LoadedLog]:
    yield from families_of(load_runs(path_of(name)))


@pytest.mark.parametrize("name", FILES)
def test_every_transcript_against_what_it_records(name: str) -> None:
    """An agent made of what the source records does not differ; each log is intact and decided by its facts;
    what the source lacks is named.
    """
    for log in logs(name):
        assert "" == anyio.run(_checked, log)
        known = {each.name for each in log.recordings[0].opening.tools}
        run = ObservedRun(log.recordings[0].events, log.registry)
        if known and not set(run.calls.names) <= known:
            continue  # calls of tools that were not offered, as its harness reported, too
        unproved = compared(log, as_recorded(log))
        assert bool(known) != ("the tools that were offered" in unproved)


@pytest.mark.parametrize("name", FILES)
def test_every_transcript_against_an_agent_without_its_tools(name: str) -> None:
    """A call of a tool that is gone is found, and so is a policy that ends the run before its second turn."""
    for log in logs(name):
        run = ObservedRun(log.recordings[0].events, log.registry)
        offered = log.recordings[0].opening.tools
        if any(not (call.error or call.refused) for call in run.calls) and not offered:
            with pytest.raises(BehaviourChanged, match="a called tool no longer exists"):
                compared(log, as_recorded(log, tools=[]))
        requests = sum(isinstance(event, ModelRequested) for event in run.events)
        if requests > 1 and not offered:
            strict = {"limits": [{"type": "step", "value": 1}]}
            with pytest.raises((BehaviourChanged, Inconclusive)):
                compared(log, as_recorded(log, policy=strict))


async def _checked(log: LoadedLog) -> str:
    return await log.check(played=False)


def test_an_imported_run_by_the_fixture(refold_recording: RecordingFixture) -> None:
    """A transcript is opened as it is, packed or not."""
    case = refold_recording(path_of("claude_code/api-retry.jsonl.zst"))
    with pytest.raises(BehaviourChanged) as changed:
        case.against(agent(system=None))
    assert "a called tool no longer exists" in str(changed.value)
    assert case.replays(played=False).id == case.run.id
    with pytest.raises(pytest.fail.Exception, match="as for runs that were imported or shrunk"):
        case.replays()


def test_a_zip_that_is_a_transcript(tmp_path: Path) -> None:
    """Not every zip file is a bundle."""
    name = next(each for each in FILES if each.endswith(".eval"))
    assert zipfile.is_zipfile(path_of(name))
    assert load_log(path_of(name), run=families_of(load_runs(path_of(name)))[0].runs[0].run)
