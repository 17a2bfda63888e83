"""What is counted in a sample of an Inspect log, and how it ended."""

import msgspec

from refold.replay.importers.fields import JSON, at, json_text, number, rows, table, text
from refold.replay.importers.items import Tally
from refold.replay.importers.remarks import prefixed
from refold.replay.importers.tallies import Tokens, tally_of

_USES = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens")


def tally(sample: JSON) -> Tally:
    """Roles in the final messages, usage of the sample, times of its events."""
    messages = rows(sample, "messages")
    roles = [text(message, "role") for message in messages]
    results = [message for message in messages if text(message, "role") == "tool"]
    calls = (text(call, "id") for message in messages for call in rows(message, "tool_calls"))
    return tally_of(
        roles.count("user"),
        roles.count("assistant"),
        roles.count("tool"),
        tool_calls=len(set(calls)),
        tool_results=len({text(message, "tool_call_id") for message in results}),
        tool_errors=sum(at(message, "error") is not None for message in results),
        tokens=_usage(table(sample, "model_usage")),
        times=(at(event, "timestamp") for event in rows(sample, "events")),
    )


def _usage(by_model: dict[str, JSON]) -> Tokens:
    """Input, cache read, cache write and output over all models, as recorded; None without any."""
    used = by_model.values()
    sent, read, written, got = (
        sum(number(each, name) or 0 for each in used) if used else None for name in _USES
    )
    return sent, read, written, got


NOTHING = tally_of(0, 0, 0, tool_calls=0, tool_results=0, tool_errors=0)
"""The counts of a log without samples."""


def completed(counts: Tally, header: JSON, *, used: bool, timed: bool) -> Tally:
    """The counts with the whole log's usage and times, where no sample has any."""
    stats = at(header, "stats")
    whole = tally_of(
        0,
        0,
        0,
        tokens=_usage(table(stats, "model_usage")),
        times=(at(stats, "started_at"), at(stats, "completed_at")),
    )
    names = [name for name in whole.__struct_fields__ if name.endswith("_tokens") and not used]
    names += ["first_timestamp", "last_timestamp"] if not timed else []
    return msgspec.structs.replace(counts, **{name: getattr(whole, name) for name in names})


def end_of(sample: JSON, status: str) -> tuple[str, str]:
    """How a sample ended, and where that stands: its own error or limit, else the log's status.

    A sample that was finished when the log broke off has scores.
    """
    log, name = f"log status={status}", _named(at(sample, "id"))
    error, limit = at(sample, "error"), at(sample, "limit")
    if error is not None:
        said = text(error, "message") or (error if isinstance(error, str) else json_text(error))
        return "error", f"{log}; sample {name} error: {said[:50]}"
    if limit is not None:
        kind = text(limit, "type") or (limit if isinstance(limit, str) else "unknown")
        return prefixed("limit", kind), f"{log}; sample {name} limit {kind}={_named(at(limit, 'limit'))}"
    if status in ("success", "error") or table(sample, "scores"):
        return "finished", log
    return log_end(status), log


def log_end(status: str) -> str:
    """How a log without samples ended, by its status."""
    return {"success": "finished", "cancelled": "cancelled", "error": "error"}.get(status, "open")


def _named(value: JSON) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
