"""How a run stands, in few words, and what can be typed next.

What a model, a tool, a provider or a log says may hold escape sequences that move the cursor, set the
window's title or answer as if typed, and marks that turn the reading order round or cannot be seen at all.
None of it is taken away, for it may be just what is looked for: each such character is shown as its escape
(`\\x1b`).
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
from refold.reducers.errors import WorldFailed
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

# C0 but tab and newline, DEL and C1; what cannot be seen or turns the order of reading (categories Cf, Zl,
# Zp), but for the two joiners that scripts and emoji need; half characters, which no UTF-8 has.
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
    """Whether nothing in it is to be hidden, as far as that is seen at once.

    Python calls marks printable that nobody sees.
    """
    return text.isascii() and text.isprintable()


def block(text: str) -> str:
    """Text of several lines, its line ends and tabs kept."""
    return text if _plain(text) else _hidden().sub(_escape, text)


def line(text: str, most: int | None = None) -> str:
    """Text as one line, of at most `most` characters; a longer one ends in `…`.

    What would end it is shown: `\\n`.
    """
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


def end_text(about: RunSummary) -> str:
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


# In braces: typed just so, a shell makes three words of it, and the command refuses them. A `|` would begin
# another command.
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
    """What to type next, after `refold`, for a run that no engine drives; `means` are the options by which it
    was driven.
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
    """Whether a run has an engine, or wants one, as JSON.

    `driven` by `holder`, whose lease has `seconds` left; `abandoned` by it, which is gone; `queued`: the next
    worker takes it; `later`: one takes it in `seconds`; `lost`: something is to be done, and the store has no
    claim of it: a worker that is started takes it.
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
                return f"waits, {_remaining(self.seconds)} more at most"
            case "lost":
                return "no engine has it"


class Elsewhere(WorldFailed):
    """Another engine has the run, or may have it: what was asked for here was not done.

    `lines` say what to do.
    """

    def __init__(self, run: str, lines: tuple[str, ...]) -> None:
        super().__init__(run, lines)
        self.run, self.lines = run, lines

    def __str__(self) -> str:
        return "\n".join(map(line, self.lines))


@contextmanager
def translate_conflicts(place: StorePlace) -> Generator[None]:
    """Raises `Elsewhere` for each error that means: another engine has the run."""
    try:
        yield
    except WorldFailed as error:
        plainly = elsewhere(error, place)
        if plainly is None:
            raise
        raise plainly from error


def elsewhere(error: Exception, place: StorePlace) -> Elsewhere | None:
    """What to say of an error that means: another engine has the run. None for any other."""
    from refold.engine.journal import Overtaken
    from refold.engine.tenure import LeaseLapsed

    match error:
        case Held(run=run, holder=holder, seconds=seconds):
            problem = f"run {run} is driven by {driver(holder)}, whose lease has {_remaining(seconds)} left unless it renews it"
            also = "; if that process is gone, the run is free when its lease has run out"
        case LeaseLost(run=run) | Overtaken(run=run):
            problem, also = f"run {run} was taken over by another engine; nothing more is done here", ""
        case LeaseLapsed(run=run):
            problem = str(error)
            also = f"; if no other engine has it, `refold resume {run}{place.option}` goes on"
        case _:
            return None
    ways = (
        f"`refold show {run} --follow{place.option}` watches it, `refold cancel {run}{place.option}` stops it"
    )
    return Elsewhere(run, (problem, f"  {ways}{also}"))


async def find_claim(store: Store, run: str, state: RunState | None = None) -> EngineClaim | None:
    """Whether the run has an engine, or wants one; None: it has ended, or waits for a person.

    `lost` by its `state`, if that is given.
    """
    claim = await store.claim(run)
    if claim is not None:
        return _engine_claim(claim)
    from refold.engine.journal import source_of
    from refold.engine.runtime import is_lost

    lost = state is not None and is_lost(state, time.time_ns()) and not await source_of(store, run)
    return EngineClaim(standing="lost") if lost else None


def driver(holder: str) -> str:
    """An engine as a person looks for it: its process, and the machine that it runs on."""
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
