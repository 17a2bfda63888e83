"""Laws over generated runs: any policy, any order of plausible and hostile facts."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.reducers import codec
from refold.reducers.composition import responded, returned
from refold.reducers.effects import next_effects
from refold.reducers.errors import RefoldError
from refold.reducers.events import (
    DECISIONS,
    KINDS,
    Annotation,
    Answer,
    CallRefused,
    ContextOverflowed,
    Decision,
    Event,
    Fact,
    HistoryPruned,
    MessageInjected,
    ModelResponded,
    StateChanged,
    ToolReturned,
    ToolsDispatched,
    kind_of,
)
from refold.reducers.evolution import encode_value, evolve
from refold.reducers.folds import advance, fold
from refold.reducers.machine import TERMINAL
from refold.reducers.messages import ReplyCall
from refold.reducers.state import NEW
from refold.reducers.views import view
from refold.reducers.vocabulary import Role, StopReason
from refold.reducers.window import Window, append, refs
from refold.testing.strategies.driver import MARKER, Driver, drive
from refold.testing.strategies.events import events
from refold.testing.strategies.logs import choices, runs
from refold.testing.strategies.policies import policies
from support.once import Once
from support.strategies import scaled, stored

ROOT = Path(__file__).resolve().parents[2]


@given(run=runs())
def test_fold_is_pure(run: Driver) -> None:
    """Folding twice gives equal states, and leaves every state on the way as it was."""
    state, kept = NEW, []
    for event in run.log:
        kept.append((state, encode_value(state)))
        state = evolve(state, event)
    assert encode_value(run.state) == encode_value(state)
    assert [before for _, before in kept] == [encode_value(state) for state, _ in kept]
    assert encode_value(state) == encode_value(fold(run.log))


@given(run=runs(), cut=st.integers(0, 300))
def test_prefix_and_rest_is_the_whole(run: Driver, cut: int) -> None:
    """Folding a prefix and then the rest is folding the whole: snapshots are safe."""
    cut %= len(run.log) + 1
    assert encode_value(fold(run.log)) == encode_value(fold(run.log[cut:], fold(run.log[:cut])))


@given(run=runs())
def test_advance_over_its_own_facts_gives_the_log_again(run: Driver) -> None:
    """An audit derives every decision again, byte for byte, from the decoded facts."""
    read = [codec.decode(one.kind, one.body, one.content) for one in stored(run.log)]
    state, again = NEW, list[Event]()
    for event in read:
        if isinstance(event, Fact):
            state, derived = advance(state, event)
            again += derived
        elif isinstance(event, Annotation):
            state = evolve(state, event)
            again.append(event)
    assert stored(run.log) == stored(again)
    assert encode_value(run.state) == encode_value(state)


@given(run=runs())
def test_resuming_after_every_append_changes_nothing(run: Driver) -> None:
    """A state folded from the stored log has the same effects pending as the one that lived."""
    fold_state, place = NEW, 0
    read = [codec.decode(one.kind, one.body, one.content) for one in stored(run.log)]
    for state in run.states:
        fold_state = fold(read[place : state.seq], fold_state)
        place = state.seq
        assert next_effects(state) == next_effects(fold_state)


@given(run=runs())
def test_bodies_alone_give_the_same_state(run: Driver) -> None:
    """Without content everything is the same but what guards that read content know."""
    bare = [codec.decode(one.kind, one.body) for one in stored(run.log)]
    whole, without = fold(run.log), fold(bare)
    assert encode_value(msgspec.structs.replace(whole, guards=())) == encode_value(
        msgspec.structs.replace(without, guards=())
    )


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=scaled(10))
@given(policy=policies(), picked=choices, data=st.data())
def test_a_run_that_ended_takes_annotations_only(
    kind: str, policy: dict[str, Any], picked: list[int], data: Any
) -> None:
    """After the end every fact and decision is refused, and an annotation changes nothing but the place."""
    run = drive(policy, picked)
    run.stop()
    event = data.draw(events(kind))
    event = msgspec.structs.replace(event, at=run.at) if hasattr(event, "at") else event
    if isinstance(event, Annotation):
        after = evolve(run.state, event)
        assert encode_value(msgspec.structs.replace(after, seq=run.state.seq)) == encode_value(run.state)
    else:
        with pytest.raises(RefoldError):
            evolve(run.state, event)


@given(run=runs())
def test_exactly_one_end_and_one_result_a_call(run: Driver) -> None:
    """No decision is derived twice: at most one terminal move, and each call has at most one result."""
    ends = [event for event in run.log if isinstance(event, StateChanged) and event.target in TERMINAL]
    assert int(run.state.ended) == len(ends)
    results = [event.call for event in run.log if isinstance(event, ToolReturned | CallRefused)]
    made = [call.id for event in run.log if isinstance(event, ModelResponded) for call in event.calls]
    dispatched = [call for event in run.log if isinstance(event, ToolsDispatched) for call in event.calls]
    assert len(results) == len(set(results))
    assert set(results) <= set(made)
    assert len(dispatched) == len(set(dispatched))
    if run.state.ended:
        assert set(made) == set(results)


@given(run=runs())
def test_the_machine_moves_from_where_it_was(run: Driver) -> None:
    """The moves of a log are a chain that begins at RUNNING and ends in the state's own."""
    moves = [event for event in run.log if isinstance(event, StateChanged)]
    chain = ["RUNNING", *[move.target for move in moves]]
    assert chain[:-1] == [move.source for move in moves]
    assert chain[-1] == run.state.agent_state


@given(run=runs())
def test_totals_never_fall(run: Driver) -> None:
    """What was spent only grows but for steps given back, time goes on, and messages are numbered upwards."""
    states = [NEW]
    for event in run.log:
        states.append(evolve(states[-1], event))
    for (before, after), event in zip(pairwise(states), run.log, strict=True):
        one, two = before.spent, after.spent
        assert one.steps <= two.steps + (event.uncounted_steps if isinstance(event, ContextOverflowed) else 0)
        for name in ("requests", "calls", "cost_nanousd", "unpriced", "retry_wait", "person_wait"):
            assert getattr(one, name) <= getattr(two, name)
        for name in ("planned_wait", "succeeded_wait", "settled_wait"):
            assert getattr(one, name) <= getattr(two, name)
        assert two.succeeded_wait <= two.settled_wait <= two.retry_wait
        assert all(
            count <= two.count(cause, name)
            for cause, named in one.tally.items()
            for name, count in named.items()
        )
        assert one.usage.input <= two.usage.input
        assert one.usage.output <= two.usage.output
        assert before.at <= after.at
        assert before.messages <= after.messages
        assert before.seq + 1 == after.seq


@given(run=runs())
def test_no_words_of_others_in_a_decision(run: Driver) -> None:
    """No text that a model, a tool or a person said is repeated in a decision, body or content."""
    marked = MARKER.encode()
    decisions = [event for event in run.log if isinstance(event, Decision)]
    for one in stored(list(decisions)):
        assert marked not in one.body
        assert marked not in (one.content or b"")
    assert any(marked in (one.content or b"") for one in stored(run.log))


@given(run=runs())
def test_no_words_of_others_in_a_body(run: Driver) -> None:
    """Bodies hold numbers, names and sizes; what was said stands in contents only."""
    for one in stored(run.log):
        assert MARKER.encode() not in one.body


@given(run=runs())
def test_a_live_run_has_something_to_do_or_waits_for_a_person(run: Driver) -> None:
    """No run is stuck: it has ended, an effect is pending, or a person is asked."""
    for state in run.states:
        assert state.ended or next_effects(state) or state.asked_at is not None


@given(run=runs())
def test_nothing_runs_twice_that_must_not(run: Driver) -> None:
    """After a crash an unrepeatable call runs only if an operator confirmed that it did not run."""
    state, calls = NEW, Once()
    for event in run.log:
        before, state = state, evolve(state, event)
        calls.take(event, before, state)


@given(run=runs())
def test_intent_before_effect(run: Driver) -> None:
    """Each result in the log answers a decision that stands before it."""
    asked: set[object] = set()
    for seq, event in enumerate(run.log, 1):
        if kind_of(event) == "model_requested":
            asked.add(seq)
        elif isinstance(event, ToolsDispatched):
            asked.update(event.calls)
        elif kind_of(event) in ("model_responded", "model_failed"):
            assert event.request in asked  # type: ignore[attr-defined]
        elif isinstance(event, ToolReturned):
            assert event.call in asked


@given(run=runs())
def test_the_window_is_a_conversation_that_a_provider_takes(run: Driver) -> None:
    """Before each request: no result without its call, no call without its result, numbers in order."""
    contents = dict(enumerate(run.log, 1))
    for state in run.states:
        if state.request is None:
            continue
        # What stands for others has a number of its own time, and theirs for a place.
        numbers = [ref.number for ref in refs(state.window) if not ref.gap]
        assert sorted(set(numbers)) == numbers
        open_calls: list[str] = []
        for message in view(state, contents):
            if message.role is Role.TOOL:
                assert open_calls
                assert message.call == open_calls.pop(0)
            else:
                assert not open_calls
                open_calls = [call.id for call in message.calls]
        assert not open_calls
        assert {(ref.number, ref.pinned) for ref in refs(state.window)} >= {(1, True), (2, True)}


@given(run=runs())
def test_the_window_adds_up(run: Driver) -> None:
    """Count, tokens, ranges and digest that are carried along are those of the messages themselves."""
    for state in run.states:
        messages = refs(state.window)
        built = Window(estimator=state.window.estimator)
        for ref in messages:
            built = append(built, msgspec.structs.replace(ref, pinned=False))
        same = ("count", "tokens", "ranges", "digest")
        assert [getattr(built, name) for name in same] == [getattr(state.window, name) for name in same]


@given(run=runs())
def test_prunings_say_what_they_did(run: Driver) -> None:
    """Each pruning takes something away, and its numbers are those of the window before and after.

    A message that stands for what leaves is put in first: the window before is the one without it.
    """
    state = before = NEW
    marks = 0
    for event in run.log:
        before, state = before if marks else state, evolve(state, event)
        if isinstance(event, HistoryPruned):
            assert event.after < event.before + marks
            assert (before.window.count, before.window.tokens) == (event.before, event.tokens_before)
            assert (state.window.count, state.window.tokens) == (event.after, event.tokens_after)
            assert event.kept == state.window.ranges
        marks = int(isinstance(event, MessageInjected) and event.gap is not None)


@given(
    names=st.lists(st.sampled_from(["look", "act", "set"]), min_size=2, max_size=4),
    order=st.integers(0, 23),
    policy=policies(),
)
def test_results_may_arrive_in_any_order(names: list[str], order: int, policy: dict[str, Any]) -> None:
    """Parallel results lead to the same decisions and the same view in whatever order they come."""
    outcomes = []
    count = len(names)
    shuffled = list(permutations(range(count)))[order % len(list(permutations(range(count))))]
    for arrival in (tuple(range(count)), shuffled):
        run = Driver({**policy, "batch": "parallel"})
        if run.state.request is None:
            return
        fact = ModelResponded(at=run.at, request=run.state.request.seq, stop=StopReason.TOOL_USE)
        calls = [ReplyCall(name=name, arguments="{}") for name in names]
        run.feed(responded(run.state, fact, Answer(), calls, b"salt"))
        if run.state.batch is None:
            return
        for place in arrival:
            result = ToolReturned(at=run.at, call=f"c{place + 1}")
            run.feed(returned(run.state, result, f"result {place}", "look", "", b"salt"))
        decisions = [
            one for one, event in zip(stored(run.log), run.log, strict=True) if type(event) in DECISIONS
        ]
        contents = dict(enumerate(run.log, 1))
        outcomes.append((decisions, view(run.state, contents), run.state.window.digest))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=scaled(10))
@given(run=runs(), data=st.data(), later=st.booleans())
def test_no_event_breaks_the_fold(kind: str, run: Driver, data: Any, later: bool) -> None:
    """Any event in any place is folded or refused as damage, and the state is not mutated."""
    before = encode_value(run.state)
    event = data.draw(events(kind))
    if later and hasattr(event, "at"):
        event = msgspec.structs.replace(event, at=run.at)
    with suppress(RefoldError):
        evolve(run.state, event)
    assert before == encode_value(run.state)


@given(policy=policies(), picked=choices, salt=st.binary(max_size=4))
def test_the_salt_changes_no_decision_but_the_view(
    policy: dict[str, Any], picked: list[int], salt: bytes
) -> None:
    """The salt is in the digests of what was said, and in nothing that the machine does."""
    kinds = [[kind_of(event) for event in drive(policy, picked, one).log] for one in (b"a", b"b" + salt)]
    assert kinds[0] == kinds[1]


PROGRAM = """
import json, sys
from refold.testing.strategies.driver import drive
from support.strategies import stored
from refold.reducers.evolution import encode_value
import hashlib
seen = hashlib.sha256()
for policy, picked in json.load(sys.stdin):
    run = drive(policy, picked)
    for one in stored(run.log):
        seen.update(one.body + (one.content or b""))
    seen.update(encode_value(run.state))
print(seen.hexdigest())
"""


def batch() -> list[tuple[dict[str, Any], list[int]]]:
    kinds: list[dict[str, Any]] = [
        {},
        {"guards": [{"guard": "repetition", "repeats": 1}], "end_of_turn": "continue"},
        {"limits": [{"type": "time", "value": 9}, {"type": "token", "value": 90}], "end_of_turn": "wait"},
        {"history": [{"do": "token_tail", "budget": 20}], "end_of_turn": "continue"},
    ]
    return [
        (kinds[seed % 4], [(seed * 7919 + place * place * 104729) % 1000 for place in range(25)])
        for seed in range(40)
    ]


@pytest.mark.slow
def test_another_process_with_another_hash_seed_gives_equal_bytes() -> None:
    """Nothing hangs on the order of sets, on addresses or on the process: the bytes are equal."""
    path = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        )
        for seed in ("0", "4711")
    ]
    digests = [child.communicate(json.dumps(batch()), timeout=60)[0] for child in children]
    assert [0, 0] == [child.returncode for child in children]
    assert digests[0] == digests[1]
    assert 65 == len(digests[0])


def test_the_generated_runs_reach_everything() -> None:
    """A fixed batch of runs reaches every state and every decision that rules can make."""
    states, kinds = set[str](), set[str]()
    for policy, picked in [(p, [x * 31 % 1000 for x in c]) for p, c in batch()] + batch():
        run = drive(policy, picked)
        states |= {str(state.agent_state) for state in run.states}
        kinds |= {kind_of(event) for event in run.log}
    assert {"RUNNING", "WAITING_FOR_TOOL", "WAITING_FOR_INPUT", "COMPLETED", "CANCELLED", "ERROR"} <= states
    assert {
        "late_result",
        "run_forked",
        "policy_amended",
        "run_resumed",
        "retry_scheduled",
        "history_pruned",
    } <= kinds
