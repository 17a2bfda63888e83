"""Guards at work: what each verdict does, and what becomes of a guard that cannot do its work."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import pytest

from refold.reducers.codec import decode, encode
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import Event, ModelResponded, ToolReturned
from refold.reducers.folds import fold
from refold.reducers.guards import BUILTIN, Inject, Judgement, Place, Refuse, Registry, Stop, Warn
from refold.reducers.guards.duty import FAILED, NO_CONTENT, NOT_INSTALLED, OTHER_CONFIGURATION, watches
from refold.reducers.machine import Trigger
from refold.reducers.parser import parse
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Refusal
from support.scenario import Scenario


class Scripted(msgspec.Struct, frozen=True, kw_only=True, tag_field="guard", tag="scripted"):
    """Says one thing at one place, as configured; counts the answers and results that it sees."""

    name: str = ""
    says: str = "warn"
    place: str = "on_batch"
    call: str = "c1"

    kind: ClassVar[str] = "scripted"
    version: ClassVar[int] = 3
    places: ClassVar[frozenset[Place]] = frozenset(Place)
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, ToolReturned})
    reads_content: ClassVar[bool] = False

    def start(self) -> int:
        return 0

    def observe(self, own: int, event: Event) -> int:
        if self.says == "break in observe":
            raise RuntimeError("our own bug")
        return own + 1

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:
        if place != self.place:
            return ()
        match self.says:
            case "warn":
                return [Warn(code="w", measured={"own": own})]
            case "inject":
                return [Inject(code="i", text="continue")]
            case "refuse":
                return [Refuse(code="r", call=self.call, why=Refusal.REJECTED, metadata={"who": "me"})]
            case "stop":
                return [Stop(code="s", reason="enough", trigger=Trigger.FAIL)]
            case "refuse what is left":
                calls = state.batch.calls if state.batch else ()
                return [Refuse(code="r", call=call.id) for call in calls if call.result is None]
            case "unknown words":
                return [Inject(code="i", text="no such text")]
            case "impossible end":
                return [Stop(code="s", reason="enough", trigger=Trigger.ANSWERED)]
            case "complete":
                return [Stop(code="done", reason="that was it", trigger=Trigger.COMPLETE)]
            case _:
                raise RuntimeError("our own bug")


class Reader(Scripted, frozen=True, kw_only=True, tag_field="guard", tag="reader"):
    """The same, but it needs what was said."""

    kind: ClassVar[str] = "reader"
    reads_content: ClassVar[bool] = True


REGISTRY: Registry = {**BUILTIN, "scripted": Scripted, "reader": Reader}
FAILS = "state_changed from=RUNNING to=ERROR trigger=fail code=guard_failed"


def run(*guards: dict[str, Any], **policy: Any) -> Scenario:
    configured = [{"guard": "scripted", **guard} for guard in guards]
    return Scenario({"guards": configured, **policy}, registry=REGISTRY)


def test_warn_is_for_people() -> None:
    """A warning is recorded with what was seen, and changes nothing else."""
    assert [
        "guard_tripped guard=scripted verdict=warn code=w measured={own:1}",
        "tools_dispatched calls=[c1]",
        "state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use",
    ] == run({"says": "warn"}).answer("", ("look", "{}"))


def test_inject_says_something_to_the_model() -> None:
    """An injection is recorded as tripped, and as a message that the next request shows."""
    scenario = run({"says": "inject", "place": "on_results"})
    scenario.answer("", ("look", "{}"))
    assert [
        "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done",
        "guard_tripped guard=scripted verdict=inject code=i",
        "message_injected role=user text=continue cause=guard name=scripted",
        "model_requested step=2 attempt=1 messages=[[1 5]]",
    ] == scenario.result("c1")


def test_refuse_gives_the_call_its_result() -> None:
    """A refused call does not run; the others of its batch do."""
    assert [
        "call_refused call=c1 why=rejected cause=guard name=scripted text=refused:guard code=r metadata={who:me}",
        "tools_dispatched calls=[c2]",
        "state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use",
    ] == run({"says": "refuse"}).answer("", ("look", "{}"), ("look", "{}"))


def test_a_batch_of_which_every_call_is_refused_is_complete() -> None:
    """With nothing left to run the machine stays RUNNING, and the model is asked again."""
    assert [
        "call_refused call=c1 why=rejected cause=guard name=scripted text=refused:guard code=r metadata={who:me}",
        "model_requested step=2 attempt=1 messages=[[1 4]]",
    ] == run({"says": "refuse"}).answer("", ("look", "{}"))


def test_two_guards_that_refuse_the_same_call() -> None:
    """The first refusal is the call's result; a second is no crash and no second result."""
    lines = run({"says": "refuse", "name": "a"}, {"says": "refuse", "name": "b"}).answer("", ("look", "{}"))
    assert ["a"] == [line.split("name=")[1].split()[0] for line in lines if line.startswith("call_refused")]


def test_each_guard_judges_what_the_guards_before_it_left() -> None:
    """A guard that refuses what is left refuses nothing that a guard before it has refused."""
    lines = run({"says": "refuse", "name": "a"}, {"says": "refuse what is left", "name": "b"}).answer(
        "", ("look", "{}"), ("look", "{}")
    )
    refused = [line.split()[1:5] for line in lines if line.startswith("call_refused")]
    assert [
        ["call=c1", "why=rejected", "cause=guard", "name=a"],
        ["call=c2", "why=skipped", "cause=guard", "name=b"],
    ] == refused


@pytest.mark.parametrize("says", ["unknown words", "impossible end"])
def test_a_guard_that_says_the_impossible_has_failed(says: str) -> None:
    """Words that no policy has, or an end that the machine lacks, end the run as a guard's own failure."""
    assert FAILS in run({"says": says}).answer("", ("look", "{}"))


def test_the_first_guard_that_stops_wins() -> None:
    """What does not stop accumulates; after a stop no other guard speaks."""
    lines = run(
        {"says": "warn", "name": "a"}, {"says": "stop", "name": "b"}, {"says": "warn", "name": "c"}
    ).answer("", ("look", "{}"))
    assert [
        "guard_tripped guard=a verdict=warn code=w measured={own:1}",
        "guard_tripped guard=b verdict=stop code=s",
        "call_refused call=c1 why=skipped cause=guard name=b text=refused:guard",
        "state_changed from=RUNNING to=ERROR trigger=fail code=s",
    ] == lines


@pytest.mark.parametrize(
    ("place", "after"),
    [
        pytest.param("before_request", "start", id="before a request"),
        pytest.param("on_response", "answer", id="on a response"),
        pytest.param("on_repetition", "answer", id="on repetition"),
        pytest.param("on_calls", "answer", id="on calls"),
        pytest.param("on_batch", "answer", id="on the batch"),
        pytest.param("on_results", "result", id="on results"),
        pytest.param("after_tools", "result", id="after the tools"),
        pytest.param("on_nudge", "result", id="on a nudge"),
    ],
)
def test_every_place_is_asked(place: str, after: str) -> None:
    """A guard speaks at the place that it names, and the run ends there."""
    scenario = run({"says": "stop", "place": place})
    if after != "start":
        assert not scenario.state.ended
        scenario.answer("", ("look", "{}"))
    if after == "result":
        assert not scenario.state.ended
        scenario.result("c1")
    assert "ERROR" == scenario.state.agent_state


@pytest.mark.parametrize("says", ["break in judge", "break in observe"])
def test_a_guard_that_fails_stops_the_run(says: str) -> None:
    """Nobody knows what a broken guard would have said: the run ends, and names it."""
    scenario = run({"says": says})
    lines = scenario.answer("", ("look", "{}"))
    assert [
        "guard_tripped guard=scripted verdict=stop code=guard_failed",
        "call_refused call=c1 why=skipped cause=guard name=scripted text=refused:guard",
        FAILS,
    ] == lines
    assert scenario.state.outcome is not None
    assert "the guard 'scripted' itself failed" == scenario.state.outcome.reason
    assert (FAILED if "observe" in says else "") == scenario.state.guards[0].blind


def test_a_guard_that_is_not_installed_is_blind_and_the_rest_goes_on() -> None:
    """What an absent guard would have said is unknown; everything else is decided as ever."""
    scenario = Scenario({"guards": [{"guard": "absent", "x": 1}, {"guard": "repetition", "repeats": 0}]})
    assert [NOT_INSTALLED, ""] == [watch.blind for watch in scenario.state.guards]
    scenario.answer("", ("look", "{}"))
    assert scenario.state.outcome is not None
    assert "repetition" == scenario.state.outcome.code


@pytest.mark.parametrize(
    ("guard", "blind"),
    [
        pytest.param("reader", NO_CONTENT, id="one that reads content"),
        pytest.param("scripted", "", id="one that does not"),
    ],
)
def test_a_guard_that_lacks_content_is_blind(guard: str, blind: str) -> None:
    """Where content was erased or not read, only the guards that need it are blind."""
    scenario = run({"guard": guard, "place": "nowhere"})
    scenario.answer("words")
    bare = [decode(one.kind, one.body) for one in map(encode, scenario.log)]
    assert [blind] == [watch.blind for watch in fold(bare, registry=REGISTRY).guards]
    assert [""] == [watch.blind for watch in fold(scenario.log, registry=REGISTRY).guards]


def test_a_guards_decisions_name_its_version() -> None:
    """Which version of a guard spoke is in each of its decisions."""
    scenario = run({"says": "stop"})
    scenario.answer("", ("look", "{}"))
    assert [3, 3] == [event.version for event in scenario.log[3:5]]  # type: ignore[attr-defined]


def test_a_summary_that_nothing_asked_for() -> None:
    """No rule of this version asks for summaries or approvals: their events are refused, not ignored."""
    from refold.reducers.events import ApprovalRequested, SummaryRequested, SummaryReturned

    scenario = Scenario()
    for event in (
        SummaryRequested(name="s", messages=()),
        SummaryReturned(at=scenario.at, request=1),
        ApprovalRequested(guard="approvals", calls=(), approver="x"),
    ):
        with pytest.raises(UnexpectedEvent):
            fold([event], scenario.state)


def test_what_a_refusal_saw_is_recorded() -> None:
    """A refusal is one event: why, by what it judged, and the guard's own metadata, numbers and booleans
    too.
    """

    class Counting(Scripted, frozen=True, kw_only=True, tag_field="guard", tag="counting"):
        def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:
            if place == Place.ON_BATCH:
                yield Refuse(
                    code="quota", measured={"calls": own}, call="c1", metadata={"pending": False, "of": 3}
                )

    scenario = Scenario({"guards": [{"guard": "counting"}]}, registry={"counting": Counting})
    lines = scenario.answer("", ("look", "{}"))
    assert (
        "call_refused call=c1 why=skipped cause=guard name=counting text=refused:guard code=quota measured={calls:1} "
        "metadata={of:3 pending:False}" == lines[0]
    )


def test_a_guard_after_the_tools_is_asked_without_tools_too() -> None:
    """An answer without calls passes the place after the tools: a guard that ends the run there ends it."""
    scenario = run({"says": "complete", "place": "after_tools"}, end_of_turn="continue")
    assert "state_changed from=RUNNING to=COMPLETED trigger=complete code=done" == scenario.answer("hm")[-1]


def test_nothing_is_injected_once_the_step_limit_is_reached() -> None:
    """What no request follows is not said: the guard's word is recorded, its message is not made."""
    scenario = run({"says": "inject", "place": "on_results"}, limits=[{"type": "step", "value": 1}])
    scenario.answer("", ("look", "{}"))
    lines = [line.split()[0] for line in scenario.result("c1")]
    assert ["state_changed", "guard_tripped", "limit_reached", "state_changed"] == lines


@pytest.mark.parametrize(
    ("config", "versions", "blind"),
    [
        pytest.param({}, {"scripted": 3}, "", id="the recorded version"),
        pytest.param({}, {}, "", id="a log that names no version"),
        pytest.param(
            {}, {"scripted": 2}, "installed in version 3, recorded with version 2", id="another version"
        ),
        pytest.param({"place": 7}, {"scripted": 3}, OTHER_CONFIGURATION, id="another configuration"),
    ],
)
def test_a_guard_of_another_version_is_blind(
    config: dict[str, Any], versions: dict[str, int], blind: str
) -> None:
    """A guard that is not the recorded one is named and asked nothing: it would say other things."""
    policy = msgspec.structs.replace(parse({}), guards=({"guard": "scripted", "name": "scripted", **config},))
    (watch,) = watches(policy, REGISTRY, versions=versions)
    assert blind == watch.blind


def test_a_guard_may_bring_words_of_its_own() -> None:
    """A guard's own text is said, recorded with the policy, and may be overridden like any other."""

    class Poet(Scripted, frozen=True, kw_only=True, tag_field="guard", tag="poet"):
        texts: ClassVar[dict[str, str]] = {"poet:no": "alas, no"}

        def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:
            if place == Place.ON_BATCH:
                yield Refuse(code="r", call="c1", text="poet:no")

    registry: Registry = {"poet": Poet}
    plain = {"guards": [{"guard": "poet"}]}
    assert "alas, no" == parse(plain, registry).texts["poet:no"]
    assert "no." == parse({**plain, "texts": {"poet:no": "no."}}, registry).texts["poet:no"]
    scenario = Scenario(plain, registry=registry)
    assert (
        "call_refused call=c1 why=skipped cause=guard name=poet text=poet:no code=r"
        == scenario.answer("", ("look", "{}"))[0]
    )
