"""Forks: a run goes on live from a prefix of another's, and nothing that the other did is done again."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from refold.engine import (
    Agent,
    CallContext,
    DidNot,
    Reconciled,
    ScriptedModel,
    Tool,
    call,
    calls,
    say,
    tool,
)
from refold.engine.journal import RunExists
from refold.engine.models.script import Line
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import DoubtResolved, Event, ModelRequested, RunForked, ToolReturned, kind_of
from refold.reducers.views import view
from refold.reducers.vocabulary import Doubt, ToolError
from refold.replay import NoCut, audit, cut, events, state_at, verify
from refold.replay.cuts import accepts_message, cut_from, have_calls
from refold.replay.timeline import timeline
from refold.store import MemoryStore
from refold.store.protocol import UnknownRun
from support import runs
from support.clocks import VirtualClock
from support.stores import FailingStore

pytestmark = pytest.mark.anyio

PAID: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_was_paid() -> None:
    PAID.clear()


@tool(replay="read_only")
def look(path: str) -> str:
    """Look."""
    return f"{path} is there"


@tool
def pay(amount: int) -> str:
    """Pay, for good."""
    PAID.append(f"{amount}")
    return "paid"


@tool(replay="idempotent")
def order(what: str, context: CallContext) -> str:
    """Order under a key."""
    PAID.append(context.key)
    return f"ordered {what}"


TOOLS: Sequence[Tool] = [look, pay, order]


def agent(store: MemoryStore, *lines: Line, tools: Sequence[Tool] = TOOLS, **options: Any) -> Agent:
    return Agent(model=ScriptedModel([*lines]), store=store, clock=VirtualClock, tools=tools, **options)


@pytest.fixture
async def store() -> AsyncGenerator[MemoryStore]:
    """A run that paid, looked, ordered, and said so."""
    async with MemoryStore() as opened:
        lines = [
            call("pay", amount=3),
            calls(("look", {"path": "a"}), ("order", {"what": "tea"})),
            say("Done."),
        ]
        await agent(opened, *lines).start("Buy tea.", run_id="r", seed=7).result()
        yield opened


async def log_of(store: MemoryStore, run: str) -> list[Event]:
    return [event async for _, event in events(store, run)]


async def own(store: MemoryStore, run: str) -> list[str]:
    return [kind_of(event) async for stored, event in events(store, run) if stored.run == run]


async def legal(store: MemoryStore, run: str) -> list[int]:
    found = list[int]()
    for at in range(1, (await store.head(run)).seq + 1):
        try:
            found.append(await cut(store, run, at))
        except NoCut:
            continue
    return found


async def sound(store: MemoryStore, run: str) -> None:
    assert (await verify(store, run)).problem is None
    found = await audit(store, run)
    assert found.clean, found.findings


async def test_a_fork_at_every_place(store: MemoryStore) -> None:
    """A fork from each place completes, verifies and audits; the parent's log does not change."""
    before = [event async for chunk in store.read("r") for event in chunk]
    places = await legal(store, "r")
    assert [2, 5, 8, 11, 12, 15] == places
    for at in places:
        forked = agent(store, say("Otherwise."), policy={"doubt": "tell"}).fork("r", at, fork_id=f"f{at}")
        result = await forked.result()
        assert ("COMPLETED", "Otherwise.") == (str(result.state), result.outcome.text), at
        await sound(store, f"f{at}")
    assert before == [event async for chunk in store.read("r") for event in chunk]


async def test_a_long_run_is_forked_at_every_place() -> None:
    """A run with retries, pruning and guards: a fork continues with what is pending at the cut."""
    async with MemoryStore() as store:
        await runs.recorded_run(store)
        for at in await legal(store, runs.RUN):
            await runs.agent(store=store).fork(runs.RUN, at, fork_id=f"f{at}").result()
            await sound(store, f"f{at}")


@pytest.mark.parametrize("at", [1, 3, 4, 6, 7, 9, 10, 13, 14, 16, 17])
async def test_a_place_where_no_log_can_be_cut(store: MemoryStore, at: int) -> None:
    """A cut within one group of decisions or after the end is refused with the reason."""
    heads = [run async for chunk in store.runs() for run, _ in chunk]
    with pytest.raises(WrongUse, match=r"decided together|run ended there"):
        await agent(store).fork("r", at).result()
    with pytest.raises(NoCut) as caught:
        await cut(store, "r", at)
    for place in (caught.value.before, caught.value.after):
        assert place is None or place == await cut(store, "r", place)
    assert heads == [run async for chunk in store.runs() for run, _ in chunk]


async def test_a_place_that_is_not_there(store: MemoryStore) -> None:
    """Beyond the log's end, and in a run that is not there, nothing is forked."""
    with pytest.raises(WrongUse, match="events 1 to 17"):
        await agent(store).fork("r", 18).result()
    with pytest.raises(NoCut, match="events 1 to 17"):
        await cut(store, "r", 18)
    with pytest.raises(UnknownRun):
        await agent(store).fork("x", 2).result()


async def test_what_cannot_be_repeated_is_in_doubt(store: MemoryStore) -> None:
    """A call that the parent started is not repeated: the model gets an unknown outcome."""
    assert ["3"] == [paid for paid in PAID if paid.isdigit()]
    await agent(store, say("I see.")).fork("r", 5, fork_id="f").result()
    assert ["3"] == [paid for paid in PAID if paid.isdigit()]
    log = await log_of(store, "f")
    (told,) = [event for event in log if isinstance(event, ToolReturned)]
    assert ("c1", ToolError.IN_DOUBT) == (told.call, told.error)
    assert isinstance(log[5], RunForked)
    assert ("c1",) == log[5].in_doubt


async def test_a_reconciler_in_a_fork() -> None:
    """`DidNot(final=True)` from a fork's tool does not repeat a call of the parent."""

    def none(context: CallContext) -> Reconciled:
        return DidNot(final=True, note=f"no entry for {context.epoch}")

    @tool(replay="reconcilable", reconcile=none)
    def charge(amount: int) -> str:
        """Charge a card."""
        PAID.append(f"{amount}")
        return "charged"

    async with MemoryStore() as opened:
        lines = [call("charge", amount=3), say("Done.")]
        await agent(opened, *lines, tools=[charge]).start("Buy tea.", run_id="r", seed=7).result()
        await agent(opened, say("I see."), tools=[charge]).fork("r", 5, fork_id="f").result()
        assert ["3"] == PAID
        log = await log_of(opened, "f")
        doubts = [(each.doubt, each.content) for each in log if isinstance(each, DoubtResolved)]
        assert [Doubt.UNKNOWN] == [doubt for doubt, _ in doubts]
        assert "run r, which started the call, may still complete it" in str(doubts[0][1])
        await sound(opened, "f")


async def test_what_a_person_says_of_it(store: MemoryStore) -> None:
    """Where the policy asks a person, the fork waits; "it did not happen" runs the call once."""
    forked = agent(store, say("I see."), policy={"doubt": "ask"}).fork("r", 5, fork_id="f")
    assert "WAITING_FOR_INPUT" == (await forked.result()).state
    forked.resolve("c1", "did_not")
    assert "COMPLETED" == (await forked.result()).state
    assert ["3", "3"] == [paid for paid in PAID if paid.isdigit()]
    await sound(store, "f")


async def test_what_may_be_repeated_has_the_key_of_the_parent(store: MemoryStore) -> None:
    """A call in progress at the cut runs again under its key; a call of the fork has a new key."""
    await agent(store, call("order", what="milk"), say("Done.")).fork("r", 11, fork_id="f").result()
    first, again, other = [paid for paid in PAID if not paid.isdigit()]
    assert first == again != other
    await sound(store, "f")


async def test_a_fork_of_a_fork_keeps_the_key(store: MemoryStore) -> None:
    """Through two forks, too."""
    await agent(store).fork("r", 11, fork_id="f").detach()
    await agent(store, say("Done.")).fork("f", 12, fork_id="g").result()
    first, again = [paid for paid in PAID if not paid.isdigit()]
    assert first == again
    assert ["r"] * 11 + ["f"] == [stored.run async for stored, _ in events(store, "g")][:12]
    await sound(store, "g")


async def test_a_call_that_started_a_run(store: MemoryStore) -> None:
    """A fork neither waits for its parent's child run nor starts it again."""
    child = agent(store, call("pay", amount=9), say("Paid."), name="child")
    lines = [call("child", task="pay"), say("Done.")]
    await agent(store, *lines, tools=[child.as_tool()]).start("Go.", run_id="p").result()
    paid = [*PAID]
    again = agent(store, call("pay", amount=9), say("Paid."), name="child")
    await agent(store, say("I see."), tools=[again.as_tool()]).fork("p", 5, fork_id="f").result()
    assert paid == PAID
    await sound(store, "f")


async def test_a_made_up_result(store: MemoryStore) -> None:
    """A made-up result is in the prompt, its author is recorded, and no tool runs."""
    made_up = agent(store, say("Oh.")).fork("r", 5, results={"c1": "no money"}, by="ann", fork_id="f")
    await made_up.result()
    state, contents = await state_at(store, "f")
    assert "no money" in [message.text for message in view(state, contents)]
    log = await log_of(store, "f")
    assert isinstance(log[5], RunForked)
    assert (("c1",), "ann", ()) == (log[5].results, log[5].by, log[5].in_doubt)
    assert ["3"] == [paid for paid in PAID if paid.isdigit()]
    await sound(store, "f")


async def test_part_of_a_batch_made_up(store: MemoryStore) -> None:
    """The other calls of the batch go on as in any fork."""
    await agent(store, say("Oh.")).fork("r", 11, results={"c2": "nothing"}, fork_id="f").result()
    log = await log_of(store, "f")
    assert ["c2", "c3"] == [event.call for event in log[11:] if isinstance(event, ToolReturned)]
    await sound(store, "f")


async def test_a_message_more(store: MemoryStore) -> None:
    """The request in progress is repeated with the message: same turn, first attempt."""
    await agent(store, say("Milk then.")).fork("r", 8, say="No tea!", by="ann", fork_id="f").result()
    log = await log_of(store, "f")
    forked, asked = log[8], log[9]
    assert isinstance(forked, RunForked)
    assert isinstance(asked, ModelRequested)
    assert (True, "ann", 7) == (forked.again, forked.by, forked.size and forked.size.chars)
    assert (2, 1) == (asked.step, asked.attempt)
    state, contents = await state_at(store, "f", 10)
    assert "No tea!" == view(state, contents)[-1].text
    assert (2, 2) == (state.spent.steps, state.spent.requests)
    told, _ = await timeline(store, "f")
    assert [1, 1] == [turn.attempts for turn in told.turns]
    await sound(store, "f")


async def test_a_message_to_a_run_that_waits() -> None:
    """Where the parent waits for a person, the message is the person's answer."""
    async with MemoryStore() as store:
        waits = {"end_of_turn": "wait"}
        await agent(store, say("And now?"), policy=waits).start("Hello.", run_id="r").result()
        at = await cut(store, "r", suits=accepts_message)
        await agent(store, say("Well."), policy=waits).fork("r", at, say="Go on.", fork_id="f").result()
        assert ["run_forked", "input_received"] == (await own(store, "f"))[:2]
        await sound(store, "f")


@pytest.mark.parametrize(
    ("at", "edit", "said"),
    [
        pytest.param(5, {"say": "Stop"}, "calls c1 have no result", id="a message before a result"),
        pytest.param(8, {"results": {"c1": "x"}}, "no call is under way", id="a result that is there"),
        pytest.param(11, {"results": {"c9": "x"}}, "under way there: c2, c3", id="a call that is not there"),
        pytest.param(8, {"say": "\ud800"}, "expected text", id="no text"),
    ],
)
async def test_edits_that_cannot_be(store: MemoryStore, at: int, edit: dict[str, Any], said: str) -> None:
    """They are refused, and nothing is written."""
    with pytest.raises(WrongUse, match=said):
        await agent(store).fork("r", at, fork_id="f", **edit).result()
    assert 0 == (await store.head("f")).seq


async def test_another_policy(store: MemoryStore) -> None:
    """A new policy counts from the fork, also for the request in progress: two turns end the second."""
    limits = {"limits": [{"type": "step", "value": 1, "scope": "lineage"}]}
    result = await agent(store, policy=limits).fork("r", 8, fork_id="f").result()
    assert "MAX_STEPS" == result.state
    kept = await agent(store, say("Well.")).fork("r", 8, fork_id="g").result()
    assert "COMPLETED" == kept.state
    for run in "fg":
        await sound(store, run)


async def test_another_model_and_other_tools(store: MemoryStore) -> None:
    """They are recorded with the fork, which is resumed with them and with no others."""
    model = ScriptedModel([say("Hm.")], name="other")
    await Agent(model=model, tools=[look], store=store).fork("r", 8, fork_id="f").detach()
    state, _ = await state_at(store, "f")
    assert ("other", ["look"]) == (state.setup.model, [each.name for each in state.setup.tools])
    with pytest.raises(WrongUse, match="model other"):
        await agent(store).resume("f").result()
    result = await Agent(model=model, tools=[look], store=store).resume("f").result()
    assert "Hm." == result.outcome.text
    await sound(store, "f")


async def test_a_policy_that_the_model_cannot_follow(store: MemoryStore) -> None:
    """The run's own limit of money is no reason to go on with a model that nobody knows the price of."""

    unpriced = ScriptedModel([])
    unpriced.priced = False
    policy = {"limits": [{"type": "cost", "value": 1}]}
    await (
        Agent(model=ScriptedModel([say("Hm.")]), store=store, policy=policy).start("Go.", run_id="p").result()
    )
    with pytest.raises(PolicyError, match="the price of scripted is unknown"):
        await Agent(model=unpriced, store=store).fork("p", 2).result()


async def test_time_does_not_run_between_a_run_and_its_fork(store: MemoryStore) -> None:
    """A fork made a day later has as much time for what is under way as the parent had."""

    class Later(VirtualClock):
        def start(self, last: int) -> None:
            super().start(last + 24 * 3600 * 10**9)

    policy = {"limits": [{"type": "time", "value": 60, "scope": "lineage"}]}
    timed = Agent(model=ScriptedModel([say("Hm.")]), store=store, policy=policy, clock=VirtualClock)
    await timed.start("Go.", run_id="p").result()
    later = Agent(model=ScriptedModel([say("Hm.")]), store=store, clock=Later)
    assert "COMPLETED" == (await later.fork("p", 2, fork_id="f").result()).state
    await sound(store, "f")


async def test_a_crash_right_after_the_fork(store: MemoryStore) -> None:
    """What is under way at the cut is in doubt from the first event on, whoever takes the fork up."""
    await agent(store).fork("r", 5, fork_id="f").detach()
    assert ["run_forked"] == (await own(store, "f"))[:1]
    await agent(store, say("I see.")).resume("f").result()
    assert ["3"] == [paid for paid in PAID if paid.isdigit()]
    await sound(store, "f")


@pytest.mark.parametrize("after", [False, True])
async def test_a_store_that_fails(after: bool) -> None:
    """A first append that fails or has an unknown outcome is repeated or read: there is one fork."""
    async with FailingStore(3, after=after) as store:
        await agent(store, say("Done.")).start("Go.", run_id="r").result()
        await agent(store, say("Again.")).fork("r", 2, fork_id="f").result()
        assert store.failed
        assert 1 == (await own(store, "f")).count("run_forked")
        await sound(store, "f")


async def test_an_id_that_is_taken(store: MemoryStore) -> None:
    """A fork with an existing run's id is refused and changes nothing."""
    await agent(store, say("Hm.")).start("Else.", run_id="other").result()
    for run in ("r", "other"):
        before = await store.head(run)
        with pytest.raises(RunExists, match=f"the store has a run '{run}' already"):
            await agent(store).fork("r", 8, fork_id=run).result()
        assert before == await store.head(run)


async def test_secrets_in_what_is_made_up(store: MemoryStore) -> None:
    """What a person makes up is recorded without secrets, as what they say is."""
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2
    await agent(store, say("Oh.")).fork("r", 5, results={"c1": f"the key is {key}"}, fork_id="f").result()
    await agent(store, say("Oh.")).fork("r", 8, say=f"use {key}", fork_id="g").result()
    for run in "fg":
        contents = [s.content or b"" async for chunk in store.read(run) for s in chunk]
        assert not any(key.encode() in content for content in contents)


async def test_where_a_fork_can_do_what_it_is_for(store: MemoryStore) -> None:
    """A place is found by what is to be done there; what cannot be done anywhere names no place."""
    assert 15 == await cut(store, "r")
    assert 11 == await cut(store, "r", suits=have_calls(frozenset({"c2", "c3"})))
    assert 5 == await cut(store, "r", suits=have_calls(frozenset({"c1"})))
    assert 15 == await cut(store, "r", suits=accepts_message)
    assert [2, 8, 15] == [await cut_from(store, "r", at) for at in (1, 7, 13)]
    with pytest.raises(NoCut, match="no other place is possible"):
        await cut(store, "r", suits=have_calls(frozenset({"c9"})))
    with pytest.raises(NoCut, match="event 5"):
        await cut(store, "r", 8, suits=have_calls(frozenset({"c1"})))
    with pytest.raises(NoCut, match="event 15"):
        await cut_from(store, "r", 16)
