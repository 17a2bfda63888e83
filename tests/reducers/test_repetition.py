"""The repetition guard, and when two batches of calls are the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.patterns import batch_signature, call_signature, is_object
from support.scenario import Scenario

TRIPPED = ["guard_tripped", "call_refused", "state_changed"]
Calls = list[tuple[str, str]]
LONG = "q" * 200


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param(
            [("read", '{"a":"1","b":"2"}')], [("read", '{"b": "2", "a": "1"}')], True, id="keys in any order"
        ),
        pytest.param([("a", "{}"), ("b", "{}")], [("b", "{}"), ("a", "{}")], True, id="calls in any order"),
        pytest.param([("a", "{}")], [("a", "{}"), ("a", "{}")], False, id="a doubled call counts twice"),
        pytest.param([("a", "{}")], [("b", "{}")], False, id="another name"),
        pytest.param([("a", "")], [("a", "{}")], True, id="empty text is {}"),
        pytest.param([("a", '{"x":1}')], [("a", '{"x":"1"}')], True, id="1 and '1' collide"),
        pytest.param([("a", '{"x":1}')], [("a", '{"x":1.0}')], False, id="numbers as written"),
        pytest.param([("a", '{"x":1e400}')], [("a", '{"x":2e400}')], False, id="numbers beyond any float"),
        pytest.param(
            [("a", '{"x":{"b":1,"a":[1, 2]}}')],
            [("a", '{"x":{"a":[1,2],"b":1}}')],
            True,
            id="nested keys too",
        ),
        pytest.param([("a", '{"x":true}')], [("a", '{"x":"true"}')], True, id="a word and the constant"),
        pytest.param([("a", '{"x":null}')], [("a", "{}")], False, id="null is not absent"),
        pytest.param([("a", "[1]")], [("a", "[ 1]")], False, id="no object: the raw text"),
        pytest.param([("a", "{broken")], [("a", "{broken")], True, id="no JSON: the raw text"),
        # The published behaviour of the `guardrails` loop: a value counts up to its first 200 characters.
        pytest.param(
            [("read", f'{{"path":"{LONG}x"}}')],
            [("read", f'{{"path":"{LONG}y"}}')],
            True,
            id="201st character",
        ),
        pytest.param(
            [("read", f'{{"path":"{LONG[1:]}x"}}')],
            [("read", f'{{"path":"{LONG[1:]}y"}}')],
            False,
            id="200th character",
        ),
        pytest.param(
            [("read", f'{{"path":"{LONG}"}}')], [("read", f'{{"path":"{LONG}z"}}')], True, id="200 and 201"
        ),
    ],
)
def test_same_batch(first: Calls, second: Calls, same: bool) -> None:
    """Batches are equal by the names and arguments of their calls: ids and order do not matter."""
    assert same == (batch_signature(first, 200) == batch_signature(second, 200))


@pytest.mark.parametrize(
    ("arguments", "clip", "signature"),
    [
        pytest.param('{"b":"x","a":1}', 200, "f(a=1,b=x)", id="keys sorted, a string as it is"),
        pytest.param('{"a":[1, {"c":2,"b":null}]}', 200, 'f(a=[1,{"b":null,"c":2}])', id="compact JSON"),
        pytest.param('{"a":"é"}', 200, "f(a=é)", id="not escaped"),
        pytest.param('{"a":["é"]}', 200, 'f(a=["é"])', id="not escaped inside"),
        pytest.param("", 200, "f()", id="empty"),
        pytest.param("null", 200, "f(null)", id="no object"),
        pytest.param('{"a":"abcdef","b":1}', 5, "f(a=abcde,b=1)", id="each value is clipped"),
        pytest.param("[" * 100_000, 5, "f([[[[[)", id="too deep for any parser"),
    ],
)
def test_signature(arguments: str, clip: int, signature: str) -> None:
    """A call is `name(k=v,…)`; what is no JSON object stands as raw text."""
    assert signature == call_signature("f", arguments, clip)


@pytest.mark.parametrize(
    ("arguments", "complete"),
    [
        pytest.param("", True, id="empty text counts as {}"),
        pytest.param("{}", True, id="an object"),
        pytest.param(' {"a": 1} ', True, id="blanks around"),
        pytest.param("[]", False, id="a list"),
        pytest.param("null", False, id="null"),
        pytest.param('{"a": 1', False, id="cut off"),
        pytest.param(" ", False, id="blanks only"),
        pytest.param("{}{}", False, id="two"),
        pytest.param('{"a":' * 100_000, False, id="too deep"),
    ],
)
def test_complete(arguments: str, complete: bool) -> None:
    """A call is complete if its arguments parse as a JSON object."""
    assert complete == is_object(arguments)


def run(repeats: int, *batches: Calls | str, scope: str = "lineage", clip: int = 200) -> Scenario:
    """A run that gets these answers: calls, or a plain text, after which a person says something."""
    guard = {"guard": "repetition", "repeats": repeats, "scope": scope, "clip": clip}
    scenario = Scenario({"guards": [guard], "end_of_turn": "wait"})
    for batch in batches:
        if scenario.state.ended:
            break
        if isinstance(batch, str):
            scenario.answer(batch)
            if not scenario.state.ended:
                scenario.say("go on")
            continue
        scenario.answer("", *batch)
        for call in scenario.state.batch.calls if scenario.state.batch else ():
            scenario.result(call.id)
    return scenario


A: Calls = [("look", '{"a":1}')]
B: Calls = [("look", '{"b":1}')]


@pytest.mark.parametrize(
    ("repeats", "batches", "stopped_at"),
    [
        pytest.param(3, [A, A, A, A], 4, id="the 4th in a row with repeats 3"),
        pytest.param(3, [A, A, A, B, A, A, A], None, id="another batch between starts anew"),
        pytest.param(1, [A, A], 2, id="the second with repeats 1"),
        pytest.param(0, [A], 1, id="the first batch with repeats 0"),
        pytest.param(0, ["hi", A], 2, id="repeats 0 does not stop a plain answer"),
        pytest.param(1, [A, "hm", A], 2 + 1, id="a plain answer between neither counts nor resets"),
        pytest.param(1, [A, "hm", "hm", B], None, id="plain answers are never the same batch"),
        pytest.param(1, [[*A, *B], [*B, *A]], 2, id="the order of calls does not matter"),
        pytest.param(1, [A, [*A, *A]], None, id="doubled is another batch"),
    ],
)
def test_repetition(repeats: int, batches: list[Calls | str], stopped_at: int | None) -> None:
    """Stopped before the (repeats + 1)-th identical batch in a row runs."""
    scenario = run(repeats, *batches)
    assert (stopped_at is not None) == (scenario.state.agent_state == "ERROR")
    if stopped_at is not None:
        assert stopped_at == scenario.state.spent.steps
        assert ["guard_tripped", "state_changed"] == [
            kind for kind in (line.split()[0] for line in scenario.last) if kind != "call_refused"
        ]


def test_what_a_stop_by_repetition_records() -> None:
    """The guard, its version, what it saw and the refusal of each call stand in the log."""
    scenario = run(1, A, A)
    assert [
        "guard_tripped guard=repetition verdict=stop code=repetition measured={allowed:1 repeats:1}",
        "call_refused call=c2 why=skipped cause=guard name=repetition text=refused:repetition",
        "state_changed from=RUNNING to=ERROR trigger=fail code=repetition",
    ] == scenario.last
    assert scenario.state.outcome is not None
    assert "the same batch of calls came 2 times in a row" == scenario.state.outcome.reason


@pytest.mark.parametrize(
    ("scope", "state"),
    [
        pytest.param("turn", "RUNNING", id="turn"),
        pytest.param("run", "ERROR", id="run"),
        pytest.param("lineage", "ERROR", id="lineage"),
    ],
)
def test_scope_turn(scope: str, state: str) -> None:
    """Only with `scope: turn` does a person's message start the count anew."""
    scenario = run(1, A, "hm", A, scope=scope)
    assert state == scenario.state.agent_state


@pytest.mark.parametrize(
    ("scope", "state"),
    [
        pytest.param("run", "WAITING_FOR_TOOL", id="run"),
        pytest.param("turn", "WAITING_FOR_TOOL", id="turn"),
        pytest.param("lineage", "ERROR", id="lineage"),
    ],
)
def test_scope_fork(scope: str, state: str) -> None:
    """A fork of a run that was stuck trips at the first same batch, unless the scope begins with the fork."""
    scenario = run(1, A, scope=scope)
    scenario.fork()
    scenario.answer("", *A)
    assert state == scenario.state.agent_state


def test_clip() -> None:
    """Beyond `clip` characters a value does not tell two batches apart."""
    first: Calls = [("look", '{"a":"xxxxx1"}')]
    second: Calls = [("look", '{"a":"xxxxx2"}')]
    assert "ERROR" == run(1, first, second, clip=5).state.agent_state
    assert "RUNNING" == run(1, first, second, clip=6).state.agent_state


def test_an_amended_policy_that_configures_it_alike_keeps_the_count() -> None:
    """A guard that is configured as before keeps what it has seen; another configuration starts anew."""
    for repeats, state in ((1, "ERROR"), (2, "WAITING_FOR_TOOL")):
        scenario = run(1, A)
        scenario.amend({"guards": [{"guard": "repetition", "repeats": repeats}], "end_of_turn": "wait"})
        scenario.answer("", *A)
        assert state == scenario.state.agent_state


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param('{"a":' * 100 + "1" + "}" * 100, True, id="100 deep"),
        pytest.param('{"a":' * 101 + "1" + "}" * 101, False, id="101 deep"),
        pytest.param('{"a":' + "[" * 100_000, False, id="deeper than any interpreter goes"),
        pytest.param('{"a": [' + ",".join(["{}"] * 1000) + "]}", True, id="wide, and not deep"),
        pytest.param('{"a": "' + "[" * 1000 + '"}', True, id="brackets in a text"),
        pytest.param('{"a": "\\"' + "[" * 1000 + '"}', True, id="brackets behind an escaped quote"),
        pytest.param("[" * 101 + '\\"' * 200_000, False, id="many quotes that nothing closes"),
        pytest.param('{"a": ' + "9" * 10_000 + "}", True, id="a number longer than the interpreter converts"),
    ],
)
def test_what_counts_as_an_object_depends_on_nothing_but_the_text(arguments: str, expected: bool) -> None:
    """Depth and length have bounds of our own, not those of the interpreter and its stack."""
    assert expected == is_object(arguments)
    assert call_signature("f", arguments, 10).startswith("f(")


WRITTEN = '{"a": [1, -2.5e3, "\\u00e9\\ud800\\n", {"b": null}], "c": 0.10, "d": NaN} '


@given(
    place=st.integers(0, len(WRITTEN)),
    gone=st.integers(0, 12),
    put=st.text('{}[]",:01.eE+-\\u /tn\0\x0b', max_size=3),
)
def test_a_text_is_an_object_if_a_reader_of_json_says_so(place: int, gone: int, put: str) -> None:
    """However it is written, and whichever reader is asked first: what one takes for an object the other
    does.
    """
    text = WRITTEN[:place] + put + WRITTEN[place + gone :]
    try:
        expected = isinstance(json.loads(text), dict)
    except ValueError:
        expected = text == ""
    assert expected == is_object(text)
