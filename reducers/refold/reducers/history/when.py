"""When a history pass runs: every condition that is given must hold."""

from typing import Annotated, Literal

from msgspec import Meta

from refold.reducers.history.scene import Scene
from refold.reducers.values import Knob


class Share(Knob, frozen=True, kw_only=True):
    """So large a part of the model's context. It never holds where nobody knows that."""

    share: Annotated[float, Meta(gt=0, le=1)]


class When(Knob, frozen=True, kw_only=True):
    """`always`; more than so many `messages` in the window; more than so many estimated `tokens`, or just as many
    with `at_least`, in it, or of everything since the start with `measure: whole`; a `model` whose name contains
    one of these parts (in any case, unless `model_case`); after so many steps; only at the start of a turn.

    `null` is not given, and nothing given but `always: false` is never.
    """

    always: bool = False
    messages: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | Share | None = None
    at_least: bool = False
    measure: Literal["window", "whole"] = "window"
    model: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    model_case: bool = False
    after_step: Annotated[int, Meta(ge=0)] | None = None
    turn_start: bool = False

    @property
    def waits(self) -> bool:
        """Whether there is a threshold to wait for."""
        return self.messages is not None or self.tokens is not None

    def holds(self, scene: Scene) -> bool:
        """Whether every condition given holds; with none given, only `always` makes it true."""
        conditions = [
            scene.window.count > self.messages if self.messages is not None else None,
            self._heavy(scene, self.tokens) if self.tokens is not None else None,
            self._named(scene.model) if self.model else None,
            scene.step > self.after_step if self.after_step is not None else None,
            scene.turn_start if self.turn_start else None,
        ]
        given = [condition for condition in conditions if condition is not None]
        return all(given) if given else self.always

    def _heavy(self, scene: Scene, limit: int | Share) -> bool:
        used: float = scene.window.whole_tokens if self.measure == "whole" else scene.window.tokens
        if isinstance(limit, int):
            return used >= limit if self.at_least else used > limit
        if not scene.context:
            return False
        used /= scene.context
        return used >= limit.share if self.at_least else used > limit.share

    def _named(self, model: str) -> bool:
        if self.model_case:
            return any(part in model for part in self.model)
        return any(part.lower() in model.lower() for part in self.model)
