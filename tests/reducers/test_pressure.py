"""Pressure: the model is told that a limit is near, in one request at a time, and never for good."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import PolicyError
from refold.reducers.events import CallRefused, MessageInjected, ModelRequested
from refold.reducers.vocabulary import Role
from support.scenario import Scenario

Tier = Mapping[str, Any]


def tier(name: str = "warning", **at: Any) -> dict[str, Any]:
    return {"name": name, "at": at}


def pressed(*tiers: Tier, limits: list[dict[str, Any]] | None = None, **knob: Any) -> Scenario:
    policy = {"pressure": {"tiers": list(tiers), **knob}}
    return Scenario({**policy, "limits": [{"type": "step", "value": 10}] if limits is None else limits})


def shown(scenario: Scenario) -> list[str]:
    """The tier of each step's request, "" for none, in order."""
    requests = scenario.events(ModelRequested)
    return [next((text.tier for text in request.request_only), "") for request in requests]


def run(scenario: Scenario, steps: int) -> list[str]:
    """As many steps with a call as there are, and what each request showed."""
    for _ in range(steps):
        if scenario.state.request is None:
            break
        scenario.step(text="so")
    return shown(scenario)


def first(tiers: list[str], name: str) -> int:
    return tiers.index(name) + 1 if name in tiers else 0


CAUTION_WARNING = (tier("caution", fraction=0.7), tier("warning", fraction=0.9))


@pytest.mark.parametrize(
    ("most", "caution", "warning"),
    [(10, 7, 9), (20, 14, 18), (60, 42, 54), (90, 63, 81), (5, 4, 5), (1, 0, 1), (2, 0, 2), (3, 0, 3)],
)
def test_fractions_of_the_steps_used(most: int, caution: int, warning: int) -> None:
    """Source: the table of the hermes loop. n = steps used, so the request of step n + 1; n = M has no
    request.
    """
    scenario = pressed(*CAUTION_WARNING, limits=[{"type": "step", "value": most}], counts="used")
    tiers = run(scenario, most)
    # The request of step s shows n = s - 1; a tier that would begin with n = M is never seen.
    expected = [
        "" if n < (caution or warning) else "caution" if n < warning else "warning" for n in range(most)
    ]
    assert expected == tiers


@pytest.mark.parametrize(
    ("most", "caution", "warning"),
    [
        pytest.param(20, 10, 17, id="1-9 none, 10-16 caution, 17-20 warning: four"),
        pytest.param(5, 1, 2, id="short budgets are under pressure from the first step"),
        pytest.param(2, 0, 1, id="both tiers hold: the last in the list is shown"),
    ],
)
def test_remaining_steps_of_the_next(most: int, caution: int, warning: int) -> None:
    """Source: the utah loop. n = s, the step about to be made; M - n <= remaining."""
    tiers = (tier("caution", remaining=10), tier("warning", remaining=3))
    seen = run(pressed(*tiers, limits=[{"type": "step", "value": most}]), most)
    assert (caution, warning) == (first(seen, "caution"), first(seen, "warning"))
    assert most == len(seen)
    assert "" not in seen[warning - 1 :]


@pytest.mark.parametrize(
    ("counts", "begins"),
    [pytest.param("next", 5, id="next: s"), pytest.param("used", 6, id="used: s - 1")],
)
@pytest.mark.parametrize("at", [{"fraction": 0.5}, {"remaining": 5}], ids=["fraction", "remaining"])
def test_counts(counts: str, begins: int, at: dict[str, Any]) -> None:
    """Exactly at the boundary it holds, one step before it does not."""
    assert begins == first(run(pressed(tier(**at), counts=counts), 9), "warning")


@pytest.mark.parametrize(
    ("at", "begins"),
    [
        pytest.param({"fraction": 0.3, "remaining": 2}, 3, id="the fraction holds first"),
        pytest.param({"fraction": 0.9, "remaining": 6}, 4, id="so much remains first"),
    ],
)
def test_both_whichever_holds_first(at: dict[str, Any], begins: int) -> None:
    """With both given the tier begins with the first that holds."""
    assert begins == first(run(pressed(tier(**at)), 9), "warning")


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param([{"type": "step", "value": None}], id="null"),
        pytest.param([{"type": "step", "value": 0, "op": ">"}], id="0"),
    ],
)
def test_without_a_limit_there_are_no_tiers(limits: list[dict[str, Any]]) -> None:
    """`null` or 0: no tiers."""
    assert [""] == shown(pressed(tier(fraction=0.01), limits=limits))


@pytest.mark.parametrize(("value", "expected"), [(60, ""), (59, ""), (30, "warning"), (31, "")])
def test_of_another_limit_by_what_is_used(value: int, expected: str) -> None:
    """n is that limit's used, whatever `counts` says: 15 tokens after one answer."""
    limits = [{"type": "token", "name": "purse", "value": value, "check": "preflight"}]
    scenario = pressed(tier(fraction=0.5), limits=limits, of="purse")
    assert expected == run(scenario, 1)[-1]


@pytest.mark.parametrize("kind", ["time", "cost"])
def test_of_time_or_money(kind: str) -> None:
    """A tier counts whole things: of time or money it is refused."""
    with pytest.raises(PolicyError, match="expected steps, messages or tokens"):
        pressed(tier(fraction=0.5), limits=[{"type": kind, "value": 10}], of=kind)


@pytest.mark.parametrize(("place", "role"), [("user", "user"), ("system", "system"), ("tool_result", "user")])
def test_place(place: str, role: str) -> None:
    """Last in the request, as a user, late as a system message, or beside the newest result."""
    scenario = pressed({**tier(fraction=0.2), "place": place})
    scenario.step()
    assert role == scenario.seen()[-1][0]
    text = scenario.events(ModelRequested)[-1].request_only[-1]
    assert (place, "pressure:warning") == (text.place, text.text)


def test_beside_a_result_only_if_the_window_ends_with_one() -> None:
    """`tool_result` is not shown in a request whose window ends otherwise."""
    scenario = Scenario(
        {
            "limits": [{"type": "step", "value": 10}],
            "pressure": {"tiers": [{**tier(fraction=0.1), "place": "tool_result"}]},
            "end_of_turn": "continue",
        }
    )
    assert [""] == shown(scenario)
    scenario.step()
    assert ["", "warning"] == shown(scenario)
    scenario.answer("well")
    assert ["", "warning", ""] == shown(scenario)


def test_every_request_in_the_tier() -> None:
    """By default each request from its beginning on shows it."""
    assert ["", "", *["warning"] * 8] == run(pressed(tier(fraction=0.3)), 10)


def test_once_a_turn() -> None:
    """`repeat: once` shows it in the first request of the tier, and again in the next turn."""
    scenario = Scenario(
        {
            "limits": [{"type": "step", "value": 10, "scope": "run"}],
            "pressure": {"tiers": [{**tier(fraction=0.2), "repeat": "once"}]},
            "end_of_turn": "wait",
        }
    )
    assert ["", "warning", "", ""] == run(scenario, 3)
    scenario.answer("done")
    scenario.say("again")
    assert "warning" == shown(scenario)[-1]
    scenario.step()
    assert "" == shown(scenario)[-1]


def test_two_tiers_that_are_shown_once_have_each_their_own_time() -> None:
    """That the first was shown does not use up the second."""
    tiers = [{**tier("caution", fraction=0.2), "repeat": "once"}, {**tier(fraction=0.5), "repeat": "once"}]
    assert ["", "caution", "", "", "warning", ""] == run(pressed(*tiers), 5)


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        pytest.param("all", None, id="all"),
        pytest.param("none", (), id="none"),
        pytest.param({"without": ["act"]}, ("look", "set"), id="without"),
        pytest.param({"without": ["other"]}, ("look", "act", "set"), id="without one that is not there"),
    ],
)
def test_tools(tools: Any, offered: tuple[str, ...] | None) -> None:
    """The request records what it offered, and so does what waits."""
    scenario = pressed({**tier(fraction=0.1), "tools": tools})
    assert offered == scenario.events(ModelRequested)[-1].tools
    assert scenario.state.request is not None
    assert offered == scenario.state.request.event.tools


def test_a_call_of_a_tool_that_was_not_offered_is_refused() -> None:
    """The others of the batch run."""
    scenario = pressed({**tier(fraction=0.1), "tools": {"without": ["act"]}})
    scenario.answer("", ("act", "{}"), ("look", "{}"))
    assert ["c1"] == [event.call for event in scenario.events(CallRefused)]
    assert "text=refused:not_offered" in scenario.last[0]
    assert any("tools_dispatched calls=[c2]" in line for line in scenario.last)


def test_with_no_tools_every_call_is_refused_and_the_run_goes_on() -> None:
    """The refusals are results like any other: the next request follows."""
    scenario = pressed({**tier(fraction=0.1), "tools": "none"})
    scenario.answer("", ("act", "{}"), ("look", "{}"))
    assert ["call_refused", "call_refused", "model_requested"] == scenario.kinds()


def test_before_the_tier_all_tools_are_offered() -> None:
    """The reduction begins with the tier."""
    scenario = pressed({**tier(fraction=0.2), "tools": "none"})
    assert scenario.events(ModelRequested)[-1].tools is None
    scenario.step()
    assert () == scenario.events(ModelRequested)[-1].tools


ESCALATING = (
    {**tier("caution", fraction=0.2), "place": "tool_result"},
    {**tier("warning", fraction=0.9), "place": "tool_result"},
)


@pytest.mark.parametrize(
    ("text", "escalated"),
    [
        pytest.param("", True, id="calls and blank text: ignored"),
        pytest.param(" \n", True, id="white space is blank"),
        pytest.param("I will wrap up.", False, id="calls and text: acknowledged"),
    ],
)
def test_acknowledge(text: str, escalated: bool) -> None:
    """After *ignored* the next request with a tier has the last tier's text, from the user, and says so."""
    scenario = pressed(*ESCALATING, acknowledge="escalate")
    scenario.step()
    scenario.step(text=text)
    said = scenario.events(ModelRequested)[-1].request_only[-1]
    assert ("caution", escalated) == (said.tier, said.escalated)
    expected = ("pressure:warning", "user") if escalated else ("pressure:caution", "tool_result")
    assert expected == (said.text, said.place)


def test_without_acknowledge_nothing_escalates() -> None:
    """`null`: the tier's own words, however often they are ignored."""
    scenario = pressed(*ESCALATING)
    scenario.step()
    scenario.step()
    assert "pressure:caution" == scenario.events(ModelRequested)[-1].request_only[-1].text


def test_before_any_tier_there_is_nothing_to_ignore() -> None:
    """Calls without text in answer to a request without a tier do not count."""
    scenario = pressed(*ESCALATING, acknowledge="escalate")
    scenario.step()
    assert not scenario.events(ModelRequested)[-1].request_only[-1].escalated


def test_the_next_request_with_a_tier_may_come_later() -> None:
    """Ignored is not forgotten by a request in between that shows none."""
    tiers = ({**tier("caution", fraction=0.2), "repeat": "once"}, tier("warning", fraction=0.4))
    scenario = pressed(*tiers, acknowledge="escalate")
    for _ in range(3):
        scenario.step()
    assert ["", "caution", "", "warning"] == shown(scenario)
    assert scenario.events(ModelRequested)[-1].request_only[-1].escalated


def test_an_acknowledgement_ends_the_escalation() -> None:
    """The answer to the escalated text decides anew."""
    scenario = pressed(*ESCALATING, acknowledge="escalate")
    scenario.step()
    scenario.step()
    scenario.step(text="I see.")
    assert not scenario.events(ModelRequested)[-1].request_only[-1].escalated


def test_a_finished_turn_heeds_it() -> None:
    """An answer without calls ends the turn: nothing is left to press."""
    scenario = pressed(*ESCALATING, acknowledge="escalate")
    scenario.step()
    scenario.answer("done")
    assert "COMPLETED" == scenario.state.agent_state


def test_the_text_has_its_numbers() -> None:
    """Step n of M, and what remains."""
    scenario = pressed(tier(fraction=0.3))
    run(scenario, 2)
    assert {"n": 3, "max": 10, "remaining": 7, "unit": "steps"} == scenario.events(ModelRequested)[
        -1
    ].request_only[-1].values


@given(
    place=st.sampled_from(["user", "system", "tool_result"]),
    repeat=st.sampled_from(["every", "once"]),
    acknowledge=st.sampled_from([None, "escalate"]),
    texts=st.lists(st.sampled_from(["", "so"]), min_size=1, max_size=6),
)
def test_request_only_is_a_law(place: str, repeat: str, acknowledge: str | None, texts: list[str]) -> None:
    """No window ever holds a text of pressure, and none is injected: replayed without, the history is
    equal.
    """
    extra = {"place": place, "repeat": repeat}
    scenario = pressed({**tier(fraction=0.1), **extra}, acknowledge=acknowledge)
    plain = Scenario({"limits": [{"type": "step", "value": 10}]})
    for text in texts:
        scenario.step(text=text)
        plain.step(text=text)
        assert plain.state.window == scenario.state.window
    assert [] == scenario.events(MessageInjected)
    only = len(scenario.events(ModelRequested)[-1].request_only)
    assert plain.seen() == scenario.seen()[: len(scenario.seen()) - only]
    assert all(
        text.role in (Role.USER, Role.SYSTEM) for text in scenario.events(ModelRequested)[-1].request_only
    )


def test_an_answer_of_nothing_ignores_no_tier() -> None:
    """Without calls it heeds the tier, though it said nothing and is asked again."""
    scenario = Scenario(
        {
            "limits": [{"type": "step", "value": 10}],
            "pressure": {
                "tiers": [tier("caution", fraction=0.1), tier(fraction=0.9)],
                "acknowledge": "escalate",
            },
            "empty": {"again": 1},
        }
    )
    scenario.answer("")
    assert not scenario.events(ModelRequested)[-1].request_only[-1].escalated
