"""Items in, a log out: what the machine is told, in which order, and that it decides the rest."""

import pytest

from refold.importers.items import (
    Cancelled,
    Item,
    Remarked,
    RequestFailed,
)
from refold.reducers.events import (
    SourceRecorded,
    ToolReturned,
    kind_of,
)
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import FailureClass, Role, Unknown
from support.told import (
    END,
    answered,
    audited,
    began,
    derived,
    events,
    kinds,
    returned,
    said,
    user,
)

STARTED = ["run_started", "model_requested"]
WAITS = ["model_responded", "state_changed"]
CALLS = ["model_responded", "tools_dispatched", "state_changed"]
ASKED_AGAIN = ["state_changed", "model_requested"]
FAILED = RequestFailed(position="failed", failure=FailureClass.OVERLOADED, message="busy")
STOPPED = Cancelled(position="stopped", reason="by hand")


@pytest.mark.parametrize(
    ("items", "log"),
    [
        pytest.param([answered("hi")], [*STARTED, *WAITS], id="an answer ends a turn, and waits"),
        pytest.param([], ["run_started", "state_changed"], id="a run without an answer asked for none"),
        pytest.param(
            [answered("a", "1:x"), returned("1", "o")],
            [*STARTED, *CALLS, "tool_returned", "state_changed", "state_changed"],
            id="after the last result of a source nothing was asked",
        ),
        pytest.param(
            [answered("a", "1:x"), said("and?"), returned("1", "o")],
            [*STARTED, *CALLS, "context_observed", "tool_returned", "state_changed", "state_changed"],
            id="nor after what a person said meanwhile",
        ),
        pytest.param(
            [answered("a"), said("and?"), said("note", Role.SYSTEM, "harness")],
            [*STARTED, *WAITS, "context_observed", "state_changed", "state_changed"],
            id="nor after what the harness said behind it",
        ),
        pytest.param(
            [answered("a"), FAILED],
            [*STARTED, *WAITS, "context_observed", *ASKED_AGAIN, "model_failed", "retry_scheduled"],
            id="a failure shows that it was asked, and at the end not that it was asked again",
        ),
        pytest.param(
            [answered("a", "1:x", "2:y"), returned("2", "o2"), returned("1", "o1"), answered("b")],
            [*STARTED, *CALLS, "tool_returned", "tool_returned", *ASKED_AGAIN, *WAITS],
            id="results of a batch in their own order, then the model is asked once",
        ),
        pytest.param(
            [answered("a"), said("and?"), answered("b")],
            [*STARTED, *WAITS, "input_received", *ASKED_AGAIN, *WAITS],
            id="a person's message begins a turn",
        ),
        pytest.param(
            [answered("a"), said("hook", by="hook"), said("and?"), answered("b")],
            [*STARTED, *WAITS, "context_observed", "input_received", *ASKED_AGAIN, *WAITS],
            id="what is said before it joins first",
        ),
        pytest.param(
            [answered("a"), said("and?"), said("note", Role.SYSTEM, "harness"), answered("b")],
            [*STARTED, *WAITS, "context_observed", *ASKED_AGAIN, *WAITS],
            id="what is said last, by no person, is observed: and the model is asked",
        ),
        pytest.param(
            [answered("a"), answered("b")],
            [*STARTED, *WAITS, "context_observed", *ASKED_AGAIN, *WAITS],
            id="an answer right after an answer: the model was asked again",
        ),
        pytest.param(
            [answered("a", "1:x"), said("hook", by="hook"), returned("1", "o"), answered("b")],
            [*STARTED, *CALLS, "context_observed", "tool_returned", *ASKED_AGAIN, *WAITS],
            id="what is said while a call is under way joins before the model is asked",
        ),
        pytest.param(
            [answered("a", "1:x", "2:y"), returned("1", "o"), said("go on"), answered("b")],
            [
                *STARTED,
                *CALLS,
                *["tool_returned", "tool_returned", "state_changed", "state_changed", "diagnosed"],
                "input_received",
                *ASKED_AGAIN,
                *WAITS,
            ],
            id="a call without a result is missed once a person goes on, before what they said",
        ),
        pytest.param(
            [
                answered("a", "1:x"),
                returned("1", "o"),
                said("note", by="harness"),
                said("so?"),
                answered("b"),
            ],
            [
                *STARTED,
                *CALLS,
                *["tool_returned", "state_changed", "state_changed"],
                *["context_observed", "input_received"],
                *ASKED_AGAIN,
                *WAITS,
            ],
            id="a result that stands before what a person said is told before it",
        ),
        pytest.param(
            [answered("a", "1:x", "2:y"), returned("1", "o"), STOPPED, answered("b")],
            [
                *STARTED,
                *CALLS,
                *["tool_returned", "tool_returned", "state_changed", "state_changed"],
                "context_observed",
                *ASKED_AGAIN,
                *WAITS,
            ],
            id="what a person stopped is cancelled there, and the model asked again behind it",
        ),
        pytest.param(
            [answered("a", "1:x", "2:y"), returned("1", "o"), answered("b")],
            [*STARTED, *CALLS, "tool_returned", "tool_returned", *ASKED_AGAIN, "diagnosed", *WAITS],
            id="where nobody came between, the model is asked behind what is missing",
        ),
        pytest.param(
            [answered("a", "1:x", "2:y"), returned("1", "o")],
            [*STARTED, *CALLS, "tool_returned"],
            id="at the end it stays open",
        ),
        pytest.param(
            [answered("a"), returned("9", "o")],
            [*STARTED, *WAITS, "diagnosed"],
            id="a result without a call is a diagnosis",
        ),
        pytest.param(
            [FAILED, answered("a")],
            [*STARTED, "model_failed", "retry_scheduled", "clock_read", "model_requested", *WAITS],
            id="after a failure the model is asked again at once",
        ),
        pytest.param(
            [FAILED, said("again?"), answered("a")],
            [
                *STARTED,
                "model_failed",
                "retry_scheduled",
                "context_observed",
                "clock_read",
                "model_requested",
                *WAITS,
            ],
            id="what is said after a failure is in the next attempt",
        ),
        pytest.param(
            [answered("a", "1:x"), returned("1", "o"), STOPPED],
            [*STARTED, *CALLS, "tool_returned", *["state_changed"] * 2, "cancel_requested", "state_changed"],
            id="stopped at the end: the run is cancelled, and nothing more is asked",
        ),
        pytest.param(
            [answered("a", "1:x"), STOPPED],
            [*STARTED, *CALLS, "cancel_requested", "tool_returned", "state_changed"],
            id="stopped with a call under way",
        ),
        pytest.param(
            [answered("a"), said("and?"), STOPPED],
            [
                *STARTED,
                *WAITS,
                "input_received",
                *ASKED_AGAIN,
                "cancel_requested",
                "model_failed",
                "state_changed",
            ],
            id="stopped while the model was asked",
        ),
        pytest.param(
            [answered("a"), STOPPED, said("no, go on"), answered("b")],
            [*STARTED, *WAITS, "input_received", *ASKED_AGAIN, *WAITS],
            id="stopped, and gone on: the run is not over",
        ),
        pytest.param(
            [answered("a"), said("and?")],
            [*STARTED, *WAITS, "input_received", "state_changed", "state_changed"],
            id="a prompt without an answer asked for none",
        ),
        pytest.param(
            [answered("a"), said("/exit", by="harness")],
            [*STARTED, *WAITS, "context_observed"],
            id="what the harness says last asks for nothing",
        ),
    ],
)
def test_what_is_told(items: list[Item], log: list[str]) -> None:
    """Each rule of what stands between two answers, as a log."""
    _, written = derived([began(), said("task"), *items, END])
    assert log == kinds(written)
    assert audited(written).clean


@pytest.mark.parametrize(
    ("results", "pairs", "codes"),
    [
        pytest.param([("2", ""), ("1", "")], ["c2", "c1"], [], id="by id"),
        pytest.param([("", ""), ("", "")], ["c1", "c2"], [], id="without ids in order"),
        pytest.param([("", "y"), ("", "x")], ["c2", "c1"], [], id="without ids by name"),
        pytest.param([("9", ""), ("2", "")], ["c1", "c2"], ["paired_by_order"], id="an unknown id, in order"),
        pytest.param(
            [("1", ""), ("1", "")], ["c1"], ["result_repeated", "result_missing"], id="one id twice"
        ),
        pytest.param(
            [("1", ""), ("2", ""), ("3", "")], ["c1", "c2"], ["result_without_call"], id="one too many"
        ),
        pytest.param([("1", "z"), ("2", "y")], ["c1", "c2"], ["other_tool"], id="by id, of another tool"),
    ],
)
def test_pairing(results: list[tuple[str, str]], pairs: list[str], codes: list[str]) -> None:
    """A result finds its call by id, else by order, and whatever is odd in that is said."""
    told = [returned(given, f"o{place}", name) for place, (given, name) in enumerate(results)]
    deriving, written = derived(
        [began(), said("task"), answered("a", "1:x", "2:y"), *told, answered("b"), END]
    )
    facts = [
        each
        for each in events(written)
        if isinstance(each, ToolReturned) and Unknown.RESULT not in each.unknown
    ]
    assert pairs == [fact.call for fact in facts]
    assert sorted(codes) == sorted(problem.code for problem in deriving.problems)


def test_repeated_ids_pair_in_order() -> None:
    """Two calls of one id get their results in order: ours are told apart."""
    _, written = derived(
        [began(), said("t"), answered("a", "1:x", "1:x"), returned("1", "o1"), returned("1", "o2"), END]
    )
    facts = [each for each in events(written) if isinstance(each, ToolReturned)]
    assert [("c1", "o1"), ("c2", "o2")] == [
        (fact.call, fact.content and fact.content.output) for fact in facts
    ]


def test_time_never_runs_backwards() -> None:
    """An event is never before the one before it; the source's own time stands beside it."""
    items = [began(at=50), said("t", at=40), answered("a", at=90), said("u", at=60), answered("b", at=100)]
    _, written = derived([*items, END])
    instants = [each.at for each in written]
    assert sorted(instants) == instants
    assert 40 == instants[0]
    notes = [
        each.content.text for each in events(written) if isinstance(each, SourceRecorded) and each.content
    ]
    assert '{"at":60}' in notes


@pytest.mark.parametrize(
    ("at", "noted"),
    [
        pytest.param(7, ['{"at":7}'], id="at the very instant of what came before"),
        pytest.param(8, [], id="later: the log's own time says so"),
        pytest.param(None, [], id="at no known time"),
    ],
)
def test_a_fact_at_the_instant_before_it_says_whether_that_is_known(at: int | None, noted: list[str]) -> None:
    """Of a fact with which time stands still, the source's own time stands beside it if there is one."""
    _, written = derived([began(user("t"), at=5), answered("", "a:ls", at=7), returned("a", "x", at=at), END])
    result = next(seq for seq, each in enumerate(events(written), 1) if isinstance(each, ToolReturned))
    notes = [each for each in events(written) if isinstance(each, SourceRecorded) and each.seq == result]
    assert noted == [note.content.text for note in notes if note.content]


def test_every_fact_says_where_it_stood() -> None:
    """Behind each fact, before the next, stands its place in the source."""
    items = [began(), said("t"), answered("a", "1:x"), returned("1", "o"), answered("b"), said("u"), END]
    _, written = derived(items)
    read = events(written)
    facts = [
        seq
        for seq, each in enumerate(read, start=1)
        if kind_of(each) in ("tool_returned", "model_responded", "input_received", "run_started")
    ]
    placed = {each.seq for each in read if isinstance(each, SourceRecorded) and not each.what}
    assert set(facts) == placed
    assert {"head", "said t", "answer a", "result o", "answer b", "said u"} == {
        each.position for each in read if isinstance(each, SourceRecorded) and not each.what
    }


def test_what_the_source_decided_is_kept_beside() -> None:
    """Remarks and the source's own end are annotations, in their words."""
    remark = Remarked(position="line 3", what="compaction", rest='{"by":"auto"}')
    _, written = derived([began(), said("t"), remark, answered("a"), END])
    notes = {each.what: each for each in events(written) if isinstance(each, SourceRecorded) and each.what}
    assert {"compaction", "end:finished"} == set(notes)
    content = notes["compaction"].content
    assert content is not None
    assert '{"by":"auto"}' == content.text


def test_a_cancelled_run_is_cancelled() -> None:
    """A source that ends with a person's stop is derived to be CANCELLED."""
    deriving, _ = derived([began(), said("t"), answered("a"), STOPPED, END])
    assert AgentState.CANCELLED is deriving.state.agent_state


HEAD = Remarked(position="head", at=1, what="unmapped")


@pytest.mark.parametrize(
    ("items", "at"),
    [
        pytest.param([HEAD, began(at=2), said("<env>", by="harness", at=3), said("go", at=9), answered("hi", at=10)], 9, id="with the person's first message"),
        pytest.param([HEAD, began(at=2), said("go", at=9), answered("hi", at=8)], 8, id="no later than the answer to it"),
        pytest.param([HEAD, began(user("go"), at=2), said("and", at=9), answered("hi", at=10)], 2, id="what heads a run and holds a message is one"),
        pytest.param([HEAD, began(), said("go on", by="harness", at=3), answered("hi", at=10)], 3, id="without a person, with what was said first"),
        pytest.param([HEAD, began()], 1, id="where nothing was said, with what was noted"),
        pytest.param([began(), said("go"), answered("hi")], 0, id="at no known time"),
    ],
)  # fmt: skip
def test_when_a_run_began(items: list[Item], at: int) -> None:
    """A run begins when its model could first be asked, whatever its harness noted before."""
    assert at == derived([*items, END])[1][0].at


def test_what_was_noted_before_a_run_keeps_its_own_time() -> None:
    """The time of what stands before the beginning is kept beside it."""
    _, log = derived([began(), HEAD, said("go", at=9), answered("hi", at=10), END])
    (noted,) = [
        event for event in events(log) if isinstance(event, SourceRecorded) and event.what == "unmapped"
    ]
    assert (9, '{"at":1}') == (noted.at, noted.content and noted.content.text)
