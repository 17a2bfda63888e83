"""The laws that hold for every history pass, applied in one place."""

import msgspec

from refold.reducers.history.registry import Pass
from refold.reducers.window import MessageRef, Window, only, refs


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass did: the window after it, and whether it could not keep its budget."""

    window: Window
    over_budget: bool


def prune(window: Window, step: Pass) -> Pruning | None:
    """Run a pass if its condition holds. None: nothing changed.

    Where a pass would cut a unit in two, `pair_cut: drop` drops the rest of it (never over budget) and
    `extend` takes the rest in (may exceed it).
    """
    if step.fits(window) or not step.when.holds(window):
        return None
    messages = refs(window)
    numbers = _whole_units(messages, step.keep(messages), extend=step.pair_cut == "extend")
    if len(numbers) == window.count:
        return None
    after = only(window, numbers)
    return Pruning(window=after, over_budget=not step.fits(after))


def _whole_units(messages: list[MessageRef], kept: set[int], *, extend: bool) -> set[int]:
    if extend:
        touched = {ref.unit for ref in messages if ref.number in kept}
        return {ref.number for ref in messages if ref.unit in touched}
    broken = {ref.unit for ref in messages if ref.number not in kept}
    return {ref.number for ref in messages if ref.unit not in broken}
