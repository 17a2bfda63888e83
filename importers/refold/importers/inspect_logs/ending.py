"""What a sample of an Inspect log says of itself as a whole: its usage, its times, and how it ended."""

from msgspec.structs import replace

from refold.importers.fields import JSON, at, json_text, number, rows, table, text
from refold.importers.items import Counted, RunEnded, Tokens
from refold.importers.remarks import prefixed
from refold.importers.times import Times

_USES = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens")


def used_in(by_model: JSON) -> Tokens | None:
    """Input, cache read, cache write and output over all models, as recorded; None without any."""
    used = table(by_model).values()
    if not used:
        return None
    sent, read, written, got = (sum(number(each, name) or 0 for each in used) for name in _USES)
    return sent, read, written, got


def counted(sample: JSON) -> Counted:
    """As what a sample counts: its final messages, of which the last call of an agent may be none."""
    messages = rows(sample, "messages")
    roles = [text(message, "role") for message in messages]
    results = [message for message in messages if text(message, "role") == "tool"]
    return Counted(
        user=roles.count("user"),
        assistant=roles.count("assistant"),
        tool=len(results),
        calls=len({text(call, "id") for message in messages for call in rows(message, "tool_calls")}),
        results=len({text(message, "tool_call_id") for message in results}),
        errors=sum(at(message, "error") is not None for message in results),
    )


def times_of(sample: JSON) -> tuple[str, str] | None:
    """The first and the last time of a sample's events."""
    return Times(at(event, "timestamp") for event in rows(sample, "events")).edges()


def completed(ended: RunEnded, header: JSON, *, used: bool, timed: bool) -> RunEnded:
    """The last end with the whole log's usage and times, where no sample has any."""
    stats = at(header, "stats")
    times = Times((at(stats, "started_at"), at(stats, "completed_at"))).edges()
    return replace(
        ended,
        used=ended.used if used else used_in(at(stats, "model_usage")),
        times=ended.times if timed else times,
    )


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
