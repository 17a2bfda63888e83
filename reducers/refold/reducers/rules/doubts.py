"""Calls in doubt: who is asked, once nothing else of the batch is under way. See `refold.reducers.doubts`."""

from refold.reducers.doubts import underway, unknown
from refold.reducers.machine import Trigger
from refold.reducers.rules.ends import move
from refold.reducers.rules.flow import Flow


def ask_about_doubts(flow: Flow) -> bool:
    """A person is asked how calls ended that nothing but a person can tell, once they are all that is left."""
    state = flow.state
    if state.stopping is not None or state.asked_at is not None:
        return False
    calls = unknown(state)
    if not calls or len(calls) < sum(1 for _ in underway(state)):
        return False
    sentence = f"nobody saw how {len(calls)} calls ended: a person finds out"
    flow.say(move(state, Trigger.ASK, "in_doubt", sentence))
    return True
