"""Strategies of policies over all keys of the language: presets, and any values on top of them.

Numbers are small, so that short runs reach them. Keys whose values cannot work together are removed.
"""

from typing import Any, TypeGuard

from hypothesis import strategies as st

from refold.reducers.errors import PolicyError
from refold.reducers.estimate import ESTIMATORS
from refold.reducers.parser import parse
from refold.reducers.presets import PRESETS

Plain = st.SearchStrategy[dict[str, Any]]

_SCOPE = st.sampled_from(["turn", "run", "lineage"])
_CHECK = st.sampled_from(["preflight", "response", "response_deferred"])
_FEW = st.integers(0, 3)
_SECONDS = st.sampled_from([0, 0.5, 4, 60, 500])
_FRACTION = st.sampled_from([0.05, 0.3, 0.5, 0.8])
_OPEN = st.none()


def _any(needed: dict[str, Any], **optional: st.SearchStrategy[Any]) -> Plain:
    fixed = {key: value if _is_drawn(value) else st.just(value) for key, value in needed.items()}
    return st.fixed_dictionaries(fixed, optional=optional)


def _is_drawn(value: object) -> TypeGuard[st.SearchStrategy[Any]]:
    return isinstance(value, st.SearchStrategy)


def _limit(type_: str, value: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> Plain:
    return _any(
        {"type": type_, "value": _OPEN | value}, op=st.sampled_from([">=", ">"]), check=_CHECK, **more
    )


_CREDIT = _any(
    {},
    retry=st.sampled_from(["none", "on_success", "on_next_success", "planned"]),
    person=st.booleans(),
    downtime=st.booleans(),
)
_LIMITS = [
    _limit("step", st.integers(0, 8), scope=_SCOPE, free_tools=st.just(["look"])),
    _limit(
        "time", _SECONDS, scope=_SCOPE, clock=st.sampled_from(["start", "first_response"]), credit=_CREDIT
    ),
    _limit("time", _SECONDS, scope=_SCOPE, credit=_CREDIT, name=st.just("wall")),
    _limit("message", st.integers(2, 20)),
    _limit("token", st.integers(0, 300), scope=_SCOPE),
    _limit("token", st.integers(10, 400)).map(lambda limit: {**limit, "measure": "estimate"}),
    _limit("cost", st.sampled_from([0, 0.00000005, 0.0000002, 1]), scope=_SCOPE),
]
_WHEN = st.one_of(
    st.just({"always": True}),
    _any({"messages": st.integers(1, 12)}),
    _any(
        {"tokens": st.integers(1, 60)}, at_least=st.booleans(), measure=st.sampled_from(["window", "whole"])
    ),
    _any({"tokens": {"share": 0.3}}, after_step=_FEW),
    _any({"turn_start": True}, model=st.just(["M"]), model_case=st.booleans()),
)
_BUDGET = st.integers(1, 60) | st.just({"context": 80, "minus_output": 10, "minus_tools": True})


def _pass(do: str, needed: dict[str, Any], **more: st.SearchStrategy[Any]) -> Plain:
    return _any({"do": do, **needed}, when=_WHEN, pair_cut=st.sampled_from(["drop", "extend"]), **more)


_PASSES = st.one_of(
    _pass(
        "tail", {"last": st.integers(0, 6)}, systems=st.sampled_from(["all", "first"]), salvage=st.booleans()
    ),
    _pass("drop_oldest", {"fraction": _FRACTION}),
    _pass("token_tail", {"budget": _BUDGET}, min_last=_FEW, count_system=st.booleans()),
    _pass("compact", {"budget": st.integers(1, 60)}, tail_fraction=_FRACTION),
    _pass(
        "trim_messages",
        {"cap": st.integers(1, 30)},
        last=_OPEN | _FEW,
        roles=st.lists(st.sampled_from(["user", "assistant", "tool"]), unique=True),
        codec=st.sampled_from(["chars4", "char"]),
        marker=st.sampled_from(["within", "beside"]),
        single=st.booleans(),
    ),
    _pass(
        "trim_messages",
        {"cap": st.integers(1, 12), "codec": "bpe:o200k_base", "marker": "beside"},
        last=_OPEN | _FEW,
        single=st.booleans(),
    ),
    _pass(
        "age_results",
        {"keep_last": _FEW},
        soft=st.just({"over": 20, "head": 4, "tail": 3}),
        hard=st.just({"over": 60}),
    ),
    _pass("preview_results", {"tokens": st.integers(1, 20), "chars": st.integers(1, 20), "lines": 2}),
    _pass("digest", {"keep_last": _FEW, "per_message": st.integers(1, 12), "total": st.integers(1, 60)}),
    _pass(
        "summarise",
        {"keep_first": _FEW, "keep_last": _FEW},
        from_last_user=st.booleans(),
        keep_tokens=st.integers(1, 30),
        min_gain=st.integers(0, 20),
        min_messages=_FEW,
        max_output=st.just(9),
        cut_at=st.sampled_from(["any", "user"]),
        role=st.sampled_from(["user", "system"]),
        on_failure=st.sampled_from(["skip", "fail"]),
    ),
)
_NUMBERS = _OPEN | st.sampled_from([[1, 1], [1, 2], [2, 3]])
_GUARDS = [
    _any({"guard": "repetition"}, repeats=_FEW, clip=st.just(3), scope=_SCOPE),
    _any({"guard": "loop", "window": st.integers(0, 5)}),
    _any({"guard": "errors", "rounds": st.integers(1, 3)}),
    _any(
        {"guard": "stall"},
        scope=_SCOPE,
        stop=st.booleans(),
        pollers=st.just(["look"]),
        progress_tools=st.just(["act"]),
        tolerant_tools=st.just(["set"]),
        exact_failure=_NUMBERS,
        same_tool=_NUMBERS,
        no_progress=_NUMBERS,
        identical=_NUMBERS,
        cycle=_OPEN | st.just(2),
        stub=_OPEN | st.integers(1, 40),
    ),
    _any({"guard": "tool_cap", "tools": ["look"], "max": _OPEN | st.integers(0, 4)}, scope=_SCOPE),
    _any({"guard": "read_only"}, batches=st.integers(1, 3), tools=st.just(["look", "act"]), scope=_SCOPE),
    _any({"guard": "pivot", "tool": "act", "to": "look"}, failures=st.integers(1, 2), scope=_SCOPE),
    _any(
        {"guard": "keywords", "words": ["more", "DONE"]},
        case=st.sampled_from(["ignore", "exact"]),
        when=st.sampled_from(["response", "after_tools"]),
    ),
    _any({"guard": "stop_on_tool", "tools": ["set"]}, when=st.sampled_from(["now", "after_tools"])),
    _any({"guard": "handoff"}),
    _any({"guard": "one_call"}),
    _any(
        {"guard": "arguments", "matches": "a|1"},
        unless=st.sampled_from([None, "b|2"]),
        tool=st.sampled_from(["*", "l*"]),
        then=st.sampled_from(["refuse", "ask", "stop"]),
        timeout=_SECONDS,
    ),
]
_WORD = st.sampled_from(["approve", "reject", "escalate", "terminate"])
_TOOLS = st.sampled_from([["*"], ["l*"], ["act", "set"]])
_APPROVERS = st.one_of(
    _any({"approver": st.sampled_from(["approve", "reject"])}, tools=_TOOLS),
    _any({"approver": "gate", "then": _WORD, "else": _WORD, "sensitive": ["act", "look:zqx"]}, tools=_TOOLS),
    _any(
        {"approver": "arguments", "matches": "[0-9]", "then": _WORD, "else": _WORD},
        unless=st.sampled_from([None, "[02]"]),
        tools=_TOOLS,
    ),
    _any({"approver": "rules", "rules": [{"tool": "l*", "decision": "escalate"}]}, tools=_TOOLS),
    _any({"approver": "human"}, tools=_TOOLS, timeout=_SECONDS, on_timeout=_WORD),
)
_TIERS = st.sampled_from(["user", "system", "tool_result"]).flatmap(
    lambda place: st.tuples(
        *[
            _any(
                {"name": name, "at": at, "place": place},
                repeat=st.sampled_from(["every", "once"]),
                tools=st.sampled_from(["all", "none", {"without": ["look"]}]),
            )
            for name, at in (
                ("caution", {"fraction": 0.2}),
                ("late", {"fraction": 0.5, "remaining": 3}),
                ("warning", {"fraction": 0.9}),
            )
        ]
    ).map(list)
)
_JITTER = st.sampled_from([{"add": 0}, {"add": 1}, {"scale": [0.5, 1.5]}, {"full": 1}, {"spread": 20}])
_FALLBACK_WHEN = st.lists(
    st.sampled_from(["exhausted", "unretryable", {"attempt": 2}, {"stream_failures": 1}]), max_size=3
)
_RETRY = _any(
    {"attempts": st.integers(1, 4), "initial": st.sampled_from([0, 0.25, 2])},
    max=st.sampled_from([None, 1, 8]),
    jitter=_JITTER,
    window=st.sampled_from([None, 3, 100]),
    classes=st.just(["overloaded", "stream_broken"]),
    by_class=st.sampled_from([{}, {"rate_limit": {"initial": 3, "step": 2, "attempts": 2}}]),
    fallback=_any({"models": ["n", "o"], "when": _FALLBACK_WHEN}, sticky=st.booleans()),
)
_INLINE = st.lists(st.sampled_from(["p0", "p1"]) | _PASSES, max_size=2)
_KNOBS: dict[str, st.SearchStrategy[Any]] = {
    "limits": st.lists(st.sampled_from(range(len(_LIMITS))), unique=True, max_size=4).flatmap(
        lambda picked: st.tuples(*[_LIMITS[index] for index in picked]).map(list)
    ),
    "call_timeout": _any({}, min=st.sampled_from([0, 1, 2.5]), whole_seconds=st.booleans()),
    "near": _any(
        {}, fraction=_FRACTION, reserve_tokens=st.just(40), reserve_cost_fraction=_FRACTION, scope=_SCOPE
    ),
    "grace": _any(
        {"on": st.lists(st.sampled_from(["step", "message", "token_estimate"]), unique=True, min_size=1)},
        again_if_empty=st.integers(0, 2),
    ),
    "fallback": st.just("Nothing came of it."),
    "estimator": st.sampled_from(sorted(ESTIMATORS)),
    "history": st.lists(_PASSES, min_size=1, max_size=3).map(
        lambda passes: [{**step, "name": f"p{place}"} for place, step in enumerate(passes)]
    ),
    "overflow": _any(
        {"do": _OPEN | _INLINE},
        patterns=st.just(["much too long"]),
        single_patterns=st.just(["one message"]),
        stops=st.just(["model_length"]),
        max=_OPEN | _FEW,
        scope=_SCOPE,
        counts_step=st.booleans(),
        hint=st.booleans(),
    ),
    "tool_output": _OPEN
    | _any({"max": _OPEN | st.integers(1, 40), "unit": st.sampled_from(["bytes", "chars"])}),
    "truncation": _OPEN
    | _any(
        {"when": st.sampled_from(["no_calls", "broken_calls", "either"])},
        max=_FEW,
        scope=_SCOPE,
        needs_text=st.booleans(),
        stitch=st.booleans(),
        exhausted=st.sampled_from(["complete", "fail", "fail_if_broken"]),
    ),
    "stream": _OPEN | _any({"max": _FEW, "scope": _SCOPE}),
    "premature_end": _OPEN | _any({"max": _FEW, "scope": _SCOPE, "look_back": st.integers(1, 6)}),
    "empty": _OPEN | _any({"again": _OPEN | _FEW, "then": st.sampled_from(["complete", "fail"])}),
    "refusal": st.sampled_from(["fail", "complete"]),
    "end_of_turn": st.sampled_from(["complete", "continue", "wait"]),
    "nudge": st.booleans(),
    "progress": _OPEN
    | _any(
        {"every": st.integers(1, 3)},
        kept=st.booleans(),
        clock=st.sampled_from(["wall", "productive"]),
        show_limit=st.booleans(),
        before_history=st.booleans(),
    ),
    "guards": st.lists(st.sampled_from(range(len(_GUARDS))), unique=True, max_size=4).flatmap(
        lambda picked: st.tuples(*[_GUARDS[index] for index in picked]).map(list)
    ),
    "pressure": _OPEN
    | _any(
        {"of": st.sampled_from(["step", "token", "time"]), "tiers": _TIERS},
        counts=st.sampled_from(["next", "used"]),
        acknowledge=_OPEN | st.just("escalate"),
    ),
    "retry": _RETRY,
    "approvals": _OPEN
    | st.sampled_from([{"preset": "ci"}, {"preset": "dev"}, {"preset": "prod"}])
    | _any({"chain": st.lists(_APPROVERS, min_size=1, max_size=3)}),
    "batch": st.sampled_from(["parallel", "in_order"]),
    "redact": st.just([r"zqx-\d{4}"]),
    "doubt": st.sampled_from(["tell", "ask"]),
}
_OFF = {"truncation": None, "stream": None, "empty": None}


def policies() -> Plain:
    """Return a strategy of valid policies, as plain data for `Agent(policy=...)` and `parse`."""
    base = st.sampled_from([_OFF, _OFF, {}, *({"preset": name} for name in PRESETS)])
    return st.builds(policy_with, base, st.fixed_dictionaries({}, optional=_KNOBS))


def policy_variants(base: dict[str, Any]) -> Plain:
    """Return a strategy of this policy with other values for one or two keys."""
    keys = st.lists(st.sampled_from(sorted(_KNOBS)), min_size=1, max_size=2, unique=True)
    knobs = keys.flatmap(lambda picked: st.fixed_dictionaries({key: _KNOBS[key] for key in picked}))
    return knobs.map(lambda picked: policy_with(base, picked))


def policies_with_rule(base: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of this policy with one more limit, guard or compaction step."""
    kinds = {"limits": st.one_of(*_LIMITS), "guards": st.one_of(*_GUARDS), "history": _PASSES}
    drawn = [
        rule.map(lambda each, key=key: policy_with(base, {key: [*base.get(key, []), each]}))  # type: ignore[misc]
        for key, rule in kinds.items()
    ]
    return st.one_of(*drawn)


def policy_with(base: dict[str, Any], knobs: dict[str, Any]) -> dict[str, Any]:
    """Return the policy with these keys, without those that cannot work."""
    plain = {**base, **knobs}
    while True:
        try:
            parse(plain)
        except PolicyError as error:
            key = error.path.split(".")[0].split("[")[0]
            # An error in a preset, as of an overflow that names a missing step, removes the preset.
            removed = key if key in plain else "preset"
            plain = {name: value for name, value in plain.items() if name != removed}
        else:
            return plain
