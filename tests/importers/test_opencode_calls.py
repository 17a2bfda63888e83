"""Calls in OpenCode's exports that failed, were refused, or were not the ones that the model asked for."""

import pytest

from refold.importers.items import (
    Answered,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
)
from refold.reducers.events import ModelRequested
from refold.reducers.folds import fold
from refold.reducers.views import view
from refold.reducers.vocabulary import FailureClass, Refuser, ToolError
from support.opencode import GO, HI, answer, read, text, tool, user
from support.sessions import Json, only
from support.told import audited, derived, events


@pytest.mark.parametrize(
    ("metadata", "error", "marked"),
    [
        pytest.param({"exit": 0}, None, True, id="0"),
        pytest.param({"exit": 3}, ToolError.RAISED, True, id="another code"),
        pytest.param({"exit": None}, None, False, id="no code"),
        pytest.param({}, None, True, id="no command"),
    ],
)
def test_a_command_has_its_own_code(metadata: Json, error: ToolError | None, marked: bool) -> None:
    """A command that failed has the status `completed`: its exit code stands beside it."""
    found = only(Returned, read(GO, answer("a", tool("t", metadata=metadata))))
    assert (error, marked) == (found.error, found.marked)


def invalid(call: str, name: str, problem: str) -> Json:
    """A part with the call that OpenCode made instead."""
    output = f"The arguments provided to the tool are invalid: {problem}"
    return tool(call, input={"tool": name, "error": problem}, output=output) | {"tool": "invalid"}


GONE = "Model tried to call unavailable tool 'rm'. Available tools: bash."
BROKEN = 'Invalid input for tool bash: JSON parsing failed: Text: {"command": '


@pytest.mark.parametrize(
    ("name", "problem", "error"),
    [("rm", GONE, ToolError.UNKNOWN_TOOL), ("bash", BROKEN, ToolError.BAD_ARGUMENTS)],
)
def test_the_tool_that_the_model_called(name: str, problem: str, error: ToolError) -> None:
    """A call of `invalid` is a call of what the model named, which failed; later requests show what was
    sent.
    """
    items = read(
        GO,
        answer("a", text("hm"), invalid("t", name, problem), tool("s")),
        HI | {"info": HI["info"] | {"id": "b"}},
    )
    assert [(name, error), ("bash", None)] == [
        (item.name, item.error) for item in items if isinstance(item, Returned)
    ]
    assert [[name, "bash"], []] == [
        [call.name for call in item.calls] for item in items if isinstance(item, Answered)
    ]
    deriving, log = derived(items)
    assert [] == deriving.problems
    asked = [each.seq for each in log if isinstance(each.event, ModelRequested)]
    read_again = events(log)[: asked[-1]]
    messages = view(fold(read_again), dict(enumerate(read_again, start=1)))
    assert ["invalid", "bash"] == [call.name for message in messages for call in message.calls]
    assert audited(log).clean


def test_no_response_at_all() -> None:
    """An answer that is over and holds nothing is a failed request, and no end that anybody knows."""
    empty = answer("a", finish=None)
    items = read(GO, empty)
    assert FailureClass.OTHER is only(RequestFailed, items).failure
    assert "unknown" == only(RunEnded, items).end
    overflow = user("v", {"type": "compaction", "auto": True, "overflow": True})
    assert FailureClass.CONTEXT_OVERFLOW is only(RequestFailed, read(GO, empty, overflow)).failure
    going_on = answer("a", finish=None)
    del going_on["info"]["time"]["completed"]
    assert "open" == only(RunEnded, read(GO, going_on)).end


def test_a_sub_agents_session() -> None:
    """It names the session that began it, whose call names it: so they are found to belong together."""
    began = read(GO, HI, parentID="ses_0")[0]
    assert isinstance(began, RunBegan)
    assert "ses_0" == began.labels["source.parent"]
    part = tool("t", metadata={"sessionId": "ses_7"}) | {"tool": "task"}
    assert "ses_7" == only(Returned, read(GO, answer("a", part))).began


@pytest.mark.parametrize(
    ("name", "error", "by"),
    [
        ("bash", "The user rejected permission to use this specific tool call.", Refuser.USER),
        ("edit", "The user has specified a rule which prevents you from using this specific tool call. […]", Refuser.RULE),
        ("some_mcp_tool", "The user rejected permission to use this specific tool call.", None),
        ("bash", "the words of a plugin", None),
    ],
)  # fmt: skip
def test_a_refused_call(name: str, error: str, by: Refuser | None) -> None:
    """OpenCode's own words say that a tool of its own never ran; what another tool says of itself it may make
    up.
    """
    part = tool("t", "error", error=error) | {"tool": name}
    found = only(Returned, read(GO, answer("a", part)))
    assert (by, None if by else ToolError.RAISED) == (found.refused_by, found.error)
