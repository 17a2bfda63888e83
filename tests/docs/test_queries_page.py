"""The page of questions is what the code says: each field of events and states, and each type."""

import re
from pathlib import Path

from refold.replay.kinds.table import TYPES
from refold.replay.queries.rows import FIELDS, STATE_FIELDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "queries.md"


def table(title: str) -> list[str]:
    """The rows of a section's table that begin with a name."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {title}\n")[1]
    return [
        line
        for line in re.split(r"^##", section, flags=re.MULTILINE)[0].splitlines()
        if line.startswith("| `")
    ]


def test_every_field_of_an_event_is_described() -> None:
    """The page lists each field that a filter knows, with what it is, in order."""
    wanted = [f"| `{name}` | {field.kind} | {field.means} |" for name, field in FIELDS.items()]
    assert wanted == table("Fields of an event")


def test_every_type_is_described() -> None:
    """The page lists each type with its kinds."""
    kinds = {
        type_: [kind for kind in kinds if kind != "unknown_annotation"] for type_, kinds in TYPES.items()
    }
    wanted = [f"| `{type_}` | {', '.join(f'`{kind}`' for kind in each)} |" for type_, each in kinds.items()]
    assert wanted == table("Types")


def test_every_field_of_a_state_is_described() -> None:
    """The page lists each field of a state that a question knows, whether it never falls, and what it is."""
    wanted = list[str]()
    for name, field in STATE_FIELDS.items():
        rises = "yes " if field.rises else ""
        wanted.append(f"| `{name}` | {field.kind} | {rises}| {field.means} |")
    assert wanted == table("Fields of a state")
