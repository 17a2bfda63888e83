"""Guards in whole runs, and the laws that hold for each of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import codec
from refold.reducers.checkpoint import encoded
from refold.reducers.events import KINDS, Event, Manifest, MessageTrimmed, RunForked, ToolReturned
from refold.reducers.folds import fold
from refold.reducers.guards import BUILTIN, Stop
from refold.reducers.guards.premature_end import PrematureEnd
from refold.reducers.parser import parse
from refold.reducers.state import NEW
from refold.reducers.texts import TEXTS
from refold.reducers.views import view
from refold.reducers.vocabulary import Role, ToolError
from support.scenario import TOOLS, Scenario
from support.strategies import events
from support.transcript import check
from support.watching import Watching

MORE = (*TOOLS, *(Manifest(name=name) for name in ("submit", "bash", "acp_terminal", "transfer_to_a")))
LOOK, ACT = ("look", "{}"), ("act", "{}")


def run(*guards: dict[str, Any], **policy: Any) -> Scenario:
    return Scenario({"guards": list(guards), **policy}, tools=MORE)


def test_keywords_at_once() -> None:
    """A keyword completes the run before anything else is asked; the calls beside it are refused."""
    check(
        run({"guard": "keywords", "words": ["done"]}, {"guard": "repetition", "repeats": 0}),
        """
        >> answer("all DONE now", ("look", "{}"))
        guard_tripped guard=keywords verdict=stop code=keyword saw={word:1}
        call_refused call=c1 why=skipped cause=guard name=keywords text=refused:stopped
        state_changed from=RUNNING to=COMPLETED trigger=complete code=keyword
        """,
    )


def test_keywords_after_the_tools() -> None:
    """With `after_tools` the calls run first; an answer without calls ends at once."""
    guard = {"guard": "keywords", "words": ["done"], "when": "after_tools"}
    scenario = run(guard, end_of_turn="continue")
    scenario.answer("done", LOOK)
    assert (
        "state_changed from=RUNNING to=COMPLETED trigger=complete code=keyword" == scenario.result("c1")[-1]
    )
    assert (
        "state_changed from=RUNNING to=COMPLETED trigger=complete code=keyword"
        == run(guard, end_of_turn="continue").answer("done")[-1]
    )


def test_stop_on_tool_now_in_a_run() -> None:
    """The call and those before it run, those after it are refused, and then the run is complete."""
    check(
        run({"guard": "stop_on_tool", "tools": ["submit"], "when": "now"}),
        """
        >> answer("", ("look", "{}"), ("submit", "{}"), ("act", "{}"))
        call_refused call=c3 why=skipped cause=guard name=stop_on_tool text=refused:stop_tool code=stop_tool
        tools_dispatched calls=[c1 c2]
        state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use
        >> result("c1")
        >> result("c2")
        state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done
        guard_tripped guard=stop_on_tool verdict=stop code=stop_tool saw={calls:1}
        state_changed from=RUNNING to=COMPLETED trigger=complete code=stop_tool
        """,
    )


def test_a_skipped_call_does_not_end_the_run() -> None:
    """A call that a handoff pushed aside was not run: what its tool would have ended goes on."""
    scenario = run({"guard": "stop_on_tool", "tools": ["submit"]}, {"guard": "handoff"})
    scenario.answer("", ("submit", "{}"), ("transfer_to_a", "{}"))
    assert "model_requested" == scenario.result("c2")[-1].split()[0]


def test_handoff_and_one_call_in_either_order() -> None:
    """The handoff goes on, whichever of the two guards is asked first."""
    for guards in (("handoff", "one_call"), ("one_call", "handoff")):
        scenario = run(*({"guard": guard} for guard in guards))
        lines = scenario.answer("", LOOK, ("transfer_to_a", "{}"), ACT)
        refused = [line.split()[1:5] for line in lines if line.startswith("call_refused")]
        assert [
            ["call=c1", "why=skipped", "cause=guard", "name=handoff"],
            ["call=c3", "why=skipped", "cause=guard", "name=handoff"],
        ] == refused
        assert "tools_dispatched calls=[c2]" in lines


def test_what_a_skip_records() -> None:
    """A skip is one event, with the promised metadata."""
    assert (
        "call_refused call=c2 why=skipped cause=guard name=one_call text=refused:one_call code=skipped metadata={pending:False "
        "selected_call_id:c1 skipped_function:act source:policy/one_call}"
        == run({"guard": "one_call"}).answer("", LOOK, ACT)[0]
    )


def test_errors_in_a_run() -> None:
    """The run ends in ERROR when the last result of the last batch is in."""
    scenario = run({"guard": "errors", "rounds": 1})
    scenario.answer("", LOOK, ACT)
    scenario.result("c2", error=ToolError.TIMEOUT)
    assert [
        "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done",
        "guard_tripped guard=errors verdict=stop code=consecutive_errors saw={allowed:1 batches:1}",
        "state_changed from=RUNNING to=ERROR trigger=fail code=consecutive_errors",
    ] == scenario.result("c1", error=ToolError.RAISED)


def test_loop_in_a_run() -> None:
    """Two batches of the same tools end the run after the second has run."""
    scenario = run({"guard": "loop", "window": 2})
    scenario.answer("", LOOK)
    scenario.result("c1")
    scenario.answer("", ("look", '{"other":1}'))
    assert not scenario.state.ended
    assert "code=loop_detected" in scenario.result("c2")[-1]


def test_tool_cap_in_a_run() -> None:
    """The batch that would go beyond the cap is refused, and the run ends."""
    scenario = run({"guard": "tool_cap", "tools": ["look"], "max": 1})
    assert [
        "guard_tripped guard=tool_cap verdict=stop code=stalled saw={allowed:1 calls:2}",
        "call_refused call=c1 why=skipped cause=guard name=tool_cap text=refused:tool_cap",
        "call_refused call=c2 why=skipped cause=guard name=tool_cap text=refused:tool_cap",
        "state_changed from=RUNNING to=ERROR trigger=fail code=stalled",
    ] == scenario.answer("", LOOK, LOOK)


def told(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("guard_tripped", "message_injected"))]


def test_read_only_and_pivot_in_a_run() -> None:
    """Both speak after the results and before the next request, and each only once."""
    scenario = run({"guard": "pivot", "failures": 1}, {"guard": "read_only", "name": "reads", "batches": 1})
    scenario.answer("", LOOK)
    assert [
        "guard_tripped guard=reads verdict=inject code=read_only saw={count:1}",
        "message_injected role=user text=read_only cause=guard name=reads",
    ] == told(scenario.result("c1"))
    scenario.answer("", LOOK, ("bash", "{}"))
    scenario.result("c2")
    assert [
        "guard_tripped guard=pivot verdict=inject code=pivot saw={allowed:1 batches:1}",
        "message_injected role=user text=pivot cause=guard name=pivot",
    ] == told(scenario.result("c3", "x: not found", error=ToolError.RAISED))
    scenario.answer("", ("bash", "{}"))
    assert [] == told(scenario.result("c4", "x: not found", error=ToolError.RAISED))


def test_stall_stops_in_a_run() -> None:
    """After the last allowed failure the next such call is refused, with its batch, and the run ends."""
    scenario = run({"guard": "stall", "stop": True, "exact_failure": [1, 1]})
    scenario.answer("", LOOK)
    scenario.result("c1", error=ToolError.RAISED)
    assert [
        "guard_tripped guard=stall verdict=stop code=stalled saw={count:1 part:exact_failure tool:look}",
        "call_refused call=c2 why=skipped cause=guard name=stall text=refused:stalled",
        "call_refused call=c3 why=skipped cause=guard name=stall text=refused:stalled",
        "state_changed from=RUNNING to=ERROR trigger=fail code=stalled",
    ] == scenario.answer("", ACT, LOOK)


def test_stall_warns_in_the_next_request_only() -> None:
    """The warning is a text of the request that follows the result: it is recorded there, and never kept."""
    scenario = run({"guard": "stall", "exact_failure": [1, 5]})
    scenario.answer("", LOOK)
    (request,) = scenario.result("c1", error=ToolError.RAISED)[-1:]
    assert "text:stall:exact_failure" in request
    messages = scenario.state.messages
    scenario.answer("", ACT)
    assert "stall:" not in scenario.result("c2")[-1]
    assert messages + 2 == scenario.state.messages


def test_stall_shows_a_repeated_result_shorter() -> None:
    """The later result is shown as a reference from then on; the log has it whole."""
    scenario = run({"guard": "stall", "stub": 4})
    for call in ("c1", "c2"):
        scenario.answer("", ACT)
        scenario.result(call, "the same words as ever, and so many of them that a reference is shorter")
    (trimmed,) = [event for event in scenario.log if isinstance(event, MessageTrimmed)]
    assert trimmed.content
    assert "the same result as that of call c1 of act" in trimmed.content.texts[0]
    contents = dict(enumerate(scenario.log, 1))
    first, second = [said.text for said in view(scenario.state, contents) if said.role is Role.TOOL]
    assert first.startswith("the same words")
    assert "c1" in second
    assert "same words" not in second


def test_premature_end_in_a_run() -> None:
    """A model that stops without a word after a failure is sent back, twice, and then let go."""
    scenario = run(premature_end={})
    scenario.answer("", LOOK)
    scenario.result("c1", error=ToolError.RAISED)
    for before in (0, 1):
        assert [
            f"guard_tripped guard=premature_end verdict=inject code=premature_end saw={{before:{before} failures:1}}",
            "message_injected role=user text=premature_end cause=guard name=premature_end",
        ] == told(scenario.answer(""))
    assert "state_changed from=RUNNING to=COMPLETED trigger=complete code=empty" == scenario.answer("")[-1]


CONFIGURED: dict[str, dict[str, Any]] = {
    "repetition": {"repeats": 1},
    "loop": {"window": 3},
    "errors": {"rounds": 1},
    "stall": {"stop": True, "exact_failure": [1, 2], "identical": [2, 3], "stub": 1},
    "tool_cap": {"tools": ["look"], "max": 1},
    "read_only": {"batches": 1},
    "pivot": {"tool": "look", "to": "act", "failures": 1},
    "keywords": {"words": ["zqx"]},
    "stop_on_tool": {"tools": ["act"], "when": "now"},
    "handoff": {"prefixes": ["act"]},
    "one_call": {},
    "arguments": {"tool": "a*", "matches": "zqx"},
}
GUARDS: list[Any] = [
    *(msgspec.convert({"guard": kind, **config}, BUILTIN[kind]) for kind, config in CONFIGURED.items()),
    PrematureEnd(marks=("zqx",)),
]
each_guard = pytest.mark.parametrize("guard", GUARDS, ids=[guard.kind for guard in GUARDS])


def test_every_guard_is_looked_at() -> None:
    """The laws below are asked of each guard that the registry has."""
    assert set(BUILTIN) == set(CONFIGURED)


@given(seen=st.lists(st.sampled_from(sorted(KINDS)).flatmap(events), max_size=6))
def test_a_guard_is_total(seen: list[Event]) -> None:
    """Whatever events it is shown, even out of place, it folds them and says what it says without an error."""
    for guard in GUARDS:
        own = guard.start()
        for event in seen:
            if type(event) in guard.observes:
                own = guard.observe(own, event)
                assert encoded(own)
        for place in guard.places:
            assert isinstance(list(guard.judge(own, NEW, place)), list)


@each_guard
@given(rounds=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=8), seed=st.randoms())
def test_the_order_of_arrival_does_not_matter(guard: Any, rounds: list[list[int]], seed: Any) -> None:
    """After each batch it remembers and says the same, in whatever order the results came."""
    ordered, shuffled = Watching(guard), Watching(guard)
    for ends in rounds:
        said = ["zqx" if 1 in ends else "", *[("look", "{}") if end % 2 else ("act", "{}") for end in ends]]
        ordered.answer(*said)  # type: ignore[arg-type]
        results = list(zip(shuffled.answer(*said), ends, strict=True))  # type: ignore[arg-type]
        for watching in (ordered, shuffled):
            for call, end in results:
                if end == 5:
                    watching.refuse(call)
                elif end < 5:
                    error = ToolError.RAISED if end > 2 else None
                    watching.result(call, "not found zqx" if end == 3 else "x" * 9, error)
            seed.shuffle(results)
        assert ordered.own == shuffled.own
        for place in guard.places:
            assert ordered.says(place) == shuffled.says(place)


@each_guard
def test_no_words_of_a_model_or_tool_are_said(guard: Any) -> None:
    """Nothing that a model or a tool said stands in a judgement: only numbers and names."""
    watching = Watching(guard)
    for _ in range(3):
        watching.round(
            ("look", '{"q":"zqx"}'),
            ("act", "zqx"),
            output="zqx not found",
            error=ToolError.RAISED,
            text="zqx",
        )
        watching.round(("look", '{"q":"zqx"}'), output="zqx", text="zqx")
        for place in guard.places:
            assert b"zqx" not in encoded([msgspec.to_builtins(said) for said in watching.says(place)])


@each_guard
def test_what_it_remembers_is_bounded(guard: Any) -> None:
    """A run twice as long makes no guard remember more, however many calls and tools there are."""
    sizes = []
    watching = Watching(guard)
    for turn in range(400):
        calls = [(f"tool{turn % 100 + 100}", f'{{"n":{turn + 1000}}}') for _ in range(3)]
        watching.round(*calls, error=ToolError.RAISED if turn % 2 else None, output=f"{turn + 1000}")
        if turn in (199, 399):
            sizes.append(len(encoded(watching.own)))
    assert sizes[1] <= sizes[0] + 20  # the digits of a count, and of a call's id


@each_guard
def test_events_that_do_not_concern_it_change_nothing(guard: Any) -> None:
    """What a guard has nothing to learn from leaves it the very same object."""
    own = guard.start()
    for event in (
        ToolReturned(at=1, call="c99"),
        RunForked(at=1, run="r2", rules=1, parent="r", parent_seq=1, parent_hash=""),
    ):
        assert own == guard.observe(own, event)
    assert own is guard.observe(own, ToolReturned(at=1, call="c99"))


SHELL_MARKS = [
    "command not found",
    "not found",
    "No such file or directory",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
]
FAILURE_MARKS = ["FAIL:", "Error", "error:", "Traceback", "AssertionError", "FAILED", "Exit code:"]
STALL = {
    "stop": False,
    "pollers": [],
    "progress_tools": [],
    "tolerant_tools": [],
    "exact_failure": [2, 5],
    "same_tool": [3, 8],
    "no_progress": [2, 5],
    "identical": [3, 5],
    "cycle": 3,
    "stub": 512,
    "scope": "turn",
}


@pytest.mark.parametrize(
    ("kind", "given", "left_out"),
    [
        ("repetition", {}, {"repeats": 3, "clip": 200, "scope": "lineage"}),
        ("loop", {"window": 2}, {}),
        ("errors", {"rounds": 1}, {}),
        ("stall", {}, STALL),
        ("tool_cap", {"tools": ["a"], "max": None}, {"scope": "turn"}),
        ("read_only", {}, {"batches": 8, "tools": [], "scope": "lineage"}),
        (
            "pivot",
            {},
            {"tool": "bash", "to": "acp_terminal", "failures": 2, "marks": SHELL_MARKS, "scope": "lineage"},
        ),
        ("keywords", {"words": ["a"]}, {"case": "ignore", "when": "response"}),
        ("stop_on_tool", {"tools": ["a"]}, {"when": "after_tools"}),
        ("handoff", {}, {"prefixes": ["transfer_to_"]}),
        ("one_call", {}, {}),
        ("premature_end", {}, {"max": 2, "look_back": 10, "marks": FAILURE_MARKS, "scope": "run"}),
    ],
)
def test_what_is_left_out(kind: str, given: dict[str, Any], left_out: dict[str, Any]) -> None:
    """What a configuration leaves out has the documented value."""
    guard = msgspec.convert({"guard": kind, **given}, {**BUILTIN, "premature_end": PrematureEnd}[kind])
    complete = msgspec.json.decode(msgspec.json.encode(guard))
    assert {"guard": kind, "name": "", **given, **left_out} == complete


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("repetition", {"repeats": 0, "clip": 1}),
        ("loop", {"window": 0}),
        ("errors", {"rounds": 1}),
        ("stall", {"cycle": 2, "stub": 1}),
        *[("stall", {part: [1, 1]}) for part in ("exact_failure", "same_tool", "no_progress", "identical")],
        ("tool_cap", {"tools": ["a"], "max": 0}),
        ("read_only", {"batches": 1}),
        ("pivot", {"failures": 1, "marks": ["a"]}),
        ("keywords", {"words": ["a"]}),
        ("stop_on_tool", {"tools": ["a"]}),
        ("handoff", {"prefixes": ["a"]}),
        ("premature_end", {"max": 0, "look_back": 1, "marks": ["a"]}),
    ],
)
def test_the_least_that_can_work(kind: str, least: dict[str, Any]) -> None:
    """The smallest number that can work is taken, one less is refused."""
    guard = {**BUILTIN, "premature_end": PrematureEnd}[kind]
    assert msgspec.convert({"guard": kind, **least}, guard)
    for key, value in least.items():
        for less in [value - 1] if isinstance(value, int) else [[0, 1], [0, 0]] if value == [1, 1] else []:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({"guard": kind, **least, key: less}, guard)


def test_which_guards_read_what_was_said() -> None:
    """Only those that need it ask for content: the others go on where it was erased."""
    assert {"repetition", "stall", "pivot", "keywords", "arguments", "premature_end"} == {
        guard.kind for guard in GUARDS if guard.reads_content
    }


@each_guard
def test_nothing_is_said_before_anything_was_seen(guard: Any) -> None:
    """A guard that remembers nothing says nothing, whatever is asked; but one that says which calls may run lets none by."""
    watching = Watching(guard)
    watching.answer("", LOOK, ACT)
    watching.own = guard.start()
    closed = getattr(guard, "guards_calls", False)
    assert guard.fresh is None or closed == any(map(watching.speaks, guard.places))


@each_guard
def test_it_is_a_value(guard: Any) -> None:
    """A configuration and what a guard remembers cannot be changed, and a field is only given by its name."""
    assert type(guard).__struct_config__.frozen
    assert getattr(type(guard.start()), "__struct_config__", type(guard).__struct_config__).frozen
    with pytest.raises(TypeError):
        type(guard)("a name")


def test_versions() -> None:
    """Each guard has the version that logs were recorded with: a new rule is a new version, on purpose."""
    assert {1} == {guard.version for guard in GUARDS}


def test_texts() -> None:
    """Every text that a guard brings is the harness's, or a refusal with its class; none stands elsewhere too."""
    brought: dict[str, str] = {}
    for guard in GUARDS:
        for key, text in getattr(guard, "texts", {}).items():
            assert key not in brought
            brought[key] = text
            start = "skipped: " if key.startswith("refused:") else "[harness] "
            assert text.startswith(start), key
    assert set(brought) >= {
        "read_only",
        "pivot",
        "premature_end",
        "refused:handoff",
        "refused:one_call",
    }


def test_a_policy_with_every_guard_is_canonical() -> None:
    """Each configuration is complete, has a name, and reads back equal."""
    policy = parse({"guards": [{"guard": kind, **config} for kind, config in CONFIGURED.items()]})
    assert list(CONFIGURED) == [guard["name"] for guard in policy.guards]
    assert policy == parse(msgspec.json.decode(msgspec.json.encode(policy)))


def test_a_run_with_every_guard_folds_again() -> None:
    """Decoding a log and folding it gives the same guards with the same memory."""
    scenario = run(*({"guard": kind, **config} for kind, config in CONFIGURED.items() if kind != "keywords"))
    scenario.answer("", LOOK, ACT)
    for call in ("c1", "c2"):
        if scenario.state.batch and any(
            each.id == call and each.dispatched for each in scenario.state.batch.calls
        ):
            scenario.result(call, "not found", error=ToolError.RAISED)
    log: list[Event] = [
        codec.decode(one.kind, one.body, one.content) for one in map(codec.encode, scenario.log)
    ]
    assert scenario.state == fold(log)


def test_a_stop_of_each_guard_can_be_carried_out() -> None:
    """Where a guard stops, its end is a way to end, and its words are known."""
    known = set(TEXTS).union(*(getattr(guard, "texts", {}) for guard in GUARDS))
    for guard in GUARDS:
        watching = Watching(guard)
        for _ in range(4):
            watching.round(LOOK, LOOK, text="zqx", error=ToolError.RAISED)
            for place in guard.places:
                assert all(said.text in known for said in watching.says(place) if isinstance(said, Stop))
