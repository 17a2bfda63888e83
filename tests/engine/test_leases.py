"""One engine a run: leases are taken, renewed, given back, and lost."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext

import anyio
import pytest

from refold.engine import Agent, ModelRequest, Reply, ScriptedModel, call, say, tool
from refold.engine.journal import Overtaken
from refold.engine.models.protocol import Delta
from refold.engine.tenure import LeaseLapsed, is_gone, new_holder
from refold.reducers.errors import WrongUse
from refold.reducers.machine import AgentState
from refold.replay import audit, verify
from refold.store import MemoryStore
from refold.store.protocol import Head, Held, Lease, LeaseLost, Record, Store, StoreUnavailable, UnknownRun
from support import virtual


class Thinking:
    """A model that thinks for so many seconds before it says that it is done."""

    name = "thinking"
    priced = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        self.asked += 1
        await anyio.sleep(self.seconds)
        yield say("Done.")

    async def aclose(self) -> None:
        """Nothing to let go of."""


def thinker(store: Store, seconds: float = 100.0) -> Agent:
    return Agent(model=Thinking(seconds), store=store, clock=virtual.LoopClock)


async def sound(store: Store, run: str) -> bool:
    return (await verify(store, run)).whole and not (await audit(store, run)).differences


def test_a_run_that_takes_long_keeps_its_lease() -> None:
    """While an engine waits for its model, for many times the length of a lease, nobody else can take the
    run.
    """

    async def main() -> None:
        store = virtual.store()
        async with thinker(store).start("Do it.", run_id="r") as run:
            for _ in range(9):
                await anyio.sleep(11)
                with pytest.raises(Held, match=r"run r is driven by .*, whose lease has"):
                    await thinker(store).resume("r").result()
            assert (await run.result()).state is AgentState.COMPLETED
        assert await store.claim("r") is None
        assert await sound(store, "r")

    virtual.in_no_time(main)


def test_an_engine_that_was_fenced_out_stops_and_says_so() -> None:
    """An engine whose run was taken over writes nothing more, and raises `LeaseLost` though it waits for its
    model.
    """

    async def main() -> None:
        store = virtual.store()
        first, second = thinker(store, 10_000), thinker(store, 1)
        lost: list[str] = []

        async def drive() -> None:
            try:
                await first.start("Do it.", run_id="r").result()
            except LeaseLost as error:
                lost.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await anyio.sleep(1)
            result = await second.resume("r", take_over=True).result()
        assert result.state is AgentState.COMPLETED
        assert len(lost) == 1
        assert "another engine took the run over" in lost[0]
        assert await sound(store, "r")

    virtual.in_no_time(main)


class Deaf(MemoryStore):
    """Takes no renewals."""

    async def renew(self, lease: Lease, seconds: float = 30.0) -> None:
        raise StoreUnavailable("runs.db", "the disk is gone")


class Mute(MemoryStore):
    """Never answers a renewal."""

    async def renew(self, lease: Lease, seconds: float = 30.0) -> None:
        await anyio.sleep_forever()


@pytest.mark.parametrize("kind", [Deaf, Mute])
def test_an_engine_that_cannot_renew_its_lease_stops_before_another_may_begin(
    kind: type[MemoryStore],
) -> None:
    """Where the store takes no renewal, the engine has stopped by the time its lease has run out."""

    async def main() -> None:
        store = kind(now=anyio.current_time)
        began = anyio.current_time()
        with pytest.raises(LeaseLapsed, match="run r: its lease could not be renewed for 30 s"):
            await thinker(store).start("Do it.", run_id="r").result()
        assert 20 <= anyio.current_time() - began <= 30

    virtual.in_no_time(main)


class Dozing(MemoryStore):
    """Right after a call is dispatched the machine sleeps for so many seconds; `taken`: another engine takes
    the run.
    """

    def __init__(self, seconds: float, *, taken: bool) -> None:
        super().__init__(now=self.clock)
        self.seconds, self.taken, self.slept = seconds, taken, 0.0

    def clock(self) -> float:
        return anyio.current_time() + self.slept

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        head = await super().append(run, expected_seq, lease, records, release=release)
        if not self.slept and any(record.kind == "tools_dispatched" for record in records):
            self.slept = self.seconds
            if self.taken:
                await self.lease(run, holder="elsewhere:1::b", seconds=30)
        return head


@pytest.mark.parametrize(("taken", "begun"), [(True, []), (False, ["act"])])
def test_no_tool_begins_under_a_lease_that_may_have_run_out(
    taken: bool, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that slept past its lease, by a second, looks whether the run is still its own before it
    begins a tool.
    """
    did: list[str] = []

    @tool(name="act")
    async def act_once() -> str:
        """Change something."""
        did.append("act")
        return "done"

    async def main() -> None:
        store = Dozing(31, taken=taken)
        monkeypatch.setattr("refold.engine.tenure.clocks", lambda: (anyio.current_time(), store.clock()))
        model = ScriptedModel([call("act"), say("Done.")])
        agent = Agent(model=model, tools=[act_once], store=store, clock=virtual.LoopClock)
        with pytest.raises(LeaseLost) if taken else nullcontext():
            await agent.start("Do it.", run_id="r").result()

    virtual.in_no_time(main)
    assert begun == did


def test_what_a_dead_engine_had_is_free_when_its_lease_has_run_out() -> None:
    """A run whose engine gives no sign of life can be taken up after the lease, and not before."""

    async def main() -> None:
        store = virtual.store()
        lease = await store.lease("r", holder="elsewhere:1::a", seconds=30)
        agent = thinker(store, 1)
        with pytest.raises(UnknownRun):
            await agent.resume("r").result()
        await store.release(lease)
        await agent.start("Do it.", run_id="r").detach()
        await store.lease("r", holder="elsewhere:1::a", seconds=30)
        with pytest.raises(Held):
            await agent.resume("r").result()
        await anyio.sleep(30)
        assert (await agent.resume("r").result()).state is AgentState.COMPLETED

    virtual.in_no_time(main)


def test_an_engine_of_this_machine_that_was_killed_is_not_waited_for() -> None:
    """A holder whose process is gone is known to be; one that runs is not taken for dead, nor one of
    elsewhere.
    """
    script = "from refold.engine.tenure import new_holder; print(new_holder())"
    dead = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not is_gone(new_holder())
    assert not is_gone("elsewhere:1:whatever:a")
    assert not is_gone("no holder at all")
    assert is_gone(dead.stdout.strip()) == sys.platform.startswith("linux")


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells when a process was started"
)
def test_a_run_of_a_killed_process_goes_on_at_once() -> None:
    """Nobody has to wait for the lease of a process that is surely dead."""
    script = "from refold.engine.tenure import new_holder; print(new_holder())"
    dead = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    async def main() -> None:
        store = virtual.store()
        await thinker(store).start("Do it.", run_id="r").detach()
        await store.lease("r", holder=dead.stdout.strip(), seconds=10_000)
        assert (await thinker(store, 1).resume("r").result()).state is AgentState.COMPLETED
        assert anyio.current_time() < 1000

    virtual.in_no_time(main)


@tool
async def act() -> str:
    """Change something."""
    return "done"


def asking(store: Store, seconds: float) -> Agent:
    policy = {"approvals": {"chain": [{"approver": "human", "timeout": seconds, "on_timeout": "reject"}]}}
    script = [call("act"), say("Done.")]
    return Agent(
        model=ScriptedModel(script), tools=[act], policy=policy, store=store, clock=virtual.LoopClock
    )


def test_somebody_else_may_answer_while_an_engine_stays_for_the_time_of_a_person() -> None:
    """An engine that only waits for a person's time lets the run go; when it finds it taken on, it stops and
    says so.
    """

    async def main() -> None:
        store = virtual.store()
        said: list[str] = []

        async def drive() -> None:
            try:
                await asking(store, 50).start("Do it.", run_id="r").result()
            except Overtaken as error:
                said.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await anyio.sleep(10)
            other = Agent(
                model=ScriptedModel([say("Done.")]), tools=[act], store=store, clock=virtual.LoopClock
            ).resume("r")
            other.answer({"c1": "approve"})
            assert (await other.result()).state is AgentState.COMPLETED
        assert ["run r was continued by another engine; see `refold show r`"] == said
        assert await sound(store, "r")

    virtual.in_no_time(main)


@pytest.mark.anyio
async def test_an_id_that_nobody_has_is_unknown_and_stays_so() -> None:
    """Asking for an unknown run raises `UnknownRun`, and makes no run of that id."""
    store = MemoryStore()
    with pytest.raises(UnknownRun):
        await thinker(store).resume("nobody").result()
    assert await store.claim("nobody") is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_lease_has_a_length(seconds: float) -> None:
    """A lease of no length, or without end, is refused."""
    with pytest.raises(WrongUse, match="lease: expected seconds above 0"):
        Agent(model=ScriptedModel([]), lease=seconds)


def test_a_machine_that_hides_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the files of a process cannot be read, it is not taken for dead as long as there is one of its
    number.
    """
    holder = new_holder()
    monkeypatch.setattr("refold.engine.tenure._birth", lambda pid: None)
    assert not is_gone(holder)
    host, _, birth, nonce = holder.rsplit(":", 3)
    assert is_gone(f"{host}:{2**22 + 1}:{birth}:{nonce}") == sys.platform.startswith("linux")


def test_force_is_used_but_once() -> None:
    """Who took a run over by force, and then waited for a person, does not fence out whoever took it on
    since.
    """

    async def main() -> None:
        store = virtual.store()
        waiting = Agent(
            model=ScriptedModel([say("What?"), say("Done.")]),
            policy={"end_of_turn": "wait"},
            store=store,
            clock=virtual.LoopClock,
        )
        await waiting.start("Do it.", run_id="r").result()
        first = waiting.resume("r", take_over=True)
        await first.result()
        lease = await store.lease("r", holder="elsewhere:1::a", seconds=100)
        first.send("This.")
        with pytest.raises(Held):
            await first.result()
        await store.renew(lease)

    virtual.in_no_time(main)
