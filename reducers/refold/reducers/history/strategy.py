"""What every strategy of a history pass shares, so that each of them is its rule and no more."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.history.scene import Scene
from refold.reducers.history.when import When
from refold.reducers.messages import Gap
from refold.reducers.values import Knob
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, numbers


class Strategy(Knob, frozen=True, kw_only=True, tag_field="do"):
    """Base of the strategies. Each has a method `plan(scene)`: what it wants, pairs and pins not considered.

    `marks` is the policy's text of the one message that stands for all that was dropped; "" where there is none.
    `asks` is the reason where it is always the same. `pins`: what is pinned stays, whatever it wants.
    """

    marks: ClassVar[str] = ""
    asks: ClassVar[str] = ""
    pins: ClassVar[bool] = True

    name: str
    when: When = When(always=True)
    pair_cut: Literal["drop", "extend"] = "drop"

    @property
    def reason(self) -> str:
        """Why it prunes: at a threshold, if it waits for one, else to keep the window."""
        return self.asks or ("threshold" if self.when.waits else "window")

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:  # noqa: ARG002
        """Whether the window without what is `gone` is within what this strategy keeps to; one without a budget always is."""
        return True

    def mark(self, gap: Gap, dropped: Sequence[MessageRef]) -> Gap:  # noqa: ARG002
        """The gap that what was dropped leaves, with what only this strategy says in it."""
        return gap


def stays(ref: MessageRef) -> bool:
    """Whether a strategy that counts or weighs keeps it whatever it weighs: what is pinned, system messages."""
    return ref.pinned or ref.role is Role.SYSTEM


def newest(messages: Sequence[MessageRef], count: int) -> Sequence[MessageRef]:
    """The last so many."""
    return messages[max(0, len(messages) - count) :]


def older(messages: Sequence[MessageRef], count: int) -> Sequence[MessageRef]:
    """All but the last so many."""
    return messages[: max(0, len(messages) - count)]


def older_than(messages: Sequence[MessageRef], budget: int, least: int) -> Sequence[MessageRef]:
    """All but those, from the newest back, whose estimates fit the budget; `least` of them stay whatever they weigh."""
    for place, ref in enumerate(reversed(messages)):
        budget -= ref.size.tokens
        if budget < 0 and place >= least:
            return older(messages, place)
    return ()


def weight(window: Window, messages: Sequence[MessageRef]) -> int:
    """Estimated tokens of these messages of a window, as a list."""
    return ESTIMATORS[window.estimator].weigh_all([(ref.role, ref.size) for ref in messages])


def whole_units(
    messages: Sequence[MessageRef], dropped: Sequence[MessageRef], *, extend: bool
) -> Sequence[MessageRef]:
    """What of the messages goes if these do, with no unit in halves: one that is cut goes, or with `extend` stays."""
    if extend:
        going = numbers(dropped)
        cut = {ref.unit for ref in messages if ref.number not in going}
        return [ref for ref in dropped if ref.unit not in cut]
    units, last = {ref.unit for ref in dropped}, dropped[-1].unit if dropped else 0
    whole: list[MessageRef] = []
    # What goes stands mostly in front, and a unit in one piece: what stands behind the last of them is not looked at.
    for ref in messages:
        if ref.unit in units:
            whole.append(ref)
        elif whole and whole[-1].unit == last:
            break
    return whole
