"""What must happen next in the world. Read off the state, never stored.

An effect is pending exactly while the log holds its decision and not yet its fact. Effects are values: an
engine starts those that it has no handle for, and lets go of a handle whose effect is gone.
"""

import hashlib

import msgspec

from refold.reducers.meters import next_deadline
from refold.reducers.pending import course, repeatable, underway
from refold.reducers.state import Batch, RunState


class CallModel(msgspec.Struct, frozen=True, kw_only=True, tag="call_model"):
    """Ask the model what was decided at event `seq`, until the instant `until`: see `pending.asked_of`."""

    seq: int
    until: int | None = None


class _OfCall(msgspec.Struct, frozen=True, kw_only=True):
    """What an effect of a call needs, dispatched at event `seq`; what else is known of it, the open batch
    has.

    `run` is the run that began it: in a fork the parent, where it was under way at the cut. `until` is the
    instant at which its time is over.
    """

    seq: int
    call: str
    name: str
    run: str
    until: int | None = None

    @property
    def key(self) -> str:
        """Its idempotency key: the same whenever this call is run again."""
        return idempotency_key(self.run, self.call)


class RunTool(_OfCall, frozen=True, kw_only=True, tag="run_tool"):
    """Run a call."""


class Reconcile(_OfCall, frozen=True, kw_only=True, tag="reconcile"):
    """Ask the tool what became of a call in doubt.

    It stays pending until the call's result is there: also once the tool has said that it happened.
    """


class WaitUntil(msgspec.Struct, frozen=True, kw_only=True, tag="wait_until"):
    """Read the clock at the instant `at`: a back-off, or a time limit's deadline."""

    at: int


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag="settle"):
    """Bring what is in flight to an end: the request (`call` None) or a call made at event `seq`.

    Whoever has a handle cuts it off; for a call that nobody holds, `doubts.unseen` has the honest result.
    """

    seq: int
    call: str | None = None


Effect = CallModel | RunTool | Reconcile | WaitUntil | Settle


def next_effects(state: RunState) -> tuple[Effect, ...]:
    """Everything that is pending. Empty: the run has ended, or nothing is to be done until a person acts."""
    if state.ended or state.seq == 0:
        return ()
    if state.stopping is not None:
        return _settling(state)
    effects: list[Effect] = []
    asks = state.request or state.summary
    if asks is not None:
        effects.append(CallModel(seq=asks.seq, until=asks.until))
    # What was found out about one call while a person is asked waits until all is, and the run goes on.
    if state.batch is not None and state.asked_at is None:
        _run(state, state.batch, effects)
    effects += [WaitUntil(at=instant) for instant in _instants(state) if instant is not None]
    return tuple(effects)


def _instants(state: RunState) -> tuple[int | None, ...]:
    """Return when an approval, a back-off and the time of something end, None for each that does not."""
    return (
        state.approval.until if state.approval else None,
        state.backoff.until if state.backoff else None,
        next_deadline(state) if state.setup.timed else None,
    )


def doubtful(state: RunState) -> tuple[str, ...]:
    """The calls that were started, have no result, and must not be started a second time.

    What an engine finds so when it takes a run up again is in doubt.
    """
    if state.unattended or state.asked_at is not None:
        return ()  # nothing was begun since the last time that somebody looked, or no call runs: a person is asked
    replays = {tool.name: tool.replay for tool in state.setup.tools}
    started = (call for call in underway(state) if not call.in_doubt)
    return tuple(call.id for call in started if not repeatable(replays.get(call.name)))


def idempotency_key(run: str, call: str) -> str:
    """A key for everything that a call of `run` does: equal for every attempt at it, and for no other call.

    What was begun before a fork has the parent's key in the fork too: to run it again repeats nothing.
    """
    return hashlib.sha256(f"{run}|{call}".encode()).hexdigest()[:32]


def _run(state: RunState, batch: Batch, effects: list[Effect]) -> None:
    for call in batch.calls:
        if not call.dispatched or call.result is not None:
            continue
        way = course(state, call)
        if way == "tell":
            effects.append(Settle(seq=call.dispatched, call=call.id))
        elif way != "ask":
            kind = RunTool if way == "run" else Reconcile
            run = call.begun_in or state.setup.run
            effects.append(
                kind(seq=call.dispatched, call=call.id, name=call.name, run=run, until=batch.until)
            )


def _settling(state: RunState) -> tuple[Effect, ...]:
    asked = state.request or state.summary
    if asked is not None:
        return (Settle(seq=asked.seq),)
    return tuple(Settle(seq=call.dispatched, call=call.id) for call in underway(state))
