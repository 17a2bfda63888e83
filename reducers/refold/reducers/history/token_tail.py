"""Keep as many of the last messages as fit a budget of estimated tokens."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from refold.reducers.history.when import When
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, refs


class TokenTail(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="do",
    tag="token_tail",
    gc=False,
):
    """Keep what is pinned, and walk back from the newest message while the estimate fits what is left.

    Unchanged if the whole window fits `budget` tokens. The pinned task is subtracted first, and with
    `count_system` the system messages too. The last max(1, `min_last`) messages are kept whatever they
    weigh; the walk stops at the first that is refused.
    """

    name: str = "token_tail"
    when: When = When(always=True)
    budget: Annotated[int, Meta(ge=1)]
    min_last: Annotated[int, Meta(ge=0)] = 1
    count_system: bool = False
    pair_cut: Literal["drop", "extend"] = "drop"

    @property
    def reason(self) -> str:
        """Why it prunes: to keep a budget."""
        return "budget"

    def fits(self, window: Window) -> bool:
        """Whether the window weighs no more than the budget."""
        if window.tokens <= self.budget:
            return True
        return not self.count_system and sum(map(self._weight, refs(window))) <= self.budget

    def keep(self, messages: list[MessageRef]) -> set[int]:
        """The numbers of the messages to keep, pairs not yet considered."""
        always = [ref for ref in messages if ref.pinned or ref.role is Role.SYSTEM]
        kept = {ref.number for ref in always}
        left = max(0, self.budget - sum(map(self._weight, always)))
        others = [ref for ref in reversed(messages) if ref.number not in kept]
        for position, ref in enumerate(others):
            left -= ref.tokens
            if left < 0 and position >= max(1, self.min_last):
                break
            kept.add(ref.number)
        return kept

    def _weight(self, ref: MessageRef) -> int:
        return 0 if ref.role is Role.SYSTEM and not self.count_system else ref.tokens
