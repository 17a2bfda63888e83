"""Policies from plain data: what is read as what, and what is recorded of it."""

from typing import Any

import msgspec
import pytest

from refold.reducers.errors import PolicyError
from refold.reducers.guards import BUILTIN
from refold.reducers.parser import checked, parse
from refold.reducers.policy import Empty, Policy, Stream, Truncation
from refold.reducers.text import TEXTS


def tiers(*ats: dict[str, Any], value: int | None = 50) -> dict[str, Any]:
    listed = [{"name": f"t{place}", "at": at} for place, at in enumerate(ats)]
    return {"pressure": {"tiers": listed}, "limits": [{"type": "step", "value": value}]}


@pytest.mark.parametrize(
    ("data", "canonical"),
    [
        pytest.param({"type": "time", "seconds": 5}, ("time", "time", 5), id="seconds"),
        pytest.param({"type": "time", "limit": 5}, ("time", "time", 5), id="time limit"),
        pytest.param({"type": "step", "max": 5}, ("step", "step", 5), id="step max"),
        pytest.param({"type": "step", "limit": 5}, ("step", "step", 5), id="step limit"),
        pytest.param({"type": "message", "messages": 5}, ("message", "message", 5), id="messages"),
        pytest.param({"type": "message", "max": 5}, ("message", "message", 5), id="message max"),
        pytest.param({"type": "message", "limit": 5}, ("message", "message", 5), id="message limit"),
        pytest.param({"type": "token", "tokens": 5}, ("token", "token", 5), id="tokens"),
        pytest.param({"type": "token", "max": 5}, ("token", "token", 5), id="token max"),
        pytest.param({"type": "token", "limit": 5}, ("token", "token", 5), id="token limit"),
        pytest.param({"type": "cost", "max": 0.5}, ("cost", "cost", 0.5), id="cost max"),
        pytest.param({"type": "cost", "limit": 5}, ("cost", "cost", 5), id="cost limit"),
        pytest.param({"type": "message", "value": 5}, ("message", "message", 5), id="message value"),
        pytest.param(
            {"type": "message", "value": None}, ("message", "message", None), id="unlimited messages"
        ),
        pytest.param({"type": "time", "value": 0.5}, ("time", "time", 0.5), id="half a second"),
        pytest.param({"type": "cost", "limit": 0.5}, ("cost", "cost", 0.5), id="half a dollar"),
        pytest.param({"kind": "step", "value": 5}, ("step", "step", 5), id="kind"),
        pytest.param({"type": " Steps ", "value": 5}, ("step", "step", 5), id="trimmed, lower-cased, plural"),
        pytest.param({"type": "MESSAGES", "value": 5}, ("message", "message", 5), id="plural messages"),
        pytest.param({"type": "tokens", "value": 5}, ("token", "token", 5), id="plural tokens"),
        pytest.param({"type": "step", "value": None}, ("step", "step", None), id="null is unlimited"),
        pytest.param({"type": "step", "value": 0}, ("step", "step", 0), id="0 is 0"),
        pytest.param(
            {"type": "token", "measure": "estimate", "value": 5},
            ("token", "token_estimate", 5),
            id="estimate's name",
        ),
        pytest.param({"type": "step", "name": "mine", "value": 5}, ("step", "mine", 5), id="its own name"),
    ],
)
def test_aliases(data: dict[str, Any], canonical: tuple[str, str, Any]) -> None:
    """Every spelling of a limit is read, and one is recorded."""
    (read,) = msgspec.to_builtins(parse({"limits": [data]}))["limits"]
    assert canonical == (read["type"], read["name"], read["value"])
    assert not {"kind", "max", "limit", "seconds", "tokens", "messages"} & set(read)


def test_the_default_policy() -> None:
    """What nobody said: 50 steps, six attempts, 16 KiB of output, a turn's end is the run's."""
    policy = parse({})
    assert [("step", 50)] == [(limit.name, limit.value) for limit in policy.limits]
    assert (6, 1, 60, 1) == (
        policy.retry.attempts,
        policy.retry.initial,
        policy.retry.max,
        policy.retry.jitter.add,
    )
    assert policy.tool_output is not None
    assert (16384, "complete", "parallel", (), ()) == (
        policy.tool_output.max,
        policy.end_of_turn,
        policy.batch,
        policy.history,
        policy.guards,
    )


def test_what_the_language_takes_for_what_nobody_wrote() -> None:
    """Recoveries that a log without their keys did not have are on by default, and off with null."""
    policy = parse({})
    assert (Truncation(), Stream(), Empty()) == (policy.truncation, policy.stream, policy.empty)
    policy = parse({"truncation": None, "stream": None, "empty": None})
    assert (None, None, None) == (policy.truncation, policy.stream, policy.empty)


def test_a_policy_built_in_python_means_what_its_struct_says() -> None:
    """A Struct's defaults are those of a log without the key: `checked` adds nothing to them."""
    assert (None, None, None) == (
        checked(Policy()).truncation,
        checked(Policy()).stream,
        checked(Policy()).empty,
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(tiers({"fraction": 0.7}, {"fraction": 0.9}), id="tiers in order"),
        pytest.param(
            tiers({"remaining": 10}, {"remaining": 3}, value=2), id="under pressure from the first step"
        ),
        pytest.param(tiers({"fraction": 0.9}, {"remaining": 4}), id="mixed, the later one later"),
        pytest.param(
            tiers({"fraction": 0.9}, {"remaining": 6}, value=None), id="mixed, of nobody knows what"
        ),
        pytest.param(tiers({"fraction": 0, "remaining": 3}), id="a tier from the start"),
        pytest.param(tiers({"fraction": 1}), id="a tier at the end"),
        pytest.param(
            {"retry": {"attempts": None, "window": 9}}, id="attempts without number within a window"
        ),
        pytest.param(
            {"retry": {"attempts": None}, "limits": [{"type": "time", "value": 9}]}, id="or a time limit"
        ),
        pytest.param(
            {
                "grace": {"on": ["token_estimate", "message"]},
                "limits": [
                    {"type": "step", "value": 1},
                    {"type": "tokens", "measure": "estimate", "value": 1},
                ],
            }
            | {
                "limits": [
                    {"type": "message", "value": 1},
                    {"type": "token", "measure": "estimate", "value": 1},
                ]
            },
            id="grace on what is of the window",
        ),
        pytest.param({"history": None, "guards": None}, id="lists switched off"),
        pytest.param({"preset": None}, id="no preset"),
        pytest.param(
            {"history": [{"do": "token_tail", "budget": {"context": 10, "minus_output": 9}}]},
            id="a little room",
        ),
    ],
)
def test_taken(data: dict[str, Any]) -> None:
    """What stands right at the edge of what cannot work is taken, and taken again as it was."""
    policy = parse(data)
    assert policy == parse(msgspec.to_builtins(policy))


def test_tiers_of_other_names_have_words() -> None:
    """The last tier warns and those before it caution, unless the policy says it otherwise."""
    data = tiers({"fraction": 0.1}, {"fraction": 0.2}, {"fraction": 0.3})
    texts = parse({**data, "texts": {"pressure:t1": "Hurry."}}).texts
    assert TEXTS["pressure:caution"] == texts["pressure:t0"]
    assert "Hurry." == texts["pressure:t1"]
    assert TEXTS["pressure:warning"] == texts["pressure:t2"]


def test_premature_end_is_complete() -> None:
    """Its configuration is recorded with every field, and its words are among the texts."""
    policy = parse({"premature_end": {"max": 1}})
    assert policy.premature_end is not None
    assert (1, 10) == (policy.premature_end["max"], policy.premature_end["look_back"])
    assert "premature_end" in policy.texts
    assert policy == parse(msgspec.to_builtins(policy))


@pytest.mark.parametrize(
    ("data", "guards"),
    [
        pytest.param({"approvals": {"preset": "ci"}}, [], id="ci brings none"),
        pytest.param({"approvals": {"preset": "dev"}}, ["handoff"], id="dev brings handoff"),
        pytest.param({"approvals": {"preset": "prod"}, "guards": [{"guard": "one_call"}]}, ["handoff", "one_call"],
                     id="ahead of the others"),
        pytest.param({"approvals": {"preset": "prod"}, "guards": [{"guard": "one_call"}, {"guard": "handoff"}]},
                     ["one_call", "handoff"], id="once"),
        pytest.param({"approvals": {"chain": [{"approver": "reject"}]}}, [], id="a chain brings none"),
        pytest.param({"approvals": None}, [], id="switched off"),
    ],
)  # fmt: skip
def test_presets_of_approvals(data: dict[str, Any], guards: list[str]) -> None:
    """A preset of approvals is recorded as its chain; `dev` and `prod` bring the guard of handoffs."""
    policy = parse(data)
    assert guards == [guard["guard"] for guard in policy.guards]
    assert policy.approvals is None or (policy.approvals.preset is None and policy.approvals.chain)
    assert policy == parse(msgspec.to_builtins(policy))


def test_texts_are_complete_and_may_be_overridden() -> None:
    """The whole table of texts is recorded with the run, the policy's own wording in it."""
    policy = parse({"texts": {"continue": "Go on."}})
    assert set(TEXTS) == set(policy.texts)
    assert "Go on." == policy.texts["continue"]
    assert TEXTS["in_doubt"] == policy.texts["in_doubt"]


def test_guards_are_recorded_with_every_field() -> None:
    """A guard's defaults are filled in, so that a recorded policy never changes its meaning."""
    (guard,) = parse({"guards": [{"guard": "repetition", "repeats": 5}]}).guards
    assert {
        "guard": "repetition",
        "name": "repetition",
        "repeats": 5,
        "clip": 200,
        "scope": "lineage",
    } == guard


def test_a_guard_that_is_not_installed_may_be_read() -> None:
    """Without `strict_guards` a guard that nobody installed stays as it was written, with its name."""
    (guard,) = parse({"guards": [{"guard": "other", "x": [1]}]}, strict_guards=False).guards
    assert {"guard": "other", "x": [1], "name": "other"} == guard


RICH: dict[str, Any] = {
    "schema": "refold/v1",
    "limits": [
        {"type": "steps", "max": 3},
        {"type": "time", "seconds": 1.5},
        {"type": "cost", "value": None},
    ],
    "history": [{"do": "tail", "last": 3}, {"do": "token_tail", "budget": 9, "when": {"tokens": 5}}],
    "guards": [{"guard": "repetition"}],
    "tool_output": None,
    "retry": {"max": None, "classes": ["auth"]},
    "texts": {"continue": "On."},
}


@pytest.mark.parametrize("data", [pytest.param({}, id="default"), pytest.param(RICH, id="rich")])
def test_round_trip(data: dict[str, Any]) -> None:
    """The printed JSON of a policy, read again, is the same policy: canonical form is a fixed point."""
    policy = parse(data)
    printed = msgspec.json.encode(policy)
    assert policy == parse(msgspec.json.decode(printed))
    assert policy == msgspec.json.decode(printed, type=Policy)
    assert printed == msgspec.json.encode(checked(policy))


def test_parse_leaves_its_input_alone() -> None:
    """The caller's data is as it was."""
    before = msgspec.json.encode(RICH)
    parse(RICH)
    assert before == msgspec.json.encode(RICH)


def test_a_policy_built_in_python_is_checked() -> None:
    """Constructing validates nothing; `checked` does."""
    with pytest.raises(PolicyError, match=r"end_of_turn"):
        checked(Policy(end_of_turn="stop"))  # type: ignore[arg-type]


def test_a_policy_that_was_parsed_is_parsed_again_only_with_other_guards_or_changed() -> None:
    """That it can work was found of this value, with these guards."""
    policy = parse({"guards": [{"guard": "loop", "window": 2}]})
    assert policy is checked(policy, dict(BUILTIN))
    with pytest.raises(PolicyError, match=r"guards\[0\]\.guard: no guard 'loop' is installed"):
        checked(policy, {})
    with pytest.raises(PolicyError, match=r"end_of_turn"):
        checked(msgspec.structs.replace(policy, end_of_turn="stop"))


def test_a_guard_that_was_only_kept_is_not_taken_for_installed() -> None:
    """A policy of a recorded run may be read without its guards; to run with it they must be here."""
    recorded = parse({"guards": [{"guard": "nowhere"}]}, strict_guards=False)
    with pytest.raises(PolicyError, match=r"guards\[0\]\.guard: no guard 'nowhere' is installed"):
        checked(recorded)


def test_a_name_is_one_line() -> None:
    """A name that would start a line of its own, where it is shown, is refused."""
    with pytest.raises(PolicyError, match=r"limits\[0\]\.name: expected one line"):
        parse({"limits": [{"type": "step", "value": 1, "name": "x\nrun r9: intact"}]})
