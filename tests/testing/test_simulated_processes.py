"""Simulated processes: what a kill, a pause and a cancellation do to users' tools, and what outlives them."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import anyio
import pytest

from refold.engine import Agent, CallContext, Recording, ScriptedModel, Tool, call, fail, say, tool
from refold.reducers.errors import WrongUse
from refold.store import MemoryStore
from refold.testing import Ledger, ViolationKind, deliver, simulate
from refold.testing.simulation.faults import Fault, Kind, Point, draw_swarm
from refold.testing.simulation.plan import Plan
from refold.testing.simulation.snapshots import compare_states, describe_state
from refold.testing.tool_arguments import arguments_of


def agent(*tools: Tool, lines: Iterable[Any] = (call("pay"), say("Paid."))) -> Agent:
    return Agent(ScriptedModel(list(lines)), tools=tools)


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        pytest.param("seed=0", ["begin", "middle", "end", "cleanup"], id="undisturbed"),
        pytest.param("seed=0 kill:begin:1", [], id="before it begins"),
        pytest.param("seed=0 kill:await:1", ["begin"], id="while it waits"),
        pytest.param("seed=0 kill:await:2", ["begin", "middle"], id="while it waits again"),
        pytest.param("seed=0 kill:act:1", ["begin", "middle", "end", "cleanup"], id="before it reports"),
        pytest.param("seed=0 stop:await:1", ["begin", "cleanup"], id="cancelled"),
    ],
)
def test_a_killed_tool_stops_where_it_is(schedule: str, steps: list[str]) -> None:
    """A kill runs no `finally` and no `except`, as in reality; a cancellation does."""
    found: list[str] = []

    def make(world: list[str]) -> Agent:
        @tool
        async def pay() -> None:
            try:
                world.append("begin")
                await anyio.sleep(1)
                world.append("middle")
                await anyio.sleep(1)
                world.append("end")
            finally:
                world.append("cleanup")

        return agent(pay)

    simulate(make, world=list[str], check=found.extend, schedule=schedule).check()
    assert steps == found


MEMORY: list[str] = []
COUNT = 0


def test_a_new_process_has_the_memory_of_its_program_only() -> None:
    """Globals of the tool's module are reset when a process starts, and after the simulation."""

    def make(world: list[int]) -> Agent:
        @tool(replay="read_only")
        async def pay() -> None:
            global COUNT  # noqa: PLW0603
            MEMORY.append("called")
            COUNT += 1
            world.append(len(MEMORY) + COUNT)

        return agent(pay, lines=(call("pay"), call("pay"), say("Done.")))

    found: list[int] = []
    simulate(make, world=list[int], check=found.extend, schedule="seed=0 kill:act:2").check()
    assert [2, 4, 2] == found
    assert [] == MEMORY
    assert 0 == COUNT


def test_a_request_outlives_the_process_that_sent_it() -> None:
    """`deliver` acts after its process died; an effect of the process itself does not."""

    def make(world: list[str]) -> Agent:
        @tool
        async def pay() -> None:
            await deliver(lambda: world.append("delivered"))
            world.append("done here")

        return agent(pay)

    found: list[str] = []
    report = simulate(make, world=list[str], check=found.extend, schedule="seed=0 kill:await:1").check()
    assert ["delivered"] == found
    assert 1 == report.tools["pay"].in_doubt == report.tools["pay"].lost


@pytest.mark.anyio
async def test_a_request_without_a_simulation_happens_at_once() -> None:
    """Unit tests can use the same fake of a service."""
    assert "paid" == await deliver(lambda: "paid")


@pytest.mark.parametrize(
    ("schedule", "effects"),
    [
        pytest.param("seed=3", 1, id="undisturbed"),
        pytest.param("seed=3 stop:await:1", 1, id="its caller is cancelled"),
        pytest.param("seed=3 kill:await:1", 0, id="its process is killed"),
    ],
)
def test_a_thread_ends_with_its_process_but_not_with_its_call(schedule: str, effects: int) -> None:
    """A tool that is not async runs as in a thread: cancelling its call does not stop it."""

    def make(world: list[str]) -> Agent:
        @tool
        def pay() -> None:
            world.append("paid")

        return agent(pay)

    found: list[str] = []
    simulate(make, world=list[str], check=found.extend, schedule=schedule).check()
    assert effects == len(found)


def test_a_tool_that_ignores_its_cancellation_is_found_wherever_it_waits() -> None:
    """A shielded scope holds up the engine just as a loop that catches everything."""

    def make(world: object) -> Agent:
        @tool(timeout=5)
        async def pay() -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1000)

        return agent(pay)

    report = simulate(make, schedule="seed=0")
    assert [ViolationKind.IGNORED_CANCELLATION] == [each.kind for each in report.violations]
    assert "tool pay: still works 30 s after its call was cancelled" == report.violations[0].text


def test_cleanup_after_a_cancellation_is_no_violation() -> None:
    """A tool may take a while to end."""

    def make(world: object) -> Agent:
        @tool(timeout=5)
        async def pay() -> None:
            try:
                await anyio.sleep(1000)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(10)

        return agent(pay)

    assert simulate(make, seeds=20).ok


class Shop:
    """A shop that counts visits, which repeated executions may change."""

    def __init__(self) -> None:
        self.visits = 0
        self.sold: set[str] = set()


@pytest.mark.parametrize(
    ("snapshot", "kinds"),
    [
        pytest.param(None, [ViolationKind.NOT_IDEMPOTENT], id="all attributes"),
        pytest.param(lambda shop: shop.sold, [], id="only what was sold"),
    ],
)
def test_a_snapshot_selects_what_must_not_change(
    snapshot: Callable[[Shop], object] | None, kinds: list[ViolationKind]
) -> None:
    """Counting attempts is allowed if the snapshot leaves the counter out."""

    def make(shop: Shop) -> Agent:
        @tool(replay="idempotent")
        async def pay(context: CallContext) -> None:
            shop.visits += 1
            shop.sold.add(context.key)

        return agent(pay)

    report = simulate(make, world=Shop, snapshot=snapshot, schedule="seed=0 twice:rerun:1")
    assert kinds == [each.kind for each in report.violations]


def test_a_read_only_tool_that_writes_is_found() -> None:
    """A second execution must not change the world either."""

    def make(shop: Shop) -> Agent:
        @tool(replay="read_only")
        async def pay() -> None:
            shop.visits += 1

        return agent(pay)

    report = simulate(make, world=Shop, schedule="seed=0 twice:rerun:1")
    assert [ViolationKind.NOT_READ_ONLY] == [each.kind for each in report.violations]
    assert "before Shop(visits=1, sold={}), after Shop(visits=2, sold={})" in report.violations[0].text


def _ask_teammate(world: list[str]) -> Agent:
    @tool(replay="idempotent")
    async def pay(context: CallContext) -> None:
        await anyio.sleep(2)
        if context.key not in world:
            world.append(context.key)

    script = ScriptedModel([call("pay"), fail(), call("pay"), say("Paid.")])
    bob = Agent(script, tools=[pay], name="bob")
    return Agent(
        ScriptedModel([call("transfer_to_bob", task="Pay."), say("Done.")]), handoffs=[bob], name="ann"
    )


def _ask_operator(world: list[str]) -> Agent:
    @tool
    async def pay(context: CallContext) -> None:
        await anyio.sleep(2)
        world.append(context.key)

    human = {"approvals": {"chain": [{"approver": "human", "tools": ["*"]}]}, "doubt": "ask"}
    return Agent(ScriptedModel([call("pay"), say("Paid.")]), tools=[pay], policy=human)


@pytest.mark.parametrize("make", [_ask_teammate, _ask_operator])
def test_handoffs_and_approvals_are_simulated(make: Callable[[list[str]], Agent]) -> None:
    """Tools of child runs meet faults, too; an operator answers calls that wait."""

    def check(world: list[str]) -> None:
        assert len(set(world)) == len(world)

    report = simulate(make, world=list[str], check=check, seeds=40).check()
    assert report.tools["pay"].executions > 20
    assert report.fired["kill"] > 5


@pytest.mark.anyio
async def test_the_model_of_a_recording_is_simulated() -> None:
    """A recorded run continues at its place in the conversation, in any process."""

    def make_plain(world: list[str]) -> Agent:
        @tool
        def pay(context: CallContext) -> str:
            world.append(context.key)
            return "paid"

        return agent(pay, lines=(call("pay"), call("pay"), say("Paid.")))

    store, recorded = MemoryStore(), make_plain([])
    recorded.store = store
    await recorded.run("Pay.", run_id="first")
    recording = await Recording.read(store, "first")

    def make(world: list[str]) -> Agent:
        made = make_plain(world)
        made.model = recording.model()
        return made

    report = await anyio.to_thread.run_sync(lambda: simulate(make, world=list[str], seeds=10))
    assert report.ok
    assert report.tools["pay"].calls > 15


def test_a_ledger_is_empty_in_each_schedule() -> None:
    """Schedules do not share the outside world."""
    ledgers: list[Ledger] = []

    def make(ledger: Ledger) -> Agent:
        assert ledger.effects == []
        ledgers.append(ledger)
        return agent(lines=(say("Done."),))

    simulate(make, seeds=2)
    assert 3 == len({id(ledger) for ledger in ledgers})  # with the undisturbed schedule


def test_a_plan_is_parsed_from_its_text() -> None:
    """Drawn plans are read as they are written, and each simpler plan has fewer or earlier deviations."""
    uses = dict.fromkeys(Point, 4)
    for seed in range(200):
        plan = Plan.draw(seed, lambda chance: draw_swarm(chance, uses))
        assert plan == Plan.parse(str(plan))
        assert all(each.deviations <= plan.deviations for each in plan.simpler())
    with pytest.raises(WrongUse, match="fault 'kill:append:0'"):
        Plan.parse("kill:append:0")
    assert "seed=0 kill:act:2+" == str(Plan(faults=(Fault(Kind.KILL, Point.ACT, 2, lasts=True),)))


def test_states_are_described_by_their_values() -> None:
    """Equal states have equal texts, whatever the order of sets and mappings; a cycle ends."""
    shop = Shop()
    shop.sold = {"pear", "apple"}
    assert "Shop(visits=0, sold={'apple', 'pear'})" == describe_state(shop)
    assert describe_state({"a": 1, "b": [2]}) == describe_state({"b": [2], "a": 1})
    circle: list[object] = []
    circle.append(circle)
    assert "[...]" == describe_state(circle)
    long = "x" * 100
    assert f"before …{'x' * 30}a, after …{'x' * 30}b" == compare_states(f"{long}a", f"{long}b")


def test_sampled_arguments_fit_the_schema() -> None:
    """Required properties are always there, numbers are within their bounds."""
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["count", "kind"],
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 3},
            "kind": {"enum": ["a", "b"]},
            "note": {"anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}]},
            "sizes": {"type": "array", "items": {"type": "number"}, "minItems": 1},
        },
    }
    for seed in range(100):
        made = arguments_of(schema, random.Random(seed))
        assert {"count", "kind"} <= made.keys()
        assert made["count"] in (1, 2, 3)
        assert made.get("note") is None or len(made["note"]) >= 3
        assert made.get("sizes", [0.0])
