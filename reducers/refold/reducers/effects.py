"""The effects that must happen next, computed from the state and never stored.

An effect is pending exactly while the log has its decision but not its fact. Effects are values: an engine
starts those that it has no handle for, and drops a handle whose effect is gone.
"""

import hashlib

import msgspec

from refold.reducers.meters import next_deadline
from refold.reducers.pending import course, repeatable, underway
from refold.reducers.state import Batch, RunState


class CallModel(msgspec.Struct, frozen=True, kw_only=True, tag="call_model"):
    """Send the request decided at event `seq`, until the instant `until`: see `pending.asked_of`."""

    seq: int
    until: int | None = None


class _OfCall(msgspec.Struct, frozen=True, kw_only=True):
    """An effect of a call that was dispatched at event `seq`. The open batch has the call's other data.

    `run` is the run that started the call: in a fork the parent, if it was in progress at the cut. `until` is
    the deadline as an instant.
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
    """Ask the tool for the outcome of a call in doubt.

    It stays pending until the call has a result, even if the tool confirms that the call ran.
    """


class WaitUntil(msgspec.Struct, frozen=True, kw_only=True, tag="wait_until"):
    """Read the clock at the instant `at`: a back-off or the deadline of a time limit."""

    at: int


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag="settle"):
    """End what is in flight: the request (`call` None) or a call started at event `seq`.

    An engine with a handle cancels it; for a call without one, `pending.unseen` gives the result.
    """

    seq: int
    call: str | None = None


Effect = CallModel | RunTool | Reconcile | WaitUntil | Settle


def next_effects(state: RunState) -> tuple[Effect, ...]:
    """Return all pending effects. Empty: the run has ended, or an operator must act."""
    if state.ended or state.seq == 0:
        return ()
    if state.stopping is not None:
        return _settling(state)
    effects: list[Effect] = []
    asks = state.request or state.summary
    if asks is not None:
        effects.append(CallModel(seq=asks.seq, until=asks.until))
    # While an operator is asked, calls that are resolved wait until all are, and the run continues.
    if state.batch is not None and state.asked_at is None:
        _run(state, state.batch, effects)
    effects += [WaitUntil(at=instant) for instant in _instants(state) if instant is not None]
    return tuple(effects)


def _instants(state: RunState) -> tuple[int | None, ...]:
    """Return the deadlines of an approval, a back-off and a time limit, None for each that does not apply."""
    return (
        state.approval.until if state.approval else None,
        state.backoff.until if state.backoff else None,
        next_deadline(state) if state.setup.timed else None,
    )


def doubtful(state: RunState) -> tuple[str, ...]:
    """Return the calls that were started, have no result, and must not be started again.

    When an engine resumes a run, these calls are in doubt.
    """
    if state.unattended or state.asked_at is not None:
        return ()  # no effect started since the last resumption, or the run waits for an operator and no call runs
    replays = {tool.name: tool.replay for tool in state.setup.tools}
    started = (call for call in underway(state) if not call.in_doubt)
    return tuple(call.id for call in started if not repeatable(replays.get(call.name)))


def idempotency_key(run: str, call: str) -> str:
    """Return the key for every attempt at a call of `run`, different from that of any other call.

    A call in progress at a fork keeps the parent's key, so that running it again repeats nothing.
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
