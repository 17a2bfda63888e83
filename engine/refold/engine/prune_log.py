"""Lines about what left the history, for grep: derived from events, fields in a fixed order, new ones last.

Logger `refold.prune`, INFO, with a switch of its own: however loud the rest of a program is, it says nothing
until its level is set to INFO, as the command line does where `REFOLD_PRUNE_LOG` is on.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from refold.reducers.events import Event, HistoryPruned, MessageTrimmed
from refold.reducers.history import Pass
from refold.reducers.policy import Policy, passes_of
from refold.reducers.state import RunState

LOGGER = logging.getLogger("refold.prune")
_PLAIN = re.compile(r"[^\s\"=]+")

if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(logging.WARNING)


def tell(run: str, first: int, state: RunState, events: Sequence[Event]) -> None:
    """Log the lines of events that are on disk, the first of them number `first`; `state` is the one after them."""
    if LOGGER.isEnabledFor(logging.INFO):
        for seq, event in enumerate(events, first):
            line = lines(event, state, run, seq)
            if line is not None:
                LOGGER.info("%s", line)


def lines(event: Event, state: RunState, run: str, seq: int) -> str | None:
    """The line of event number `seq`, None if it has none. `state` is any after it and before the next fact."""
    if not isinstance(event, HistoryPruned | MessageTrimmed):
        return None
    step = state.request.event.step if state.request is not None else state.spent.steps + 1
    behind = {"step": step, "seq": seq, "run": run, "pass": event.name}
    by = _pass(state.policy, event.name)
    if isinstance(event, MessageTrimmed):
        sizes = {
            "reason": event.reason,
            "pre": event.before,
            "post": event.size.tokens,
            "cap": getattr(by, "cap", None),
        }
        return _line("refold.trim", {**sizes, "message": event.message, **behind})
    counts = {"reason": event.reason, "pre": event.before, "post": event.after}
    return _line("refold.prune", {**counts, **_knobs(by), **behind, "over_budget": int(event.over_budget)})


def _pass(policy: Policy, name: str) -> Pass | None:
    return next((step for _, step in passes_of(policy) if step.name == name), None)


def _knobs(by: Pass | None) -> dict[str, Any]:
    """What a pass keeps and waits for, where it has either: messages, else estimated tokens."""
    when = None if by is None else by.when
    tokens = when.tokens if when is not None and isinstance(when.tokens, int) else None
    return {
        "keep_last": getattr(by, "last", getattr(by, "keep_last", None)),
        "threshold": when.messages if when is not None and when.messages is not None else tokens,
    }


def _line(prefix: str, fields: Mapping[str, Any]) -> str:
    said = [f"{key}={_value(value)}" for key, value in fields.items() if value is not None]
    return f"{prefix}: {' '.join(said)}"


def _value(value: object) -> str:
    """A value that is one word: a name with spaces in it is written as JSON writes it."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text).replace(" ", "\\u0020")
