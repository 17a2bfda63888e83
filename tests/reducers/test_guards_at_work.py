"""Guards in whole runs, one after the other."""

from typing import Any

from refold.reducers.events import Manifest, MessageTrimmed
from refold.reducers.views import view
from refold.reducers.vocabulary import Role, ToolError
from support.scenario import TOOLS, Scenario
from support.transcript import check

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
        guard_tripped guard=keywords verdict=stop code=keyword measured={word:1}
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
        guard_tripped guard=stop_on_tool verdict=stop code=stop_tool measured={calls:1}
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
        "guard_tripped guard=errors verdict=stop code=consecutive_errors measured={allowed:1 batches:1}",
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
        "guard_tripped guard=tool_cap verdict=stop code=stalled measured={allowed:1 calls:2}",
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
        "guard_tripped guard=reads verdict=inject code=read_only measured={count:1}",
        "message_injected role=user text=read_only cause=guard name=reads",
    ] == told(scenario.result("c1"))
    scenario.answer("", LOOK, ("bash", "{}"))
    scenario.result("c2")
    assert [
        "guard_tripped guard=pivot verdict=inject code=pivot measured={allowed:1 batches:1}",
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
        "guard_tripped guard=stall verdict=stop code=stalled measured={count:1 part:exact_failure tool:look}",
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
            f"guard_tripped guard=premature_end verdict=inject code=premature_end measured={{before:{before} failures:1}}",
            "message_injected role=user text=premature_end cause=guard name=premature_end",
        ] == told(scenario.answer(""))
    assert "state_changed from=RUNNING to=COMPLETED trigger=complete code=empty" == scenario.answer("")[-1]
