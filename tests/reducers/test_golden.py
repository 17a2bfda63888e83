"""Logs that were written once and must be read, and audit clean, for ever.

Beside each stands what a person expects by the rules: the sequence of events, a fact by its kind alone and a
decision with what matters in it, and the key numbers. None of it was printed by the code under test.
"""

from contextlib import suppress

import pytest

from refold.reducers.codec import Encoded, decode, encode
from refold.reducers.errors import RefoldError
from refold.reducers.events import DECISIONS, Annotation, Event, Fact, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance, fold
from refold.reducers.state import NEW
from support import expected, golden
from support.planted import planted
from support.scenario import line

TO_TOOLS = "state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use"
FROM_TOOLS = "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done"
NUDGE = "message_injected role=user text=continue cause=end_of_turn"

EXPECTED: dict[str, list[str]] = {
    # Calls of `look` are free; from five messages on all but two are summed up, if that works.
    "a_free_step_and_no_summary": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]]",
        "model_responded",
        "step_exempted limit=step",
        "tools_dispatched calls=[c1]",
        TO_TOOLS,
        "tool_returned",
        FROM_TOOLS,
        "model_requested step=2 attempt=1 messages=[[1 4]]",
        "model_responded",
        "tools_dispatched calls=[c2]",
        TO_TOOLS,
        "tool_returned",
        FROM_TOOLS,
        "summary_requested name=short messages=[[3 4]] after=2",
        "model_failed",
        "summary_abandoned name=short failure=overloaded",
        "model_requested step=3 attempt=1 messages=[[1 6]]",
        "model_responded",
        "state_changed from=RUNNING to=COMPLETED trigger=complete code=end_turn",
    ],
    "two_tools_then_an_answer": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]] deadline=+60s",
        "model_responded",
        "tools_dispatched calls=[c1 c2] deadline=+60s",
        TO_TOOLS,
        "tool_returned",
        "tool_returned",
        FROM_TOOLS,
        "model_requested step=2 attempt=1 messages=[[1 5]] deadline=+60s",
        "model_responded",
        "state_changed from=RUNNING to=COMPLETED trigger=complete code=end_turn",
    ],
    "retry_then_time_out": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]] deadline=+10s",
        "model_failed",
        # The provider's two seconds are more than 1 s and less than 1 s of jitter.
        "retry_scheduled attempt=2 delay=2000000000 until=+3s failure=rate_limit",
        "clock_read",
        "model_requested step=1 attempt=2 messages=[[1 2]] deadline=+10s",
        "model_responded",
        "tools_dispatched calls=[c1 c2] deadline=+10s",
        TO_TOOLS,
        "tool_returned",
        "clock_read",
        "limit_reached limit={agent: at:+10s check:preflight "
        "exceeded_by:0 measure:usage name:time op:>= scope:run step:1 type:time unit:nanoseconds "
        "used:10000000000 value:10000000000}",
        "tool_returned",
        "state_changed from=WAITING_FOR_TOOL to=TIMED_OUT trigger=time_out code=time_limit where=tools",
        "late_result",
    ],
    "repetition": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]]",
        "model_responded",
        "tools_dispatched calls=[c1]",
        TO_TOOLS,
        "tool_returned",
        FROM_TOOLS,
        "model_requested step=2 attempt=1 messages=[[1 4]]",
        "model_responded",
        "guard_tripped guard=repetition verdict=stop code=repetition measured={allowed:1 repeats:1}",
        "call_refused call=c2 why=skipped cause=guard name=repetition text=refused:repetition",
        "state_changed from=RUNNING to=ERROR trigger=fail code=repetition",
    ],
    "nudged_pruned_and_out_of_steps": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]]",
        "model_responded",
        NUDGE,
        "model_requested step=2 attempt=1 messages=[[1 4]]",
        "model_responded",
        NUDGE,
        # be good 2, do it 2, Thinking. 3, the nudge of 97 characters 25, Still thinking. 4, the nudge 25.
        "history_pruned name=tail before=6 after=4 tokens_before=61 tokens_after=33 kept=[[1 2] [5 6]]",
        "model_requested step=3 attempt=1 messages=[[1 2] [5 6]]",
        "model_responded",
        "tools_dispatched calls=[c1 c2]",
        TO_TOOLS,
        "tool_returned",
        "tool_returned",
        FROM_TOOLS,
        "limit_reached limit={agent: at:+0s check:preflight "
        "exceeded_by:0 measure:usage name:step op:>= scope:run step:3 type:step unit:steps used:3 value:3}",
        "state_changed from=RUNNING to=MAX_STEPS trigger=exhaust_steps code=step_limit",
    ],
    "a_person_a_fork_and_a_budget": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]]",
        "model_responded",
        "state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=end_turn",
        "input_received",
        "state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=answered",
        "model_requested step=2 attempt=1 messages=[[1 4]]",
        "note_added",
        "policy_amended",
        "run_forked",
        "model_responded",
        # 30 + 10 before the fork, 40 + 10 after it: the lineage has used 90 of the amended 90.
        "limit_reached limit={agent: at:+72s check:response "
        "exceeded_by:0 measure:usage name:token op:>= scope:lineage step:2 type:token unit:tokens "
        "used:90 value:90}",
        "call_refused call=c1 why=skipped cause=limit name=token text=refused:limit",
        "state_changed from=RUNNING to=BUDGET_EXCEEDED trigger=exceed_budget code=token_budget",
    ],
    "crashed_resumed_and_cancelled": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]]",
        "model_responded",
        "tools_dispatched calls=[c1 c2]",
        TO_TOOLS,
        "run_resumed",
        "doubt_resolved",
        "tool_returned",
        "cancel_requested",
        "tool_returned",
        "state_changed from=WAITING_FOR_TOOL to=CANCELLED trigger=cancel code=cancelled where=tools",
    ],
    "a_digest_after_256_events": [
        "run_started",
        "model_requested step=1 attempt=1 messages=[[1 2]]",
        "model_responded",
        f"tools_dispatched calls=[{' '.join(f'c{number}' for number in range(1, 253))}]",
        TO_TOOLS,
        *["tool_returned"] * 251,
        "state_digested",
        "tool_returned",
        FROM_TOOLS,
        "model_requested step=2 attempt=1 messages=[[1 255]]",
        "model_responded",
        "state_changed from=RUNNING to=COMPLETED trigger=complete code=end_turn",
    ],
    **expected.EXPECTED,
}

# steps, requests, calls, input tokens, output tokens, nano-dollars, messages of the run
NUMBERS = {
    "two_tools_then_an_answer": (2, 2, 2, 520, 50, 4000, 6),
    "retry_then_time_out": (1, 2, 2, 10, 5, 0, 5),
    "repetition": (2, 2, 2, 20, 10, 0, 6),
    "nudged_pruned_and_out_of_steps": (3, 3, 2, 30, 15, 0, 9),
    "a_person_a_fork_and_a_budget": (2, 2, 1, 70, 20, 0, 6),
    "crashed_resumed_and_cancelled": (1, 1, 2, 10, 5, 0, 5),
    "a_free_step_and_no_summary": (3, 3, 2, 30, 15, 0, 7),
    "a_digest_after_256_events": (2, 2, 252, 20, 10, 0, 256),
    **expected.NUMBERS,
}

each_log = pytest.mark.parametrize("name", golden.names())


def derived(log: list[Event]) -> list[Encoded]:
    """The log again, from its facts and annotations alone."""
    state, again = NEW, list[Event]()
    for event in log:
        if isinstance(event, Fact):
            state, events = advance(state, event)
            again += events
        elif isinstance(event, Annotation):
            state = evolve(state, event)
            again.append(event)
    return [encode(event) for event in again]


def legible(event: Event) -> str:
    named_only = not isinstance(event, DECISIONS) or kind_of(event) == "state_digested"
    return kind_of(event) if named_only else line(event)


def test_every_file_has_its_expectation() -> None:
    """No log lies here without what a person expects of it, and none has gone."""
    assert sorted(EXPECTED) == sorted(NUMBERS) == golden.names()


@each_log
def test_what_the_log_says(name: str) -> None:
    """The recorded sequence is the one that the rules demand, written by hand."""
    assert EXPECTED[name] == [legible(event) for event in golden.events(name)]


@each_log
def test_the_numbers(name: str) -> None:
    """The folded totals are those that were counted by hand."""
    state = fold(golden.events(name))
    spent = state.spent
    assert NUMBERS[name] == (
        spent.steps,
        spent.requests,
        spent.calls,
        spent.usage.input,
        spent.usage.output,
        spent.cost_nanousd,
        state.messages,
    )


@each_log
def test_the_log_audits_clean(name: str) -> None:
    """Today's rules derive the recorded decisions from the recorded facts, byte for byte."""
    assert golden.today(name) == derived(golden.events(name))


@each_log
def test_the_file_is_canonical(name: str) -> None:
    """Encoding what was decoded gives the bytes of the file, but for the keys that policies have got
    since.
    """
    assert golden.today(name) == [encode(event) for event in golden.events(name)]
    again = [decode(record.kind, record.body, record.content) for record in golden.today(name)]
    assert again == golden.events(name)


@each_log
def test_planted_changes_are_found(name: str) -> None:
    """A changed field in any kind of decision makes the derivation differ at that event, and first there."""
    log = golden.events(name)
    again = derived(log)
    for said, index, changed in planted(log):
        edited = [*map(encode, log[:index]), encode(changed), *map(encode, log[index + 1 :])]
        differs = [place for place, (one, two) in enumerate(zip(edited, again, strict=True)) if one != two]
        assert [index] == differs, said


@each_log
def test_a_log_with_a_planted_change_cannot_pass_as_another(name: str) -> None:
    """A changed decision is folded to another state, or refused, or changes nothing that the state keeps."""
    log = golden.events(name)
    for said, index, changed in planted(log):
        assert type(changed) is type(log[index]), said
        assert changed != log[index], said
        with suppress(RefoldError):
            fold([*log[:index], changed, *log[index + 1 :]])


def test_every_decision_that_the_rules_can_make_is_recorded() -> None:
    """Together the logs hold every kind of decision that a rule of this version derives."""
    kinds = {kind_of(event) for name in golden.names() for event in golden.events(name)}
    assert {kind_of(event) for event in DECISIONS} <= kinds


def test_a_prefix_of_a_log_is_a_log() -> None:
    """Each recorded log can be cut between two facts' groups and derived up to there."""
    for name in golden.names():
        log = golden.events(name)
        cuts = [place for place, event in enumerate(log) if place and isinstance(event, Fact)]
        for cut in cuts[:20]:
            assert golden.today(name)[:cut] == derived(log[:cut])
