"""What an engine has begun and has no fact of yet. All that it remembers beside the state."""

from collections.abc import Collection

import anyio

from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool, Settle, WaitUntil
from refold.reducers.state import RunState

_SERVED = (CallModel, RunTool, Reconcile)
NEEDLESS = (WaitUntil, Reconcile, Settle)
"""What may turn out to be needless while it is in flight."""

Handle = tuple[type[Effect], int, str | None]

_PATIENCE = 60 * 1_000_000_000
"""Nanoseconds for which an engine stays for a person."""


class InFlight:
    """Effects under way, each with the scope by which it is cut off."""

    def __init__(self) -> None:
        self._scopes: dict[Effect, anyio.CancelScope] = {}
        self._served: dict[Handle, Effect] = {}  # those of the scopes that ask a model or a tool
        self._aside: set[Effect] = set()  # calls whose child runs wait for a person

    def __contains__(self, effect: Effect) -> bool:
        return effect in self._scopes

    def __getitem__(self, effect: Effect) -> anyio.CancelScope:
        return self._scopes[effect]

    def holds(self, effect: Effect) -> bool:
        """Whether it is begun. By the call, and not by its deadline: what runs is not begun again when it has more time."""
        if isinstance(effect, (CallModel, RunTool)):
            return _handle(effect) in self._served
        return effect in self._scopes

    def begin(self, effect: Effect) -> anyio.CancelScope:
        """It is begun, to be cut off by this scope."""
        scope = self._scopes[effect] = anyio.CancelScope()
        if isinstance(effect, _SERVED):
            self._served[_handle(effect)] = effect
        return scope

    def end(self, effect: Effect) -> None:
        """Its last fact is there."""
        self._scopes.pop(effect, None)
        if self._served.get(_handle(effect)) == effect:
            del self._served[_handle(effect)]

    def put_aside(self, effect: Effect) -> None:
        """Nothing more can be done for it until a person acts."""
        self._aside.add(effect)

    def cut_off(self, settle: Settle) -> bool:
        """Cut off what is to be settled. False if it is not in flight."""
        handles = ((kind, *_handle(settle)[1:]) for kind in _SERVED)
        effect = next((self._served[handle] for handle in handles if handle in self._served), None)
        if effect is None:
            return False
        self._aside.discard(effect)
        self._scopes[effect].cancel()
        return True

    def let_go(self, effects: Collection[Effect]) -> None:
        """Drop what is not among the effects that are pending, if it may be dropped.

        What calls a model or a tool never is: it is settled, and reports. A question to a tool, and a settling, may be
        needless: a person said how the call ended.
        """
        needless = [held for held in self._scopes if isinstance(held, NEEDLESS)]
        pending = set(effects) if needless else set[Effect]()
        for effect in needless:
            if effect not in pending:
                self._scopes[effect].cancel()
                self.end(effect)

    def busy(self, state: RunState, now: int) -> bool:
        """Whether anything keeps an engine here.

        A person may take days: a clock beside them keeps none, but for the last minute. Who takes the run up after
        the deadline applies what the policy says of silence.
        """
        left = [effect for effect in self._scopes if effect not in self._aside]
        if self._aside:
            left = [effect for effect in left if not isinstance(effect, WaitUntil)]
        elif state.asked_at is not None:
            left = [each for each in left if not isinstance(each, WaitUntil) or each.at - now <= _PATIENCE]
        return bool(left)

    def clear(self) -> bool:
        """Forget all of it. Whether there was anything."""
        some = bool(self._scopes)
        self._scopes.clear()
        self._served.clear()
        self._aside.clear()
        return some


def _handle(effect: Effect) -> Handle:
    """What tells an effect from others, however long it may take: its kind, the event that decided it, and its call."""
    return type(effect), getattr(effect, "seq", 0), getattr(effect, "call", None)
