"""A to-do list that lives in the conversation.

Each call writes the whole list and its result shows the whole list, so the log holds every state it ever had and
nothing is kept anywhere else: a fork, a resume or a replay has the list that the model sees.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class Todo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do."""

    text: Annotated[str, Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "done"] = "pending"


def todos() -> list[Tool]:
    """The tool `write_todos`."""
    return [write_todos]


@tool(replay="idempotent")
def write_todos(items: Annotated[list[Todo], Meta(max_length=100)]) -> str:
    """Write the to-do list. Give the whole list each time: it replaces the one before.

    Args:
        items: all things to do, in order, those that are done too
    """
    if not items:
        return "The to-do list is empty."
    done = sum(item.status == "done" for item in items)
    # One line an item, whatever is in its text.
    lines = [
        f"{number}. {_MARKS[item.status]} {' '.join(item.text.split())}"
        for number, item in enumerate(items, 1)
    ]
    return "\n".join([f"{done} of {len(items)} done", *lines])
