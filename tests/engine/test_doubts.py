"""Calls in doubt in a live engine: tools that are asked, people that are, and effects that happen once."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from refold.engine import (
    Agent,
    CallContext,
    CannotTell,
    DidNot,
    Happened,
    Recording,
    Run,
    ScriptedModel,
    Tool,
    call,
    say,
    tool,
)
from refold.engine import calls as several
from refold.engine.tools.protocol import Reconciled
from refold.reducers.errors import WrongUse
from refold.reducers.events import DoubtResolved, Event, ToolReturned, kind_of
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record
from support.clocks import VirtualClock
from support.driving import assert_sound, events_of
from support.forging import records_of, write

pytestmark = pytest.mark.anyio

Reconcile = Callable[["Bank", str], Awaitable[Reconciled]]
HAPPENED_TEXT = "in_doubt: the call was looked into, and it did have its effect; only its output was lost. Do not repeat it."


async def looks(bank: "Bank", key: str) -> Reconciled:
    """The ledger is read; an engine that dies before it has paid leaves nothing that could still pay."""
    await anyio.lowlevel.checkpoint()
    if key in bank.paid:
        return Happened(f"paid {bank.paid[key]}", note=f"entry {key[:4]}")
    return DidNot(final=True)


async def sees_nothing(bank: "Bank", key: str) -> Reconciled:
    return DidNot(note="no entry")


async def lost(bank: "Bank", key: str) -> Reconciled:
    return Happened(note="the receipt is gone")


async def shrugs(bank: "Bank", key: str) -> Reconciled:
    return CannotTell(note="the ledger is closed")


async def breaks(bank: "Bank", key: str) -> Reconciled:
    raise OSError("the line is dead")


async def hangs(bank: "Bank", key: str) -> Reconciled:
    await anyio.sleep_forever()
    return CannotTell()


class Bank:
    """Outlives every engine. `acts` counts payments; an engine dies `at` a point of its first payment."""

    def __init__(self, at: Literal["before", "after"], reconcile: Reconcile = looks) -> None:
        self.at, self._reconcile = at, reconcile
        self.paid: dict[str, int] = {}
        self.acts = self.asked = 0
        self.dies = anyio.Event()

    def tools(self, replay: str = "reconcilable") -> list[Tool]:
        async def reconcile(context: CallContext) -> Reconciled:
            self.asked += 1
            return await self._reconcile(self, context.key)

        async def pay(cents: int, context: CallContext) -> str:
            """Pay so many cents."""
            first, self.acts = not self.acts and not self.dies.is_set(), self.acts
            if first and self.at == "before":
                await self._die()
            self.acts += 1
            self.paid[context.key] = cents
            if first:
                await self._die()
            return f"paid {cents}"

        if replay == "reconcilable":
            return [tool(replay="reconcilable", reconcile=reconcile, timeout=0.5)(pay)]
        return [tool(pay)]

    async def _die(self) -> None:
        self.dies.set()
        await anyio.sleep_forever()


def agent(
    bank: Bank, store: MemoryStore, script: Sequence[Any], doubt: str = "tell", replay: str = "reconcilable"
) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        tools=bank.tools(replay),
        policy={"doubt": doubt},
        store=store,
        clock=lambda: VirtualClock(jumps=True),
    )


async def crashed(bank: Bank, store: MemoryStore, doubt: str = "tell", replay: str = "reconcilable") -> Run:
    """A run whose engine died in the middle of a payment, as another engine takes it up."""
    async with agent(bank, store, [call("pay", cents=30)], doubt, replay).start("Pay.", run_id="r", seed=3):
        await bank.dies.wait()
    return agent(bank, store, [say("Well.")], doubt, replay).resume("r")


async def told(store: MemoryStore) -> list[str]:
    """What became of calls, by the log: words of those who looked, then the results."""
    events = await events_of(store, "r")
    found = [f"{event.by} {event.doubt}" for event in events if isinstance(event, DoubtResolved)]
    return found + [_output(event) for event in events if isinstance(event, ToolReturned)]


def _output(event: ToolReturned) -> str:
    return event.content.output if event.content else ""


async def notes(store: MemoryStore) -> list[str]:
    events = await events_of(store, "r")
    return [event.content.note for event in events if isinstance(event, DoubtResolved) and event.content]


async def assert_plays(store: MemoryStore) -> None:
    """The log is sound, and the engine makes it again from its facts alone."""
    await assert_sound(store, "r")
    again = MemoryStore()
    with anyio.fail_after(10):
        await (await Recording.read(store, "r")).play(again)
    assert (await store.head("r")).hash == (await again.head("r")).hash


@pytest.mark.parametrize(
    ("at", "reconcile", "facts", "acts"),
    [
        pytest.param(
            "after", looks, ["tool:pay happened", "paid 30"], 1, id="it happened, and its output is known"
        ),
        pytest.param(
            "after", lost, ["tool:pay happened", HAPPENED_TEXT], 1, id="it happened, and its output is lost"
        ),
        pytest.param(
            "before", looks, ["tool:pay did_not", "paid 30"], 1, id="it did not: it runs, under the same key"
        ),
    ],
)
@pytest.mark.parametrize("doubt", ["tell", "ask"])
async def test_a_tool_that_knows(
    at: Literal["before", "after"], reconcile: Reconcile, facts: list[str], acts: int, doubt: str
) -> None:
    """What a reconciler says is recorded and followed, nobody else is asked, and the money moves once."""
    bank, store = Bank(at, reconcile), MemoryStore()
    result = await (await crashed(bank, store, doubt)).result()
    assert ("COMPLETED", acts, 1, 1) == (result.state, bank.acts, len(bank.paid), bank.asked)
    assert facts == await told(store)
    await assert_plays(store)


@pytest.mark.parametrize(
    ("reconcile", "note"),
    [
        pytest.param(shrugs, "the ledger is closed", id="it says so"),
        pytest.param(
            sees_nothing,
            "the tool found no effect (no entry), but an earlier attempt may still take effect: only DidNot(final=True) rules that out",
            id="it sees no effect yet",
        ),
        pytest.param(breaks, "OSError: the line is dead", id="it raises"),
        pytest.param(hangs, "the tool gave no answer in time", id="it takes too long"),
    ],
)
async def test_a_tool_that_does_not_know(reconcile: Reconcile, note: str) -> None:
    """By policy, the model gets an unknown outcome or an operator is asked; the log records why."""
    bank, store = Bank("after", reconcile), MemoryStore()
    result = await (await crashed(bank, store)).result()
    first, last = await told(store)
    assert ("COMPLETED", "tool:pay unknown", 1) == (result.state, first, bank.acts)
    assert last.startswith("in_doubt: the call was started, but nobody saw")
    assert [note] == await notes(store)
    await assert_plays(store)

    bank, store = Bank("after", reconcile), MemoryStore()
    run = await crashed(bank, store, "ask")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    run.resolve("c1", "happened", by="ann", note="on the statement")
    assert "COMPLETED" == (await run.result()).state
    assert ["tool:pay unknown", "ann happened", HAPPENED_TEXT] == await told(store)
    assert 1 == bank.acts
    await assert_plays(store)


async def test_a_tool_without_a_word_is_not_asked_for_broken_arguments() -> None:
    """A call whose arguments the tool refuses never got to it: it did not happen, and is told to be wrong."""
    bank, store = Bank("after"), MemoryStore()
    (pay,) = bank.tools()
    assert pay.reconcile is not None
    context = CallContext(run="r", call="c1", key="k")
    assert isinstance(await pay.reconcile('{"cents": "many"}', context), DidNot)
    assert 0 == bank.asked
    assert 0 == (await store.head("r")).seq


class Enough(Exception):
    """The engine is thrown away here."""


class FragileStore(MemoryStore):
    """Throws the engine away right after the first `doubt_resolved` is on disk."""

    broke = False

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        head = await super().append(run, expected_seq, lease, records, release=release)
        if records[0].kind == "doubt_resolved" and not self.broke:
            self.broke = True
            raise Enough
        return head


async def test_a_crash_between_what_a_tool_says_and_the_result() -> None:
    """The tool is asked once more, which is harmless, and the call has its one result."""
    bank, store = Bank("after"), FragileStore()
    run = await crashed(bank, store)
    with pytest.raises(Enough):
        await run.result()
    result = await agent(bank, store, [say("Well.")]).resume("r").result()
    assert ("COMPLETED", 1, 2) == (result.state, bank.acts, bank.asked)
    assert ["tool:pay happened", "tool:pay happened", "paid 30"] == await told(store)
    await assert_plays(store)


@pytest.mark.parametrize("doubt", ["tell", "ask"])
@pytest.mark.parametrize(
    ("word", "last", "acts"),
    [
        pytest.param("happened", HAPPENED_TEXT, 1, id="happened"),
        pytest.param("did_not", "paid 30", 2, id="did not: it runs again, and only then"),
        pytest.param("unknown", None, 1, id="unknown"),
    ],
)
async def test_a_person_says(
    word: Literal["happened", "did_not", "unknown"], last: str | None, acts: int, doubt: str
) -> None:
    """An operator's answer counts before anything that the resuming engine would do."""
    bank, store = Bank("after"), MemoryStore()
    run = await crashed(bank, store, doubt, "at_most_once")
    run.resolve("c1", word, by="ann", note="I looked")
    assert "COMPLETED" == (await run.result()).state
    first, output = await told(store)
    assert (f"ann {word}", acts) == (first, bank.acts)
    assert output == last if last else output.startswith("in_doubt: the call was started, but nobody saw")
    assert ["I looked"] == await notes(store)
    await assert_plays(store)


async def test_days_later() -> None:
    """A run that waits for an answer runs nothing and refuses messages; another engine resumes it."""
    bank, store = Bank("after"), MemoryStore()
    run = await crashed(bank, store, "ask", "at_most_once")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    with pytest.raises(WrongUse, match="waits for the outcome of calls c1"):
        run.send("go on")
    with pytest.raises(WrongUse, match=r"'c2' is not in doubt \(calls in doubt: c1\)"):
        run.resolve("c2", "happened")
    later = agent(bank, store, [say("Well.")], "ask", "at_most_once").resume("r")
    later.resolve("c1", "did_not")
    assert "COMPLETED" == (await later.result()).state
    assert ["user did_not", "paid 30"] == await told(store)
    assert 2 == bank.acts
    await assert_plays(store)


async def test_a_persons_word_comes_before_the_tools() -> None:
    """A reconcilable call that an operator declared not executed runs, without asking its tool."""
    bank, store = Bank("before", hangs), MemoryStore()
    run = await crashed(bank, store)
    run.resolve("c1", "did_not", by="ann")
    assert "COMPLETED" == (await run.result()).state
    assert ["ann did_not", "paid 30"] == await told(store)
    assert (1, 0) == (bank.acts, bank.asked)


async def test_a_person_speaks_while_the_tool_is_asked() -> None:
    """The question is let go of, and what the tool says afterwards changes nothing."""
    bank, store = Bank("before", hangs), MemoryStore()
    run = await crashed(bank, store)
    async with run:
        while not bank.asked:
            await anyio.lowlevel.checkpoint()
        run.resolve("c1", "did_not", by="ann")
        assert "COMPLETED" == (await run.result()).state
    assert ["ann did_not", "paid 30"] == await told(store)
    await assert_plays(store)


async def test_a_run_is_cancelled_while_the_tool_is_asked() -> None:
    """The call is settled as in doubt, and the run is CANCELLED at once."""
    bank, store = Bank("after", hangs), MemoryStore()
    run = await crashed(bank, store)
    async with run:
        while not bank.asked:
            await anyio.lowlevel.checkpoint()
        run.cancel()
        assert "CANCELLED" == (await run.result()).state
    (output,) = await told(store)
    assert output.startswith("in_doubt: the call was started")
    await assert_plays(store)


async def test_stopped_at_every_await() -> None:
    """However far an engine gets with what is in doubt, the next one goes on, and the money moves once."""
    for turns in range(0, 60, 3):
        bank, store = Bank("before"), MemoryStore()
        async with await crashed(bank, store):
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
        result = await agent(bank, store, [say("Well.")]).resume("r").result()
        assert ("COMPLETED", 1) == (result.state, bank.acts)
        await assert_sound(store, "r")


async def test_what_a_tool_remembers_is_redacted() -> None:
    """Output and note of a reconciler are redacted as what the tool itself returns."""
    bank, store = Bank("after"), MemoryStore()
    stopped = anyio.Event()

    async def remember(number: int) -> Reconciled:
        return Happened(f"card 4111 of {number}", note="card 4111")

    @tool(replay="reconcilable", reconcile=remember, redact=lambda text: text.replace("4111", "[card]"))
    async def charge(number: int) -> str:
        stopped.set()
        await anyio.sleep_forever()
        return ""

    script = [several(("charge", {"number": 7}))]
    async with Agent(model=ScriptedModel(script), tools=[charge], store=store).start("Go.", run_id="r"):
        await stopped.wait()
    await Agent(model=ScriptedModel([say("Well.")]), tools=[charge], store=store).resume("r").result()
    assert ["tool:charge happened", "card [card] of 7"] == await told(store)
    assert ["card [card]"] == await notes(store)
    assert 0 == bank.asked


async def test_what_the_log_says_in_order() -> None:
    """The whole of a run with a call that its tool remembers, event by event."""
    bank, store = Bank("after"), MemoryStore()
    await (await crashed(bank, store)).result()
    events: list[Event] = await events_of(store, "r")
    assert [
        "run_started",
        "model_requested",
        "model_responded",
        "tools_dispatched",
        "state_changed",
        "run_resumed",
        "doubt_resolved",
        "tool_returned",
        "state_changed",
        "model_requested",
        "model_responded",
        "state_changed",
    ] == [kind_of(event) for event in events]


async def finds_none(bank: "Bank", key: str) -> Reconciled:
    return DidNot(final=True, note="no entry")


@pytest.mark.parametrize("reconcile", [finds_none, shrugs, breaks], ids=["did not", "cannot tell", "breaks"])
async def test_a_tool_that_takes_back_what_it_said(reconcile: Reconcile) -> None:
    """Once a reconciler confirmed a call, no later answer causes a second payment."""
    bank, whole, store = Bank("after"), MemoryStore(), MemoryStore()
    await (await crashed(bank, whole)).result()
    records = await records_of(whole, "r")
    said = [record.kind for record in records].index(kind_of(DoubtResolved))
    await write(store, "r", records[: said + 1])
    other = Bank("after", reconcile)
    other.dies.set()
    result = await agent(other, store, [say("Well.")]).resume("r").result()
    assert ("COMPLETED", 0, 1) == (result.state, other.acts, other.asked)
    assert ["tool:pay happened", HAPPENED_TEXT] == await told(store)
    await assert_sound(store, "r")
