"""The demo's runs under a preset: what is expected of them is seen in the logs that show it, and in no
others.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from refold.console.demo import __main__ as demo
from refold.console.demo import presets as demo_presets
from refold.console.demo.presets import DemoScene, Expected, PlayedRun
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.compatibility import installed_guards
from refold.engine.models.script import Line
from refold.reducers import parse
from refold.reducers.errors import WrongUse
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS
from refold.reducers.vocabulary import StopReason
from refold.replay.reader import events
from refold.replay.timeline import timeline
from refold.store import MemoryStore

pytestmark = pytest.mark.anyio

CUT = StopReason.MAX_TOKENS


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One backend will do: the engine is tested on both."""
    return "asyncio"


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return f"{path}: " + "nothing much. " * 20


LOOKS: list[Line] = [call("look", path=f"{number}.md") for number in range(demo_presets.STEPS)]
CUTS: list[Line] = [say(f"Part {number}, and", stop=CUT) for number in range(demo_presets.STEPS)]
STOPS: list[Line] = [say("Done.")]


async def seen(scene: DemoScene, script: Sequence[Line]) -> PlayedRun:
    """What a scene's log shows when a model follows this script. Lines that are left over do not matter."""
    store = MemoryStore()
    tools = [look] if scene.tools else []
    model = ScriptedModel(script, context=4096)
    agent = Agent(model=model, tools=tools, policy=scene.policy, store=store, system="You read.")
    run = agent.start(scene.task, seed=1)
    result = await run.result()
    told, _ = await timeline(store, run.id, None, installed_guards())
    found = tuple([event async for _, event in events(store, run.id)])
    return PlayedRun(told=told, events=found, text=result.outcome.text)


def shown(expects: Sequence[Expected], of: PlayedRun) -> dict[str, bool]:
    return {expected.shown: expected.holds(of) for expected in expects}


def test_what_has_no_loop_is_not_played() -> None:
    """The preset of imported runs is refused, and the reader is told what it is for."""
    with pytest.raises(WrongUse, match="refold import"):
        demo_presets.scenes("observed")


@pytest.mark.parametrize("preset", sorted(PRESETS.keys() - {"observed"}))
async def test_each_preset_has_runs_that_can_start(preset: str) -> None:
    """A scene of some preset or variant is refused, expects nothing of a loop that it has, or ends without a
    log.
    """
    played = demo_presets.scenes(preset)
    assert played
    for scene in played:
        of = await seen(scene, [say("Done.")] * 20)
        assert of.ended, scene.title
    names = [step["name"] for scene in played[2:] for step in scene.policy["history"]]
    assert [step.name for step in parse({"preset": preset}).history] == names


HERMES = [
    "a request warned the model that a limit is near",
    "after its last step it was granted one more request, without tools",
    "a response was cut, and the model was asked to continue and did",
    "the outcome is longer than any response: its parts are joined",
    "a summary by the model replaces older messages",
]


def test_what_is_expected_follows_from_the_policy() -> None:
    """Of `hermes` its pressure, its grace request, its recovery and its summary are expected, and nothing
    else.
    """
    played = demo_presets.scenes("hermes")
    assert HERMES == [expected.shown for scene in played for expected in scene.expects]
    quiet = demo_presets.scenes("hermes-quiet")
    assert HERMES[1:] == [expected.shown for scene in quiet for expected in scene.expects]


def _summing(script: list[Line]) -> list[Line]:
    """The script, with a summary after each look but the first."""
    return [
        line for number, look_ in enumerate(script) for line in ([look_, say("Sum.")] if number else [look_])
    ]


@pytest.mark.parametrize(
    ("preset", "place", "script"),
    [
        pytest.param("hermes", 0, [*LOOKS, say("That was all.")], id="pressure and grace"),
        pytest.param("hermes", 1, CUTS, id="a cut answer"),
        pytest.param("hermes", 2, [*_summing(LOOKS), *STOPS], id="a summary"),
        pytest.param("guardrails", 1, CUTS, id="a cut answer that is not joined"),
        pytest.param("utah", 0, LOOKS, id="pressure from the first step on"),
        pytest.param("utah", 1, CUTS, id="a cut answer that ends the run"),
        pytest.param("inspect-iterative", 0, LOOKS, id="nudge and progress"),
        pytest.param("inspect-iterative", 1, STOPS * 5, id="a finished turn that is none"),
        pytest.param("inspect-iterative", 2, LOOKS, id="a tail"),
        pytest.param("paperbench", 0, LOOKS, id="nudge and productive time"),
    ],
)
async def test_what_a_log_shows_is_seen(preset: str, place: int, script: list[Line]) -> None:
    """A log that shows all that a scene expects is not taken for one that does."""
    scene = demo_presets.scenes(preset)[place]
    assert scene.expects
    assert set(shown(scene.expects, await seen(scene, script)).values()) == {True}


@pytest.mark.parametrize(
    ("preset", "place", "script"),
    [
        pytest.param("hermes", 0, STOPS, id="no pressure, no grace"),
        pytest.param("hermes", 1, STOPS, id="no cut answer"),
        pytest.param("hermes", 2, STOPS, id="no summary"),
        pytest.param("guardrails", 1, STOPS, id="no recovery"),
        pytest.param("utah", 1, STOPS, id="no answer that was cut"),
    ],
)
async def test_what_a_log_does_not_show_is_not_seen(preset: str, place: int, script: list[Line]) -> None:
    """A log that shows nothing of what a scene expects is taken for one that does."""
    scene = demo_presets.scenes(preset)[place]
    assert set(shown(scene.expects, await seen(scene, script)).values()) == {False}


def late(at: dict[str, Any]) -> Policy:
    pressure = {"counts": "used", "tiers": [{"name": "late", "at": at}]}
    return parse({"limits": [{"type": "step", "value": demo_presets.STEPS}], "pressure": pressure})


@pytest.mark.parametrize(
    ("at", "reached"),
    [
        pytest.param({"fraction": 0.8}, True, id="four of five steps are made before the last"),
        pytest.param({"fraction": 0.81}, False, id="more than four never are"),
        pytest.param({"remaining": 1}, True, id="one remains at the last"),
        pytest.param({"remaining": 0}, False, id="none remains only after it"),
    ],
)
def test_a_tier_that_cannot_be_reached_is_not_expected(at: dict[str, Any], reached: bool) -> None:
    """A tier is expected where no request can show it, or is not where one does."""
    rule = next(rule for rule in demo_presets.READING if "a limit is near" in rule.shown)
    assert reached is rule.applies(late(at))


def test_an_unknown_preset(capsys: pytest.CaptureFixture[str]) -> None:
    """A preset that is none is passed over, or costs more than a line with what was perhaps meant."""
    assert 2 == demo.main(["--preset", "hermess"])
    assert "unknown preset 'hermess'; did you mean 'hermes'?" in capsys.readouterr().err
