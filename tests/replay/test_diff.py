"""`diff`: where two runs part, and in what they differ."""

from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine import Agent, ScriptedModel, call, calls, fail, say, tool
from refold.engine.models.script import Line
from refold.reducers.vocabulary import FailureClass
from refold.replay.queries.diffs import MOST, Diff, Difference, diff
from refold.replay.queries.divergence import SHOWN
from refold.store import MemoryStore
from refold.store.protocol import UnknownRun
from refold.testing.strategies.driver import Driver, drive
from support import runs
from support.forging import records_of, write
from support.queried import choices, holding

pytestmark = pytest.mark.anyio


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at something."""
    return f"{path} is there"


@tool(replay="read_only")
def count(path: str) -> str:
    """Count something."""
    return f"{path} has 3"


FIRST: tuple[Line, ...] = (
    calls(("look", {"path": "a"}), ("count", {"path": "a"}), text="I look."),
    call("look", path="b"),
    say("Both are there."),
)


async def record(store: MemoryStore, run: str, *script: Line, **options: Any) -> None:
    """One run more, by the wall clock as any run."""
    agent = Agent(model=ScriptedModel(script or FIRST), tools=[look, count], store=store, **options)
    await agent.start("Look.", run_id=run).result()


async def compared(*script: Line, **options: Any) -> Diff:
    """The first run beside another one."""
    store = MemoryStore()
    await record(store, "left")
    await record(store, "right", *script, **options)
    return await diff((store, store), ("left", "right"))


def told(found: Diff) -> list[tuple[int, str, str, str]]:
    """Turn, kind, name and what differs, or the side that alone has it."""
    return [
        (each.turn, each.kind, each.name, ",".join(field.field for field in each.fields) or _alone(each))
        for each in found.differences
    ]


def _alone(difference: Difference) -> str:
    return "left only" if difference.right is None else "right only"


async def test_two_recordings_of_one_thing_are_the_same() -> None:
    """Ids, salts and times of two runs differ, and none of it is a difference."""
    found = await compared(*FIRST)
    assert (True, [], 0, {}) == (found.same, told(found), found.differing, found.kinds)
    assert (3, 7) == (found.left.turns, found.left.messages)
    assert found.compared > 15


async def test_another_word() -> None:
    """An answer that says something else is the one difference, with the place from which on it does."""
    found = await compared(*FIRST[:2], say("Both are here."))
    assert [(3, "model_responded", "", "text")] == told(found)
    field = found.differences[0].fields[0]
    assert ("Both are there.", "Both are here.", 9) == (field.left, field.right, field.place)
    assert found.differences[0] == found.said


async def test_the_first_difference_comes_first() -> None:
    """What parted first is told first, and what followed from it after it."""
    found = await compared(FIRST[0], call("look", path="c"), FIRST[2])
    assert [(2, "model_responded", "", "arguments"), (2, "tool_returned", "look", "output")] == told(found)
    assert ["{"] == [field.left[0] for field in found.differences[0].fields]


async def test_a_call_more_shifts_nothing() -> None:
    """Results are aligned by their tool and place in the answer: one call more is told as just that."""
    more = calls(("count", {"path": "z"}), ("look", {"path": "a"}), ("count", {"path": "a"}), text="I look.")
    found = await compared(more, *FIRST[1:])
    alone = [each for each in told(found) if each[3].endswith("only")]
    assert [(1, "tool_returned", "count#2", "right only")] == alone
    assert (1, "tool_returned", "look") not in [each[:3] for each in told(found)]


async def test_results_in_another_order_are_the_same() -> None:
    """Which of two parallel calls came back first makes no difference."""
    store = MemoryStore()
    await runs.recorded_run(store)
    log = await records_of(store, runs.RUN)
    other = MemoryStore()
    await write(other, runs.RUN, [*log[:9], log[10], log[9], *log[11:]])
    found = await diff((store, other), (runs.RUN, runs.RUN))
    assert found.same


async def test_an_attempt_more() -> None:
    """A request that failed once more is told with what followed, and the turn goes on as the same turn."""
    found = await compared(
        fail(FailureClass.RATE_LIMIT), *FIRST, policy={"retry": {"attempts": 3, "initial": 0}}
    )
    assert (1, "model_failed", "", "right only") in told(found)
    assert (3, 3) == (found.left.turns, found.right.turns)
    assert "model_responded" not in found.kinds


async def test_another_policy() -> None:
    """What a run was started with is compared; how it ended is told of both."""
    found = await compared(policy={"limits": [{"type": "step", "value": 2}]})
    assert (0, "run_started", "", "policy") == told(found)[0]
    assert (3, "model_requested", "", "left only") in told(found)
    assert ("COMPLETED", "MAX_STEPS") == (found.left.agent_state, found.right.agent_state)
    assert ("end_turn", "step_limit") == (found.left.code, found.right.code)


async def test_erased_words_are_unknown() -> None:
    """Where the words of one side are gone nobody knows whether they differed, and nothing is said to."""
    store, other = MemoryStore(), MemoryStore()
    await runs.recorded_run(store)
    log = await records_of(store, runs.RUN)
    bare = msgspec.structs.replace(log[10], content=None, salt=b"", content_digest=bytes(32))
    await write(other, runs.RUN, [*log[:10], bare, *log[11:]])
    found = await diff((store, other), (runs.RUN, runs.RUN))
    assert (True, 1) == (found.same, found.unknown)


async def test_what_is_kept_is_bounded() -> None:
    """Of many differences the first are kept, of long values a piece around the first difference; all are
    counted.
    """
    long, free = "x" * 5000, dict[str, Any](limits=[])
    store = MemoryStore()
    for run in ("left", "right"):
        lines = [call("look", path=f"{long}{run[0]}{number}") for number in range(60)]
        await record(store, run, *lines, say("Done."), policy=free)
    found = await diff((store, store), ("left", "right"))
    assert (MOST, 120) == (len(found.differences), found.differing)
    assert all(
        len(side) <= SHOWN for field in found.differences[0].fields for side in (field.left, field.right)
    )
    first = found.differences[0].fields[0]
    assert "l0" in first.left
    assert first.start > 4900


async def test_an_unknown_run() -> None:
    """A run that is not there is named."""
    store = MemoryStore()
    with pytest.raises(UnknownRun):
        await diff((store, store), ("nobody", "nobody"))


def beside(left: Driver, right: Driver) -> tuple[Diff, Diff, Diff]:
    """Two runs one way round and the other, and the first beside itself."""

    async def both() -> tuple[Diff, Diff, Diff]:
        store = await holding(a=left.log, b=right.log)
        return (
            await diff((store, store), ("a", "b")),
            await diff((store, store), ("b", "a")),
            await diff((store, store), ("a", "a")),
        )

    return anyio.run(both)


def turned(difference: Difference) -> Difference:
    """As seen from the other side."""
    fields = tuple(
        msgspec.structs.replace(field, left=field.right, right=field.left) for field in difference.fields
    )
    return msgspec.structs.replace(difference, left=difference.right, right=difference.left, fields=fields)


@given(one=choices, other=choices, shared=st.integers(0, 60))
def test_a_diff_is_symmetric_and_of_itself_empty(one: list[int], other: list[int], shared: int) -> None:
    """A run beside itself has no difference, and two runs have the same the other way round."""
    policy = {"limits": [{"type": "step", "value": 12}], "end_of_turn": "wait"}
    left, right = drive(policy, one), drive(policy, [*one[:shared], *other], b"pepper")
    forth, back, same = beside(left, right)
    assert (True, 0, 0) == (same.same, same.differing, same.unknown)
    assert same.left == same.right
    assert (forth.left, forth.right) == (back.right, back.left)
    assert (forth.compared, forth.differing, forth.kinds) == (back.compared, back.differing, back.kinds)
    assert set(forth.differences) == {turned(each) for each in back.differences}
    if forth.differing:
        assert forth.differences[0] == turned(back.differences[0])


@given(picked=choices)
def test_salts_make_no_difference(picked: list[int]) -> None:
    """The same run under other salts is the same."""
    policy = {"limits": [{"type": "step", "value": 12}], "end_of_turn": "wait"}
    forth, _, _ = beside(drive(policy, picked), drive(policy, picked, b"pepper"))
    assert forth.same
