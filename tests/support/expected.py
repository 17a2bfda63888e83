"""What a person expects of the recorded logs of presets, by the rules; see
`tests/reducers/test_golden.py`.
"""

TO_TOOLS = "state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use"
FROM_TOOLS = "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done"
CONTINUE = "message_injected role=user text=continue cause=end_of_turn"
TURN_OVER = "state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=end_turn"
ASKS = "state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=approval"
ANSWERED = "state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=answered"
# 116 characters, by a quarter: 29.
NUDGE = "{cause:nudge role:user text:nudge tokens:29}"
# 149 characters, and with its values filled in 160: the hint, and the last word that a limit grants.
HINT = "{cause:overflow role:user text:overflow tokens:38}"
GRACE = "request_only=[{cause:grace role:user text:grace tokens:40 values:{limit:step max:5}}]"


def ran(call: str, deadline: str = "") -> list[str]:
    """An answer with one call, and its result."""
    return [
        "model_responded",
        f"tools_dispatched calls=[{call}]{deadline}",
        TO_TOOLS,
        "tool_returned",
        FROM_TOOLS,
    ]


def requested(
    step: int, messages: str, *, attempt: int = 1, deadline: int | None = None, only: str = ""
) -> str:
    """A request; `only` are the texts of this one request."""
    until = "" if deadline is None else f" deadline=+{deadline}s"
    texts = f" request_only=[{only}]" if only else ""
    return f"model_requested step={step} attempt={attempt} messages=[{messages}]{until}{texts}"


def pressure(tier: str, tokens: int, n: int, most: int, place: str = "") -> str:
    """The text of a tier."""
    where = f"place:{place} " if place else ""
    values = f"values:{{max:{most} n:{n} remaining:{most - n} unit:steps}}"
    return f"{{cause:pressure {where}role:user text:pressure:{tier} tier:{tier} tokens:{tokens} {values}}}"


def tripped(
    name: str, value: int, *, over: int = 0, at: str, step: int, rest: str, deferred: bool = False
) -> str:
    """A limit; `rest` is "CHECK MEASURE OP SCOPE TYPE UNIT"."""
    check, measure, op, scope, kind, unit = rest.split()
    return (
        f"limit_reached limit={{agent: at:{at} check:{check} exceeded_by:{over} measure:{measure} name:{name} op:{op} "
        f"scope:{scope} step:{step} type:{kind} unit:{unit} used:{value + over} value:{value}}}"
        + (" deferred=True" if deferred else "")
    )


def stepped(value: int, at: str, scope: str) -> str:
    """The step limit, reached exactly."""
    rest = f"preflight usage >= {scope} step steps"
    return tripped("step", value, at=at, step=value, rest=rest)


OUT_OF_STEPS = "state_changed from=RUNNING to=MAX_STEPS trigger=exhaust_steps code=step_limit"
_BUDGET = "response_deferred usage >= run token tokens"
_OVERFLOW = "context_overflowed uncounted_steps=0"

EXPECTED: dict[str, list[str]] = {
    # Steps 6, time 100 s, a window of 8 and a threshold of 3. One call after the other.
    "preset_inspect_iterative": [
        "run_started",
        requested(1, "[1 2]", deadline=100, only=NUDGE),
        "model_responded",
        CONTINUE,
        requested(2, "[1 4]", deadline=100, only=NUDGE),
        "model_responded",
        "tools_dispatched calls=[c1] deadline=+100s",
        TO_TOOLS,
        "tool_returned",
        "tools_dispatched calls=[c2] deadline=+100s",
        "tool_returned",
        FROM_TOOLS,
        # 84 of 100 seconds; 80 % is near.
        "limit_neared of=time limit={agent: at:+84s check:preflight exceeded_by:-16000000000 measure:usage name:time "
        "op:>= scope:run step:2 type:time unit:nanoseconds used:84000000000 value:100000000000} threshold=80000000000",
        requested(3, "[1 7]", deadline=100, only=NUDGE),
        "model_failed",
        "retry_scheduled attempt=2 delay=1000000000 until=+86s failure=overloaded",
        "clock_read",
        requested(3, "[1 7]", attempt=2, deadline=100, only=NUDGE),
        *ran("c3", " deadline=+100s"),
        requested(4, "[1 9]", deadline=100, only=NUDGE),
        "model_failed",
        _OVERFLOW,
        # 35 characters are 9 tokens of 4, 97 are 25; the marker has 10, so of a cap of 8 there is no room for
        # it.
        "message_trimmed message=3 cause=history name=trim before=9 after=8 "
        "cuts=[{head:32 removed:1 tail:0}]",
        "message_trimmed message=4 cause=history name=trim before=25 after=8 "
        "cuts=[{head:32 removed:17 tail:0}]",
        # Of the last three one is a result whose call is gone. 83 characters joined by 8 newlines; 13 by 3.
        "history_pruned name=threshold before=9 after=4 tokens_before=23 tokens_after=4 kept=[[1 2] [8 9]]",
        "message_injected role=user text=progress cause=progress",
        requested(5, "[1 2] [8 10]", deadline=100, only=f"{HINT} {NUDGE}"),
        "model_responded",
        CONTINUE,
        requested(6, "[1 2] [8 12]", deadline=100, only=NUDGE),
        "model_responded",
        # Nothing is injected any more.
        stepped(6, "+90s", "run"),
        OUT_OF_STEPS,
    ],
    # 20 s, with `>`; waits are credited once they are planned.
    "preset_paperbench": [
        "run_started",
        requested(1, "[1 2]", deadline=20, only=NUDGE),
        *ran("c1", " deadline=+20s"),
        requested(2, "[1 4]", deadline=20, only=NUDGE),
        *ran("c2", " deadline=+20s"),
        requested(3, "[1 6]", deadline=20, only=NUDGE),
        *ran("c3", " deadline=+20s"),
        requested(4, "[1 8]", deadline=20, only=NUDGE),
        "model_failed",
        _OVERFLOW,
        # floor(0.3 x 7) = 2: the task, which stays, and the first answer, whose result goes with it.
        "history_pruned name=drop_oldest before=8 after=6 tokens_before=22 tokens_after=16 kept=[[1 2] [5 8]]",
        "message_injected role=user text=progress cause=progress",
        requested(5, "[1 2] [5 9]", deadline=20, only=NUDGE),
        "model_failed",
        "retry_scheduled attempt=2 delay=3000000000 until=+11s failure=rate_limit",
        "clock_read",
        requested(5, "[1 2] [5 9]", attempt=2, deadline=23, only=NUDGE),
        "model_responded",
        CONTINUE,
        requested(6, "[1 2] [5 11]", deadline=23, only=NUDGE),
        "model_responded",
        CONTINUE,
        # At exactly 20 s less 3 s of credit it goes on, for the second that a call has at least.
        requested(7, "[1 2] [5 13]", deadline=24, only=NUDGE),
        "clock_read",
        tripped(
            "time",
            20_000_000_000,
            over=1_500_000_000,
            at="+24.5s",
            step=7,
            rest="preflight usage > run time nanoseconds",
        ),
        "model_failed",
        "state_changed from=RUNNING to=TIMED_OUT trigger=time_out code=time_limit where=model",
    ],
    "preset_guardrails": [
        "run_started",
        requested(1, "[1 2]"),
        "model_responded",
        "message_injected role=user text=truncated cause=truncation",
        requested(2, "[1 4]"),
        *ran("c1"),
        requested(3, "[1 6]"),
        *ran("c2"),
        requested(4, "[1 8]"),
        *ran("c3"),
        requested(5, "[1 10]"),
        "model_responded",
        # 120 + 4 x 100 of 1000: no more than 512 are left from 488 on.
        "limit_neared of=budget limit={agent: at:+0s check:response exceeded_by:-480 measure:usage name:token op:>= "
        "scope:lineage step:5 type:token unit:tokens used:520 value:1000} threshold=488",
        "guard_tripped guard=repetition verdict=stop code=repetition measured={allowed:3 repeats:3}",
        "call_refused call=c4 why=skipped cause=guard name=repetition text=refused:repetition",
        "state_changed from=RUNNING to=ERROR trigger=fail code=repetition",
    ],
    # 5 steps a turn, a context of 200: half of it asks for a summary.
    "preset_hermes": [
        "run_started",
        requested(1, "[1 2]"),
        *ran("c1"),
        # 2 + 2, 5 for the answer with its call, 86 for 344 characters: 95.
        requested(2, "[1 4]"),
        "model_responded",
        "tools_dispatched calls=[c2]",
        TO_TOOLS,
        "tool_returned",
        "tools_dispatched calls=[c3]",
        "tool_returned",
        FROM_TOOLS,
        # 3 and 1 and 1 more: 100. The tail of two messages is part of a batch, which stays.
        "summary_requested name=compress messages=[[3 4]] after=2",
        "summary_returned",
        "message_injected role=user text=summary cause=history name=compress gap={after:2 covers:2 source:17 tokens:91}",
        # 28 for the summary in its frame.
        "history_pruned name=compress before=7 after=6 tokens_before=100 tokens_after=37 kept=[[1 2] [8 8] [5 7]]",
        requested(3, "[1 2] [8 8] [5 7]"),
        *ran("c4"),
        # 3 of 5 are 60 %, 4 of 5 are 80 %: caution from 70 % on.
        requested(4, "[1 2] [8 8] [5 7] [9 10]"),
        *ran("c5"),
        requested(5, "[1 2] [8 8] [5 7] [9 12]", only=pressure("caution", 32, 4, 5, "tool_result")),
        *ran("c6"),
        stepped(5, "+6s", "turn"),
        f"model_requested step=5 attempt=1 messages=[[1 2] [8 8] [5 7] [9 14]] tools=[] {GRACE} purpose=grace",
        "model_responded",
        f"model_requested step=5 attempt=1 messages=[[1 2] [8 8] [5 7] [9 14]] tools=[] {GRACE} purpose=grace",
        "model_responded",
        f"{OUT_OF_STEPS} outcome=grace",
    ],
    # 5 steps: 4 remain before the first, 3 before the second.
    "preset_utah": [
        "run_started",
        requested(1, "[1 2]", only=pressure("caution", 32, 1, 5)),
        *ran("c1"),
        requested(2, "[1 4]", only=pressure("warning", 35, 2, 5)),
        *ran("c2"),
        requested(3, "[1 6]", only=pressure("warning", 35, 3, 5)),
        "model_responded",
        "response_discarded count=1",
        # 121 characters are more than 120; the other result is among the last two messages.
        "message_trimmed message=4 cause=history name=age before=31 after=22 "
        "cuts=[{head:10 removed:101 tail:10}]",
        requested(4, "[1 6]", only=pressure("warning", 35, 4, 5)),
        *ran("c3"),
        requested(5, "[1 8]", only=pressure("warning", 35, 5, 5)),
        "model_failed",
        "context_overflowed uncounted_steps=1",
        # 3 + 22 + 3 + 30 tokens: the last three begin inside the second batch.
        "message_injected role=user text=digest cause=history name=digest "
        "gap={after:2 covers:4 per_message:12 sources:[[3 6]] tokens:58 total:100}",
        "history_pruned name=digest before=8 after=5 tokens_before=66 tokens_after=48 kept=[[1 2] [9 9] [7 8]]",
        requested(5, "[1 2] [9 9] [7 8]", only=pressure("warning", 35, 5, 5)),
        *ran("c4"),
        stepped(5, "+0s", "turn"),
        f"{OUT_OF_STEPS} outcome=fallback",
    ],
    # 100 tokens, judged on a response, carried out when its batch is done. Waits of 0.25 s.
    "preset_tirea": [
        "run_started",
        requested(1, "[1 2]"),
        "model_responded",
        "tools_dispatched calls=[c1 c2]",
        TO_TOOLS,
        "tool_returned",
        "tool_returned",
        FROM_TOOLS,
        # 229 characters are 4 + 58 tokens; three lines are 29 characters, fewer than 40.
        "message_trimmed message=4 cause=history name=preview before=62 after=31 "
        "cuts=[{head:29 removed:200 tail:0}]",
        requested(2, "[1 5]"),
        "model_failed",
        "retry_scheduled attempt=1 delay=250000000 until=+4.25s failure=stream_broken cause=stream keeps=True",
        "message_injected role=user text=interrupted cause=interruption continues_response=True",
        "clock_read",
        requested(3, "[1 7]"),
        "model_responded",
        "message_injected role=user text=truncated cause=truncation continues_response=True",
        requested(4, "[1 9]"),
        "model_failed",
        "retry_scheduled attempt=2 delay=250000000 until=+6.5s failure=overloaded",
        "clock_read",
        requested(4, "[1 9]", attempt=2),
        "model_responded",
        # 25 + 25 + 50.
        tripped("token", 100, at="+7.5s", step=4, rest=_BUDGET, deferred=True),
        "tools_dispatched calls=[c3]",
        TO_TOOLS,
        "tool_returned",
        FROM_TOOLS,
        tripped("token", 100, at="+7.5s", step=4, rest=_BUDGET),
        "state_changed from=RUNNING to=BUDGET_EXCEEDED trigger=exceed_budget code=token_budget",
    ],
    # A person has three days for each question.
    "approvals_with_a_person": [
        "run_started",
        requested(1, "[1 2]"),
        "model_responded",
        "approval_requested guard=approvals calls=[c2 c3] approver=chain[1] deadline=+259201s",
        ASKS,
        # Two days later: one call is edited; the other is asked about again.
        "approval_answered",
        ANSWERED,
        "approval_requested guard=approvals calls=[c3] approver=chain[1] deadline=+432001s",
        ASKS,
        "approval_answered",
        ANSWERED,
        "call_refused call=c3 why=rejected cause=guard name=approvals text=refused:rejected code=rejected measured={link:1}",
        "tools_dispatched calls=[c1 c2]",
        TO_TOOLS,
        "tool_returned",
        "tool_returned",
        FROM_TOOLS,
        requested(2, "[1 6]"),
        "model_responded",
        "approval_requested guard=approvals calls=[c4] approver=chain[1] deadline=+432064s",
        ASKS,
        "clock_read",
        ANSWERED.replace("code=answered", "code=unanswered"),  # their time had passed
        "call_refused call=c4 why=rejected cause=guard name=approvals text=refused:rejected code=terminated measured={link:1}",
        "guard_tripped guard=approvals verdict=stop code=approval_terminated",
        "state_changed from=RUNNING to=ERROR trigger=fail code=approval_terminated",
    ],
    # 600 s, of which neither 30 s without an engine nor the day that a person took is one. c1 may run only
    # once, c2 reads only, c3 can be reconciled.
    "in_doubt_and_resolved": [
        "run_started",
        requested(1, "[1 2]", deadline=600),
        "model_responded",
        "tools_dispatched calls=[c1 c2 c3] deadline=+600s",
        TO_TOOLS,
        "run_resumed",
        "tool_returned",
        # Its own tool says that c3 did not happen: it runs once more.
        "doubt_resolved",
        "tool_returned",
        # Now all is back but c1.
        "state_changed from=WAITING_FOR_TOOL to=WAITING_FOR_INPUT trigger=ask code=in_doubt",
        "doubt_resolved",
        "state_changed from=WAITING_FOR_INPUT to=WAITING_FOR_TOOL trigger=answered code=answered",
        "tool_returned",
        FROM_TOOLS,
        requested(2, "[1 6]", deadline=87030),
        "model_responded",
        "state_changed from=RUNNING to=COMPLETED trigger=complete code=end_turn",
    ],
    # Of another agent: its harness kept the answer and its result, and put a summary of 15 characters in
    # front.
    "imported_and_pruned": [
        "run_started",
        requested(1, "[1 2]"),
        "model_responded",
        "tools_dispatched calls=[c1]",
        TO_TOOLS,
        "context_observed",
        "tool_returned",
        FROM_TOOLS,
        # 2 + 2, 3 for the answer with its call, 1 and 4; nothing is pinned in it.
        "history_pruned name=observed before=5 after=3 tokens_before=12 tokens_after=8 kept=[[5 5] [3 4]]",
        requested(2, "[5 5] [3 4]"),
        "model_responded",
        TURN_OVER,
        # It went on by itself.
        "context_observed",
        ANSWERED.replace("code=answered", "code=went_on"),
        requested(3, "[5 5] [3 4] [6 6]"),
        "source_recorded",
        "model_failed",
        "retry_scheduled attempt=2 delay=0 until=+4s failure=auth",
        "clock_read",
        requested(3, "[5 5] [3 4] [6 6]", attempt=2),
        # What a filter stopped ends nothing.
        "model_responded",
        TURN_OVER,
    ],
    "stall_warned_stubbed_and_stopped": [
        "run_started",
        requested(1, "[1 2]"),
        *ran("c1"),
        requested(2, "[1 4]"),
        *ran("c2"),
        requested(
            3,
            "[1 6]",
            only="{cause:guard name:stall role:user text:stall:exact_failure tokens:25 values:{count:2 tool:act}}",
        ),
        *ran("c3"),
        requested(4, "[1 8]"),
        *ran("c4"),
        # 40 characters again: shown as a reference to the first, for all that this is longer here.
        "message_trimmed message=10 cause=guard name=stall before=10 after=19 "
        "cuts=[{head:0 removed:40 tail:0}]",
        requested(
            5,
            "[1 10]",
            only="{cause:guard name:stall role:user text:stall:no_progress tokens:36 values:{count:2 tool:look}}",
        ),
        *ran("c5"),
        requested(
            6,
            "[1 12]",
            only="{cause:guard name:stall role:user text:stall:exact_failure tokens:25 values:{count:3 tool:act}} "
            "{cause:guard name:stall role:user text:stall:same_tool tokens:30 values:{count:3 tool:act}}",
        ),
        "model_responded",
        "guard_tripped guard=stall verdict=stop code=stalled measured={count:3 part:exact_failure tool:act}",
        "call_refused call=c6 why=skipped cause=guard name=stall text=refused:stalled",
        "state_changed from=RUNNING to=ERROR trigger=fail code=stalled",
    ],
}

# steps, requests, calls, input tokens, output tokens, nano-dollars, messages of the run
NUMBERS = {
    "preset_inspect_iterative": (6, 7, 3, 50, 25, 0, 13),
    "preset_paperbench": (7, 8, 3, 50, 25, 0, 13),
    "preset_guardrails": (5, 5, 4, 480, 40, 5000, 12),
    # Seven answers of 10 and 5, two of them by grace, and the summary.
    "preset_hermes": (5, 7, 6, 110, 45, 300, 15),
    "preset_utah": (5, 6, 4, 50, 25, 0, 11),
    "preset_tirea": (4, 5, 3, 85, 15, 0, 11),
    "approvals_with_a_person": (2, 2, 4, 20, 10, 0, 8),
    "in_doubt_and_resolved": (2, 2, 3, 20, 10, 0, 7),
    "imported_and_pruned": (3, 4, 1, 30, 15, 0, 7),
    "stall_warned_stubbed_and_stopped": (6, 6, 6, 60, 30, 0, 14),
}
