"""The scenarios: some written by hand, each around one promise, and any number from seeds."""

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider

from refold.engine import Agent, call, calls, fail, say
from refold.reducers.errors import PolicyError
from refold.reducers.parser import parse
from refold.reducers.vocabulary import FailureClass
from refold.testing.simulation.models import Mind, Script, SimulatedModel, Thought
from refold.testing.simulation.process import PATIENCE, Process
from refold.testing.simulation.virtual import replaced
from refold.testing.simulation.world import World
from refold.testing.strategies.policies import policies
from simulation.acting import TOOLS, Fences, Person, Whim

TASK = "Do it."
_POLICIES = 200
_STEPS = {"type": "step", "value": 8, "name": "most", "scope": "run"}


class Role(msgspec.Struct, frozen=True):
    """One agent of a scenario: its mind, and an agent with the same policy."""

    name: str
    mind: Mind
    like: Agent

    def agent(self, process: Process, others: Iterable[Agent] = ()) -> Agent:
        """Return this agent in a process. It is copied: checking a policy takes longer than a run."""
        agent = copy(self.like)
        agent.name, agent.model, agent.store = self.name, SimulatedModel(self.mind), process.store
        agent.models = dict.fromkeys(agent.models, agent.model)
        agent.add_handoffs(*others)
        return agent


class Scenario(msgspec.Struct, frozen=True):
    """A run: the first role starts it, and may hand tasks off to the others.

    `times`: how often the operator answers, with one of `words` for each call. `seed` is the seed of the run.
    """

    name: str
    roles: tuple[Role, ...]
    seed: int = 1
    times: int = 4
    words: tuple[str, ...] = ("approve",)
    task: str = TASK
    patience: float = PATIENCE

    def make_state(self) -> Fences:
        """Make the fences of the ledger."""
        return Fences()

    def make_agents(self, process: Process) -> Mapping[str, Agent]:
        """Make the agents of a process, by name."""
        others = [role.agent(process) for role in self.roles[1:]]
        return {agent.name: agent for agent in (self.roles[0].agent(process, others), *others)}

    def make_operator(self, world: World, chance: random.Random) -> Person:
        """Make the operator."""
        return Person(chance, self.times, self.words)

    def check(self, world: World) -> None:
        """Do nothing: the judge checks the ledger."""

    async def finish(self) -> None:
        """Do nothing: the tools are cancelled with their processes."""

    async def run_in_thread(self, function: Callable[[], object]) -> object:
        """Run the function at once."""
        return function()


def _like(policy: Mapping[str, Any]) -> Agent:
    checked = parse(policy)
    nobody = SimulatedModel(Script(()))
    fallback = checked.retry.fallback
    others = dict.fromkeys(fallback.models if fallback else (), nobody)
    return Agent(model=nobody, tools=TOOLS, policy=checked, models=others)


def _alone(name: str, *lines: Any, policy: Mapping[str, Any] | None = None, **more: Any) -> Scenario:
    return Scenario(name, (Role("boss", Script(lines, name), _like(policy or {})),), **more)


_ONE_OF_EACH = calls(
    ("look", {"takes": 1}),
    ("set", {"takes": 3}),
    ("act", {"takes": 2}),
    ("book", {"takes": 2}),
    ("pay", {"takes": 2}),
    ("act", {"takes": 0}),
    text="All.",
)
_RETRIES = {"retry": {"attempts": 3, "initial": 2}}


def _handing_on() -> Scenario:
    boss = (calls(("transfer_to_bob", {"task": "Do it."}), ("act", {"takes": 5})), say("There."))
    bob = (call("act", takes=3), fail(), calls(("set", {"takes": 1}), ("act", {"takes": 1})), say("Done."))
    return Scenario(
        "children",
        (Role("boss", Script(boss, "boss"), _like({})), Role("bob", Script(bob, "bob"), _like(_RETRIES))),
    )


def _asking_below() -> Scenario:
    boss = (call("transfer_to_bob", task="Do it."), say("There."))
    bob = (call("act", takes=3), say("Done."))
    human = _like({"approvals": {"chain": [{"approver": "human", "tools": ["*"]}]}})
    return Scenario(
        "a child that asks",
        (Role("boss", Script(boss, "boss"), _like({})), Role("bob", Script(bob, "bob"), human)),
    )


BY_HAND = {
    scenario.name: scenario
    for scenario in (
        _alone("tools", call("act", takes=1), _ONE_OF_EACH, say("Done.")),
        _alone("woken", calls(("book", {}), ("pay", {}), ("act", {}), ("book", {"takes": 1})), say("Done.")),
        _alone("in order", _ONE_OF_EACH, say("Done."), policy={"batch": "in_order"}),
        _alone(
            "retries",
            fail(FailureClass.OVERLOADED, partial_text="Hm"),
            fail(FailureClass.RATE_LIMIT, retry_after=9_000_000_000),
            Thought(call("act", takes=1), takes=2),
            Thought(call("act", takes=1), breaks=True),
            call("act", takes=1),
            say("Done."),
            policy={**_RETRIES, "stream": None},
        ),
        _alone(
            "approvals",
            calls(("act", {"takes": 1}), ("set", {"takes": 1}), ("act", {})),
            call("act"),
            say("Done."),
            policy={
                "approvals": {
                    "chain": [
                        {"approver": "human", "tools": ["act"], "timeout": 300, "on_timeout": "reject"},
                        {"approver": "approve", "tools": ["*"]},
                    ]
                }
            },
            words=("approve", "approve", "reject", "edit"),
        ),
        _alone(
            "turns",
            call("act"),
            say("And?"),
            call("set"),
            say("And?"),
            policy={"end_of_turn": "wait"},
            times=2,
        ),
        _alone(
            "out of time",
            calls(("act", {"takes": 25}), ("look", {"takes": 25}), ("slow", {"takes": 30})),
            call("act", takes=90),
            say("Done."),
            policy={"limits": [{"type": "time", "value": 60}]},
        ),
        _alone("doubts", _ONE_OF_EACH, call("act", takes=1), say("Done."), policy={"doubt": "ask"}, times=8),
        _alone(
            "summaries",
            call("act"),
            Thought(call("act"), breaks=True),
            call("act", takes=1),
            say("Done."),
            policy={
                "limits": [{"type": "step", "value": 4}],
                "retry": {"attempts": 3, "initial": 1},
                "history": [{"do": "summarise", "keep_first": 1, "keep_last": 0, "when": {"messages": 2}}],
            },
        ),
        _handing_on(),
        _asking_below(),
    )
}


@cache
def _any_policies() -> list[dict[str, Any]]:
    """Draw policies over all keys, once; they are always the same."""
    drawn: list[dict[str, Any]] = []

    @settings(
        max_examples=_POLICIES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(policies())
    def draw(policy: dict[str, Any]) -> None:
        drawn.append(policy)

    def no_constant(*_: object, **__: object) -> None:
        """Keep constants of loaded modules out: with them, the policies would depend on the program."""

    with replaced(HypothesisProvider, "_maybe_draw_constant", no_constant):
        draw()
    return drawn


def by_chance(seed: int) -> Scenario:
    """Make a scenario from a seed: any policy, any responses, any delays."""
    chance = random.Random(f"scenario {seed}")
    tools = ("look", "set", "act", "act", "book", "pay", "slow")
    roles = [Role("boss", Whim(f"boss {seed}", tools), _any_like(chance.randrange(_POLICIES)))]
    if chance.random() < 0.25:
        roles = [Role("boss", Whim(f"boss {seed}", (*tools, "transfer_to_bob")), roles[0].like)]
        roles.append(Role("bob", Whim(f"bob {seed}", tools, 6), _any_like(chance.randrange(_POLICIES))))
    words = ("approve", "approve", "approve", "reject", "edit", "escalate", "terminate")
    return Scenario(f"seed {seed}", tuple(roles), seed, chance.randint(0, 4), words)


@cache
def _any_like(place: int) -> Agent:
    # Without a bound, runs of some policies never end, and neither would their schedules.
    plain = _any_policies()[place]
    limits = [limit for limit in plain.get("limits", ()) if limit["type"] != "step"]
    bounded = {**plain, "limits": [*limits, _STEPS]}
    for without in ((), ("grace",), ("history", "overflow"), ("grace", "history", "overflow")):
        with suppress(PolicyError):  # a grace step for a limit that went, or a window too small for any task
            like = _like({key: value for key, value in bounded.items() if key not in without})
            like.start(TASK)
            return like
    raise AssertionError(f"policy {place} cannot be repaired")
