"""The digest of a request binds all that the model was shown, and does not say what that was."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.engine.models.protocol import ModelRequest, sent_hash
from refold.reducers.messages import Message, MessageCall, ToolSchema
from refold.reducers.vocabulary import Role

messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    text=st.text(max_size=3),
    reasoning=st.text(max_size=2),
    calls=st.lists(st.builds(MessageCall, st.text(max_size=2), st.just("t"), st.just("{}")), max_size=2).map(
        tuple
    ),
    call=st.none() | st.text(max_size=2),
    name=st.none() | st.text(max_size=2),
    provider_data=st.text(max_size=2),
)
conversations = st.lists(messages, max_size=6).map(tuple)
requests = st.builds(
    ModelRequest,
    messages=conversations,
    tools=st.lists(
        st.builds(
            ToolSchema, name=st.text(max_size=2), description=st.text(max_size=2), schema=st.just("{}")
        ),
        max_size=2,
    ).map(tuple),
    settings=st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
    max_output=st.none() | st.integers(0, 9),
)


def digest(request: ModelRequest, model: str = "m", own: int = 0, salt: bytes = b"s") -> str:
    return sent_hash(request, model, own).digest(salt)


@given(requests, requests)
def test_requests_are_equal_where_their_digests_are(one: ModelRequest, other: ModelRequest) -> None:
    """Equal requests have equal digests under one salt, and other requests have others."""
    assert (one == other) == (digest(one) == digest(other))


CHANGES: list[tuple[str, Callable[[ModelRequest], ModelRequest]]] = [
    (
        "a tool",
        lambda each: replace(each, tools=(*each.tools, ToolSchema(name="x", description="", schema="{}"))),
    ),
    ("a setting", lambda each: replace(each, settings={**each.settings, "temperature": "1"})),
    ("the most output", lambda each: replace(each, max_output=10)),
    ("one message more", lambda each: replace(each, messages=(*each.messages, Message(role=Role.USER)))),
]


@pytest.mark.parametrize("change", [pytest.param(change, id=what) for what, change in CHANGES])
@given(request=requests)
def test_a_change_of_the_rest(change: Callable[[ModelRequest], ModelRequest], request: ModelRequest) -> None:
    """Another tool, setting, bound or message is another digest; so is another model, and another salt."""
    seen = {digest(request), digest(change(request)), digest(request, "n"), digest(request, salt=b"t")}
    assert 4 == len(seen)


@given(requests.filter(lambda each: bool(each.messages)), st.data())
def test_a_change_of_any_message(request: ModelRequest, data: st.DataObject) -> None:
    """Each field of each message counts, and so does the order of the messages, and which are of this request
    only.
    """
    place = data.draw(st.integers(0, len(request.messages) - 1))
    before = request.messages[place]
    edits: list[dict[str, Any]] = [
        {"role": next(each for each in Role if each is not before.role)},
        {"text": f"{before.text}."},
        {"reasoning": f"{before.reasoning}."},
        {"calls": (*before.calls, MessageCall("c", "t", "{}"))},
        {"call": f"{before.call}."},
        {"name": f"{before.name}."},
        {"provider_data": f"{before.provider_data}."},
    ]
    own = data.draw(st.integers(0, len(request.messages)))
    found = {digest(request, own=own)}
    for edit in edits:
        changed = (*request.messages[:place], replace(before, **edit), *request.messages[place + 1 :])
        found.add(digest(replace(request, messages=changed), own=own))
    assert 1 + len(edits) == len(found)
    assert len(request.messages) + 1 == len(
        {digest(request, own=n) for n in range(len(request.messages) + 1)}
    )
    turned = replace(request, messages=request.messages[::-1])
    assert (turned == request) == (digest(turned) == digest(request))
