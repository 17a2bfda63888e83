"""The laws of every history pass, and the registry of those that a policy can name."""

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


def planned(scene: Scene, step: Pass) -> Plan | None:
    """What a pass does now, within the laws; None: its condition does not hold, or nothing changes.

    What is pinned stays. Where a pass would cut a unit in two, `pair_cut: drop` drops the rest of it (never
    over budget) and `extend` takes the rest in (may exceed it). Once such a plan is carried out the pass has
    none.
    """
    if not (scene.forced or step.when.holds(scene)):
        return None
    wish = step.plan(scene)
    return wish if wish is None or wish.drop is None else _lawful(scene, step, wish.drop)


def _lawful(scene: Scene, step: Pass, wanted: Sequence[MessageRef]) -> Plan | None:
    messages = refs(scene.window)
    going = [ref for ref in wanted if not (step.pins and ref.pinned)]
    dropped = whole_units(messages, going, extend=step.pair_cut == "extend")
    # To replace markers by another is no progress, and two passes could do it in turns for ever.
    if all(step.marks and ref.gap for ref in dropped):
        return None
    if not step.marks:
        return Plan(drop=dropped)
    gone = numbers(dropped)
    before = [ref.number for ref in messages[: messages.index(dropped[-1])] if ref.number not in gone]
    gap = _gap(scene.window, dropped, before[-1] if before else 0)
    return Plan(drop=dropped, gap=step.mark(gap, dropped))


def _gap(window: Window, dropped: Sequence[MessageRef], after: int) -> Gap:
    """All that was dropped so far: markers among it stand for more."""
    said = [ref for ref in dropped if not ref.gap]
    gaps = [ref.gap for ref in dropped if ref.gap]
    return Gap(
        after=after,
        covers=len(said) + sum(gap.covers for gap in gaps),
        tokens=weight(window, said) + sum(gap.tokens for gap in gaps),
    )
