"""What a conversion of another agent's permission rules returns, and what the conversions share."""

import json
import re
from typing import Any, cast

import msgspec

from refold.reducers.errors import PolicyError, shown
from refold.reducers.permissions.rules import Effect, Order, PermissionRule


class Note(msgspec.Struct, frozen=True):
    """What should be known about a rule, or about a setting: where it is, and what to know."""

    place: str
    problem: str


class Converted(msgspec.Struct, frozen=True):
    """The rules of an agent's files in the order in which they apply, and notes.

    `otherwise` is the effect where no rule applies; None: a mode of the agent decides, which the files do
    not have.
    """

    rules: tuple[PermissionRule, ...] = ()
    notes: tuple[Note, ...] = ()
    order: Order = "strictest"
    otherwise: Effect | None = None


_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


def read_object(name: str, text: str, agent: str, *, comments: bool = False) -> dict[str, Any]:
    """Return the JSON object in a settings file. `comments`: the agent reads JSON with comments.

    Raises `PolicyError` with the file as its path.
    """
    if comments:
        text = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
        text = _TRAILING_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
    try:
        data: Any = json.loads(text)
    except RecursionError:
        raise PolicyError(name, f"is nested too deeply to be settings of {agent}") from None
    except ValueError as error:
        hint = (
            "" if comments or not ("//" in text or "/*" in text) else f"; {agent} reads JSON without comments"
        )
        raise PolicyError(name, f"is not valid JSON: {error}{hint}") from error
    if not isinstance(data, dict):
        raise PolicyError(name, f"expected a JSON object, got {shown(data)}")
    return cast("dict[str, Any]", data)


def name_rule(text: str, where: str) -> str:
    """Return how messages name a rule: as its author wrote it, in one short line, and where it is."""
    line = " ".join(text.split())
    return f"{line if len(line) <= _MAX_NAME else f'{line[:_MAX_NAME]}…'} ({where})"


_MAX_NAME = 100


def find_line(text: str, words: str, after: str = "") -> int | None:
    """Return the number of the first line with these words, after the first with `after`; None for none."""
    lines = text.split("\n")
    first = next((place for place, line in enumerate(lines) if after in line), 0)
    return next((first + place + 1 for place, line in enumerate(lines[first:]) if words in line), None)
