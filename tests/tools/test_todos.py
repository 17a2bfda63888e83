"""The to-do list."""

import pytest

from refold.engine import BadArguments, CallContext, todos
from refold.reducers.vocabulary import Replay

pytestmark = pytest.mark.anyio

CALL = CallContext(run="r", call="c1", key="k1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param('{"items": []}', "The to-do list is empty.", id="empty"),
        pytest.param(
            '{"items": [{"text": "a"}, {"text": "b", "status": "in_progress"}, {"text": "c", "status": "done"}]}',
            "1 of 3 done\n1. [ ] a\n2. [>] b\n3. [x] c",
            id="each status",
        ),
        pytest.param(
            '{"items": [{"text": "a\\n2. [x] b"}]}', "0 of 1 done\n1. [ ] a 2. [x] b", id="one line an item"
        ),
    ],
)
async def test_the_result_is_the_whole_list(arguments: str, text: str) -> None:
    """The result shows every item of the call, and nothing of calls before."""
    (write_todos,) = todos()
    assert Replay.IDEMPOTENT == write_todos.manifest.replay
    assert [text, text] == [await write_todos.run(arguments, CALL), await write_todos.run(arguments, CALL)]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        pytest.param('{"items": [{"text": ""}]}', r"`\$\.items\[0\]\.text`", id="empty text"),
        pytest.param(
            '{"items": [{"text": "a", "status": "later"}]}', r"`\$\.items\[0\]\.status`", id="status"
        ),
        pytest.param('{"items": [{"text": "a", "due": 1}]}', "unknown field `due`", id="unknown"),
    ],
)
async def test_wrong_items_are_named(arguments: str, place: str) -> None:
    """An item that is none is refused by its place."""
    with pytest.raises(BadArguments, match=place):
        await todos()[0].run(arguments, CALL)
