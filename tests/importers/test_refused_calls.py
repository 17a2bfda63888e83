"""Calls that the harness of an imported run refused: never dispatched, and read as refused everywhere."""

from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import pytest
from msgspec.structs import replace

from refold.importers.items import Item, Remarked, Returned
from refold.reducers import composition
from refold.reducers.composition import forked
from refold.reducers.effects import next_effects
from refold.reducers.errors import UnexpectedEvent, WrongUse
from refold.reducers.events import (
    FORMAT,
    Answer,
    Event,
    ModelResponded,
    RunForked,
    RunStarted,
    ToolReturned,
    ToolsDispatched,
)
from refold.reducers.folds import advance, fold
from refold.reducers.messages import Message, ReplyCall
from refold.reducers.parser import parse
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Refuser, Role, StopReason
from refold.replay import known
from refold.replay.kinds.table import remark, sentence
from refold.replay.queries.stats import Counter
from refold.replay.timeline import Teller, TurnRow, tally
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict
from support import claude_code
from support.following import shown as followed
from support.told import END, answered, audited, began, derived, events, returned, said, shown
from support.transcribed import every, tally_of

SALT = b"salt"
CALLS = ("1", "2", "3")
SUBSETS = [tuple(place for place in range(3) if chosen[place]) for chosen in product((False, True), repeat=3)]


def _result(call: str, refused: Sequence[int]) -> Item:
    return returned(call, f"o{call}", by=Refuser.HOOK if int(call) - 1 in refused else None)


@pytest.mark.parametrize("refused", SUBSETS, ids=str)
def test_a_refused_call_is_never_dispatched(refused: Sequence[int]) -> None:
    """Of any batch, with results in any order, exactly the other calls are dispatched; the model sees every
    result.
    """
    for order in permutations(CALLS):
        results = [_result(call, refused) for call in order]
        items = [answered("a", *(f"{call}:x" for call in CALLS)), *results, answered("b")]
        deriving, written = derived([began(), said("t"), *items, END])
        log = events(written)
        dispatched = [call for event in log if isinstance(event, ToolsDispatched) for call in event.calls]
        outcomes = {event.call: known.outcome(event) for event in log if isinstance(event, ToolReturned)}
        wanted = {f"c{place + 1}": "refused" if place in refused else "ok" for place in range(3)}
        assert [call for call, outcome in wanted.items() if outcome == "ok"] == dispatched
        assert wanted == outcomes
        assert [(Role.TOOL, f"o{call}") for call in CALLS] == shown(written)[2:5]
        assert deriving.problems == []
        assert audited(written).clean


def test_who_refused_it_is_recorded() -> None:
    """The result names who refused the call, in its words and in what readers say of it."""
    for refuser in Refuser:
        _, written = derived([began(), said("t"), answered("a", "1:x"), returned("1", "no", by=refuser), END])
        fact = next(event for event in events(written) if isinstance(event, ToolReturned))
        assert (refuser, None) == (fact.refused_by, fact.error)
        assert f"c1 refused by its harness ({refuser})" == remark(fact)
        assert sentence(fact).startswith(f"c1 refused by its harness ({refuser}), ")


def test_what_stands_between_an_answer_and_its_refusals_changes_nothing() -> None:
    """Words of a person, of a hook and remarks before the result leave the call refused."""
    for between in ([said("no!")], [said("hook", by="hook")], [Remarked(position="r", what="hook")] * 9):
        items = [answered("a", "1:x"), *between, returned("1", "no", by=Refuser.USER), answered("b")]
        _, written = derived([began(), said("t"), *items, END])
        assert "tools_dispatched" not in {type(event).__struct_config__.tag for event in events(written)}


LOG = [
    began(),
    said("t"),
    answered("a", "1:x", "2:x"),
    returned("1", "no such file", by=Refuser.HOOK),
    returned("2", "fine"),
    answered("b"),
    END,
]


def test_readers_call_it_refused() -> None:
    """Turns, the line of a run, statistics and the line of the answer count it as refused, as neither success
    nor failure.
    """
    log = events(derived(LOG)[1])
    rows = list[TurnRow]()
    rows += followed(Teller(rows.append), log)
    assert [("refused", None), ("ok", False)] == [(call.result, call.failed) for call in rows[0].calls]
    assert "1 refused" in tally(rows)
    stats = followed(Counter(), log)
    tool = stats.tools["x"]
    assert (1, 1, {}, 0) == (tool.returned, tool.refused, tool.errors, tool.unmarked)
    assert {"its harness (hook)": 1} == stats.refusals
    answer = next(event for event in log if isinstance(event, ModelResponded))
    assert "c1 x (refused)" in sentence(answer)
    assert "c2 x (refused)" not in sentence(answer)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"limits": [{"type": "step", "value": 9}]}, id="steps"),
        pytest.param({"guards": [{"guard": "errors", "rounds": 1}]}, id="no failure"),
        pytest.param({"premature_end": {}}, id="no failure that an end must answer"),
        pytest.param({"texts": {"raised": "no"}}, id="no error with words of ours"),
        pytest.param(
            {"guards": [{"guard": "arguments", "matches": "z"}]}, id="a rule that it does not break"
        ),
    ],
)
def test_what_if_of_a_refused_call(policy: dict[str, Any]) -> None:
    """Another policy judges a refused call as one that never ran."""
    found = followed(Comparison("r1", parse({"preset": "observed", **policy})), events(derived(LOG)[1]))
    assert (Verdict.AGREE, ()) == (found.verdict, tuple(found.unknown))


@pytest.mark.parametrize("by", [None, Refuser.HOOK], ids=["it ran", "it was refused"])
def test_a_tool_that_ends_the_run_must_have_run(by: Refuser | None) -> None:
    """`stop_on_tool` ends a run by a call that ran, and by none that was refused."""
    items = [answered("a", "1:x"), returned("1", "no", by=by), answered("b")]
    log = events(derived([began(), said("t"), *items, END])[1])
    policy = parse({"preset": "observed", "guards": [{"guard": "stop_on_tool", "tools": ["x"]}]})
    found = followed(Comparison("r1", policy), log)
    assert (Verdict.STOPS if by is None else Verdict.AGREE) is found.verdict


def _asked(policy: dict[str, Any], refused: Sequence[int]) -> tuple[RunState, list[Event]]:
    started = RunStarted(
        format=FORMAT, at=1, run="r", rules=RULES, policy=parse({"preset": "observed", **policy}), model="m"
    )
    began = composition.started(started, [Message(role=Role.USER, text="t")], SALT)
    state, log = advance(NEW, began)
    assert state.request is not None
    answer = ModelResponded(at=2, request=state.request.seq, stop=StopReason.TOOL_USE)
    calls = [ReplyCall(name="x", arguments="{}", provider_id=call) for call in CALLS]
    fact = composition.responded(state, answer, Answer(text="a"), calls, SALT)
    marked = tuple(replace(call, refused=place in refused) for place, call in enumerate(fact.calls))
    state, more = advance(state, replace(fact, calls=marked))
    return state, [*log, *more]


def _ended(state: RunState, call: int, by: Refuser | None) -> tuple[RunState, tuple[Event, ...]]:
    fact = ToolReturned(at=3, call=f"c{call + 1}", refused_by=by)
    return advance(state, composition.returned(state, fact, "o", "x", "", SALT))


@pytest.mark.parametrize("batch", ["parallel", "in_order"])
@pytest.mark.parametrize("refused", SUBSETS, ids=str)
def test_the_machine_waits_for_refusals_and_runs_the_rest(refused: Sequence[int], batch: str) -> None:
    """Whatever the order of dispatch, each other call runs once, no refused one does, and then the model is
    asked.
    """
    state, log = _asked({"batch": batch}, refused)
    for _ in CALLS:
        assert state.batch is not None
        running = [call.position for call in state.batch.calls if call.dispatched and not call.result]
        waiting = [call.position for call in state.batch.calls if call.refused and not call.result]
        assert {f"c{place + 1}" for place in running} == {
            getattr(each, "call", "") for each in next_effects(state)
        }
        place = (running or waiting)[0]
        state, more = _ended(state, place, Refuser.RULE if place in refused else None)
        log += more
    dispatched = [call for event in log if isinstance(event, ToolsDispatched) for call in event.calls]
    assert [f"c{place + 1}" for place in range(3) if place not in refused] == dispatched
    assert state.request is not None
    assert state == fold(log)


def test_a_log_that_contradicts_a_refusal_is_refused() -> None:
    """A refused call can neither be dispatched nor return without naming who refused it."""
    state, _ = _asked({}, (0, 1, 2))
    with pytest.raises(UnexpectedEvent, match="c1 was refused"):
        _ended(state, 0, None)
    with pytest.raises(UnexpectedEvent, match="c1 was refused"):
        fold([ToolsDispatched(calls=("c1",))], state)


def test_no_fork_before_the_words_of_a_refusal() -> None:
    """A fork between an answer and the refusal of its call would never get the call's result."""
    state, _ = _asked({}, (1,))
    fork = RunForked(at=4, run="f", rules=RULES, parent="r", parent_seq=state.seq, parent_hash="")
    with pytest.raises(WrongUse, match="refused call c2"):
        forked(state, fork, "", SALT)
    with pytest.raises(UnexpectedEvent, match="no result yet"):
        fold([fork], state)
    after, _ = _ended(state, 1, Refuser.USER)
    assert () == forked(after, replace(fork, parent_seq=after.seq), "", SALT).results


NO = "The user doesn't want to proceed with this tool use. The tool use was rejected (…)."
INSTEAD = f"{NO} To tell you how to proceed, the user said:\nno"
ABORTED = "Permission prompt was aborted."
NEVER = "Permission to use Bash with command rm x has been denied."


@pytest.mark.parametrize(
    ("content", "kind", "by"),
    [
        pytest.param(INSTEAD, "", Refuser.USER, id="rejected, with words"),
        pytest.param(ABORTED, "", Refuser.USER, id="a permission prompt that nobody answered"),
        pytest.param(NEVER, "", Refuser.RULE, id="a rule's words"),
        pytest.param("no", "permission-rule", Refuser.RULE, id="a rule"),
        pytest.param("no", "automode-blocked", Refuser.CLASSIFIER, id="a classifier"),
        pytest.param(NO, "user-rejected", None, id="rejected, or stopped while it ran"),
        pytest.param(NO, "interrupted", None, id="stopped while it ran"),
    ],
)
def test_claude_code_denials(content: str, kind: str, by: Refuser | None) -> None:
    """A call is refused where its row shows that it never ran: a bare rejection may also have stopped it
    while it ran.
    """
    more = {"toolDenialKind": kind} if kind else {}
    denied = claude_code.read({**claude_code.result("r", "a", "t", content, is_error=True), **more})
    assert (by, 1) == (every(denied, Returned)[0].refused_by, tally_of(denied).tool_errors)
    unmarked = claude_code.read({**claude_code.result("r", "a", "t", content), **more})
    assert None is every(unmarked, Returned)[0].refused_by
