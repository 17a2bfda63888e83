"""Settings: single values that are laid over file, preset and environment, before anything is parsed."""

from typing import Any

import pytest

from refold.reducers.errors import NoSuchEntry, PolicyError
from refold.reducers.parser import parse, parse_with

STALL = {"guard": "stall"}


@pytest.mark.parametrize(
    ("data", "path", "value", "same"),
    [
        pytest.param({}, "limits.step.value", 5, {"limits": [{"type": "step", "value": 5}]}, id="the default limit"),
        pytest.param(
            {}, "limits.cost.max", 1, {"limits": [{"type": "step", "value": 50}, {"type": "cost", "value": 1}]},
            id="one limit more, in another spelling",
        ),
        pytest.param({"preset": "hermes"}, "limits", [], {"preset": "hermes"}, id="nothing over a list"),
        pytest.param({"preset": "hermes"}, "pressure", None, {"preset": "hermes-quiet"}, id="what a preset has, off"),
        pytest.param({"guards": 3}, "guards", [STALL], {"guards": [STALL]}, id="in place of what is none"),
        pytest.param({"guards": [STALL]}, "guards.stall", None, {}, id="a guard to go"),
    ],
)  # fmt: skip
def test_a_setting_is_what_a_file_would_say(
    data: dict[str, Any], path: str, value: Any, same: dict[str, Any]
) -> None:
    """Laid over what the others have said, whoever said it."""
    for strict in (True, False):
        settings = [(path.split("."), value)]
        assert parse(same) == parse_with(data, {}, settings=settings, strict_guards=strict)[0]


def test_a_setting_counts_before_a_variable() -> None:
    """And a variable before what nobody said."""
    variables = {"REFOLD_MAX_STEPS": "7", "REFOLD_TIME_LIMIT": "9"}
    policy, notes = parse_with({}, variables, settings=[(("limits", "step", "value"), 5)])
    assert [("step", 5), ("time", 9)] == [(limit.name, limit.value) for limit in policy.limits]
    assert {"limits.step: REFOLD_MAX_STEPS", "limits.time: REFOLD_TIME_LIMIT"} == set(notes)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        pytest.param("limits.time.value", float("inf"), "limits.time.value: expected a finite number", id="no number"),
        pytest.param("guards.zzz.x", 1, "no guard 'zzz' is installed", id="a guard that nobody has"),
        pytest.param("guards.nobodys.x.y", 1, "", id="one that was recorded is left as it is"),
        pytest.param("preset", "hermes", "preset: unknown key", id="a preset, over which the rest would lie"),
    ],
)  # fmt: skip
def test_what_is_no_setting(path: str, value: object, told: str) -> None:
    """It is refused by its place; a guard that is added must be installed, though recorded ones need not
    be.
    """
    data = {"guards": [{"guard": "nobodys"}]}
    settings = [(path.split("."), value)]
    if told:
        with pytest.raises(PolicyError, match=told):
            parse_with(data, {}, settings=settings, strict_guards=False)
    else:
        assert parse_with(data, {}, settings=settings, strict_guards=False)[0].guards


def test_what_another_policy_may_have() -> None:
    """An error of its own: of many policies some may have the entry."""
    with pytest.raises(NoSuchEntry):
        parse_with({}, {}, settings=[(("guards", "stall"), None)])


@pytest.mark.parametrize("word", ["steps", "messages", "tokens"])
@pytest.mark.parametrize(
    "data", [{}, {"limits": [{"type": "step", "value": 5}]}], ids=["none there", "one there"]
)
def test_the_plural_of_a_limit_is_no_second_one(word: str, data: dict[str, Any]) -> None:
    """A setting that says `limits.steps` is refused with the name that was meant; a limit that is called so
    is set.
    """
    meant = rf"limits\.{word}: unknown limit '{word}'; did you mean limits\.{word[:-1]}\?"
    with pytest.raises(PolicyError, match=meant):
        parse_with(data, {}, settings=[(("limits", word, "value"), 3)])
    named = {"limits": [{"type": word, "name": word, "value": 9}]}
    policy, _ = parse_with(named, {}, settings=[(("limits", word, "value"), 3)])
    assert [(word, 3)] == [(limit.name, limit.value) for limit in policy.limits if limit.name == word]
