"""Texts of a log as one line that is harmless for a terminal."""

from refold.console import hostile
from refold.replay.kinds.arguments import brief
from refold.replay.kinds.sentences import SHOWN


def short(text: str | None, most: int = SHOWN) -> str:
    """A text as one line, white space made single, cut; `(erased)` where it is not there any more."""
    return hostile.line(brief(text, most))


def task(text: str | None, most: int = SHOWN) -> str:
    """What a run was asked, as `short`; `-` where it began without a message."""
    return short(text, most) or "-"


def standing(state: str, code: str | None) -> str:
    """How a run stands: `MAX_STEPS (step_limit)`."""
    return hostile.line(f"{state} ({code})") if code else state
