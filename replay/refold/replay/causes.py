"""Who did something, and what guards and limits said, in the few words that every listing shares."""

import msgspec

from refold.reducers.events import CallRefused, Event, GuardTripped, LimitNeared, LimitReached
from refold.reducers.limits import code_of
from refold.reducers.vocabulary import Cause


class Spoken(msgspec.Struct, frozen=True):
    """What a guard or a limit said: `who` it was, the verdict `said`, and why, by a stable `code`."""

    who: str
    said: str
    code: str


def by(cause: Cause, name: str = "") -> str:
    """Who did it: a guard or a pass by its name, all else by its cause, as `limit:step`."""
    if cause in (Cause.GUARD, Cause.HISTORY):
        return name
    return f"{cause}:{name}" if name else str(cause)


def spoken(event: Event) -> Spoken | None:
    """What a guard or a limit says in this event; None of any other event."""
    match event:
        case GuardTripped():
            return Spoken(event.guard, event.verdict, event.code)
        case CallRefused():
            return Spoken(by(event.cause, event.name), event.why, event.code)
        case LimitReached(limit=limit, deferred=deferred):
            return Spoken(by(Cause.LIMIT, limit.name), "defer" if deferred else "stop", code_of(limit))
        case LimitNeared(limit=limit):
            return Spoken(by(Cause.LIMIT, limit.name), "warn", "near_limit")
        case _:
            return None
