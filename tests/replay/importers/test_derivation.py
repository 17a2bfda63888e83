"""Items in, a log out: what the machine is told, in which order, and that it decides the rest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.events import (
    ContextObserved,
    Diagnosed,
    Event,
    ModelRequested,
    RunStarted,
    SourceRecorded,
    ToolReturned,
    kind_of,
)
from refold.reducers.evolution import evolve
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message
from refold.reducers.state import NEW
from refold.reducers.views import remembered, view
from refold.reducers.vocabulary import FailureClass, Role, Unknown
from refold.replay.importers.derivation.derivation import Fit
from refold.replay.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    Said,
    Unread,
)
from support.told import (
    END,
    answered,
    audited,
    began,
    derived,
    events,
    kinds,
    prompted,
    reply,
    result,
    returned,
    said,
    shown,
    system,
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


TALK = [began(system("s")), said("task"), answered("a", "1:x"), returned("1", "o")]
SHOWN = [system("s"), user("task"), reply("a", "7:x"), result("7", "o")]


@pytest.mark.parametrize(
    ("prompt", "fit", "observed"),
    [
        pytest.param(SHOWN, Fit(equal=1), 0, id="the same: nothing is told"),
        pytest.param([SHOWN[0], SHOWN[1]], Fit(changed=1), 1, id="a reply and its result dropped"),
        pytest.param(
            [SHOWN[1], *SHOWN[2:]], Fit(changed=1), 1, id="the system prompt dropped, pinned or not"
        ),
        pytest.param(
            [*SHOWN, user("hurry")], Fit(changed=1), 1, id="something said that nothing else records"
        ),
        pytest.param([SHOWN[0], user("sum"), *SHOWN[2:]], Fit(changed=1), 1, id="replaced in the middle"),
        pytest.param(
            [*SHOWN[:2], SHOWN[2], result("7", "(cut)")], Fit(changed=1), 1, id="a result shown shorter"
        ),
        pytest.param(SHOWN[:3], Fit(unequal=1, halves=1), 1, id="a call without its result"),
        pytest.param([*SHOWN[:2], SHOWN[3]], Fit(unequal=1, halves=1), 1, id="a result without its call"),
        pytest.param([], Fit(changed=1), 1, id="nothing at all"),
    ],
)
def test_a_recorded_prompt(prompt: list[Message], fit: Fit, observed: int) -> None:
    """A prompt is compared with the view; only what differs is told, and then the view is the prompt."""
    items = [*TALK, prompted(*prompt), answered("b"), END]
    deriving, written = derived(items)
    assert fit == deriving.fit
    assert observed == kinds(written).count("context_observed")
    assert audited(written).clean
    last = max(each.seq for each in written if isinstance(each.event, ModelRequested))
    wanted = [(message.role, message.text) for message in prompt]
    assert bool(fit.halves) or wanted == shown(written, last)


def test_messages_of_a_prompt_that_were_said_are_not_told_twice() -> None:
    """A prompt that has what was said needs nothing but the message itself."""
    items = [
        *TALK,
        answered("b"),
        said("and?"),
        prompted(*SHOWN, reply("b"), user("and?")),
        answered("c"),
        END,
    ]
    deriving, written = derived(items)
    assert Fit(equal=1) == deriving.fit
    assert "context_observed" not in kinds(written)


def test_what_waits_for_a_batch_to_end_is_remembered() -> None:
    """Who keeps only the words that are needed still has, at the request, those that joined while a call was under way."""
    items = [*TALK[:3], said("hook", by="hook"), TALK[3], answered("b"), END]
    state, contents, shown_then = NEW, dict[int, Event](), list[str]()
    for seq, event in enumerate(events(derived(items)[1]), start=1):
        state = evolve(state, event)
        contents = remembered(state, {**contents, seq: event})
        if isinstance(event, ModelRequested):
            shown_then = [message.text for message in view(state, contents)]
    assert ["s", "task", "a", "o", "hook"] == shown_then


def test_a_nudge_that_is_said_anew_each_time_moves_alone() -> None:
    """What a harness takes out and says again at the end leaves the replies where they are."""
    first = [began(), prompted(user("task"), user("nudge")), answered("a", "1:x"), returned("1", "o")]
    prompt = prompted(user("task"), reply("a", "1:x"), result("1", "o"), user("nudge"))
    _, written = derived([*first, prompt, answered("b"), END])
    change = next(each for each in events(written) if isinstance(each, ContextObserved))
    assert ((1, 1), (3, 4)) == change.kept
    assert change.content is not None
    assert ["nudge"] == [message.text for message in change.content.messages]


def test_the_first_prompt_begins_the_run() -> None:
    """What was said before the first answer, and the prompt has not, is kept beside."""
    _, written = derived([began(), said("hidden"), prompted(user("task")), answered("a"), END])
    start = events(written)[0]
    assert isinstance(start, RunStarted)
    assert start.content is not None
    assert ["task"] == [message.text for message in start.content.messages]
    assert ["not_shown"] == [each.code for each in events(written) if isinstance(each, Diagnosed)]


def test_the_task_is_the_persons_first_message() -> None:
    """What a harness says before the person is no task."""
    _, written = derived([began(), said("boilerplate", by="harness"), said("task"), answered("a"), END])
    start = events(written)[0]
    assert isinstance(start, RunStarted)
    assert 1 == start.task


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


TEXTS = st.sampled_from(["a", "b", "c", "\ud800", ""])
IDS = st.sampled_from(["", "1", "2", "3"])
TIMES = st.one_of(st.none(), st.integers(0, 50))
CALLS_ = st.lists(st.builds(lambda given, name: f"{given}:{name}", IDS, st.sampled_from("xy")), max_size=3)
MESSAGES = st.lists(
    st.one_of(
        st.builds(user, TEXTS),
        st.builds(system, TEXTS),
        st.builds(lambda text, calls: reply(text, *calls), TEXTS, CALLS_),
        st.builds(result, IDS, TEXTS),
    ),
    max_size=6,
)
ITEMS: st.SearchStrategy[Item] = st.one_of(
    st.builds(
        Said,
        position=st.just("s"),
        at=TIMES,
        text=TEXTS,
        role=st.sampled_from(Role),
        by=st.sampled_from(["user", "hook"]),
    ),
    st.builds(lambda text, calls, at: answered(text, *calls, at=at), TEXTS, CALLS_, TIMES),
    st.builds(
        Returned, position=st.just("r"), at=TIMES, id=IDS, output=TEXTS, name=st.sampled_from(["", "x", "z"])
    ),
    st.builds(
        lambda messages, why: prompted(*messages, why=why),
        MESSAGES,
        st.sampled_from(["prompt", "compaction"]),
    ),
    st.builds(
        RequestFailed,
        position=st.just("f"),
        at=TIMES,
        failure=st.sampled_from(FailureClass),
        partial_text=TEXTS,
    ),
    st.just(STOPPED),
    st.builds(Remarked, position=st.just("m"), at=TIMES, what=st.sampled_from(["hook", "unmapped"])),
    st.builds(Unread, position=st.just("u"), code=st.just("odd"), problem=TEXTS),
)


@given(items=st.lists(ITEMS, max_size=25), messages=MESSAGES)
def test_any_items_make_a_log_that_stands(items: list[Item], messages: list[Message]) -> None:
    """Whatever a source says, in whatever order: the log audits clean, and each answer and failure is a fact of it."""
    deriving, written = derived([began(*messages), *items, END])
    assert audited(written).clean
    counts: dict[str, Any] = {"model_responded": Answered, "retry_scheduled": RequestFailed}
    for kind, item in counts.items():
        assert sum(isinstance(each, item) for each in items) == kinds(written).count(kind)
    assert "no_place" not in {problem.code for problem in deriving.problems}


@given(items=st.lists(ITEMS, max_size=25))
def test_every_item_is_in_the_log(items: list[Item]) -> None:
    """Each item has its place in the log: as a fact's origin, a remark, a diagnosis or a compared prompt."""
    _, written = derived([began(), *items, END])
    notes = [each for each in events(written) if isinstance(each, SourceRecorded | Diagnosed)]
    told = [note.position for note in notes if isinstance(note, SourceRecorded) and note.what != "implied"]
    for kind, position in ((Said, "s"), (Remarked, "m"), (RequestFailed, "f")):
        assert sum(isinstance(each, kind) for each in items) == told.count(position), kind
    assert sum(isinstance(each, Prompted) for each in items) <= told.count("prompt")
    assert sum(isinstance(each, Unread) for each in items) == sum(
        isinstance(note, Diagnosed) and note.code == "odd" for note in notes
    )


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
