"""What an engine has begun and has no fact of yet. All that it remembers beside the state."""

from collections.abc import Collection

import anyio

from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool, Settle, WaitUntil
from refold.reducers.state import RunState

_SERVED = (CallModel, RunTool, Reconcile)
NEEDLESS = (WaitUntil, Reconcile, Settle)
"""What may turn out to be needless while it is in flight."""

_PATIENCE = 60 * 1_000_000_000
"""Nanoseconds for which an engine stays for a person."""


class InFlight:
    """Effects under way, each with the scope by which it is cut off."""

    def __init__(self) -> None:
        self._scopes: dict[Effect, anyio.CancelScope] = {}
        self._aside: set[Effect] = set()  # calls whose child runs wait for a person

    def __contains__(self, effect: Effect) -> bool:
        return effect in self._scopes

    def __getitem__(self, effect: Effect) -> anyio.CancelScope:
        return self._scopes[effect]

    def holds(self, effect: Effect) -> bool:
        """Whether it is begun. By the call, and not by its deadline: what runs is not begun again when it has more time."""
        if isinstance(effect, (CallModel, RunTool)):
            return any(
                type(held) is type(effect) and _handle(held) == _handle(effect) for held in self._scopes
            )
        return effect in self._scopes

    def begin(self, effect: Effect) -> anyio.CancelScope:
        """It is begun, to be cut off by this scope."""
        scope = self._scopes[effect] = anyio.CancelScope()
        return scope

    def end(self, effect: Effect) -> None:
        """Its last fact is there."""
        self._scopes.pop(effect, None)

    def put_aside(self, effect: Effect) -> None:
        """Nothing more can be done for it until a person acts."""
        self._aside.add(effect)

    def cut_off(self, settle: Settle) -> bool:
        """Cut off what is to be settled. False if it is not in flight."""
        for effect, scope in self._scopes.items():
            if isinstance(effect, _SERVED) and _handle(effect) == _handle(settle):
                self._aside.discard(effect)
                scope.cancel()
                return True
        return False

    def let_go(self, effects: Collection[Effect]) -> None:
        """Drop what is not among the effects that are pending, if it may be dropped.

        What calls a model or a tool never is: it is settled, and reports. A question to a tool, and a settling, may be
        needless: a person said how the call ended.
        """
        for effect in [held for held in self._scopes if held not in effects]:
            if isinstance(effect, NEEDLESS):
                self._scopes.pop(effect).cancel()

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
        self._aside.clear()
        return some


def _handle(effect: Effect) -> tuple[int, str | None]:
    """What tells an effect from others: the event that decided it, and its call."""
    return getattr(effect, "seq", 0), getattr(effect, "call", None)
