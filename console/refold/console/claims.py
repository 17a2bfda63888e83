"""Who has a run now, and which run waits for whom: in words for people."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import msgspec

from refold.console import descriptions
from refold.console.locations import StorePlace
from refold.reducers.errors import WorldFailed
from refold.reducers.state import RunState
from refold.reducers.vocabulary import nano
from refold.replay import figures
from refold.store.protocol import Claim, Held, LeaseLost, Store


class EngineClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run has an engine, or wants one, as JSON.

    `driven` by `holder`, whose lease has `seconds` left; `abandoned` by it, which is gone; `queued`: the next worker
    takes it; `later`: one takes it in `seconds`; `lost`: something is to be done, and the store has no claim of it: a worker
    that is started takes it.
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
    """Another engine has the run, or may have it: what was asked for here was not done. `lines` say what to do."""

    def __init__(self, run: str, lines: tuple[str, ...]) -> None:
        super().__init__(run, lines)
        self.run, self.lines = run, lines

    def __str__(self) -> str:
        return "\n".join(map(descriptions.line, self.lines))


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
    """Whether the run has an engine, or wants one; None: it has ended, or waits for a person. `lost` by its `state`, if that is given."""
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
