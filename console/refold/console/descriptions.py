"""Short texts about runs: their state, and the commands to type next; and escaping for terminals.

Texts from a model, a tool, a provider or a log may contain escape sequences that move the cursor, set the
window's title or send input, and invisible or bidirectional characters. None is removed, because it may be
what the reader is looking for: each is displayed as its escape (`\\x1b`).
"""

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any, Literal

import msgspec

from refold.console.locations import StorePlace
from refold.engine import RunResult
from refold.reducers.errors import ExternalFailure
from refold.reducers.machine import SUCCESSFUL
from refold.reducers.pending import unknown_calls
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, nano
from refold.replay import figures
from refold.replay.kinds.arguments import brief
from refold.replay.kinds.sentences import SHOWN
from refold.replay.source_words import SourceEnd
from refold.replay.summary import RunSummary
from refold.store.protocol import Claim, Held, LeaseLost, Store

# C0 except tab and newline, DEL and C1; invisible and bidirectional characters (categories Cf, Zl, Zp)
# except the two joiners that scripts and emoji need; surrogates, which UTF-8 cannot encode.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SHORT = {"\n": "\\n", "\t": "\\t"}


@cache
def _hidden_characters(more: str = "") -> re.Pattern[str]:
    """Return the pattern of escaped characters.

    Compiled lazily: it takes milliseconds, and most texts do not need it.
    """
    return re.compile(f"[{_HIDDEN}{more}]")


def _is_plain(text: str) -> bool:
    """Return whether the text obviously has nothing to escape.

    ASCII only: Python counts some invisible characters as printable.
    """
    return text.isascii() and text.isprintable()


def block(text: str) -> str:
    """Escape a text of several lines, except line breaks and tabs."""
    return text if _is_plain(text) else _hidden_characters().sub(_escape, text)


def line(text: str, most: int | None = None) -> str:
    """Escape a text as one line of at most `most` characters; a longer one ends in `…`.

    Line breaks become `\\n`.
    """
    if most is not None and len(text) > most:
        text = f"{text[: max(most - 1, 0)]}…"
    return text if _is_plain(text) else _hidden_characters("\t\n").sub(_escape, text)


def json_text(text: str) -> str:
    """Escape such characters in JSON text as JSON does: the values stay the same, and it is safe to print.

    Outside strings JSON text cannot contain them, so the replacement is valid.
    """
    return text if _is_plain(text) else _hidden_characters().sub(_json_escape, text)


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
    """Render a text as one line with single spaces, cut; `(erased)` for None."""
    return line(brief(text, most))


def task(text: str | None, most: int = SHOWN) -> str:
    """Render a run's task as `short` does; `-` if it started without a message."""
    return short(text, most) or "-"


def end_text(about: RunSummary) -> str:
    """Render how a run ended, by its source if that is recorded: `finished`, `MAX_STEPS (step_limit)`."""
    if not about.source_end:
        return standing(about.agent_state, about.code if about.agent_state not in SUCCESSFUL else None)
    brief = SourceEnd(end=about.source_end, run=about.continued_in).brief(len(about.unanswered))
    brief += f", {figures.quantity(about.lost, 'place')} lost" if about.lost else ""
    # An end that refold decided is always displayed.
    return line(f"{brief} ({about.agent_state})" if about.code else brief)


def standing(state: str, code: str | None) -> str:
    """Render a state with its code: `MAX_STEPS (step_limit)`."""
    return line(f"{state} ({code})") if code else state


class CallEnding(StrEnum):
    """How a call with an unknown outcome ended, as typed. The log's own word is accepted too."""

    HAPPENED = "happened"
    DID_NOT = "did-not"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "CallEnding | None":
        return cls.DID_NOT if value == Doubt.DID_NOT else None

    @property
    def doubt(self) -> Doubt:
        """The value that the log records."""
        return Doubt[self.name]


# In braces: a shell expands it unedited to three words, which the command refuses. A `|` would start another
# command.
ENDINGS = f"{{{','.join(CallEnding)}}}"
"""A placeholder for the ending in displayed commands; the user types one of the words."""


def standing_of(result: RunResult) -> dict[str, Any]:
    """Return a run's state as every line of JSON has it: `run`, `state`, `code` and `reason`."""
    ended = result.outcome
    return {"run": result.run, "state": str(result.state), "code": ended.code, "reason": ended.reason}


def waits_for(state: RunState) -> str:
    """Return what a run that no engine drives waits for: an operator, and what they must supply, or a
    worker.
    """
    if state.approval is not None:
        return f"approval of {', '.join(state.approval.event.calls)}"
    if calls := doubtful_calls(state):
        return f"an operator to settle {', '.join(calls)}"
    if state.agent_state.awaits_operator:
        return "a message"
    return "a worker"


def doubtful_calls(state: RunState) -> tuple[str, ...]:
    """Return the calls whose outcome the run asks an operator for."""
    return unknown_calls(state) if state.asked_at is not None and state.approval is None else ()


def next_words(state: RunState, means: str = "") -> list[str]:
    """Return what to type next, after `refold`, for a run that no engine drives.

    `means`: the options that it was driven with.
    """
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


class EngineClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run has an engine or needs one, as JSON.

    `driven`: by `holder`, whose lease has `seconds` left; `abandoned`: its `holder` is gone; `queued`: the
    next worker takes it; `later`: a worker takes it in `seconds`; `lost`: it is runnable, but the store has
    no claim for it; a worker takes it when it starts.
    """

    standing: Literal["driven", "abandoned", "queued", "later", "lost"]
    holder: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        match self.standing:
            case "driven":
                return f"driven by {driver(self.holder)}"
            case "abandoned":
                return "its engine is gone"
            case "queued":
                return "waits for a worker"
            case "later":
                return f"continues within {_remaining(self.seconds)}"
            case "lost":
                return "no engine has it"


class Elsewhere(ExternalFailure):
    """Another engine has the run, or may have it, so the requested change was not made.

    `lines` include what to do.
    """

    def __init__(self, run: str, lines: tuple[str, ...]) -> None:
        super().__init__(run, lines)
        self.run, self.lines = run, lines

    def __str__(self) -> str:
        return "\n".join(map(line, self.lines))


@contextmanager
def translate_conflicts(place: StorePlace) -> Generator[None]:
    """Raise `Elsewhere` for each error that means that another engine has the run."""
    try:
        yield
    except ExternalFailure as error:
        plainly = explain_conflict(error, place)
        if plainly is None:
            raise
        raise plainly from error


def explain_conflict(error: Exception, place: StorePlace) -> Elsewhere | None:
    """Return the message for an error that means that another engine has the run; None for other errors."""
    from refold.engine.journal import Overtaken
    from refold.engine.tenure import LeaseLapsed

    match error:
        case Held(run=run, holder=holder, seconds=seconds):
            problem = f"run {run} is driven by {driver(holder)}, whose lease has {_remaining(seconds)} left unless it renews it"
            also = "; if that process is gone, the run is free when its lease expires"
        case LeaseLapsed(run=run) | Overtaken(run=run, set_back=True):
            problem = str(error)
            also = f"; if no other engine has it, `refold resume {run}{place.option}` continues it"
        case LeaseLost(run=run) | Overtaken(run=run):
            problem, also = (
                f"run {run} was taken over by another engine; this process no longer drives it",
                "",
            )
        case _:
            return None
    ways = (
        f"`refold show {run} --follow{place.option}` watches it, `refold cancel {run}{place.option}` stops it"
    )
    return Elsewhere(run, (problem, f"  {ways}{also}"))


async def find_claim(store: Store, run: str, state: RunState | None = None) -> EngineClaim | None:
    """Return whether the run has an engine or needs one; None if it has ended or waits for an operator.

    With its `state`, a run without a claim may be `lost`.
    """
    claim = await store.claim(run)
    if claim is not None:
        return _engine_claim(claim)
    from refold.engine.journal import source_of
    from refold.engine.runtime import is_lost

    lost = state is not None and is_lost(state, time.time_ns()) and not await source_of(store, run)
    return EngineClaim(standing="lost") if lost else None


def driver(holder: str) -> str:
    """Describe an engine by its process and machine."""
    host, *rest = holder.rsplit(":", 3)
    return f"process {rest[0]} on {host}" if len(rest) == 3 else holder


def _engine_claim(claim: Claim) -> EngineClaim:
    if claim.holder:
        from refold.engine.tenure import is_gone

        gone = claim.seconds <= 0 or is_gone(claim.holder)
        standing: Literal["driven", "abandoned"] = "abandoned" if gone else "driven"
        return EngineClaim(standing=standing, holder=claim.holder, seconds=max(0.0, claim.seconds))
    if claim.seconds <= 0:
        return EngineClaim(standing="queued")
    return EngineClaim(standing="later", seconds=claim.seconds)


def _remaining(seconds: float) -> str:
    return figures.seconds(nano(round(max(0.0, seconds), 1)))
