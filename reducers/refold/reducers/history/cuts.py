"""How a message is shown shorter. Cuts do not nest: each is made of the whole message, whatever was shown of it."""

from collections.abc import Iterable

from refold.reducers.history.scene import Plan, Scene, Shortening
from refold.reducers.messages import TextCut
from refold.reducers.window import MessageRef


def cut_text(
    scene: Scene, ref: MessageRef, text: str, head: int, tail: int, *, longer: bool = False
) -> Shortening | None:
    """Show so many of the first and last characters. None: that would be no shorter than what is shown.

    With `longer` a message that is shown whole may become longer by it.
    """
    removed = max(0, ref.whole.chars - head - tail)
    said = scene.text(text, ref.whole, removed)
    if head + len(said) + tail < ref.size.chars or (longer and ref.shown is None):
        cut = TextCut(head=head, tail=tail, removed=removed)
        return Shortening(number=ref.number, cuts=(cut,), texts=(said,))
    return None


def shortening(cuts: Iterable[Shortening | None]) -> Plan | None:
    """The plan to make these cuts, if there are any."""
    shorter = tuple([cut for cut in cuts if cut])
    return Plan(shorter=shorter) if shorter else None
