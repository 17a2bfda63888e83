"""What Claude Code prints with `--output-format stream-json`: a session's messages, headed by `system/init` and ended by `result`.

The rows name their session as `session_id`, and have neither times nor parents; those of a sub-agent name the call that began
it. The task is in none of them. `result` says how it ended, sums up what it cost, and lists the calls that were not permitted.
"""

from refold.importers.fields import JSON, at, json_text, nano_usd, rows, text
from refold.importers.items import Tokens
from refold.importers.stops import end_of
from refold.importers.usages import UsageNames

_ENDS = {
    "error_max_turns": "limit:turns",
    "error_max_budget_usd": "limit:cost",
    "error_during_execution": "error",
    "error_max_structured_output_retries": "error",
}


def is_result(row: JSON) -> bool:
    """Whether a row is the one that ends a stream."""
    return text(row, "type") == "result" and bool(text(row, "session_id")) and bool(text(row, "subtype"))


def is_head(row: JSON) -> bool:
    """Whether a row is the one that heads a stream."""
    heads = text(row, "type") == "system" and text(row, "subtype") == "init"
    return heads and bool(text(row, "session_id"))


def end_by(result: JSON) -> tuple[str, str]:
    """How a run ended by its result, and what says so."""
    subtype, stop = text(result, "subtype"), text(result, "stop_reason")
    says = f"result: {subtype}" + (f", stop_reason={stop}" if stop else "")
    if subtype == "success" and at(result, "is_error") is not True:
        return (end_of(stop) if stop else "finished"), says
    return ("error" if subtype == "success" else _ENDS.get(subtype, "unknown")), says


def totals_by(result: JSON, names: UsageNames) -> tuple[Tokens | None, str]:
    """The tokens of a run by its result, and JSON text of its totals, for the end."""
    used = names.of(at(result, "usage"))
    cost = nano_usd(at(result, "total_cost_usd"))
    told = {
        "tokens_sent": used and used.input,
        "tokens_received": used and used.output,
        "instance_cost": at(result, "total_cost_usd") if cost is not None else None,
    }
    stats: dict[str, JSON] = {name: value for name, value in told.items() if value}
    tokens = (used.input, used.cache_read, used.cache_write, used.output) if used and used.output else None
    return tokens, json_text({"model_stats": stats}) if stats else ""


def denied_by(result: JSON) -> frozenset[str]:
    """The ids of the calls that were not permitted."""
    return frozenset(
        filter(None, (text(denial, "tool_use_id") for denial in rows(result, "permission_denials")))
    )
