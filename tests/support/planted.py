"""Changes planted in a log, for audits to find: one in the first decision of each kind that the log has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from refold.reducers.events import Decision, Event, kind_of

Change = Callable[[Any], Any]

# By kind: what is changed, and how. Each keeps the event well-formed, so that only an audit can tell; where it
# can, it is a change that somebody who hides something would make.
CHANGES: Mapping[str, tuple[str, Change]] = {
    "model_requested": ("the step is another", lambda event: replace(event, step=event.step + 1)),
    "tools_dispatched": (
        "the deadline is later",
        lambda event: replace(event, deadline=(event.deadline or 0) + 1),
    ),
    "call_refused": ("another guard is named", lambda event: replace(event, name=f"{event.name}x")),
    "approval_requested": (
        "another approver is named",
        lambda event: replace(event, approver=f"{event.approver}x"),
    ),
    "summary_requested": ("the pass has another name", lambda event: replace(event, name=f"{event.name}x")),
    "history_pruned": ("the reason is another", lambda event: replace(event, reason=f"{event.reason}x")),
    "message_trimmed": ("the message was longer", lambda event: replace(event, before=event.before + 1)),
    "message_injected": ("another is named who asked", lambda event: replace(event, name=f"{event.name}x")),
    "guard_tripped": ("the code is another", lambda event: replace(event, code=f"{event.code}x")),
    "limit_reached": ("it is deferred", lambda event: replace(event, deferred=not event.deferred)),
    "limit_neared": ("the threshold is another", lambda event: replace(event, threshold=event.threshold + 1)),
    "step_freed": ("another limit is named", lambda event: replace(event, limit=f"{event.limit}x")),
    "context_overflowed": (
        "a step is given back",
        lambda event: replace(event, gives_back=event.gives_back + 1),
    ),
    "answer_discarded": ("it is one more", lambda event: replace(event, count=event.count + 1)),
    "summary_abandoned": ("the pass has another name", lambda event: replace(event, name=f"{event.name}x")),
    "retry_scheduled": (
        "the wait is a nanosecond longer",
        lambda event: replace(event, delay=event.delay + 1),
    ),
    "state_changed": ("the reason is another", lambda event: replace(event, reason=f"{event.reason}x")),
    "state_digested": ("the digest is another", lambda event: replace(event, state=event.state[::-1])),
}


def planted(log: Sequence[Event]) -> Iterator[tuple[str, int, Event]]:
    """(what was changed, index in the log from 0, the changed event), one for each decision kind in `log`."""
    seen: set[str] = set()
    for index, event in enumerate(log):
        kind = kind_of(event)
        if isinstance(event, Decision) and kind not in seen:
            seen.add(kind)
            said, change = CHANGES[kind]
            yield f"{kind}: {said}", index, change(event)
