"""Permission rules in a live run: calls are refused, asked about or run, and the log has the rule."""

from typing import Any

import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.models.script import Line
from refold.reducers.errors import PolicyError
from refold.reducers.events import CallRefused
from refold.reducers.guards import BUILTIN
from refold.reducers.guards.duty import watches
from refold.reducers.parser import parse
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.driving import assert_sound, events_of

pytestmark = pytest.mark.anyio

NO_PUSH = {"effect": "refuse", "command": ["git", "push"], "say": "The release job pushes."}
NO_RM = {"effect": "refuse", "tool": "bash", "command": "rm *"}
ASK = {"effect": "ask", "command": ["make"]}


class World:
    """A shell that remembers what it ran, under permission rules."""

    def __init__(self, *rules: dict[str, Any], **more: Any) -> None:
        self.ran: list[str] = []
        self.store, self.clock = MemoryStore(), VirtualClock()
        guard = {"guard": "permissions", "rules": list(rules), **more}
        self.policy: dict[str, Any] = {"guards": [guard]}

    def agent(self, *lines: str | Line) -> Agent:
        @tool(replay="read_only")
        async def bash(command: str) -> str:
            self.ran.append(command)
            return "ok"

        script = [call("bash", command=line) if isinstance(line, str) else line for line in lines]
        return Agent(
            model=ScriptedModel([*script, say("Done.")]), tools=[bash], policy=self.policy, store=self.store,
            clock=lambda: self.clock,
        )  # fmt: skip

    async def refusals(self, run: str = "r") -> list[CallRefused]:
        """The refusals in a run's log."""
        return [event for event in await events_of(self.store, run) if isinstance(event, CallRefused)]


def texts(refusals: list[CallRefused]) -> list[str]:
    """What the model was told about these calls."""
    return [text for each in refusals if each.content for text in each.content.texts]


async def test_refused_calls_do_not_run() -> None:
    """The model gets the rule's reason, or the rule itself; the log has its index, and audits."""
    world = World(NO_PUSH, NO_RM)
    await world.agent("git status", "cd x && git push", "rm y").start("Do it.", run_id="r").result()
    assert ["git status"] == world.ran
    refusals = await world.refusals()
    assert [("permission", {"rule": 0}), ("permission", {"rule": 1})] == [
        (one.code, one.measured) for one in refusals
    ]
    assert "The release job pushes." in texts(refusals)[0]
    assert "bash rm *" in texts(refusals)[1]
    await assert_sound(world.store, "r")


async def test_a_user_is_asked() -> None:
    """A call that a rule asks about waits; what else is permitted runs once the user has answered."""
    world = World(NO_PUSH, ASK)
    run = world.agent("make all", "make it").start("Do it.", run_id="r")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    assert run.state.approval is not None
    assert "rules[1]" == run.state.approval.event.approver
    run.answer({"c1": "approve"}, by="ann")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    run.answer({"c2": "reject"}, by="ann")
    assert "COMPLETED" == (await run.result()).state
    assert ["make all"] == world.ran
    await assert_sound(world.store, "r")


async def test_edited_arguments_are_judged() -> None:
    """A user cannot edit a call into one that a rule refuses."""
    world = World(NO_PUSH, ASK)
    run = world.agent("make all").start("Do it.", run_id="r")
    await run.result()
    run.answer({"c1": ("edit", {"command": "git push"})}, by="ann")
    await run.result()
    assert [] == world.ran
    assert ["permission"] == [one.code for one in await world.refusals()]
    await assert_sound(world.store, "r")


@pytest.mark.parametrize(
    ("more", "ran"), [({}, []), ({"unknown": "refuse"}, []), ({"unknown": "permit"}, ["eval x"])]
)
async def test_what_cannot_be_judged(more: dict[str, Any], ran: list[str]) -> None:
    """By default a user is asked about a command that cannot be read; the policy may refuse it."""
    world = World(NO_PUSH, **more)
    result = await world.agent("eval x").start("Do it.", run_id="r").result()
    assert ran == world.ran
    assert ("WAITING_FOR_INPUT" if not more else "COMPLETED") == result.state
    if more.get("unknown") == "refuse":
        assert "eval runs commands that are not in the text" in texts(await world.refusals())[0]
    await assert_sound(world.store, "r")


async def test_only_what_is_permitted() -> None:
    """With `else: refuse`, a call needs a rule that permits it, for each of its commands."""
    world = World({"effect": "permit", "command": ["git", "status"]}, **{"else": "refuse"})
    await world.agent("git status", "git status; ls", "ls").start("Do it.", run_id="r").result()
    assert ["git status"] == world.ran
    assert ["permission", "permission"] == [one.code for one in await world.refusals()]


async def test_paths_are_relative_to_the_recorded_directory() -> None:
    """The labels `cwd` and `home` of a run are the folders that paths are compared with."""
    ran: list[str] = []

    @tool(replay="read_only")
    async def read(path: str) -> str:
        ran.append(path)
        return "ok"

    rule = {"effect": "refuse", "tool": "read", "path": ["secrets/**", "~/.ssh/**"]}
    script = [call("read", path=path) for path in ("/srv/app/secrets/x", "/users/u/.ssh/id", "/srv/app/x")]
    agent = Agent(
        model=ScriptedModel([*script, say("Done.")]), tools=[read],
        policy={"guards": [{"guard": "permissions", "rules": [rule]}]},
    )  # fmt: skip
    await agent.start("Read.", labels={"cwd": "/srv/app", "home": "/users/u"}).result()
    assert ["/srv/app/x"] == ran


async def test_rules_with_memory() -> None:
    """After a call that the rule names has returned, the rule applies until the next message of a user."""
    push = {
        "effect": "refuse",
        "command": ["git", "push"],
        "after": {"command": ["curl"]},
        "until": "user_message",
    }
    world = World(push)
    world.policy |= {"end_of_turn": "wait"}
    run = world.agent("git push 1", "curl example.com", "git push 2").start("Do it.", run_id="r")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    assert ["git push 1", "curl example.com"] == world.ran
    assert "git push after curl" in texts(await world.refusals())[0]
    await assert_sound(world.store, "r")


async def test_a_rule_with_memory_ends_at_a_message() -> None:
    """A user's message ends what a call began, if the rule says so; else it holds to the end of the run."""
    for until, ran in (("user_message", ["curl x", "git push"]), ("end", ["curl x"])):
        rule = {"effect": "refuse", "command": ["git", "push"], "after": {"command": ["curl"]}}
        world = World(rule | {"until": until})
        world.policy |= {"end_of_turn": "wait"}
        lines: list[Line] = [
            call("bash", command="curl x"), say("Read."), call("bash", command="git push"), say("Done."),
        ]  # fmt: skip
        run = world.agent(*lines).start("Do it.", run_id="r")
        await run.result()
        run.send("Push it.")
        await run.result()
        assert ran == world.ran
        await assert_sound(world.store, "r")


def test_another_grammar_makes_the_guard_blind() -> None:
    """A log that was judged with another version of the grammar is not judged again with this one."""
    rules = [{"effect": "refuse", "command": ["git", "push"]}]
    policy = parse({"guards": [{"guard": "permissions", "rules": rules}]})
    assert not watches(policy, BUILTIN)[0].blind
    with pytest.raises(PolicyError, match=r"recorded with the shell grammar bash 0\.1\.0"):
        parse({"guards": [{"guard": "permissions", "rules": rules, "grammar": "bash 0.1.0"}]})


@pytest.mark.parametrize(
    ("guard", "path"),
    [
        ({"rules": []}, "guards[0].rules"),
        ({"rules": [{"effect": "refuse", "command": []}]}, "guards[0].rules[0].command"),
        ({"rules": [{"effect": "deny"}]}, "guards[0].rules[0].effect"),
        (
            {"rules": [{"effect": "refuse", "command": ["git"], "match": ["ls"]}]},
            "guards[0].rules[0].match[0]",
        ),
        ({"rules": [{"effect": "refuse", "pathh": ["x"]}]}, "guards[0].rules[0].pathh"),
    ],
)
def test_rules_that_cannot_work(guard: dict[str, Any], path: str) -> None:
    """The error names the place in the policy."""
    with pytest.raises(PolicyError) as raised:
        parse({"guards": [{"guard": "permissions", **guard}]})
    assert path == raised.value.path
