"""How a run stands, in few words, and what can be typed next.

What a model, a tool, a provider or a log says may hold escape sequences that move the cursor, set the window's
title or answer as if typed, and marks that turn the reading order round or cannot be seen at all. None of it is
taken away, for it may be just what is looked for: each such character is shown as its escape (`\\x1b`).
"""

import re
from enum import StrEnum
from functools import cache
from typing import Any

from refold.engine import RunResult
from refold.reducers.machine import SUCCESSFUL
from refold.reducers.pending import unknown_calls
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt
from refold.replay import figures
from refold.replay.kinds.arguments import brief
from refold.replay.kinds.sentences import SHOWN
from refold.replay.source_words import SourceEnd
from refold.replay.summary import Summary

# C0 but tab and newline, DEL and C1; what cannot be seen or turns the order of reading (categories Cf, Zl, Zp), but
# for the two joiners that scripts and emoji need; half characters, which no UTF-8 has.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SHORT = {"\n": "\\n", "\t": "\\t"}


@cache
def _hidden(more: str = "") -> re.Pattern[str]:
    """What is shown as its escape. It takes milliseconds to compile, and most texts need it not."""
    return re.compile(f"[{_HIDDEN}{more}]")


def _plain(text: str) -> bool:
    """Whether nothing in it is to be hidden, as far as that is seen at once. Python calls marks printable that nobody sees."""
    return text.isascii() and text.isprintable()


def block(text: str) -> str:
    """Text of several lines, its line ends and tabs kept."""
    return text if _plain(text) else _hidden().sub(_escape, text)


def line(text: str, most: int | None = None) -> str:
    """Text as one line, of at most `most` characters; a longer one ends in `…`. What would end it is shown: `\\n`."""
    if most is not None and len(text) > most:
        text = f"{text[: max(most - 1, 0)]}…"
    return text if _plain(text) else _hidden("\t\n").sub(_escape, text)


def json_text(text: str) -> str:
    """JSON text with every such character in JSON's own escape: the same values, and no terminal minds them.

    In JSON text they can stand only inside a string, so the replacement cannot break it.
    """
    return text if _plain(text) else _hidden().sub(_json_escape, text)


def _escape(found: re.Match[str]) -> str:
    if found[0] in _SHORT:
        return _SHORT[found[0]]
    number = ord(found[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def short(text: str | None, most: int = SHOWN) -> str:
    """A text as one line, white space made single, cut; `(erased)` where it is not there any more."""
    return line(brief(text, most))


def task(text: str | None, most: int = SHOWN) -> str:
    """What a run was asked, as `short`; `-` where it began without a message."""
    return short(text, most) or "-"


def end_text(about: Summary) -> str:
    """How a run stands, by its source where that says so: `finished`, `MAX_STEPS (step_limit)`."""
    if not about.source_end:
        return standing(about.agent_state, about.code if about.agent_state not in SUCCESSFUL else None)
    brief = SourceEnd(end=about.source_end, run=about.goes_on_in).brief(len(about.unanswered))
    brief += f", {figures.counted(about.lost, 'place')} lost" if about.lost else ""
    # An end of ours is never hidden.
    return line(f"{brief} ({about.agent_state})" if about.code else brief)


def standing(state: str, code: str | None) -> str:
    """How a run stands: `MAX_STEPS (step_limit)`."""
    return line(f"{state} ({code})") if code else state


class CallEnding(StrEnum):
    """How a call ended whose end was not recorded, as it is typed; the log's own word is understood too."""

    HAPPENED = "happened"
    DID_NOT = "did-not"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "CallEnding | None":
        return cls.DID_NOT if value == Doubt.DID_NOT else None

    @property
    def doubt(self) -> Doubt:
        """As the log has it."""
        return Doubt[self.name]


# In braces: typed just so, a shell makes three words of it, and the command refuses them. A `|` would begin another command.
ENDINGS = f"{{{','.join(CallEnding)}}}"
"""The words in a command that is shown, of which one is to be typed."""


def standing_of(result: RunResult) -> dict[str, Any]:
    """How a run stands, as every line of JSON about one says it: `run`, `state`, `code` and `reason`."""
    ended = result.outcome
    return {"run": result.run, "state": str(result.state), "code": ended.code, "reason": ended.reason}


def waits_for(state: RunState) -> str:
    """What a run in this state waits for that no engine drives: a person, and what of them, or a worker."""
    if state.approval is not None:
        return f"approval of {', '.join(state.approval.event.calls)}"
    if calls := doubtful_calls(state):
        return f"a person to say how {', '.join(calls)} ended"
    if state.agent_state.awaits_operator:
        return "a message"
    return "a worker"


def doubtful_calls(state: RunState) -> tuple[str, ...]:
    """The calls of which a person is asked how they ended."""
    return unknown_calls(state) if state.asked_at is not None and state.approval is None else ()


def next_words(state: RunState, means: str = "") -> list[str]:
    """What to type next, after `refold`, for a run that no engine drives; `means` are the options by which it was driven."""
    run = state.setup.run
    if state.ended:
        return [f"show {run}", f"audit {run}"]
    if state.approval is not None:
        asked = " ".join(state.approval.event.calls)
        return [f"approve {run} {asked}{means}", f"reject {run} {asked}{means}", f"approvals {run}"]
    if calls := doubtful_calls(state):
        return [f"resolve {run} {call} {ENDINGS}" for call in calls]
    if state.agent_state.awaits_operator:
        return [f"resume {run} --message TEXT{means}", f"show {run}"]
    return [f"worker{means}", f"resume {run}{means}", f"show {run}"]
