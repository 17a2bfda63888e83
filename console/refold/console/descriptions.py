"""Texts of a log as one line that is harmless for a terminal."""

from refold.console import hostile
from refold.replay import figures
from refold.replay.kinds.arguments import brief
from refold.replay.kinds.sentences import SHOWN
from refold.replay.source_words import SourceEnd
from refold.replay.summary import Summary


def short(text: str | None, most: int = SHOWN) -> str:
    """A text as one line, white space made single, cut; `(erased)` where it is not there any more."""
    return hostile.line(brief(text, most))


def task(text: str | None, most: int = SHOWN) -> str:
    """What a run was asked, as `short`; `-` where it began without a message."""
    return short(text, most) or "-"


def ended(about: Summary) -> str:
    """How a run stands, by its source where that says so: `finished`, `MAX_STEPS (step_limit)`."""
    if not about.source_end:
        return standing(about.agent_state, about.code if about.agent_state != "COMPLETED" else None)
    brief = SourceEnd(end=about.source_end, run=about.goes_on_in).brief(len(about.unanswered))
    brief += f", {figures.counted(about.lost, 'place')} lost" if about.lost else ""
    # An end of ours is never hidden.
    return hostile.line(f"{brief} ({about.agent_state})" if about.code else brief)


def standing(state: str, code: str | None) -> str:
    """How a run stands: `MAX_STEPS (step_limit)`."""
    return hostile.line(f"{state} ({code})") if code else state
