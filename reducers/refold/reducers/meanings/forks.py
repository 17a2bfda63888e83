"""What a fork means: see `refold.reducers.events.RunForked`."""

from msgspec.structs import replace

from refold.reducers.batches import with_call
from refold.reducers.doubts import underway
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import RunForked
from refold.reducers.meanings.common import found_out, idle, in_doubt, later, no_longer_asked, reference, said
from refold.reducers.state import Mark, RunState, Setup
from refold.reducers.vocabulary import Role


def run_forked(state: RunState, event: RunForked) -> RunState:
    """A run goes on from a prefix of another's: what it does not change stays as it was there."""
    if state.seq != event.parent_seq + 1:
        raise UnexpectedEvent("run_forked", f"it forks at event {event.parent_seq}, not at {state.seq - 1}")
    if state.batch and any(call.refused and call.result is None for call in state.batch.calls):
        raise UnexpectedEvent("run_forked", "a call that was refused has no result yet")
    state = _left_open(_later(state, event.downtime), event)
    if event.again:
        state = _withdrawn(state)
    if state.unasked:  # that the parent's source ends here ends nothing here
        state = no_longer_asked(state) if state.asked_at is not None else replace(state, unasked=False)
    mark = Mark(at=state.at, spent=state.spent)
    state = replace(state, setup=forked_setup(state.setup, event), origin=mark, turn=mark)
    if event.size is not None:
        if state.request or state.batch or state.asked_at is not None:
            raise UnexpectedEvent(
                "run_forked", "a message joins it, and something else is asked for or under way"
            )
        state = said(state, reference(state, Role.USER, event.size))
    return found_out(state) if state.batch else state


_GOES_ON = ("model", "address", "price", "settings", "tools", "seed", "context")


def forked_setup(old: Setup, event: RunForked) -> Setup:
    """What the fork goes on with: what it does not say is as it was in the parent."""
    said = {name: value for name in _GOES_ON if (value := getattr(event, name)) is not None}
    if event.context == 0:
        said["context"] = None
    # What follows is of an engine of ours: it says what it does, and what it offers.
    said["unknown"] = ()
    return replace(
        old, run=event.run, rules=event.rules, policy=event.policy or old.policy, parent=None, **said
    )


def _later(state: RunState, downtime: int) -> RunState:
    """The state, so much later: what is still asked for or under way has as long as it had when the parent went on."""
    if not downtime:
        return state
    if state.approval is not None:
        state = replace(state, approval=later(state.approval, downtime))
    if state.asked_at is not None:
        state = replace(state, asked_at=state.asked_at + downtime)
    return idle(state, downtime)


def _left_open(state: RunState, event: RunForked) -> RunState:
    """The parent began these calls, and how they ended is no part of the fork: they keep the keys that they had."""
    before = state.setup.run
    for call in underway(state):
        state = with_call(state, replace(call, begun_in=call.begun_in or before))
    return in_doubt(state, "run_forked", event.in_doubt)


def _withdrawn(state: RunState) -> RunState:
    """What the parent was about to ask the model was never asked here; nor was the step taken that it began."""
    request = state.request
    if request is not None:
        steps = state.spent.steps - (request.event.purpose == "step")
        spent = replace(state.spent, steps=steps, requests=state.spent.requests - 1)
        state = replace(state, request=None, spent=spent)
    return state if state.summary is None else replace(state, summary=None, summed_up=None, pruned_by="")
