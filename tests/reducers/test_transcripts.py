"""Telling runs, from beginning to end, as transcripts: facts fed, decisions expected."""

from support.scenario import Scenario
from support.transcript import check


def test_a_run_with_parallel_tools() -> None:
    """Two calls run side by side, their results come in the other order, and the model finishes."""
    check(
        Scenario({"limits": [{"type": "step", "value": 5}, {"type": "time", "value": 60}]}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]] deadline=+60s
        >> answer("both", ("look", "{}"), ("act", "{}"), after=2)
        tools_dispatched calls=[c1 c2] deadline=+60s
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c2", after=3)
        >> result("c1", error=raised)
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        model_requested step=2 attempt=1 messages=[[1 5]] deadline=+60s
        >> answer("done")
        state_changed from=RUNNING to=COMPLETED trigger=complete code=end_turn
        """,
    )


def test_a_provider_in_trouble() -> None:
    """Three failures, three waits, the provider's own among them; then it answers, and the run goes on."""
    check(
        Scenario({"retry": {"attempts": 4, "jitter": {"add": 0}}}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]]
        >> fail(overloaded)
        retry_scheduled attempt=2 delay=1000000000 until=+1s failure=overloaded
        >> clock(1)
        model_requested step=1 attempt=2 messages=[[1 2]]
        >> fail(rate_limit, retry_after=30_000_000_000)
        retry_scheduled attempt=3 delay=30000000000 until=+31s failure=rate_limit
        >> clock(10)
        >> clock(20)
        model_requested step=1 attempt=3 messages=[[1 2]]
        >> fail(network)
        retry_scheduled attempt=4 delay=4000000000 until=+35s failure=network
        >> clock(4)
        model_requested step=1 attempt=4 messages=[[1 2]]
        >> answer("at last")
        state_changed from=RUNNING to=COMPLETED trigger=complete code=end_turn
        """,
    )


def test_a_conversation() -> None:
    """Turns wait for a person; each turn has its steps anew; a cancellation ends the last wait."""
    check(
        Scenario({"end_of_turn": "wait", "limits": [{"type": "step", "value": 2, "scope": "turn"}]}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]]
        >> answer("", ("look", "{}"))
        tools_dispatched calls=[c1]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c1")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        model_requested step=2 attempt=1 messages=[[1 4]]
        >> answer("which one?")
        state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=end_turn
        >> say("that one", after=100)
        state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=answered
        model_requested step=3 attempt=1 messages=[[1 6]]
        >> answer("ah")
        state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=end_turn
        >> cancel(by="ann")
        state_changed from=WAITING_FOR_INPUT to=CANCELLED trigger=cancel code=cancelled where=waiting
        """,
    )


def test_a_deadline_in_the_middle_of_tools() -> None:
    """The clock passes the deadline: what is in flight settles, open ends are honest, what comes later is
    kept.
    """
    check(
        Scenario({"limits": [{"type": "time", "value": 10, "name": "budget"}]}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]] deadline=+10s
        >> answer("", ("look", "{}"), ("act", "{}"), after=8)
        tools_dispatched calls=[c1 c2] deadline=+10s
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> clock(2)
        limit_reached limit={agent: at:+10s check:preflight exceeded_by:0 measure:usage name:budget op:>= scope:run step:1 type:time unit:nanoseconds used:10000000000 value:10000000000}
        >> cancel()
        >> result("c1", error=cancelled)
        >> result("c2", error=in_doubt)
        state_changed from=WAITING_FOR_TOOL to=TIMED_OUT trigger=time_out code=time_limit where=tools
        >> result("c2", "after all", after=5)
        late_result at=+15s of tool_returned at=+15s call=c2 output_bytes=9
        """,
    )


def test_a_loop_that_is_caught() -> None:
    """The same batch again and again: it runs as often as the policy allows, then is refused before it
    runs.
    """
    check(
        Scenario({"guards": [{"guard": "repetition", "repeats": 2}], "end_of_turn": "continue"}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]]
        >> answer("", ("look", '{"a": 1}'))
        tools_dispatched calls=[c1]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c1")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        model_requested step=2 attempt=1 messages=[[1 4]]
        >> answer("hm")
        message_injected role=user text=continue cause=end_of_turn
        model_requested step=3 attempt=1 messages=[[1 6]]
        >> answer("", ("look", '{"a":1}'))
        tools_dispatched calls=[c2]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c2")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        model_requested step=4 attempt=1 messages=[[1 8]]
        >> answer("", ("look", '{ "a":1}'))
        guard_tripped guard=repetition verdict=stop code=repetition measured={allowed:2 repeats:2}
        call_refused call=c3 why=skipped cause=guard name=repetition text=refused:repetition
        state_changed from=RUNNING to=ERROR trigger=fail code=repetition
        """,
    )


def test_a_crash_and_a_resumption() -> None:
    """After a crash only the call that must not run twice is in doubt; a person looks, and the run goes
    on.
    """
    check(
        Scenario({"truncation": None}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]]
        >> answer("", ("look", "{}"), ("act", "{}"))
        tools_dispatched calls=[c1 c2]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> resume("c2", downtime=3600)
        >> result("c1")
        >> resolve("c2", did_not)
        >> result("c2", "it never began", error=in_doubt)
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        model_requested step=2 attempt=1 messages=[[1 5]]
        >> answer("", stop=max_tokens)
        state_changed from=RUNNING to=COMPLETED trigger=complete code=truncated
        """,
    )


def test_a_small_window() -> None:
    """A tail of three: each request shows the pinned and the newest whole units, and each pruning is said."""
    check(
        Scenario({"history": [{"do": "tail", "last": 3}], "limits": [{"type": "step", "value": 3}]}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]]
        >> answer("", ("look", "{}"))
        tools_dispatched calls=[c1]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c1")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        model_requested step=2 attempt=1 messages=[[1 4]]
        >> answer("", ("look", "{}"))
        tools_dispatched calls=[c2]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c2")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        history_pruned name=tail before=6 after=4 tokens_before=10 tokens_after=7 kept=[[1 2] [5 6]]
        model_requested step=3 attempt=1 messages=[[1 2] [5 6]]
        >> answer("", ("look", "{}"))
        tools_dispatched calls=[c3]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c3")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        limit_reached limit={agent: at:+0s check:preflight exceeded_by:0 measure:usage name:step op:>= scope:run step:3 type:step unit:steps used:3 value:3}
        state_changed from=RUNNING to=MAX_STEPS trigger=exhaust_steps code=step_limit
        """,
    )


def test_an_answer_that_costs_too_much() -> None:
    """The answer that crosses the budget is accounted for and kept; its calls are refused, each once."""
    check(
        Scenario({"limits": [{"type": "cost", "value": 0.000001}]}),
        """
        >> start
        model_requested step=1 attempt=1 messages=[[1 2]]
        >> answer("", ("look", "{}"), ("act", "{}"), cost=1001)
        limit_reached limit={agent: at:+0s check:response exceeded_by:1 measure:usage name:cost op:>= scope:run step:1 type:cost unit:nano_usd used:1001 value:1000}
        call_refused call=c1 why=skipped cause=limit name=cost text=refused:limit
        call_refused call=c2 why=skipped cause=limit name=cost text=refused:limit
        state_changed from=RUNNING to=BUDGET_EXCEEDED trigger=exceed_budget code=cost_limit
        """,
    )
