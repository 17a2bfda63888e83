"""Presets: what each switches on, what can be laid over it, and that it is a policy like any other."""

from typing import Any

import msgspec
import pytest

from refold.reducers.complaints import warnings
from refold.reducers.errors import PolicyError
from refold.reducers.failures import Retry
from refold.reducers.limits import name_of
from refold.reducers.parser import checked, parse, parse_with
from refold.reducers.policy import Policy, ToolOutput
from refold.reducers.presets import PRESETS, preset_data
from refold.reducers.text import TEXTS

# Each knob that is off where nobody switches it on: how it looks then.
OFF: dict[str, Any] = {
    "near": None, "grace": None, "fallback": None, "history": (), "overflow": None, "truncation": None, "stream": None,
    "premature_end": None, "empty": None, "refusal": "fail", "nudge": False, "progress": None, "guards": (),
    "pressure": None, "approvals": None,
}  # fmt: skip
ON = {
    "inspect-iterative": {"near", "history", "overflow", "progress", "nudge"},
    "paperbench": {"history", "overflow", "progress", "nudge"},
    "guardrails": {"near", "guards", "truncation"},
    "hermes": {"pressure", "grace", "fallback", "history", "overflow", "truncation", "empty"},
    "utah": {"pressure", "fallback", "history", "overflow", "empty"},
    "tirea": {"history", "truncation", "stream"},
    "paperbench-solver": {"history", "overflow", "progress", "guards"},
    "guardrails-later": {"near", "guards", "truncation", "history", "premature_end", "refusal"},
    "hermes-quiet": {"grace", "fallback", "history", "overflow", "truncation", "empty"},
    "hermes-optin": {"pressure", "grace", "fallback", "history", "overflow", "truncation", "empty"},
    "hermes-guarded": {
        "pressure",
        "grace",
        "fallback",
        "history",
        "overflow",
        "truncation",
        "empty",
        "guards",
    },
    "awaken": {"history", "truncation", "approvals"},
    "observed": {"history", "refusal"},
}
each_preset = pytest.mark.parametrize("name", PRESETS)


@each_preset
def test_a_preset_is_complete(name: str) -> None:
    """What a preset does not list is off, whatever the language's default is."""
    policy = parse({"preset": name})
    assert ON[name] == {knob for knob, off in OFF.items() if getattr(policy, knob) != off}


@pytest.mark.parametrize(
    ("name", "knob", "default"),
    [
        pytest.param("paperbench", "tool_output", ToolOutput(), id="tool_output"),
        pytest.param("paperbench", "estimator", "chars4", id="estimator"),
        pytest.param("hermes", "end_of_turn", "complete", id="end_of_turn"),
        pytest.param("tirea", "batch", "parallel", id="batch"),
        pytest.param("utah", "call_timeout", Policy().call_timeout, id="call_timeout"),
    ],
)
def test_but_some_have_their_default(name: str, knob: str, default: object) -> None:
    """How a run goes where nothing is switched on or off is the language's default in a preset too."""
    assert default == getattr(parse({"preset": name}), knob)


def test_of_retries_what_is_not_listed_is_the_default() -> None:
    """Mappings of a preset are completed like any other."""
    retry = parse({"preset": "utah"}).retry
    assert (3, Retry().initial, Retry().max, Retry().jitter) == (
        retry.attempts, retry.initial, retry.max, retry.jitter,
    )  # fmt: skip


@each_preset
def test_a_preset_is_a_policy_like_any_other(name: str) -> None:
    """Its canonical form, printed and read again, is equal; so is what is laid over it and says nothing."""
    policy = parse({"preset": name})
    printed = msgspec.json.encode(policy)
    assert policy == parse(msgspec.json.decode(printed))
    assert policy == checked(policy) == msgspec.json.decode(printed, type=Policy)
    assert policy == parse({"preset": name, "limits": [], "guards": []})
    assert policy == parse(preset_data(name))


@each_preset
def test_a_preset_says_more_than_the_table_of_texts_only_where_it_must(name: str) -> None:
    """Every built-in text is there, and none is without words."""
    texts = parse({"preset": name}).texts
    assert set(TEXTS) <= set(texts)
    assert all(texts.values())


OVER = [
    pytest.param("hermes", {"limits": [{"type": "step", "max": 60}]}, [("step", 60, ">=", "turn")], id="its value"),
    pytest.param("hermes", {"limits": [{"type": "step", "scope": "run"}]}, [("step", 90, ">=", "run")],
                 id="all but its value, which is inherited"),
    pytest.param("hermes", {"limits": [{"name": "step", "max": 7}]}, [("step", 7, ">=", "turn")],
                 id="by name, and an alias for the value"),
    pytest.param("hermes", {"limits": [{"kind": "Steps", "value": None}]}, [("step", None, ">=", "turn")], id="none"),
    pytest.param("utah", {"limits": [{"type": "time", "seconds": 5}]},
                 [("step", 20, ">=", "turn"), ("time", 5, ">=", "run")], id="one more"),
    pytest.param("paperbench", {"limits": [{"type": "time", "value": 5}]},
                 [("time", 5, ">", "run"), ("message", None, ">=", "run"), ("token", None, ">=", "run")],
                 id="its operator stays"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "over", "limits"), OVER)
def test_limits_laid_over_a_preset(name: str, over: dict[str, Any], limits: list[Any]) -> None:
    """A limit of a preset keeps what is not said again."""
    policy = parse({"preset": name, **over})
    assert limits == [(name_of(limit), limit.value, limit.op, limit.scope) for limit in policy.limits]


def test_a_limit_that_no_preset_has_needs_a_value() -> None:
    """Only the value of a limit of that name is inherited."""
    with pytest.raises(PolicyError, match=r"^limits\[0\]\.value: missing; it is required$"):
        parse({"preset": "hermes", "limits": [{"type": "time"}]})


def test_a_guard_of_a_preset_is_changed_by_its_kind_and_taken_out_by_its_name() -> None:
    """A list of guards is not replaced: what it says is laid over those of the same name."""
    changed = {
        "preset": "guardrails",
        "guards": [{"guard": "repetition", "repeats": 5}, {"guard": "loop", "window": 3}],
    }
    assert [("repetition", 5), ("loop", None)] == [
        (guard["guard"], guard.get("repeats")) for guard in parse(changed).guards
    ]
    assert () == parse({"preset": "guardrails", "guards": [{"name": "repetition", "guard": None}]}).guards
    assert () == parse({"preset": "guardrails", "guards": None}).guards


def test_null_switches_off() -> None:
    """A knob of a preset is off with null, and what it does not have may be switched on."""
    policy = parse(
        {"preset": "hermes", "pressure": None, "grace": None, "history": None, "overflow": None, "stream": {}}
    )
    assert (None, None, (), None) == (policy.pressure, policy.grace, policy.history, policy.overflow)
    assert policy.stream is not None


def test_a_preset_that_lacks_what_the_rest_names_is_refused() -> None:
    """Taking a pass out that an overflow runs leaves a policy that cannot work."""
    with pytest.raises(PolicyError, match=r"overflow\.do\[0\]: history has no compaction step \"compress\""):
        parse({"preset": "hermes", "history": []})


def test_one_way_of_jitter_takes_the_place_of_another() -> None:
    """Of the four ways only one can stand: it need not be told that the preset's is gone."""
    assert 1 == parse({"preset": "hermes", "retry": {"jitter": {"full": 1}}}).retry.jitter.full


@pytest.mark.parametrize(
    ("environment", "notes", "limits"),
    [
        pytest.param({}, (), [("step", 20)], id="nothing"),
        pytest.param(
            {"REFOLD_MAX_STEPS": "7"}, ("limits.step: REFOLD_MAX_STEPS",), [("step", 7)], id="over a preset"
        ),
        pytest.param(
            {"REFOLD_TIME_LIMIT": "9"},
            ("limits.time: REFOLD_TIME_LIMIT",),
            [("step", 20), ("time", 9)],
            id="a limit more",
        ),
        pytest.param({"REFOLD_COST_LIMIT": "2"}, (), [("step", 20)], id="not what was given"),
    ],
)
def test_environment(
    environment: dict[str, str], notes: tuple[str, ...], limits: list[tuple[str, int]]
) -> None:
    """What is given counts before the environment, and that before a preset; what it set is said."""
    given: list[dict[str, Any]] = [{"type": "cost", "max": None}]
    policy, said = parse_with({"preset": "utah", "limits": given}, environment)
    assert notes == said
    assert [*limits, ("cost", None)] == sorted(
        [(limit.name, limit.value) for limit in policy.limits], key=lambda limit: limit[0] == "cost"
    )


def test_the_default_of_50_steps_stays_beside_what_the_environment_sets() -> None:
    """A variable adds a limit; only a list that somebody wrote takes the default away."""
    policy, _ = parse_with({}, {"REFOLD_TIME_LIMIT": "9"})
    assert [("step", 50), ("time", 9)] == [(limit.name, limit.value) for limit in policy.limits]


def test_garbage_in_the_environment_is_refused_by_its_name() -> None:
    """A variable that is no value does not pass for none."""
    with pytest.raises(PolicyError, match=r"^REFOLD_MAX_STEPS: expected a whole number"):
        parse_with({}, {"REFOLD_MAX_STEPS": "many"})


def test_only_one_preset_is_warned_of() -> None:
    """The presets are as meant; but a pass of inspect-iterative is never reached, and two loops need a
    limit.
    """
    endless = "end_of_turn: 'continue' has no upper bound, and no limit ends the run"
    said = {name: [str(one) for one in warnings(parse({"preset": name}))] for name in PRESETS}
    assert {
        "inspect-iterative": [
            "history[2]: never reached: history[0] leaves it nothing to do; only an overflow runs it",
            endless,
        ],
        "paperbench": [endless],
    } == {name: complaints for name, complaints in said.items() if complaints}


def test_a_guard_that_is_not_installed_is_refused_with_an_environment_too() -> None:
    """Both ways of reading are as strict unless told otherwise."""
    with pytest.raises(PolicyError, match=r"guards\[0\]\.guard: no guard 'zzz' is installed"):
        parse_with({"guards": [{"guard": "zzz"}]}, {})
