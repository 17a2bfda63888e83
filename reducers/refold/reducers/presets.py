"""Presets: known agent loops as values of the policy language, and variants of them.

A preset is complete. Keys that it does not list are off, except call_timeout, estimator, tool_output,
end_of_turn, retry and batch, which have their defaults. Numbers and sources: docs/reference/presets.md.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from refold.reducers.overlay import merge_layers

# Off in a preset that does not list them; other keys are off by default.
_OFF: Mapping[str, Any] = {"limits": [], "truncation": None, "stream": None, "empty": None}

# fmt: off
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "inspect-iterative": {
        "limits": [
            {"type": "time", "value": None}, {"type": "step", "value": None}, {"type": "message", "value": None},
            {"type": "token", "measure": "estimate", "value": None},
        ],
        "estimator": "chars4_joined",
        "call_timeout": {"min": 1, "whole_seconds": True},
        "near": {"fraction": 0.8},
        "history": [
            {"name": "window", "when": {"always": True}, "do": "tail", "last": 100, "systems": "first"},
            {"name": "trim", "when": {"messages": 120}, "do": "trim_messages", "cap": None, "last": 200,
             "roles": ["user", "assistant"], "codec": "chars4"},
            {"name": "threshold", "when": {"messages": 120}, "do": "tail", "last": 40, "systems": "all",
             "salvage": True},
        ],
        "overflow": {"stops": ["model_length"], "do": ["trim", "threshold"], "hint": True},
        "progress": {"every": 5, "kept": True, "clock": "wall", "before_history": True},
        "nudge": True,
        "end_of_turn": "continue",
        "retry": {"attempts": 6, "initial": 1, "max": 60, "jitter": {"add": 0}},
        "batch": "in_order",
    },
    "paperbench": {
        "limits": [
            {"type": "time", "value": None, "op": ">", "credit": {"retry": "planned"}},
            {"type": "message", "value": None}, {"type": "token", "value": None},
        ],
        "call_timeout": {"min": 1, "whole_seconds": True},
        "history": [{"name": "sonnet", "when": {"messages": 900, "model": ["sonnet"]}, "do": "drop_oldest",
                     "fraction": 0.3}],
        "overflow": {
            "stops": ["model_length"],
            "single_patterns": ["too long"],
            "do": [
                {"do": "trim_messages", "single": True, "cap": 190_000, "last": None,
                 "roles": ["user", "assistant", "tool"], "codec": "chars4", "marker": "beside"},
                {"do": "drop_oldest", "fraction": 0.3},
            ],
        },
        "progress": {"every": 5, "kept": True, "clock": "productive", "show_limit": True, "before_history": False},
        "texts": {"progress": "[harness] Time used so far: {elapsed}{of}. Save and commit what you have."},
        "nudge": True,
        "end_of_turn": "continue",
        "retry": {"attempts": None, "window": 7200, "initial": 3, "max": 120, "jitter": {"add": 3}},
        "batch": "in_order",
    },
    "guardrails": {
        "limits": [
            {"type": "step", "value": 50, "scope": "lineage"},
            {"type": "time", "value": None, "op": ">", "scope": "turn"},
            {"type": "token", "value": None, "scope": "lineage"}, {"type": "cost", "value": None, "scope": "lineage"},
        ],
        "near": {"reserve_tokens": 512, "reserve_cost_fraction": 0.1, "scope": "lineage"},
        "estimator": "chars4_total",
        "guards": [{"guard": "repetition", "repeats": 3, "clip": 200, "scope": "lineage"}],
        "truncation": {"when": "no_calls", "max": 2, "scope": "lineage", "stitch": False, "exhausted": "complete"},
        "tool_output": {"max": 50_000, "unit": "chars", "keep": "head"},
        "retry": {"attempts": 3, "initial": 1, "max": None, "jitter": {"scale": [0.5, 1.5]}},
    },
    "hermes": {
        "limits": [{"type": "step", "value": 90, "scope": "turn", "free_tools": []}],
        "pressure": {
            "counts": "used",
            "tiers": [{"name": "caution", "at": {"fraction": 0.7}, "place": "tool_result"},
                      {"name": "warning", "at": {"fraction": 0.9}, "place": "tool_result"}],
        },
        "grace": {"on": ["step"], "again_if_empty": 1},
        "fallback": "The steps of this turn ran out before there was an answer.",
        "history": [{"name": "compress", "when": {"tokens": {"share": 0.5}, "at_least": True}, "do": "summarise",
                     "keep_first": 3, "keep_last": 20}],
        "overflow": {"do": ["compress"], "max": 3, "scope": "turn", "counts_step": False},
        "truncation": {"when": "no_calls", "needs_text": True, "max": 2, "scope": "turn", "stitch": True,
                       "exhausted": "fail"},
        "empty": {"again": 2, "then": "fail"},
        "tool_output": {"max": 100_000, "unit": "chars", "keep": "head"},
        "retry": {"attempts": 3, "initial": 2, "max": 60, "jitter": {"add": 0},
                  "fallback": {"models": [], "when": ["exhausted", "unretryable"], "sticky": True}},
        "batch": "in_order",
    },
    "utah": {
        "limits": [{"type": "step", "value": 20, "scope": "turn"}],
        "pressure": {
            "counts": "next",
            "tiers": [{"name": "caution", "at": {"remaining": 10}, "place": "user"},
                      {"name": "warning", "at": {"remaining": 3}, "place": "user"}],
        },
        "fallback": "There was no answer within {max} steps.",
        "history": [
            {"name": "compact", "when": {"turn_start": True, "tokens": 120_000}, "do": "summarise",
             "keep_tokens": 20_000, "min_messages": 2, "role": "user"},
            {"name": "age", "when": {"after_step": 3}, "do": "age_results", "keep_last": 6,
             "soft": {"over": 4000, "head": 1500, "tail": 1500}, "hard": {"over": 50_000}},
        ],
        "overflow": {"do": [{"do": "digest", "keep_last": 6, "per_message": 200, "total": 2000}], "max": 1,
                     "scope": "turn", "counts_step": False},
        "empty": {"again": None},
        "tool_output": {"max": None},
        "retry": {"attempts": 3, "fallback": {"models": [], "when": [{"attempt": 3}]}},
        "batch": "in_order",
    },
    "tirea": {
        "limits": [
            {"type": "step", "value": None},
            {"type": "time", "value": None, "clock": "first_response", "check": "response_deferred"},
            {"type": "token", "value": None, "check": "response_deferred"},
        ],
        "estimator": "cjk",
        "history": [
            {"name": "preview", "when": {"always": True}, "do": "preview_results", "tokens": 2048, "chars": 1600,
             "lines": 24},
            {"name": "summary", "when": {"tokens": None, "at_least": True}, "do": "summarise", "keep_last": 2,
             "from_last_user": True, "min_gain": 1024, "max_output": 1024, "role": "system"},
            {"name": "fit", "when": {"always": True}, "do": "token_tail", "min_last": 10, "count_system": True,
             "budget": {"context": 200_000, "minus_output": 16_384, "minus_tools": True}, "pair_cut": "extend"},
        ],
        "truncation": {"when": "no_calls", "max": 3, "scope": "run", "stitch": True, "exhausted": "complete"},
        "stream": {"max": 2, "scope": "run"},
        "tool_output": {"max": None},
        "retry": {"attempts": 2, "initial": 0.25, "max": 2, "jitter": {"spread": 20}, "window": 10,
                  "fallback": {"models": [], "when": ["exhausted", "unretryable", {"stream_failures": 2}]}},
    },
    # Imports derive decisions under this preset: it decides nothing that the recorded harness did not do.
    "observed": {
        "history": [{"do": "observed"}],
        "tool_output": {"max": None},
        "end_of_turn": "wait",
        "refusal": "wait",
        "retry": {"attempts": 1_000_000, "initial": 0, "max": 0, "jitter": {"add": 0},
                  "classes": ["rate_limit", "overloaded", "timeout", "network", "stream_broken", "context_overflow",
                              "auth", "quota", "bad_request", "cancelled", "other"]},
    },
    "paperbench-solver": {
        "preset": "paperbench",
        "limits": [
            {"type": "time", "value": 300, "credit": {"retry": "on_next_success"}},
            {"type": "time", "name": "wall", "value": 300, "op": ">"}, {"type": "step", "value": None, "op": ">"},
        ],
        "history": [{"name": "sonnet", "when": {"messages": 900, "model": ["sonnet"], "model_case": True},
                     "do": "drop_oldest", "fraction": 0.3}],
        "overflow": {"patterns": ["exceeds the context window"]},
        "progress": {"clock": "wall"},
        "nudge": False,
        "guards": [{"guard": "stop_on_tool", "tools": ["submit"], "when": "now"}],
        "retry": {"attempts": None, "window": 7200, "initial": 1, "max": 300, "jitter": {"full": 1}},
    },
    "guardrails-later": {
        "preset": "guardrails",
        # Set null to the context minus the reserve, which is unknown until a model is chosen.
        "history": [{"name": "summary", "when": {"tokens": None}, "do": "summarise", "cut_at": "user"}],
        "guards": [
            {"guard": "pivot", "failures": 2},
            {"guard": "read_only", "batches": 8, "tools": ["read_file", "list_directory", "grep", "find_files",
             "find_projects", "read_issue", "whoami", "list_my_issues"]},
        ],
        "truncation": {"when": "either", "exhausted": "fail_if_broken"},
        "premature_end": {"max": 2, "look_back": 10, "scope": "lineage"},
        "refusal": "complete",
        "retry": {"by_class": {"rate_limit": {"initial": 30, "step": 30}}},
    },
    "hermes-quiet": {"preset": "hermes", "pressure": None},
    "hermes-optin": {
        "preset": "hermes",
        "pressure": {"tiers": [{"name": "warning", "at": {"fraction": 0.9}, "place": "tool_result",
                                "repeat": "once"}]},
    },
    "hermes-guarded": {
        "preset": "hermes",
        "guards": [
            {"guard": "stall"}, {"guard": "tool_cap", "name": "searches", "tools": ["web_search"], "max": 50},
            {"guard": "tool_cap", "name": "children", "tools": ["delegate_task"], "max": 50},
        ],
    },
    "awaken": {
        "preset": "tirea",
        "limits": [
            {"type": "step", "value": 16, "op": ">", "check": "response"},
            {"type": "time", "op": ">", "check": "response"}, {"type": "token", "op": ">", "check": "response"},
        ],
        "estimator": "bytes4",
        "truncation": {"when": "broken_calls", "max": 2, "stitch": False},
        "stream": None,
        "retry": {"attempts": 1, "fallback": None},
        # Fill in the first: denials (terminate), then allowed calls, then calls to ask about (escalate).
        "approvals": {"chain": [{"approver": "rules", "rules": []}, {"approver": "human"}]},
    },
})
"""Presets by name, as plain data. One with a `preset` is a variant: its other keys override that preset."""
# fmt: on


def preset_data(name: str) -> dict[str, Any]:
    """Return the complete plain data of a preset or variant, without a `preset` key.

    `name` is a key of `PRESETS`.
    """
    data = {key: value for key, value in PRESETS[name].items() if key != "preset"}
    return merge_layers(preset_data(PRESETS[name]["preset"]) if "preset" in PRESETS[name] else _OFF, data)
