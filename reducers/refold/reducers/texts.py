"""What the harness says to the model, in our own words, in one place.

A policy may override any of these by its key; the whole table is recorded with the run, so that an old
log never depends on today's wording. Placeholders are filled by `render`; values come from decisions, and
no text of a model, a tool or a person is ever one of them.
"""

from collections.abc import Mapping
from types import MappingProxyType

TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "continue": (
            "[harness] You did not call a tool, and the task is not over yet. "
            "Go on with it by calling a tool."
        ),
        "refused:repetition": "skipped: the same calls were repeated too often, so this call was not run.",
        "refused:limit": "skipped: the run reached one of its limits, so this call was not run.",
        "refused:stopped": "skipped: the run was stopped, so this call was not run.",
        "refused:guard": "skipped: a rule of this run does not allow this call, so it was not run.",
        "unknown_tool": "unknown_tool: there is no tool {tool}. The tools are: {tools}.",
        "bad_arguments": "bad_arguments: {problem}",
        "raised": "raised: {problem}",
        "timeout": "timeout: the tool did not finish in time. It may have done part of its work.",
        "cancelled": "cancelled: the call was cut off before it finished.",
        "in_doubt": (
            "in_doubt: the call was started, but nobody saw how it ended. It may or may not have had its "
            "effect. Check before you repeat it."
        ),
        "output_cut": (
            "\n[harness: the middle of this output of {tool} was cut here; it was {size} bytes in all]\n"
        ),
    }
)


def render(template: str, values: Mapping[str, str | int]) -> str:
    """Fill `{name}` placeholders. A brace that is no known placeholder stays as it is; values are not scanned again."""
    pieces: list[str] = []
    rest = template
    while rest:
        start = rest.find("{")
        end = rest.find("}", start)
        if start < 0 or end < 0:
            break
        name = rest[start + 1 : end]
        if name in values:
            pieces += [rest[:start], str(values[name])]
            rest = rest[end + 1 :]
        else:
            pieces.append(rest[: start + 1])
            rest = rest[start + 1 :]
    return "".join(pieces) + rest
