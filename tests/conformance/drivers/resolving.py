"""One knob of `inspect-iterative` from what the caller said, the environment and the preset.

The loop that the cases are from corrects what it cannot read, and lets a variable win over the caller here
and there; what ours refuses, or resolves by its own precedence, is left out where the case is tagged so.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from conformance.drivers.passes import patched
from conformance.suite import Case, Compared, LeftOut
from refold.reducers import Policy, PolicyError
from refold.reducers.parser import parse_with

PRESET = "inspect-iterative"
_REFUSED = ("not a value", "explicit below 0", "explicit 0", "environment below 0", "environment 0 or less")
_OTHERWISE = ("environment beats argument", "environment below 0", "environment 0 or less", "not a value")


_Given = Callable[[Any], dict[str, Any]]
_Read = Callable[[Policy], Any]


class _Knob(NamedTuple):
    """A knob's variable, how the caller gives it, and where its value stands in a policy."""

    variable: str
    given: _Given
    value: _Read


def environment(case: Case) -> Compared | LeftOut:
    """The value of one knob. A tool set is no knob of a policy."""
    if "tool set" in case.tags:
        return LeftOut("tool set")
    knob = _KNOBS[case.given["knob"]]
    given = knob.given(case.given["arg"]) if "arg" in case.given else {}
    said = {} if case.given["env"] is None else {f"REFOLD_{knob.variable}": case.given["env"]}
    try:
        policy, _ = parse_with({"preset": PRESET, **given}, said)
    except PolicyError:
        return refused(case)
    return compared(case, case.expect, {"value": knob.value(policy)})


def refused(case: Case) -> LeftOut:
    """What ours refuses and the original corrects. Raises StopIteration for a case that is no such thing."""
    return LeftOut(next(tag for tag in _REFUSED if tag in case.tags))


def compared(case: Case, expected: Any, got: Any) -> Compared | LeftOut:
    """Both answers, unless ours is by another precedence, or ours can read what the original cannot."""
    tag = next((tag for tag in _OTHERWISE if tag in case.tags), None)
    return Compared(expected, got) if tag is None or expected == got else LeftOut(tag)


def retry_policy(case: Case, more: Mapping[str, Any]) -> Policy:
    """The preset with the retry that a case says, and `more`. Raises `PolicyError` for what is no value."""
    texts = case.given["env"].items()
    said = {f"REFOLD_RETRY_{_RETRY[knob]}": text for knob, text in texts if text is not None}
    given = {knob: value for knob, value in case.given["arg"].items() if value is not None}
    policy, _ = parse_with({"preset": PRESET, "retry": given, **more}, said)
    return policy


def _limit(kind: str) -> _Given:
    def given(value: Any) -> dict[str, Any]:
        return {"limits": [{"type": kind, "value": value}]}

    return given


def _limit_of(kind: str) -> _Read:
    def read(policy: Policy) -> Any:
        return next(limit.value for limit in policy.limits if limit.name == kind)

    return read


def _pass(name: str, knob: str) -> _Given:
    def given(value: Any) -> dict[str, Any]:
        return {"history": patched(PRESET, {name: {knob: value}})}

    return given


def _pass_of(name: str, knob: str) -> _Read:
    def read(policy: Policy) -> Any:
        return next(getattr(step, knob) for step in policy.history if step.name == name)

    return read


def _after(messages: Any) -> dict[str, Any]:
    return _pass("threshold", "when")({"messages": messages})


def _after_of(policy: Policy) -> Any:
    return _pass_of("threshold", "when")(policy).messages


def _output(size: Any) -> dict[str, Any]:
    return {"tool_output": {"max": size}}


def _output_of(policy: Policy) -> Any:
    assert policy.tool_output is not None
    return policy.tool_output.max


_KNOBS: Mapping[str, _Knob] = {
    "time_limit": _Knob("TIME_LIMIT", _limit("time"), _limit_of("time")),
    "max_steps": _Knob("MAX_STEPS", _limit("step"), _limit_of("step")),
    "prune_after": _Knob("PRUNE_AFTER_MESSAGES", _after, _after_of),
    "prune_keep_last": _Knob("PRUNE_KEEP_LAST", _pass("threshold", "last"), _pass_of("threshold", "last")),
    "per_message_token_cap": _Knob("MESSAGE_TOKEN_CAP", _pass("trim", "cap"), _pass_of("trim", "cap")),
    "truncate_last_k": _Knob("TRIM_LAST", _pass("trim", "last"), _pass_of("trim", "last")),
    "max_tool_output": _Knob("MAX_TOOL_OUTPUT", _output, _output_of),
}
_RETRY = {"attempts": "MAX_ATTEMPTS", "initial": "INITIAL_SECONDS", "max": "MAX_SECONDS"}
