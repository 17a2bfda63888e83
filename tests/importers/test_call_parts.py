"""A call in the shapes in which vendors and harnesses write one: its id, its tool and its arguments are read
from each.
"""

import json
from typing import Any

import pytest

from refold.importers.content import take_call

COMMAND = {"command": "rm -rf /"}


@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        pytest.param({"name": "bash", "arguments": json.dumps(COMMAND)}, COMMAND, id="text"),
        pytest.param({"name": "bash", "args": COMMAND}, COMMAND, id="args"),
        pytest.param({"name": "bash", "input": COMMAND}, COMMAND, id="input"),
        pytest.param({"name": "bash", "parameters": COMMAND}, COMMAND, id="parameters"),
        pytest.param({"name": "bash", "params": COMMAND}, COMMAND, id="params"),
        pytest.param(
            {"function": {"name": "bash", "arguments": json.dumps(COMMAND)}}, COMMAND, id="function"
        ),
        pytest.param({"functionCall": {"name": "bash", "parameters": COMMAND}}, COMMAND, id="function call"),
        pytest.param(
            {"type": "custom", "custom": {"name": "bash", "input": "rm -rf /"}},
            {"input": "rm -rf /"},
            id="custom: a text and no JSON",
        ),
    ],
)
def test_the_shapes_of_a_call(part: dict[str, Any], arguments: dict[str, str]) -> None:
    """The id, the tool and the arguments of a call are read, and nothing of the part is left."""
    left = {"id": "a", **part}
    call = take_call(left)
    assert ("a", "bash", arguments) == (call.id, call.name, json.loads(call.arguments))
    assert {} == left
