"""Effects in flight, and the facts that end them."""

from collections.abc import Collection, Sequence

import anyio
from msgspec.structs import replace

from refold.engine.clock import LateMaker, Maker, maker
from refold.engine.models.protocol import CallDelta, Delta, ModelError, Reply, SentHash, TextDelta
from refold.engine.result import words_in
from refold.engine.world import Work
from refold.reducers import composition
from refold.reducers import events as ev
from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool, Settle, WaitUntil
from refold.reducers.folds import late_result
from refold.reducers.messages import Usage
from refold.reducers.pending import unseen
from refold.reducers.policy import text_of
from refold.reducers.state import RunState
from refold.reducers.text import render, replaces_partial
from refold.reducers.vocabulary import FailureClass, ToolError, Unknown

_SERVED = (CallModel, RunTool, Reconcile)
NEEDLESS = (WaitUntil, Reconcile, Settle)
"""Effects that may become unnecessary while they are in flight."""

Handle = tuple[type[Effect], int, str | None]

_PATIENCE = 60 * 1_000_000_000
"""Nanoseconds for which an engine keeps waiting for an operator."""


class InFlight:
    """Effects in flight, each with its cancel scope."""

    def __init__(self) -> None:
        self._scopes: dict[Effect, anyio.CancelScope] = {}
        self._served: dict[Handle, Effect] = {}  # those that call a model or a tool
        self._aside: set[Effect] = set()  # calls whose child runs wait for an operator

    def __contains__(self, effect: Effect) -> bool:
        return effect in self._scopes

    def __getitem__(self, effect: Effect) -> anyio.CancelScope:
        return self._scopes[effect]

    def holds(self, effect: Effect) -> bool:
        """Return whether the effect is in flight.

        Calls are compared without their deadline: a running call with more time is not started again.
        """
        if isinstance(effect, (CallModel, RunTool)):
            return _handle(effect) in self._served
        return effect in self._scopes

    def begin(self, effect: Effect) -> anyio.CancelScope:
        """Register the effect and return its cancel scope."""
        scope = self._scopes[effect] = anyio.CancelScope()
        if isinstance(effect, _SERVED):
            self._served[_handle(effect)] = effect
        return scope

    def end(self, effect: Effect) -> None:
        """Remove an effect whose last fact was queued."""
        self._scopes.pop(effect, None)
        if self._served.get(_handle(effect)) == effect:
            del self._served[_handle(effect)]

    def put_aside(self, effect: Effect) -> None:
        """Mark an effect that cannot continue until an operator acts."""
        self._aside.add(effect)

    def cut_off(self, settle: Settle) -> bool:
        """Cancel the effect to be settled; return False if it is not in flight."""
        handles = ((kind, *_handle(settle)[1:]) for kind in _SERVED)
        effect = next((self._served[handle] for handle in handles if handle in self._served), None)
        if effect is None:
            return False
        self._aside.discard(effect)
        self._scopes[effect].cancel()
        return True

    def let_go(self, effects: Collection[Effect]) -> None:
        """Cancel effects that are not pending any longer, if they may be dropped.

        A model or tool call is settled instead, and reports its end. A question to a tool and a settling may
        become unnecessary when an operator resolves the call.
        """
        needless = [held for held in self._scopes if isinstance(held, NEEDLESS)]
        pending = set(effects) if needless else set[Effect]()
        for effect in needless:
            if effect not in pending:
                self._scopes[effect].cancel()
                self.end(effect)

    def busy(self, state: RunState, now: int, *, timers: bool = True) -> bool:
        """Return whether anything needs this engine.

        An operator may take days: a timer beside the question needs the engine only in its last minute. An
        engine that loads the run after the deadline applies the policy's timeout rule. Without `timers`, all
        of them are left to other engines.
        """
        left = [effect for effect in self._scopes if effect not in self._aside]
        if self._aside or not timers:
            left = [effect for effect in left if not isinstance(effect, WaitUntil)]
        elif state.asked_at is not None:
            left = [each for each in left if not isinstance(each, WaitUntil) or each.at - now <= _PATIENCE]
        return bool(left)

    def clear(self) -> bool:
        """Forget all effects; return whether there were any."""
        some = bool(self._scopes)
        self._scopes.clear()
        self._served.clear()
        self._aside.clear()
        return some


def _handle(effect: Effect) -> Handle:
    """Return what identifies an effect: its kind, the deciding event and the call, without its deadline."""
    return type(effect), getattr(effect, "seq", 0), getattr(effect, "call", None)


UNHIDDEN = "its output could not be redacted, and is not shown"


def in_doubt(call: str) -> Maker:
    """Return the result of a started call without a task: outcome unknown, or as it was resolved."""

    def complete(state: RunState, fact: ev.ToolReturned, salt: bytes) -> ev.Fact:
        error, text = unseen(state, call)
        said = render(text_of(state.policy, text), {})
        return composition.returned(state, replace(fact, error=error), said, call, "", salt)

    return maker(ev.ToolReturned(at=0, call=call), complete)


def abandoned(request: int) -> Maker:
    """Return the end of a request without a task; it is not repeated, because the run is stopping."""
    fact = ev.ModelFailed(at=0, request=request, failure=FailureClass.CANCELLED)
    return _make_failed(fact, "the run was stopped before the request was made again", "")


def model_responded(work: Work, reply: Reply, sent: SentHash) -> Maker:
    """Return the fact that the model responded."""
    answer = ev.Answer(text=reply.text, reasoning=reply.reasoning, provider_data=reply.provider_data)

    def complete(state: RunState, fact: ev.ModelResponded, salt: bytes) -> ev.Fact:
        return composition.responded(state, replace(fact, sent=sent.digest(salt)), answer, reply.calls, salt)

    fact = ev.ModelResponded(
        at=0,
        request=work.effect.seq,
        stop=reply.stop,
        stop_raw=reply.stop_raw,
        replaces_partial=_starts_over(work, reply.text),
        usage=reply.usage or Usage(),
        cost_nanousd=reply.cost_nanousd,
        model=reply.model,
        adapter=reply.adapter,
        adapter_version=reply.adapter_version,
        response_id="" if work.world.anonymous else reply.response_id,
        duration=work.stopwatch(),
        unknown=_missing_counts(reply),
    )
    return maker(fact, complete)


def summary_returned(work: Work, reply: Reply) -> Maker:
    """Return the fact that the model wrote a summary."""
    fact = ev.SummaryReturned(
        at=0,
        request=work.effect.seq,
        usage=reply.usage or Usage(),
        cost_nanousd=reply.cost_nanousd,
        model=reply.model,
        duration=work.stopwatch(),
        unknown=_missing_counts(reply),
    )
    return maker(fact, lambda state, fact, salt: composition.summarised(state, fact, reply.text, salt))


def model_failed(
    work: Work, error: ModelError, arrived: Sequence[Delta] = (), refused: Reply | None = None
) -> Maker:
    """Return the fact that a request failed, with the partial response and the cost of a `refused` one."""
    begun = len({delta.index for delta in arrived if isinstance(delta, CallDelta)})
    text = "".join(delta.text for delta in arrived if isinstance(delta, TextDelta))
    partial = work.redactor.text(error.partial_text or text)
    fact = ev.ModelFailed(
        at=0,
        request=work.effect.seq,
        failure=error.failure,
        status=error.status,
        retry_after=error.retry_after,
        partial_calls=begun,
        replaces_partial=_starts_over(work, partial),
        usage=(refused.usage if refused else None) or Usage(),
        cost_nanousd=refused.cost_nanousd if refused else None,
        duration=work.stopwatch(),
    )
    return _make_failed(fact, work.redactor.text(error.message), partial)


def tool_succeeded(work: Work, output: str) -> Maker:
    """Return the result of a call that succeeded."""
    return _make_returned(work, _result(work), output, None)


def tool_recorded(work: Work, fact: ev.ToolReturned) -> Maker:
    """Return a recorded result, already capped, as the result of this call."""
    said = fact.content or ev.Output(output="")
    output = work.redactor.text(said.output)
    sha256 = said.sha256 if output == said.output else ""  # a digest lets secrets be guessed
    again = replace(fact, call=work.call.call, duration=work.stopwatch())
    return _make_returned(work, again, output, sha256)


def tool_failed(work: Work, error: ToolError, **values: str | int) -> Maker:
    """Return the result of a call that failed, with the policy's text for that error and `values`."""

    def complete(state: RunState, fact: ev.ToolReturned, salt: bytes) -> ev.Fact:
        said = composition.said_error(state, error, values)
        return composition.returned(state, fact, said, work.call.name, "", salt)

    return maker(_result(work, error), complete)


def tool_late(work: Work, output: str, error: ToolError | None) -> LateMaker:
    """Return the result that a thread reports after its call was cut off."""
    fact = _result(work, error)

    def late(state: RunState, at: int, salt: bytes) -> ev.LateResult:
        came = replace(fact, at=max(at, state.at))
        return late_result(composition.returned(state, came, output, work.call.name, "", salt))

    return late


def _result(work: Work, error: ToolError | None = None) -> ev.ToolReturned:
    return ev.ToolReturned(at=0, call=work.call.call, error=error, duration=work.stopwatch())


def _make_returned(work: Work, fact: ev.ToolReturned, output: str, sha256: str | None) -> Maker:
    return maker(
        fact,
        lambda state, fact, salt: composition.returned(state, fact, output, work.call.name, sha256, salt),
    )


def _missing_counts(reply: Reply) -> tuple[Unknown, ...]:
    """Return which of token count and price the response lacks."""
    lacks = {Unknown.UNCOUNTED: reply.usage is None, Unknown.UNPRICED: reply.cost_nanousd is None}
    return tuple(what for what, missing in lacks.items() if missing)


def _starts_over(work: Work, text: str) -> bool:
    """Return whether the model began again instead of continuing the partial response."""
    state = work.state
    if not state.parts or state.summary is not None:
        return False
    return replaces_partial(words_in(work.journal.contents, state.parts), text)


def _make_failed(fact: ev.ModelFailed, said: str, partial_text: str) -> Maker:
    return maker(
        fact, lambda state, fact, salt: composition.failed(fact, said, partial_text, salt, state.policy)
    )
