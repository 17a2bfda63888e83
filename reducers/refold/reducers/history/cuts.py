"""How a message is shown shorter. Cuts do not nest: each is made of the whole message, whatever was shown of it."""

from collections.abc import Iterable

from refold.reducers.history.scene import Plan, Scene, Shortening
from refold.reducers.messages import TextCut
from refold.reducers.texts import render
from refold.reducers.window import MessageRef

Values = dict[str, str | int]


def sizes(ref: MessageRef) -> Values:
    """Characters of the whole text, `size`, and of the `reasoning`, if any: values of the text in a cut."""
    whole = ref.whole
    return {"size": whole.chars, **({"reasoning": whole.reasoning} if whole.reasoning else {})}


def length(scene: Scene, text: str, values: Values, removed: int) -> int:
    """Characters of the text that stands where something was cut, if it reports this number."""
    return len(render(scene.text(text), {**values, "removed": removed}))


def lengths(scene: Scene, shorter: Shortening) -> tuple[int, int]:
    """Characters of text and of reasoning that are shown of a message once it is shortened."""
    shown = {"text": int(shorter.values["size"]), "reasoning": int(shorter.values.get("reasoning", 0))}
    for cut in shorter.cuts:
        between = length(scene, shorter.text, shorter.values, cut.removed) if cut.marker else 0
        shown[cut.part] = cut.head + between + cut.tail
    return shown["text"], shown["reasoning"]


def cut_text(
    scene: Scene, ref: MessageRef, text: str, head: int, tail: int, *, longer: bool = False
) -> Shortening | None:
    """Show so many of the first and last characters. None: that would be no shorter than what is shown.

    With `longer` a message that is shown whole may become longer by it.
    """
    values = sizes(ref)
    cut = TextCut(head=head, tail=tail, removed=max(0, int(values["size"]) - head - tail))
    shorter = Shortening(number=ref.number, text=text, values=values, cuts=(cut,))
    if lengths(scene, shorter)[0] < ref.size.chars or (longer and ref.shown is None):
        return shorter
    return None


def shortening(cuts: Iterable[Shortening | None]) -> Plan | None:
    """The plan to make these cuts, if there are any."""
    shorter = tuple([cut for cut in cuts if cut])
    return Plan(shorter=shorter) if shorter else None
