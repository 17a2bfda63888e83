"""The invariants of every compaction step, and the registry of those that a policy can name."""

from collections.abc import Sequence

from refold.reducers.history.results import AgeResults, PreviewResults, TrimMessages
from refold.reducers.history.strategy import Plan, Scene, weight, whole_units
from refold.reducers.history.windows import (
    Compact,
    Digest,
    DropOldest,
    ObservedWindow,
    Summarise,
    Tail,
    TokenTail,
)
from refold.reducers.messages import Gap
from refold.reducers.window import MessageRef, Window, numbers, refs

Pass = (
    Tail
    | DropOldest
    | TokenTail
    | Compact
    | TrimMessages
    | AgeResults
    | PreviewResults
    | Digest
    | Summarise
    | ObservedWindow
)


def plan_step(scene: Scene, step: Pass) -> Plan | None:
    """Return what a step changes now, within the invariants; None if `when` does not hold or nothing changes.

    Pinned messages stay. If a step would split a unit, `pair_cut: drop` drops the rest of it (never over
    budget) and `extend` keeps the rest (may exceed it). After applying the plan, the step has none.
    """
    if not (scene.forced or step.when.holds(scene)):
        return None
    wish = step.plan(scene)
    return wish if wish is None or wish.drop is None else _apply_invariants(scene, step, wish.drop)


def _apply_invariants(scene: Scene, step: Pass, wanted: Sequence[MessageRef]) -> Plan | None:
    messages = refs(scene.window)
    wanted_gone = [ref for ref in wanted if not (step.pins and ref.pinned)]
    dropped = whole_units(messages, wanted_gone, extend=step.pair_cut == "extend")
    # Replacing only markers by a marker is no progress; two steps could alternate forever.
    if all(step.marks and ref.gap for ref in dropped):
        return None
    if not step.marks:
        return Plan(drop=dropped)
    gone = numbers(dropped)
    before = [ref.number for ref in messages[: messages.index(dropped[-1])] if ref.number not in gone]
    gap = _merge_gaps(scene.window, dropped, before[-1] if before else 0)
    return Plan(drop=dropped, gap=step.mark(gap, dropped))


def _merge_gaps(window: Window, dropped: Sequence[MessageRef], after: int) -> Gap:
    """Return the gap for all that was dropped so far; dropped markers count what they cover."""
    plain = [ref for ref in dropped if not ref.gap]
    gaps = [ref.gap for ref in dropped if ref.gap]
    return Gap(
        after=after,
        covers=len(plain) + sum(gap.covers for gap in gaps),
        tokens=weight(window, plain) + sum(gap.tokens for gap in gaps),
    )
