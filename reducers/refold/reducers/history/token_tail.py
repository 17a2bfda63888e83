"""Keep as many of the last messages as fit a budget of estimated tokens."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy, older_than, stays, weight
from refold.reducers.refusals import Fault
from refold.reducers.values import Knob
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, numbers, refs, tokens_left


class Room(Knob, frozen=True, kw_only=True):
    """What a context of so many tokens leaves beside the answer and, with `minus_tools`, the tools offered."""

    context: Annotated[int, Meta(ge=0)]
    minus_output: Annotated[int, Meta(ge=0)] = 0
    minus_tools: bool = False

    def problems(self) -> Iterator[Fault]:
        """Nothing left."""
        if self.minus_output >= self.context:
            problem = f"of a context of {self.context} tokens the answer takes all: {self.minus_output}"
            yield "minus_output", problem


class TokenTail(Strategy, frozen=True, kw_only=True, tag="token_tail"):
    """Keep what is pinned, and walk back from the newest message while the estimate fits what is left.

    Unchanged if the whole window fits `budget` tokens. The pinned task is subtracted first, and with
    `count_system` the system messages too. The last max(1, `min_last`) messages are kept whatever they
    weigh; the walk stops at the first that is refused. Source: `guardrails` and `tirea`.
    """

    asks = "budget"

    name: str = "token_tail"
    budget: Annotated[int, Meta(ge=1)] | Room
    min_last: Annotated[int, Meta(ge=0)] = 1
    count_system: bool = False

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Whether the window weighs no more than the budget."""
        window, budget = scene.window, self._tokens(scene)
        if tokens_left(window, gone) <= budget:
            return True
        left = numbers(gone)
        counted = [ref for ref in refs(window) if self._counts(ref) and ref.number not in left]
        return not self.count_system and weight(window, counted) <= budget

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what does not fit."""
        if self.fits(scene):
            return None
        messages = refs(scene.window)
        left = self._tokens(scene) - sum(
            ref.size.tokens for ref in messages if stays(ref) and self._counts(ref)
        )
        others = [ref for ref in messages if not stays(ref)]
        return Plan(drop=older_than(others, max(0, left), max(1, self.min_last)))

    def _tokens(self, scene: Scene) -> int:
        if isinstance(self.budget, int):
            return self.budget
        tools = scene.tools if self.budget.minus_tools else 0
        return max(0, self.budget.context - self.budget.minus_output - tools)

    def _counts(self, ref: MessageRef) -> bool:
        return self.count_system or ref.role is not Role.SYSTEM
