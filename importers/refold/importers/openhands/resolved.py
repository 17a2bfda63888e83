"""Histories of OpenHands' first resolver, in the shape of the events that V0 wrote later.

Until August 2024 a history was pairs of an action and its observation, an observation `null` where there was none; then, until
V0's own shape, events whose arguments stand beside their name instead of in `args`, and what was observed instead of in `extras`.
"""

from collections.abc import Iterator, Sequence

from refold.importers.fields import JSON, at, number, table, text

_AROUND = ("id", "timestamp", "source", "message", "cause", "action", "observation", "tool_call_metadata")
_INSIDE = {"action": "args", "observation": "extras"}


def is_resolved(row: JSON) -> bool:
    """Whether a row is of an issue that the resolver worked on."""
    return {"issue", "git_patch", "history"} <= table(row).keys()


def issue_of(row: JSON) -> str:
    """The issue that a row is of, as its forge names it: `owner/repository#number`; "" for none."""
    issue = table(row, "issue")
    owner, name = (text(issue, key) or text(issue, f"github_{key}") for key in ("owner", "repo"))
    return f"{owner}/{name}#{number(issue, 'number')}" if owner and name else ""


def events_of(history: Sequence[JSON], position: str) -> tuple[list[JSON], list[str]]:
    """The events of a history at `position`, in the shape of V0, and where each of them stands."""
    placed = list(_placed(history, position))
    return [_shaped(event) for event, _ in placed], [where for _, where in placed]


def _placed(history: Sequence[JSON], position: str) -> Iterator[tuple[JSON, str]]:
    for index, event in enumerate(history):
        where = f"{position}[{index}]"
        if isinstance(event, list):
            yield from ((each, f"{where}[{place}]") for place, each in enumerate(event))
        else:
            yield event, where


def _shaped(event: JSON) -> JSON:
    kind = next((kind for kind in _INSIDE if isinstance(at(event, kind), str)), "")
    if not kind or _INSIDE[kind] in table(event):
        return event
    outside = (*_AROUND, "content") if kind == "observation" else _AROUND
    kept = {name: value for name, value in table(event).items() if name in outside}
    return {**kept, _INSIDE[kind]: {name: value for name, value in table(event).items() if name not in kept}}
