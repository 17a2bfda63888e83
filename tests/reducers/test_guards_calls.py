"""Guards over the calls and words of one answer: keywords, stop_on_tool, tool_cap, handoff, one_call."""

from typing import Any

import msgspec
import pytest

from refold.reducers.guards import Place, Refuse, Stop
from refold.reducers.guards.calls import Handoff, OneCall, StopOnTool, ToolCap
from refold.reducers.guards.endings import Keywords
from refold.reducers.machine import Trigger
from refold.reducers.state import Watch
from refold.reducers.vocabulary import Refusal, ToolError
from support.scenario import TOOLS
from support.watching import Watching


def known(name: str) -> str:
    """How a decision names a tool: a name that no tool has is the model's own text, and stands in none."""
    return name if name in {tool.name for tool in TOOLS} else "a tool"


@pytest.mark.parametrize(
    ("case", "words", "text", "word"),
    [
        pytest.param("ignore", ("done",), "all DONE now", 1, id="any case"),
        pytest.param("exact", ("done",), "all DONE now", 0, id="exact is exact"),
        pytest.param("exact", ("DONE",), "all DONE now", 1, id="exact, and the same"),
        pytest.param("ignore", ("STRASSE",), "Hauptstraße", 1, id="case is folded, not only lowered"),
        pytest.param("ignore", ("finished", "done"), "done", 2, id="which of them"),
        pytest.param("ignore", ("o", "done"), "done", 1, id="the first of them"),
        pytest.param("ignore", ("done",), "undone", 1, id="inside a word"),
        pytest.param("ignore", ("done",), "don", 0, id="not all of it"),
        pytest.param("ignore", ("done",), "", 0, id="no text"),
    ],
)
def test_keywords(case: Any, words: tuple[str, ...], text: str, word: int) -> None:
    """A word that the text of an answer holds completes the run; it is named by its number."""
    watching = Watching(Keywords(words=words, case=case))
    watching.answer(text)
    assert word == sum(int(said.measured["word"]) for said in watching.says(Place.ON_RESPONSE))


def test_keywords_speaks_at_one_place() -> None:
    """`when` is where it speaks: on the response, or after its tools; at the other place it is silent."""
    for when, place in (("response", Place.ON_RESPONSE), ("after_tools", Place.AFTER_TOOLS)):
        guard = msgspec.convert({"guard": "keywords", "words": ["done"], "when": when}, Keywords)
        watching = Watching(guard)
        watching.round(("look", "{}"), text="done")
        assert {place} == {one for one in guard.places if watching.speaks(one)}
        watching.answer("not yet")
        assert not any(map(watching.speaks, guard.places))


def test_what_keywords_says() -> None:
    """It completes the run, and never repeats a word of the model's."""
    watching = Watching(Keywords(words=("done",)))
    watching.answer("done")
    assert [
        Stop(
            code="keyword",
            reason="the answer holds a word that ends the run",
            measured={"word": 1},
            trigger=Trigger.COMPLETE,
            text="refused:stopped",
        )
    ] == watching.says(Place.ON_RESPONSE)


def stopping(calls: str, when: Any = "after_tools", refused: str = "") -> Watching:
    """s: a call of `submit`, l: of `look`; refused are the ids of those that another guard refused before."""
    names = {"s": "submit", "l": "look"}
    watching = Watching(StopOnTool(tools=("submit",), when=when))
    ids = watching.answer("", *[(names[letter], "{}") for letter in calls])
    for call in ids:
        if call in refused.split():
            watching.refuse(call)
    return watching


@pytest.mark.parametrize(
    ("calls", "refused", "trips"),
    [
        pytest.param("s", "", True, id="such a call"),
        pytest.param("l", "", False, id="another"),
        pytest.param("ls", "", True, id="beside another"),
        pytest.param("", "", False, id="an answer without calls"),
        pytest.param("s", "c1", False, id="one that was refused was not run"),
        pytest.param("ss", "c1", True, id="the other one was"),
        pytest.param("sl", "c2", True, id="another's refusal does not matter"),
    ],
)
def test_stop_on_tool(calls: str, refused: str, trips: bool) -> None:
    """A batch with a call of the tool completes the run when it is done."""
    watching = stopping(calls, refused=refused)
    assert trips == watching.speaks(Place.AFTER_TOOLS)
    assert not watching.speaks(Place.ON_CALLS)


def test_a_failed_call_of_the_tool_stops_too() -> None:
    """A call that was run counts, however it ended; the next answer starts anew."""
    watching = Watching(StopOnTool(tools=("submit",)))
    watching.round(("submit", "{}"), error=ToolError.RAISED)
    assert watching.speaks(Place.AFTER_TOOLS)
    watching.answer("hm")
    assert not watching.speaks(Place.AFTER_TOOLS)


@pytest.mark.parametrize(
    ("calls", "refused", "refuses"),
    [
        pytest.param("s", "", [], id="nothing after it"),
        pytest.param("ls", "", [], id="what is before it runs"),
        pytest.param("lsll", "", ["c3", "c4"], id="what is after it does not"),
        pytest.param("ss", "", ["c2"], id="only the first runs"),
        pytest.param("ll", "", [], id="no such call"),
        pytest.param("lsls", "c2", [], id="one that is refused already does not stop"),
        pytest.param("lslsl", "c2", ["c5"], id="the first that is left does"),
        pytest.param("sll", "c2", ["c3"], id="what is refused already is not refused again"),
    ],
)
def test_stop_on_tool_now(calls: str, refused: str, refuses: list[str]) -> None:
    """With `now` the calls after the first such call are refused, and the run completes when the rest is
    done.
    """
    watching = stopping(calls, "now", refused)
    said = watching.says(Place.ON_CALLS)
    assert [Refuse(code="stop_tool", call=call, text="refused:stop_tool") for call in refuses] == said


def test_what_stop_on_tool_says() -> None:
    """It completes the run, with how many such calls there were."""
    (said,) = stopping("sls").says(Place.AFTER_TOOLS)
    assert isinstance(said, Stop)
    assert ("stop_tool", {"calls": 2}, Trigger.COMPLETE) == (said.code, said.measured, said.trigger)


@pytest.mark.parametrize(
    ("scope", "cap", "rounds", "trips"),
    [
        pytest.param("turn", 2, "w w", False, id="so many"),
        pytest.param("turn", 2, "w w w", True, id="one more"),
        pytest.param("turn", 2, "www", True, id="in one batch"),
        pytest.param("turn", 2, "wvw", True, id="the tools together"),
        pytest.param("turn", 2, "w w w l", False, id="only a batch with such a call is stopped"),
        pytest.param("turn", 2, "wl l w", False, id="others do not count"),
        pytest.param("turn", 0, "w", True, id="0 allows none"),
        pytest.param("turn", None, "www www", False, id="null is off"),
        pytest.param("turn", 1, "w say w", False, id="so many a turn"),
        pytest.param("turn", 1, "w say w w", True, id="and no more in the next one"),
        pytest.param("run", 1, "w say w", True, id="so many a run"),
        pytest.param("run", 1, "w fork w", False, id="a fork is another run"),
        pytest.param("lineage", 1, "w fork w", True, id="so many a lineage"),
    ],
)
def test_tool_cap(scope: Any, cap: int | None, rounds: str, trips: bool) -> None:
    """The call after so many of these tools in the scope stops the run before it."""
    watching = Watching(ToolCap(tools=("web", "view"), max=cap, scope=scope))
    names = {"w": "web", "v": "view", "l": "look"}
    for word in rounds.split():
        if word in ("say", "fork"):
            {"say": watching.say, "fork": watching.fork}[word]()
        else:
            watching.answer("", *[(names[letter], "{}") for letter in word])
    assert trips == watching.speaks(Place.ON_CALLS)


def test_what_tool_cap_says() -> None:
    """The stop has the code of a stall, the count and the cap; a batch that is refused already is left
    alone.
    """
    watching = Watching(ToolCap(tools=("web",), max=1))
    ids = watching.answer("", ("web", "{}"), ("web", "{}"))
    (said,) = watching.says(Place.ON_CALLS)
    assert isinstance(said, Stop)
    assert ("stalled", {"calls": 2, "allowed": 1}, "refused:tool_cap") == (
        said.code,
        said.measured,
        said.text,
    )
    for call in ids:
        watching.refuse(call)
    assert not watching.speaks(Place.ON_CALLS)


def skipped(watching: Watching) -> list[tuple[str, Any]]:
    said = watching.says(Place.ON_BATCH)
    assert all(isinstance(each, Refuse) and each.why is Refusal.SKIPPED for each in said)
    return [(each.call, each.metadata) for each in said if isinstance(each, Refuse)]


def handing(calls: str, refused: str = "", guard: Any = Handoff(), guards: Any = ()) -> Watching:  # noqa: B008
    watching = Watching(guard, guards=guards)
    ids = watching.answer("", *[(name, "{}") for name in calls.split()])
    for call in ids:
        if call in refused.split():
            watching.refuse(call)
    return watching


@pytest.mark.parametrize(
    ("calls", "refused", "chosen", "others"),
    [
        pytest.param("look act", "", "", [], id="no handoff, no effect"),
        pytest.param("transfer_to_a", "", "", [], id="a handoff alone"),
        pytest.param("transfer_to_a transfer_to_b look", "", "c1", ["c2", "c3"], id="the first goes on"),
        pytest.param("look transfer_to_a act", "", "c2", ["c1", "c3"], id="wherever it stands"),
        pytest.param("look Transfer_to_a", "", "", [], id="another case is another name"),
        pytest.param("look do_transfer_to_a", "", "", [], id="the name begins so"),
        pytest.param("transfer_to_a transfer_to_b look", "c1", "c2", ["c3"], id="one that is refused is out"),
    ],
)
def test_handoff(calls: str, refused: str, chosen: str, others: list[str]) -> None:
    """Only the first handoff of an answer goes on; its metadata names it, what is skipped, and why."""
    watching = handing(calls, refused)
    names = dict(zip(["c1", "c2", "c3"], calls.split(), strict=False))
    assert [
        (
            call,
            {
                "selected_handoff_id": chosen,
                "skipped_function": known(names[call]),
                "source": "policy/handoff_exclusive",
                "pending": False,
            },
        )
        for call in others
    ] == skipped(watching)


def test_handoff_by_other_prefixes() -> None:
    """Which names are handoffs is configured."""
    watching = handing("look ask_a give_b", guard=Handoff(prefixes=("give_", "ask_")))
    assert ["c1", "c3"] == [call for call, _ in skipped(watching)]


OTHER = Handoff(prefixes=("ask_",))


@pytest.mark.parametrize(
    ("calls", "refused", "guards", "chosen", "others"),
    [
        pytest.param("look", "", (), "", [], id="one call"),
        pytest.param("", "", (), "", [], id="no call"),
        pytest.param("look act set", "", (), "c1", ["c2", "c3"], id="the first goes on"),
        pytest.param("look act", "c1", (), "", [], id="one that is refused is out"),
        pytest.param("look act set", "c1", (), "c2", ["c3"], id="the first that is left"),
        pytest.param("look transfer_to_a", "", (), "", [], id="a batch with a handoff is left alone"),
        pytest.param("look ask_a", "", (OTHER,), "", [], id="a handoff by the prefixes on duty"),
        pytest.param("look transfer_to_a", "", (OTHER,), "c1", ["c2"], id="and only by those"),
    ],
)
def test_one_call(calls: str, refused: str, guards: Any, chosen: str, others: list[str]) -> None:
    """Of more than one call only the first goes on, unless there is a handoff."""
    duty = tuple(Watch(name="handoff", kind="handoff", guard=guard) for guard in guards)
    names = dict(zip(["c1", "c2", "c3"], calls.split(), strict=False))
    assert [
        (
            call,
            {
                "selected_call_id": chosen,
                "skipped_function": known(names[call]),
                "source": "policy/one_call",
                "pending": False,
            },
        )
        for call in others
    ] == skipped(handing(calls, refused, OneCall(), duty))


def test_what_is_skipped_says_so() -> None:
    """A skip has the code and the text of its guard."""
    (first,) = handing("look transfer_to_a").says(Place.ON_BATCH)
    (second,) = handing("look act", guard=OneCall()).says(Place.ON_BATCH)
    assert [("skipped", "refused:handoff"), ("skipped", "refused:one_call")] == [
        (said.code, said.text) for said in (first, second) if isinstance(said, Refuse)
    ]


@pytest.mark.parametrize(
    ("guard", "config"),
    [
        pytest.param(Keywords, {}, id="keywords needs words"),
        pytest.param(Keywords, {"words": []}, id="at least one"),
        pytest.param(Keywords, {"words": ["done", ""]}, id="no empty word"),
        pytest.param(Keywords, {"words": ["done"], "case": "upper"}, id="no other case"),
        pytest.param(StopOnTool, {"tools": []}, id="at least one tool"),
        pytest.param(StopOnTool, {"tools": ["a"], "when": "later"}, id="no other time"),
        pytest.param(ToolCap, {"tools": ["a"]}, id="tool_cap needs a number"),
        pytest.param(ToolCap, {"tools": ["a"], "max": -1}, id="not below 0"),
        pytest.param(ToolCap, {"tools": [], "max": 1}, id="at least one capped tool"),
        pytest.param(Handoff, {"prefixes": [""]}, id="no empty prefix"),
        pytest.param(Handoff, {"prefixes": []}, id="at least one prefix"),
    ],
)
def test_configurations_that_cannot_work(guard: type[Any], config: dict[str, Any]) -> None:
    """A value that cannot work is refused when a policy is read."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"guard": guard.kind, **config}, guard)
