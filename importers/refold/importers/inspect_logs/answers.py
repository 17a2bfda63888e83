"""Parts of an Inspect sample's items: an answer with its usage, settings, labels."""

import msgspec

from refold.importers.fields import JSON, at, json_text, nanoseconds, number, table, text
from refold.importers.items import Answered, Place
from refold.importers.leftovers import rest, take
from refold.importers.usages import UsageNames
from refold.reducers.messages import Message, Usage


def answered(event: JSON, message: JSON, ours: Message, place: Place) -> Answered:
    """An answer: its message, and what its event (None: there is none) says of it."""
    output = at(event, "output")
    return place.answered(
        ours,
        _usage(at(output, "usage")),
        stop=text(output, "choices", 0, "stop_reason"),
        model=text(output, "model") or text(message, "model") or text(event, "model"),
        response=text(message, "id"),
        duration=take_duration(event),
        rest=rest(message if event is None else event),
    )


def take_duration(event: JSON) -> int:
    """How long the work of an event took, in nanoseconds."""
    if duration := nanoseconds(at(event, "working_time")):
        take(event, "working_time")
    return duration


_TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("input_tokens_cache_read",),
    cache_write=("input_tokens_cache_write",),
    reasoning=("reasoning_tokens",),
)


def _usage(used: JSON) -> Usage | None:
    """A request's usage. Where the total adds the cached tokens up, the provider's input left them out."""
    found = _TOKENS.of(used)
    cached = found.cache_read + found.cache_write if found else 0
    if found and number(used, "total_tokens") == found.input + found.output + cached:
        return msgspec.structs.replace(found, input=found.input + cached)
    return found


def settings(config: JSON) -> dict[str, str]:
    """What was set of a request's configuration."""
    return {name: plain(value) for name, value in table(config).items() if value is not None}


def labels(sample: JSON, header: JSON) -> dict[str, str]:
    """Whose sample it is, and under which limits."""
    named = {"task": at(header, "eval", "task"), "sample": at(sample, "id"), "epoch": at(sample, "epoch")}
    named["version"] = at(header, "eval", "packages", "inspect_ai")
    limits = table(header, "eval", "config").items()
    return settings(named | {f"limit.{name}": limit for name, limit in limits if name.endswith("_limit")})


def plain(value: JSON) -> str:
    """A value as text: itself, or JSON text of it."""
    return value if isinstance(value, str) else json_text(value)
