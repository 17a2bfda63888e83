"""The gate: a size or digest in a fact's body that is not its content's is told, however well the chain
holds.

Limits and pruning go by the sizes alone: one that was made smaller would say that no limit was reached.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers import composition
from refold.reducers.codec import digest_named, digest_of
from refold.reducers.composition import forked
from refold.reducers.events import (
    Annotation,
    Answer,
    ContentErased,
    Event,
    Fact,
    LateResult,
    ModelResponded,
    Output,
    Result,
    RunForked,
    ToolReturned,
    kind_of,
    named_in,
)
from refold.reducers.evolution import evolve
from refold.reducers.folds import fold
from refold.reducers.messages import ReplyCall, Size, TokenCut
from refold.reducers.rules.order import RULES
from refold.reducers.sizes import misfit
from refold.reducers.state import NEW
from refold.reducers.vocabulary import Refuser, Role, StopReason
from refold.replay import Audit, Verification, audit, verify
from refold.store import MemoryStore
from refold.store.protocol import Record, Store
from refold.testing.strategies.driver import Driver, drive
from refold.testing.strategies.logs import runs
from support import golden
from support.forging import recorded, write
from support.scenario import Scenario

Asked = TypeVar("Asked")
SALT = b"salt"
SIZE = tuple(f"size.{field}" for field in Size.__struct_fields__)
MESSAGES = tuple(f"messages.{field}" for field in ("role", "unit", *SIZE))
CALLS = ("calls.id", "calls.name")
SIZES: dict[str, tuple[str, ...]] = {
    "run_started": MESSAGES,
    "context_observed": MESSAGES,
    "model_responded": (*SIZE, "blank", "blank_outside_think", "calls.complete", *CALLS),
    "model_failed": ("single", *(f"partial.{field}" for field in Size.__struct_fields__)),
    "tool_returned": (*SIZE, "output_bytes", "preview", "call"),
    "approval_answered": ("digest",),
    "input_received": SIZE,
    "summary_returned": SIZE,
}
"""What the body of each kind of fact says of its content, or its digest binds to it."""
CHAIN_ONLY = ("digest", "call", *CALLS)
"""What an audit, which does not look at digests of words, has no opinion on."""


def as_records(log: Sequence[Event], salt: bytes = SALT) -> list[Record]:
    """A log as it lies on disk; only what the world said is salted."""
    at, records = 0, list[Record]()
    for event in log:
        at = event.at if isinstance(event, Fact | Annotation) else at
        salted = isinstance(event, Fact | Annotation) and getattr(event, "content", None) is not None
        records.append(recorded(event, at, salt if salted else b""))
    return records


def judged(records: Sequence[Record]) -> Verification:
    return anyio.run(_asked, verify, records)


def audited(records: Sequence[Record]) -> Audit:
    return anyio.run(_asked, audit, records)


async def _asked(ask: Callable[[Store, str], Awaitable[Asked]], records: Sequence[Record]) -> Asked:
    store = MemoryStore()
    await write(store, "r1", records)
    return await ask(store, "r1")


def forged(records: Sequence[Record], seq: int, event: Event) -> list[Record]:
    """The log with another event `seq`: whoever writes it computes the chain anew."""
    old = records[seq - 1]
    return [*records[: seq - 1], recorded(event, old.at, old.salt), *records[seq:]]


def other(value: Any) -> Any:
    match value:
        case Role():
            return Role.USER if value is Role.SYSTEM else Role.SYSTEM
        case bool():
            return not value
        case int():
            return value + 1 if value == 0 else value - 1
        case tuple():
            return (TokenCut(codec="bpe:o200k_base", cap=1, cuts=()),) if not value else ()
        case _:
            return "00" + value


def altered(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """The value with what stands at the path changed: in each part of a tuple in turn."""
    if not path:
        yield other(value)
    elif isinstance(value, tuple):
        for place, part in enumerate(value):
            for changed in altered(part, path):
                yield (*value[:place], changed, *value[place + 1 :])
    elif value is not None:
        for changed in altered(getattr(value, path[0]), path[1:]):
            yield replace(value, **{path[0]: changed})


def planted(fact: Fact) -> Iterator[tuple[str, Event]]:
    """The fact with each of its sizes, and each digest in them, changed in turn."""
    for name in SIZES[kind_of(fact)]:
        if name == "output_bytes" and getattr(fact, "cut", False):
            continue  # of what was cut off nothing but this number is left
        for changed in altered(fact, name.split(".")):
            yield name, changed


def measured(event: Event) -> bool:
    """Whether it is a fact with sizes and words."""
    return kind_of(event) in SIZES and getattr(event, "content", None) is not None


def one_run(log: Sequence[Event]) -> list[Event]:
    """The log up to the first fork in it."""
    return list(takewhile(lambda event: not isinstance(event, RunForked), log))


@given(run=runs(), data=st.data())
def test_no_size_of_any_fact_can_be_changed(run: Driver, data: Any) -> None:
    """In any run that is whole, any size or digest that is not its content's is told at its event, and
    nothing else is.
    """
    log = one_run(run.log)
    records = as_records(log)
    assert judged(records).problem is None
    facts = [(seq, event) for seq, event in enumerate(log, 1) if measured(event)]
    seq, fact = facts[data.draw(st.integers(0, len(facts) - 1))]
    assert isinstance(fact, Fact)
    ways = [*planted(fact)]
    name, changed = ways[data.draw(st.integers(0, len(ways) - 1))]
    problem = judged(forged(records, seq, changed)).problem
    assert problem is not None, name
    assert (seq, kind_of(fact)) == (problem.seq, problem.kind)
    assert name.endswith(CHAIN_ONLY) or f"event {seq}" in audited(forged(records, seq, changed)).damaged


@pytest.fixture(scope="module")
def every_kind() -> dict[str, tuple[list[Event], int]]:
    """For each kind of fact with sizes a log, and where in it the first such fact stands."""
    found = dict[str, tuple[list[Event], int]]()
    policy: dict[str, Any] = {
        "schema": "refold/v1",
        "end_of_turn": "wait",
        "doubt": "ask",
        "approvals": {"chain": [{"approver": "human", "tools": ["set"]}]},
        "history": [{"do": "summarise", "when": {"messages": 4}, "keep_last": 1}],
    }
    for seed in range(300):
        log = one_run(drive(policy, [seed * 37 * n % 1000 for n in range(1, 30)]).log)
        for seq, event in enumerate(log, 1):
            if measured(event):
                found.setdefault(kind_of(event), (log, seq))
    return found


@pytest.mark.parametrize("kind", SIZES)
def test_every_size_counts(kind: str, every_kind: dict[str, tuple[list[Event], int]]) -> None:
    """There is no size or digest in the body of a fact of this kind that could be changed without being
    told.
    """
    log, seq = every_kind[kind]
    records, fact = as_records(log), log[seq - 1]
    assert isinstance(fact, Fact)
    for name, changed in planted(fact):
        problem = judged(forged(records, seq, changed)).problem
        assert problem is not None, name
        assert seq == problem.seq


@given(run=runs(), data=st.data())
def test_no_size_of_a_late_result_can_be_changed(run: Driver, data: Any) -> None:
    """A result for which nothing waited is measured like one that came in time: in a log it is worth as
    much.
    """
    log = one_run(run.log)
    late = [(seq, event) for seq, event in enumerate(log, 1) if isinstance(event, LateResult)]
    late = [(seq, event) for seq, event in late if kind_of(event.fact) in SIZES and event.content is not None]
    assume(late)
    seq, event = late[data.draw(st.integers(0, len(late) - 1))]
    ways = [*planted(event.fact), ("at", replace(event.fact, at=event.at + 1))]
    name, changed = ways[data.draw(st.integers(0, len(ways) - 1))]
    assert isinstance(changed, Result)
    problem = judged(forged(as_records(log), seq, replace(event, fact=changed))).problem
    assert problem is not None, name
    assert seq == problem.seq


def test_only_an_import_says_that_a_harness_refused() -> None:
    """A fact of a run of our own cannot say that the source's harness refused a call."""
    run = Scenario({})
    run.answer("", ("look", "{}"))
    run.result("c1", "there")
    answer, result = (
        (fold(run.log[:place]), event)
        for place, event in enumerate(run.log)
        if isinstance(event, ModelResponded | ToolReturned)
    )
    assert isinstance(answer[1], ModelResponded)
    assert isinstance(result[1], ToolReturned)
    assert ("", "") == (misfit(*answer), misfit(*result))
    calls = tuple([replace(call, refused=True) for call in answer[1].calls])
    assert "refused by its own harness" in misfit(answer[0], replace(answer[1], calls=calls))
    assert "refused by its own harness" in misfit(result[0], replace(result[1], refused_by=Refuser.USER))


def answered(policy: dict[str, Any], output: str, sha256: str = "") -> list[Event]:
    """A run in which a tool said something."""
    run = drive({"schema": "refold/v1", **policy}, [])
    answer = ModelResponded(
        at=run.at, request=run.state.request.seq if run.state.request else 0, stop=StopReason.TOOL_USE
    )
    made = ReplyCall(name="look", arguments="{}")
    run.feed(composition.responded(run.state, answer, Answer(), [made], SALT))
    result = ToolReturned(at=run.at, call="c1")
    run.feed(composition.returned(run.state, result, output, "look", sha256, SALT))
    return run.log


def result_of(log: Sequence[Event]) -> tuple[int, ToolReturned]:
    return next((seq, event) for seq, event in enumerate(log, 1) if isinstance(event, ToolReturned))


def resealed(fact: ToolReturned, output: Output) -> ToolReturned:
    """The result with other words, and the digest of them."""
    digest = digest_named(digest_of(SALT, output), named_in(fact))
    return replace(fact, content=output, size=replace(fact.size, digest=digest))


def test_other_words_under_the_old_sizes() -> None:
    """An output that was made shorter, with its digest, is told by the sizes that its body kept."""
    log = answered({}, "four words of output")
    seq, fact = result_of(log)
    problem = judged(forged(as_records(log), seq, resealed(fact, Output(output="none")))).problem
    assert problem is not None
    assert (seq, "chars is 20, and was measured as 4") == (problem.seq, problem.problem[-34:])


@pytest.mark.parametrize(
    ("sha256", "said"),
    [
        pytest.param("", "", id="nobody knows it"),
        pytest.param(hashlib.sha256(b"said").hexdigest(), "", id="right"),
        pytest.param(
            hashlib.sha256(b"other").hexdigest(), "the sha256 in its content", id="of something else"
        ),
    ],
)
def test_the_digest_of_a_whole_output(sha256: str, said: str) -> None:
    """The digest in the content of an output that was not cut is of that output."""
    log = answered({}, "said", "given")
    seq, fact = result_of(log)
    problem = judged(
        forged(as_records(log), seq, resealed(fact, Output(output="said", sha256=sha256)))
    ).problem
    assert said == (problem.problem[: len(said)] if problem else "")
    assert bool(said) == (problem is not None)


def test_words_that_are_gone_with_their_digest() -> None:
    """A fact that never had words, it says, though its kind always has some, is told: so no erasure leaves
    it.
    """
    log = answered({}, "four words of output")
    seq, fact = result_of(log)
    problem = judged(forged(as_records(log), seq, replace(fact, content=None, size=Size()))).problem
    assert problem is not None
    assert (seq, "its payload is missing") == (problem.seq, problem.problem[:22])


@pytest.mark.parametrize(("size", "cut"), [(7, True), (300, True)])
def test_what_was_cut_is_counted(size: int, cut: bool) -> None:
    """Of an output that was cut nobody knows the size: none is told to be wrong, and it is counted."""
    log = answered({"tool_output": {"max": 20}}, "x" * 300, "given")
    seq, fact = result_of(log)
    assert fact.cut == cut
    found = judged(forged(as_records(log), seq, replace(fact, output_bytes=size)))
    assert (None, 1) == (found.problem, found.cut)


@pytest.mark.anyio
async def test_what_was_erased_is_counted() -> None:
    """Of an erased fact nobody can measure the words: no size is told to be wrong, and it is counted."""
    log = answered({}, "secret")
    seq, fact = result_of(log)
    store = MemoryStore()
    await write(store, "r1", forged(as_records(log), seq, replace(fact, output_bytes=5)))
    assert not (await verify(store, "r1")).whole
    notice = ContentErased(at=log[0].at + 1, seqs=(seq,), by="ann", why="a key")  # type: ignore[attr-defined]
    lease = await store.lease("r1", holder="ann")
    await store.erase("r1", len(log), lease, [seq], recorded(notice, notice.at))
    found = await verify(store, "r1")
    assert (True, 1, 1) == (found.whole, found.erased, found.unmeasured)


def test_a_fork_with_a_message() -> None:
    """The sizes of the message that joins a fork are those that the fork's own policy measures."""
    run = drive({"schema": "refold/v1", "end_of_turn": "wait"}, [])
    other_policy = replace(run.state.policy, estimator="cjk")
    fact = RunForked(
        at=run.at,
        run="r2",
        rules=RULES,
        parent="r1",
        parent_seq=run.state.seq,
        parent_hash="00",
        policy=other_policy,
    )
    made = forked(run.state, fact, "twelve chars", SALT)
    assert made.size is not None
    assert ("", 12, 7) == (misfit(run.state, made), made.size.chars, made.size.tokens)
    for field in ("chars", "tokens"):
        assert field in misfit(run.state, replace(made, size=replace(made.size, **{field: 1})))


@pytest.mark.parametrize("name", golden.names())
def test_every_recorded_log_fits(name: str) -> None:
    """No size in a log that was recorded for ever is told to be wrong."""
    state = NEW
    for event in golden.events(name):
        assert not isinstance(event, Fact) or "" == misfit(state, event)
        state = evolve(state, event)
