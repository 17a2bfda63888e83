"""Windows made of letters, and what a plan of a history pass makes of a window, by the plainest means."""

from collections.abc import Sequence, Set
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers.history import Pass, Plan, Scene, Shortening, plan_step
from refold.reducers.messages import Gap, Size
from refold.reducers.vocabulary import Role
from refold.reducers.window import (
    MessageRef,
    Shown,
    Window,
    append,
    insert,
    numbers,
    quoted_refs,
    refs,
    refs_within,
    resize,
    without,
)

ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}

# With `{removed}` in them their lengths are known: 10 and its digits, so that cuts can be told by hand.
TEXTS = dict.fromkeys(("trimmed", "aged", "cleared", "preview"), "-" * 10 + "{removed}")


def window(
    spec: str,
    tokens: dict[int, int] | None = None,
    chars: dict[int, int] | None = None,
    preview: dict[int, int] | None = None,
) -> Window:
    """A window from letters: s, u, a and t; results belong to the answer before them.

    Ten tokens each, no characters.
    """
    built, unit = Window(), 0
    for number, letter in enumerate(spec, 1):
        unit = unit if letter == "t" else number
        ref = MessageRef(
            number=number,
            role=ROLES[letter],
            seq=number,
            unit=unit,
            size=Size(
                chars=(chars or {}).get(number, 0), tokens=(tokens or {}).get(number, 10), digest=str(number)
            ),
            preview=(preview or {}).get(number, 0),
        )
        built = append(built, ref)
    return built


def applied(scene: Scene, plan: Plan | None, number: int) -> Window:
    """The window once the plan is carried out; what it puts in gets this number, which must be free."""
    if plan is None:
        return scene.window
    if plan.summary is not None:
        gone = refs_within(scene.window, plan.summary.messages)
        kept = without(scene.window, numbers(gone))
        covers = sum(ref.gap.covers if ref.gap else 1 for ref in gone)
        gap = Gap(after=plan.summary.after, covers=covers, tokens=plan.summary.input_tokens, source=1)
        return insert(kept, _made(number, plan.summary.role, gap, ()), gap.after)
    after = scene.window if plan.drop is None else without(scene.window, numbers(plan.drop))
    for shorter in plan.shorter:
        after = _shortened(after, shorter)
    if plan.gap is None:
        return after
    made = _made(number, Role.USER, plan.gap, quoted_refs(scene.window, plan.gap.sources))
    return insert(after, made, plan.gap.after)


def lengths(ref: MessageRef, shorter: Shortening) -> tuple[int, int]:
    """Characters of text and of reasoning that are shown of a message once it is shortened."""
    sizes = {"text": ref.whole.chars, "reasoning": ref.whole.reasoning}
    for cut, text in zip(shorter.cuts, shorter.texts, strict=True):
        sizes[cut.part] = cut.head + len(text) + cut.tail
    return sizes["text"], sizes["reasoning"]


def _shortened(window: Window, shorter: Shortening) -> Window:
    ref = next(ref for ref in refs(window) if ref.number == shorter.number)
    chars, reasoning = lengths(ref, shorter)
    shown = Shown(seq=ref.seq, whole=ref.whole, cuts=shorter.cuts)
    tokens = -(-(chars + reasoning + ref.size.arguments) // 4)
    digest = f"{ref.size.digest}{chars:x}"
    size = replace(ref.size, tokens=tokens, chars=chars, digest=digest, reasoning=reasoning)
    return resize(window, ref.number, size, shown)


def _made(number: int, role: Role, gap: Gap, sources: Sequence[MessageRef]) -> MessageRef:
    return MessageRef(
        number=number,
        role=role,
        seq=number,
        unit=number,
        size=Size(chars=40, tokens=10, digest=f"{number:x}"),
        gap=gap,
        sources=tuple(sources),
    )


def staying(plan: Plan | None, window: Window) -> list[int] | None:
    """The numbers of the messages that a plan leaves in the window; None: it drops none."""
    if plan is None or plan.drop is None:
        return None
    return [ref.number for ref in refs(window) if ref not in plan.drop]


def only(window: Window, stay: Set[int]) -> Window:
    """The window of the messages with these numbers, in the same order."""
    return without(window, {ref.number for ref in refs(window) if ref.number not in stay})


def plan_of(step: dict[str, Any], window: Window, /, **moment: Any) -> Plan | None:
    """What the pass would do with this window."""
    return plan_step(Scene(window=window, texts=TEXTS, **moment), msgspec.convert(step, Pass))
