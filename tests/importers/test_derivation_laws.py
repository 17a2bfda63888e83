"""Laws of deriving: whatever the items, their log stands, and each of them is in it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.items import (
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
from refold.reducers.events import (
    Diagnosed,
    SourceRecorded,
)
from refold.reducers.messages import Message
from refold.reducers.vocabulary import FailureClass, Role
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
    system,
    user,
)

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
    st.just(Cancelled(position="stopped", reason="by hand")),
    st.builds(Remarked, position=st.just("m"), at=TIMES, what=st.sampled_from(["hook", "unmapped"])),
    st.builds(Unread, position=st.just("u"), code=st.just("odd"), problem=TEXTS),
)


@given(items=st.lists(ITEMS, max_size=25), messages=MESSAGES)
def test_any_items_make_a_log_that_stands(items: list[Item], messages: list[Message]) -> None:
    """Whatever a source says, in whatever order: the log audits clean, and each answer and failure is a fact
    of it.
    """
    deriving, written = derived([began(*messages), *items, END])
    assert audited(written).clean
    counts: dict[str, Any] = {"model_responded": Answered, "retry_scheduled": RequestFailed}
    for kind, item in counts.items():
        assert sum(isinstance(each, item) for each in items) == kinds(written).count(kind)
    assert "no_place" not in {problem.code for problem in deriving.problems}


@pytest.mark.parametrize("failure", FailureClass)
def test_a_run_continues_after_a_failure_of_any_class(failure: FailureClass) -> None:
    """A source may record further responses after any failed request, an exhausted quota too."""
    items = [RequestFailed(position="f", failure=failure), answered("later")]
    _, written = derived([began(user("go")), *items, END])
    assert ["model_failed", "model_responded"] == [
        k for k in kinds(written) if k.startswith("model_") and k != "model_requested"
    ]
    assert audited(written).clean


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
