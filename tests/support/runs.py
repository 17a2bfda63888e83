"""Runs that a real engine drives, and whose logs are known event by event."""

from typing import Any

from refold.engine import Agent, ScriptedModel, call, calls, fail, say, tool
from refold.engine.models.script import Line
from refold.store import MemoryStore
from refold.store.protocol import Store
from support.clocks import VirtualClock

RUN = "r1"
SEED = 7

POLICY: dict[str, Any] = {
    "limits": [{"type": "step", "value": 60}],
    "retry": {"attempts": 3, "initial": 1, "jitter": {"add": 0}},
    "history": [{"do": "tail", "last": 3}],
    "guards": [{"guard": "repetition", "repeats": 1}],
    "end_of_turn": "continue",
}

SCRIPT: tuple[Line, ...] = (
    fail(partial_text="I was about"),
    calls(("look", {"path": "a"}), ("act", {"what": "paint"}), text="First I look."),
    say("Is that all?"),
    call("look", path="b"),
    call("look", path="b"),
)

# Every kind of decision but state_digested, each where a person who knows the rules expects it.
TRANSCRIPT = (
    "1 run_started",
    "2 model_requested",
    "3 model_failed",
    "4 retry_scheduled",
    "5 clock_read",
    "6 model_requested",
    "7 model_responded",
    "8 tools_dispatched",
    "9 state_changed",
    "10 tool_returned",
    "11 tool_returned",
    "12 state_changed",
    "13 model_requested",
    "14 model_responded",
    "15 message_injected",
    "16 history_pruned",
    "17 model_requested",
    "18 model_responded",
    "19 tools_dispatched",
    "20 state_changed",
    "21 tool_returned",
    "22 state_changed",
    "23 history_pruned",
    "24 model_requested",
    "25 model_responded",
    "26 guard_tripped",
    "27 call_refused",
    "28 state_changed",
)


@tool(replay="read_only")
async def look(path: str) -> str:
    """Look at something."""
    return f"{path} is there"


@tool
async def act(what: str) -> str:
    """Change something."""
    return f"{what}: done"


def agent(
    script: tuple[Line, ...] = SCRIPT,
    *,
    policy: dict[str, Any] | None = None,
    store: Store | None = None,
    **options: Any,
) -> Agent:
    """An agent whose every run is the same to the byte."""
    return Agent(
        model=options.pop("model", None) or ScriptedModel(script),
        tools=options.pop("tools", (look, act)),
        policy=POLICY if policy is None else policy,
        system=options.pop("system", "Be brief."),
        store=MemoryStore() if store is None else store,
        clock=options.pop("clock", lambda: VirtualClock(jumps=True)),
        **options,
    )


async def recorded_run(
    store: Store, script: tuple[Line, ...] = SCRIPT, policy: dict[str, Any] | None = None, **options: Any
) -> None:
    """Drive run `r1` to its end in `store`."""
    await agent(script, policy=policy, store=store, **options).start("Do it.", seed=SEED, run_id=RUN).result()


LONG_POLICY: dict[str, Any] = {"limits": [{"type": "step", "value": 60}], "guards": [{"guard": "repetition"}]}

# Two events to begin with, then six a step: the answer, the dispatch, the move; the result, the move back,
# the next request. The answer to step 43 is event 255, and two decisions follow: the group crosses 256, so
# event 258 is the digest.
LONG_SCRIPT: tuple[Line, ...] = (*(call("look", path=f"p{step}") for step in range(45)), say("done"))
DIGEST_AT = 258
